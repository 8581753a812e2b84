"""Rounds of given encoders in lock-step, with their notes; merged words may be damaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.codec import Codec, Decoded, Encoder, advance
from netfold.homomorphic.fold import check_lock_step
from netfold.homomorphic.merge import merge_all
from netfold.homomorphic.message import Gradient, Merged, Message
from netfold.homomorphic.round import Note, NoteKind, Round

Damage = Callable[[int, Message, np.ndarray], None]  # number of the operation, a message, its merged words


class Played(NamedTuple):
    decoded: Gradient  # the same at every worker
    operations: list[list[tuple[Message, ...]]]  # by operation and worker
    notes: list[Note]  # the same at every worker

    @property
    def labels(self) -> list[list[str]]:
        return [[message.label for message in messages[0]] for messages in self.operations]

    @property
    def announced_bytes(self) -> int:
        return sum(message.size_bytes for messages in self.operations for message in messages[0])

    def notes_of(self, kind: NoteKind) -> list[Note]:
        return [note for note in self.notes if note.kind is kind]


def encoders_of(codec: Codec, workers: int) -> list[Encoder]:
    return [codec.worker(rank, workers, 0) for rank in range(workers)]


def play(
    encoders: Sequence[Encoder],
    gradients: Sequence[Gradient],
    step: int = 0,
    bucket: int = 0,
    damage: Damage = lambda number, message, words: None,
) -> Played:
    """One round; `damage` changes merged words on their way back."""
    workers = len(gradients)
    notes: list[list[Note]] = [[] for _ in gradients]
    exchanges = [
        encoder.exchange(gradient, Round(step, bucket, workers, 7, report=own.append))
        for encoder, gradient, own in zip(encoders, gradients, notes, strict=True)
    ]
    operations: list[list[tuple[Message, ...]]] = []
    decoded: list[Gradient] = []
    answers: tuple[Merged, ...] | None = None
    while not decoded:
        found = [advance(exchange, answers) for exchange in exchanges]
        check_lock_step(found)
        sent = [one for one in found if isinstance(one, tuple)]
        decoded = [one.total for one in found if isinstance(one, Decoded)]
        if sent:
            merged = []
            for part in zip(*sent, strict=True):
                words = merge_all(part[0].merge, [message.words for message in part])
                damage(len(operations), part[0], words)
                merged.append(Merged(words, workers))
            operations.append(sent)
            answers = tuple(merged)
    for other, own in zip(decoded, notes, strict=True):
        assert decoded[0].tobytes() == other.tobytes()
        assert list(map(_content, notes[0])) == list(map(_content, own))
    return Played(decoded[0], operations, notes[0])


def _content(note: Note) -> tuple[object, ...]:
    elements = None if note.elements is None else note.elements.tolist()
    return note.kind, note.text, note.count, note.total, elements
