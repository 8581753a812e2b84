"""Indexes of several workers: gradients that have them, NumPy's own packing, the exchange in lock-step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.fold import check_lock_step
from netfold.homomorphic.index.membership import IndexKind, IndexMemory, Membership, exchange_index, own_index
from netfold.homomorphic.merge import merge_all
from netfold.homomorphic.message import Gradient, Merged, Message
from netfold.homomorphic.round import Round


def index_of(wanted: np.ndarray) -> np.ndarray:
    """64-bit words of an index, by NumPy's own packing."""
    padded = np.zeros(-(-wanted.size // 64) * 64, np.bool_)
    padded[: wanted.size] = wanted
    return np.packbits(padded, bitorder="little").view(np.uint64)


def is_named(index: np.ndarray, elements: int) -> np.ndarray:
    """Which elements an index names."""
    return np.unpackbits(index.view(np.uint8), bitorder="little")[:elements] != 0


class Exchanged(NamedTuple):
    memberships: list[Membership]
    operations: list[list[tuple[Message, ...]]]  # by operation and worker

    @property
    def labels(self) -> list[list[str]]:
        return [[message.label for message in messages[0]] for messages in self.operations]

    @property
    def index_messages(self) -> list[Message]:
        return [messages[0][0] for messages in self.operations]

    @property
    def index_bytes(self) -> int:
        return sum(message.size_bytes for message in self.index_messages)


def exchange(
    kind: IndexKind,
    gradients: Sequence[Gradient],
    memories: Sequence[IndexMemory] | None = None,
    step: int = 0,
    beside: Callable[[int], tuple[Message, ...]] = lambda rank: (),
    damage: Callable[[Message, np.ndarray], None] = lambda message, words: None,
) -> Exchanged:
    """All workers in lock-step; `damage` changes merged words on their way back."""
    workers = len(gradients)
    round = Round(step, 0, workers, 7)
    exchanges = [
        exchange_index(
            own_index(gradient),
            gradient.size,
            round,
            kind,
            beside(rank),
            memories[rank] if memories else IndexMemory(),
        )
        for rank, gradient in enumerate(gradients)
    ]
    result = Exchanged([], [])
    sent = [next(one) for one in exchanges]
    while sent:
        check_lock_step(sent)
        result.operations.append(sent)
        answers = []
        for part in zip(*sent, strict=True):
            words = merge_all(part[0].merge, [message.words for message in part])
            damage(part[0], words)
            answers.append(Merged(words, workers))
        sent = []
        for one in exchanges:
            try:
                sent.append(one.send(tuple(answers)))
            except StopIteration as stop:
                result.memberships.append(stop.value)
    return result
