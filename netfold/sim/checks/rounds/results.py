"""The distinct results of one message, and the errors found in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import PART_ELEMENTS
from netfold.homomorphic.message import Holders, Merged
from netfold.kernels.words import identity
from netfold.sim.checks.rounds.findings import WrongWord


@dataclass(frozen=True)
class MessagePlace:
    """Identifies a message: its operation, its index there, and its label."""

    operation: int
    part: int
    label: str


@dataclass
class Tally:
    """Number of words with one kind of error, and the first of them."""

    count: int = 0
    first: WrongWord | None = None

    def add(self, count: int, first: WrongWord | None) -> None:
        """Count more errors; the first one is stored."""
        self.count += count
        if self.first is None and count:
            self.first = first


@dataclass
class Tallies:
    """Counts over the merged words so far."""

    wrong: Tally = field(default_factory=Tally)
    clipped: Tally = field(default_factory=Tally)
    wrong_floats: Tally = field(default_factory=Tally)
    integer_words: int = 0
    float_words: int = 0
    is_integer: bool = True


class Slice(NamedTuple):
    """A range of words of a message; for each of them, lanes that are merged, and merged words."""

    first: int
    last: int
    lanes: int = 1
    merged_words: int = 1

    @property
    def size(self) -> int:
        """Lanes that are merged."""
        return self.lanes * (self.last - self.first)

    @property
    def merged(self) -> slice:
        """The range of words in the merged result."""
        return slice(self.merged_words * self.first, self.merged_words * self.last)


@dataclass
class Result:
    """One result and the workers that received it; shared arrays are examined once."""

    merged: Merged
    workers: list[int]
    wrong: Tally = field(default_factory=Tally)
    clipped: Tally = field(default_factory=Tally)
    wrong_floats: Tally = field(default_factory=Tally)

    def wrong_word(
        self,
        place: MessagePlace,
        word: int,
        values: tuple[Any, Any],
        allowed: float = 0.0,
        claim: str = "",
    ) -> WrongWord:
        """A wrong word, as the first worker received it and as it should be."""
        where = place.operation, place.part, place.label, self.workers[0], word
        return WrongWord(*where, *values, allowed=allowed, claim=claim)


def distinct(received: Sequence[Merged]) -> list[Result]:
    """The distinct results."""
    results: dict[tuple[Any, ...], Result] = {}
    for worker, merged in enumerate(received):
        held = None if merged.holders is None else merged.holders.bitmaps
        arrays = merged.words, merged.exponents, merged.is_float, held, *merged.parts
        present = None if merged.present is None else merged.present.tobytes()
        key = (*map(identity, arrays), merged.workers, present, merged.is_mixed)
        if key in results:
            results[key].workers.append(worker)
        else:
            results[key] = Result(merged, [worker])
    return list(results.values())


def by_holders(results: Sequence[Result]) -> list[tuple[Holders | None, list[Result]]]:
    """Results grouped by the workers they hold in each unit; None: all workers."""
    found: dict[tuple[int, bytes], tuple[Holders | None, list[Result]]] = {}
    for result in results:
        holders = result.merged.holders
        key = (0, b"") if holders is None else (holders.unit_words, holders.bitmaps.tobytes())
        found.setdefault(key, (holders, []))[1].append(result)
    return list(found.values())


def complete(place: MessagePlace, results: Sequence[Result], wanted: int, kind: str) -> list[Result]:
    """Results of the expected length; all words of the others are counted as wrong, in the named tally."""
    for result in results:
        size = result.merged.words.size
        if size != wanted:
            lost = result.wrong_word(place, min(size, wanted), (None, None))
            getattr(result, kind).add(max(size, wanted), lost)
    return [result for result in results if result.merged.words.size == wanted]


def slices(size: int, lanes: int = 1, merged_words: int = 1) -> Iterator[Slice]:
    """Ranges that cover `size` words, each small enough for the cache; the rest as in `Slice`."""
    for first in range(0, size, PART_ELEMENTS):
        yield Slice(first, min(first + PART_ELEMENTS, size), lanes, merged_words)


def holds(holders: Holders, own: Slice, rank: int) -> NDArray[np.bool_]:
    """Whether a result holds a worker, for every lane."""
    units = np.arange(own.first, own.last) // holders.unit_words
    held = holders.bitmaps[units] >> np.uint32(rank) & np.uint32(1) != 0
    return np.repeat(held, own.lanes)
