"""Indexes of several workers: gradients that have them, NumPy's own packing, the exchange in lock-step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.codec import Decoded, Encoder, Exchange
from netfold.homomorphic.index.membership import IndexKind, IndexMemory, Membership, exchange_index, own_index
from netfold.homomorphic.message import Gradient, Message
from netfold.homomorphic.round import Round
from tests.homomorphic.played import play


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
    labels: list[list[str]]

    @property
    def index_messages(self) -> list[Message]:
        return [messages[0][0] for messages in self.operations]

    @property
    def index_bytes(self) -> int:
        return sum(message.size_bytes for message in self.index_messages)


class IndexAlone(Encoder):
    """Agrees on an index, and does nothing with it."""

    membership: Membership

    def __init__(self, kind: IndexKind, memory: IndexMemory, beside: tuple[Message, ...]) -> None:
        self.kind, self.memory, self.beside = kind, memory, beside

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        self.membership = yield from exchange_index(
            own_index(gradient), gradient.size, round, self.kind, self.beside, self.memory
        )
        return Decoded(np.zeros(gradient.size, np.float32), gradient)


def exchange(
    kind: IndexKind,
    gradients: Sequence[Gradient],
    memories: Sequence[IndexMemory] | None = None,
    step: int = 0,
    beside: Callable[[int], tuple[Message, ...]] = lambda rank: (),
    damage: Callable[[Message, np.ndarray], None] = lambda message, words: None,
) -> Exchanged:
    """All workers in lock-step; `damage` changes merged words on their way back."""
    own = memories or [IndexMemory() for _ in gradients]
    encoders = [IndexAlone(kind, memory, beside(rank)) for rank, memory in enumerate(own)]
    done = play(encoders, gradients, step, damage=lambda number, message, words: damage(message, words))
    return Exchanged([one.membership for one in encoders], done.operations, done.labels)
