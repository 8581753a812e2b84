"""Codecs of one's own whose messages meet at hosts, or whose sums have narrow lanes.

Top-k lists, unions, cascaded signs, a server's part; 4-bit codes that a table lifts, votes, weighted signs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange, Request, Server
from netfold.homomorphic.error_bounds import ErrorBound
from netfold.homomorphic.merge import Hop, Merge, Words, Work
from netfold.homomorphic.message import Gradient, Message, Round
from tests.registry import registered
from tests.sim.toys import Wide

Uints = NDArray[np.uint32]


def to_list(gradient: Gradient, indices: NDArray[np.int64]) -> Uints:
    """Indices, then the bits of their values."""
    return np.concatenate([indices.astype(np.uint32), gradient[indices].view(np.uint32)])


def from_list(words: Words) -> dict[int, np.float32]:
    half = words.size // 2
    return dict(zip(words[:half].tolist(), words[half:].view(np.float32), strict=True))


def listed(found: Mapping[int, np.float32]) -> Uints:
    indices = np.array(sorted(found), np.uint32)
    values = np.array([found[index] for index in indices.tolist()], np.float32)
    return np.concatenate([indices, values.view(np.uint32)])


@dataclass(frozen=True)
class Union:
    """Merges sparse lists: values of the same index are added; parts are ranges of the indices."""

    elements: int

    def split(self, words: Words, count: int) -> list[Words]:
        found = from_list(words)
        edges = [self.elements * part // count for part in range(count + 1)]
        return [
            listed({index: value for index, value in found.items() if first <= index < last})
            for first, last in pairwise(edges)
        ]

    def merge(self, accumulated: Words, arriving: Words, hop: Hop) -> Words:
        total = from_list(accumulated)
        for index, value in from_list(arriving).items():
            total[index] = np.float32(total.get(index, np.float32(0)) + value)
        return listed(total)

    def join(self, parts: Sequence[Words]) -> Words:
        return listed({index: value for part in parts for index, value in from_list(part).items()})

    def work(self, accumulated: Words, arriving: Words) -> Work:
        return Work(accumulated.nbytes + arriving.nbytes, accumulated.nbytes + arriving.nbytes)


@dataclass(frozen=True)
class Cascade:
    """Cascaded sign compression: decode both, weigh by workers, add, encode again with one scale.

    A part is a scale (its bits), the number of elements, and a bit for each element.
    """

    def split(self, words: Words, count: int) -> list[Words]:
        values = cascade_decoded(words)
        edges = [values.size * part // count for part in range(count + 1)]
        return [
            cascade_encoded(values[first:last], words[:1].view(np.float32)[0])
            for first, last in pairwise(edges)
        ]

    def merge(self, accumulated: Words, arriving: Words, hop: Hop) -> Words:
        one, other = cascade_decoded(accumulated), cascade_decoded(arriving)
        weights = np.float32(hop.accumulated_workers), np.float32(hop.arriving_workers)
        total = weights[0] * one + weights[1] * other + np.float32(hop.key % 7 - 3) * np.float32(1e-6)
        scale = np.abs(total).mean(dtype=np.float32) if total.size else np.float32(0)
        return cascade_encoded(total, np.float32(scale / (weights[0] + weights[1])))

    def join(self, parts: Sequence[Words]) -> Words:
        values = np.concatenate([cascade_decoded(part) for part in parts])
        scales = [part[:1].view(np.float32)[0] for part in parts]
        return cascade_encoded(values, np.float32(np.mean(scales, dtype=np.float32)))

    def work(self, accumulated: Words, arriving: Words) -> Work:
        return Work(accumulated.nbytes + arriving.nbytes, accumulated.nbytes)


def cascade_encoded(values: Gradient, scale: np.float32) -> Uints:
    bits = np.packbits(values >= 0, bitorder="little")
    padded = np.zeros(-(-bits.size // 4) * 4, np.uint8)
    padded[: bits.size] = bits
    head = np.array([scale], np.float32).view(np.uint32), np.array([values.size], np.uint32)
    return np.concatenate([*head, padded.view(np.uint32)])


def cascade_decoded(words: Words) -> Gradient:
    scale, size = words[:1].view(np.float32)[0], int(words[1])
    bits = np.unpackbits(np.ascontiguousarray(words[2:]).view(np.uint8), bitorder="little")[:size]
    return np.where(bits == 1, scale, -scale).astype(np.float32)


class Memory(Server):
    """Adds lists, and what it held back of the bucket before; it keeps the smaller half of every answer."""

    def __init__(self, elements: int) -> None:
        self.elements = elements
        self.held: dict[int, Gradient] = {}
        self.asked: list[Request] = []

    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        self.asked.append(request)
        total = self.held.setdefault(request.bucket, np.zeros(self.elements, np.float32))
        for part in parts:
            for index, value in from_list(part).items():
                total[index] += value
        order = np.argsort(-np.abs(total), kind="stable")[: -(-np.count_nonzero(total) // 2)]
        answer = to_list(total, np.sort(order))
        total[order] = 0
        return answer

    def state(self) -> dict[str, NDArray[Any]]:
        return {str(bucket): held.copy() for bucket, held in self.held.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.held = {int(name): np.array(held) for name, held in state.items()}


@dataclass(frozen=True)
class HostCodec(Codec):
    """Sends the largest elements; `share` of them depends on the worker, so lengths are unequal."""

    kind: ClassVar[str] = "host_codec"

    how: str = "gather"  # gather, union, cascade or memory
    share: float = 0.1

    @property
    def merges(self) -> frozenset[Merge]:
        return frozenset({Merge.HOST if self.how in ("union", "cascade") else Merge.GATHER})

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return _HostEncoder(self, rank)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return Wide(1e9)  # they lose what they like: what is checked here is how their words are merged

    def server(self, workers: int, seed: int) -> Server | None:
        return Memory(100_000) if self.how == "memory" else None


class _HostEncoder(Encoder):
    def __init__(self, codec: HostCodec, rank: int) -> None:
        self.codec, self.rank = codec, rank

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        how, total = self.codec.how, np.zeros_like(gradient)
        if how == "cascade":
            scale = np.float32(np.abs(gradient).mean())
            message = Message(cascade_encoded(gradient, scale), Merge.HOST, "signs", host_merge=Cascade())
            (merged,) = yield (message,)
            return Decoded(round.workers * cascade_decoded(merged.words), cascade_decoded(message.words))
        count = int(gradient.size * self.codec.share * self.rank / round.workers)  # worker 0 sends nothing
        words = to_list(gradient, np.sort(np.argsort(-np.abs(gradient), kind="stable")[:count]))
        host_merge = Union(gradient.size) if how == "union" else None
        merge = Merge.HOST if how == "union" else Merge.GATHER
        (merged,) = yield (Message(words, merge, "largest", host_merge=host_merge),)
        for part in merged.parts or (merged.words,):
            for index, value in from_list(part).items():
                total[index] += value
        contribution = np.zeros_like(gradient)
        for index, value in from_list(words).items():
            contribution[index] = value
        return Decoded(total, contribution)


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
class Codes(Codec):
    """Elements in 16 levels between ± the largest magnitude, as THC has them without its rotation.

    lane_width: bits of the lanes of sums.
    sent_width: bits of the lanes that messages say, if they are others.
    rank_width: bits of the lanes that worker 1 says, if they are others.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = PLAIN
    kind: ClassVar[str] = "codes"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.MAX, Merge.TABLE_ADD})

    lane_width: int = 8
    sent_width: int = 0
    rank_width: int = 0

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
        return Wide(len(contributions) * largest / LEVELS * (1 + 1e-5))


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
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD})
    is_linear: ClassVar[bool] = True
    lane_bits: ClassVar[int] = 4

    weight: int = 1

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return VotesEncoder(self.weight)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return Wide(1e-6)


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
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD})
    is_linear: ClassVar[bool] = True

    lane_width: int = 8
    weight: int = 1

    @property
    def lane_bits(self) -> int:
        return self.lane_width

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return SignsEncoder(self)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return Wide(1e-6)


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
    with registered(Codes, Votes, Signs):
        yield
