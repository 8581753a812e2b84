"""Codecs whose sums have narrow lanes: 4-bit codes that a table lifts, 4-bit votes, and weighted signs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

import netfold
from netfold.homomorphic import codec as registry
from netfold.homomorphic.bounds import Doubles, ErrorBound, Sums
from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange
from netfold.homomorphic.message import Gradient, Merge, Message
from netfold.homomorphic.round import Round

LEVELS = 15  # the largest code
TABLE = np.arange(LEVELS + 1, dtype=np.int32)  # of non-negative integers: sums of eight fit int8
PLAIN = {"extra": "forbid", "strict": True}
LANES: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16, 32: np.int32}


def packed_nibbles(nibbles: NDArray[np.integer[Any]]) -> NDArray[np.uint32]:
    """Eight 4-bit numbers a word, lowest bits first; the last word is filled with zeros."""
    padded = np.zeros(-(-nibbles.size // 8) * 8, np.uint32)
    padded[: nibbles.size] = nibbles
    places = np.arange(0, 32, 4, dtype=np.uint32)
    words = np.bitwise_or.reduce(padded.reshape(-1, 8) << places, axis=1)
    return np.ascontiguousarray(words, np.uint32)


def nibbles_of(words: NDArray[Any], count: int) -> NDArray[np.int64]:
    """The first `count` 4-bit numbers of words."""
    places = np.arange(0, 32, 4, dtype=np.uint32)
    found = words.view(np.uint32)[:, np.newaxis] >> places & np.uint32(15)
    return found.reshape(-1)[:count].astype(np.int64)


@dataclass(frozen=True)
class PerWorkerBound:
    """The same largest error for every element."""

    largest: float

    def of(self, sums: Sums) -> Doubles:
        """The bound of each element of a part."""
        return np.full(sums.total.size, self.largest)


@dataclass(frozen=True)
class Codes(Codec):
    """Elements in 16 levels between ± the largest magnitude, as THC has them without its rotation.

    lane_width: bits of the lanes of sums.
    sent_width: bits of the lanes that messages say, if they are others.
    rank_width: bits of the lanes that worker 1 says, if they are others.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = PLAIN
    kind: ClassVar[str] = "codes"

    lane_width: int = 8
    sent_width: int = 0
    rank_width: int = 0

    @property
    def merges(self) -> frozenset[Merge]:
        return frozenset({Merge.MAX, Merge.TABLE_ADD})

    @property
    def lane_bits(self) -> int:
        return self.lane_width

    @property
    def workers_max(self) -> int:
        return (2 ** (self.lane_width - 1) - 1) // LEVELS

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        width = self.sent_width or self.lane_width
        return CodesEncoder(self.rank_width if rank == 1 and self.rank_width else width)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        largest = max((float(np.abs(one).max(initial=0.0)) for one in contributions), default=0.0)
        return PerWorkerBound(len(contributions) * largest / LEVELS * (1 + 1e-5))


@dataclass(frozen=True)
class CodesEncoder(Encoder):
    lane_bits: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        largest = np.abs(gradient).max(initial=np.float32(0)).reshape(1)
        (norm,) = yield (Message(largest.astype(np.float32).view(np.int32), Merge.MAX, "norm"),)
        unit = float(norm.words.view(np.float32)[0]) or 1.0
        levels = np.rint((gradient.astype(np.float64) / unit + 1) / 2 * LEVELS).astype(np.uint32)
        codes = packed_nibbles(levels)
        (merged,) = yield (Message(codes, Merge.TABLE_ADD, "codes", table=TABLE, lane_bits=self.lane_bits),)
        sums = merged.words.view(LANES[self.lane_bits])[: gradient.size].astype(np.float64)
        total = (2 * sums / LEVELS - round.workers) * unit
        put_in = (2 * levels.astype(np.float64) / LEVELS - 1) * unit
        return Decoded(total.astype(np.float32), put_in.astype(np.float32))


@dataclass(frozen=True)
class Votes(Codec):
    """One vote per element and worker, for a positive sign, in counters of 4 bits.

    weight: of a vote.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = PLAIN
    kind: ClassVar[str] = "votes"
    is_linear: ClassVar[bool] = True  # type: ignore[assignment,misc]

    weight: int = 1

    @property
    def merges(self) -> frozenset[Merge]:
        return frozenset({Merge.ADD})

    @property
    def lane_bits(self) -> int:
        return 4

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return VotesEncoder(self.weight)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return PerWorkerBound(1e-6)


@dataclass(frozen=True)
class VotesEncoder(Encoder):
    weight: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        votes = self.weight * (gradient > 0)
        (merged,) = yield (Message(packed_nibbles(votes).view(np.int32), Merge.ADD, "votes", lane_bits=4),)
        counts = nibbles_of(merged.words, gradient.size)
        return Decoded(counts.astype(np.float32), votes.astype(np.float32))


@dataclass(frozen=True)
class Signs(Codec):
    """Signs times a weight, added in lanes; they wrap where the lane is too narrow.

    lane_width: bits of the lanes of sums.
    weight: of a sign.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = PLAIN
    kind: ClassVar[str] = "signs"
    is_linear: ClassVar[bool] = True  # type: ignore[assignment,misc]

    lane_width: int = 8
    weight: int = 1

    @property
    def merges(self) -> frozenset[Merge]:
        return frozenset({Merge.ADD})

    @property
    def lane_bits(self) -> int:
        return self.lane_width

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return SignsEncoder(self)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return PerWorkerBound(1e-6)


@dataclass(frozen=True)
class SignsEncoder(Encoder):
    codec: Signs

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        signs = self.codec.weight * np.sign(gradient)
        lane = LANES[self.codec.lane_width]
        lanes = np.zeros(-(-gradient.size // 4) * 4, lane)
        lanes[: gradient.size] = signs
        message = Message(lanes.view(np.int32), Merge.ADD, "signs", lane_bits=self.codec.lane_width)
        (merged,) = yield (message,)
        return Decoded(merged.words.view(lane)[: gradient.size].astype(np.float32), signs)


@contextmanager
def known() -> Iterator[None]:
    """They are registered, and not any more afterwards."""
    before = dict(registry._registry)
    try:
        netfold.register(Codes)
        netfold.register(Votes)
        netfold.register(Signs)
        yield
    finally:
        registry._registry.clear()
        registry._registry.update(before)
