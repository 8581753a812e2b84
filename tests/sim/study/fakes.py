"""Fake codecs for tests of the study: they send given messages in given times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import ErrorBound, Sums
from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange
from netfold.homomorphic.message import Gradient, Merge, Message
from netfold.homomorphic.round import Note, Round
from netfold.sim.study.options import NamedCodec


@dataclass
class Clock:
    """A CPU clock that codecs move on."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def unchanged(rank: int, total: Gradient) -> Gradient:
    return total


@dataclass(frozen=True)
class Constant:
    """The same bound for every element."""

    bound: float

    def of(self, sums: Sums) -> NDArray[np.float64]:
        return np.full(sums.total.size, self.bound)


@dataclass(frozen=True)
class Fake(Codec):
    """Sums in float32, with an operation before it and one after; notes, times and mistakes on demand."""

    kind: ClassVar[str] = "fake"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.FLOAT_ADD, Merge.OR})

    notes: Sequence[Note] = ()
    bound: float = 1e-3
    change: Callable[[int, Gradient], Gradient] = unchanged  # of what a worker decodes
    clock: Clock = field(default_factory=Clock)
    seconds: Sequence[float] = (0, 0, 0, 0)  # of each leg of a worker's exchange

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return FakeEncoder(self, rank)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        return Constant(self.bound)


@dataclass(frozen=True)
class FakeEncoder(Encoder):
    codec: Fake
    rank: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        clock, seconds = self.codec.clock, self.codec.seconds
        clock.now_s += seconds[0]
        yield (Message(np.zeros(3, np.uint32), Merge.OR, "index"),)
        clock.now_s += seconds[1]
        (merged,) = yield (Message(gradient, Merge.FLOAT_ADD, "values"),)
        clock.now_s += seconds[2]
        for note in self.codec.notes:
            round.report(note)
        yield (Message(np.zeros(5, np.uint32), Merge.OR, "redo"),)
        clock.now_s += seconds[3]
        return Decoded(self.codec.change(self.rank, merged.words.copy()), gradient)


def named(codec: Fake) -> NamedCodec:
    return NamedCodec("fake", codec)
