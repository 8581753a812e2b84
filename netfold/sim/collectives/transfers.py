"""Schedules as collectives write them: compiled for the engine, or outlined for what they cost.

A collective between hosts yields steps: arrays of transfers that go at the same time. From the same steps
come the engine's tables (`compile_transfers`) and, without keeping any transfer, what times, timeouts and
memory follow from (`outline_of`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine.engine_data import NONE, Schedule

Ints = NDArray[np.int64]
Shares = tuple[Fraction, ...]
"""(cells + 1,) where cells begin, as shares of a message, and 1."""


class Step(NamedTuple):
    """Transfers that go at the same time; (T,) each, or one value for all of them.

    Transfers are numbered in the order of the steps, from 0 for each piece.
    """

    source: Ints  # workers
    target: Ints
    first: Ints | int  # the first cell that each carries
    cells: Ints | int = 1  # cells that it carries
    merges: NDArray[np.bool_] | bool = False
    waits: Ints | int = NONE
    """(T,) or (K, T) Transfers to its source that are processed before it is sent; NONE: none."""
    follows: Ints | int = NONE
    """A transfer to the same target that is processed before; NONE."""
    before: Ints | int = NONE
    """The same of the piece before, by its number in that piece."""
    channel: Ints | int = 0
    """Which connection of its source and target it takes."""
    name: Ints | None = None
    """A number that, with source and target, identifies it in keyed draws; None: its own number."""


@dataclass(frozen=True)
class Transfers:
    """How a message of every worker gets to all workers.

    Two messages of one collective that are cut into as many cells have the same steps.
    """

    workers: int
    """Those that send or receive; servers come after the workers."""
    cells: int
    """Parts of a message that travel as one, all pieces together."""
    steps: Iterable[Step]
    """Those of one piece; read once."""
    pieces: int = 1
    """Equal cuts of a message that take the same steps, one behind the other."""
    is_pipelined: bool = False
    """Whether long messages keep all links busy at the same time, as pieces follow one another."""
    shares_windows: bool = True
    """Whether all that one worker sends another on one channel shares a window."""
    cuts: Shares | None = None
    """Where cells begin; None: they are equal shares."""
    ends: Callable[[int], Ints] | None = None
    """(cells + 1,) where cells begin in a message of some words; None: `cuts`, rounded down."""
    holds: Fraction | None = None
    """Share of a message that a cell is, where cells are no parts of one message."""
    last_merges: int = 0
    """Whole messages that every worker merges by itself when it has all."""


@dataclass(frozen=True)
class Cut:
    """A compiled schedule, and where its cells begin."""

    schedule: Schedule
    cuts: Shares
    own_ends: Callable[[int], Ints] | None = None

    def ends(self, words: int) -> Ints:
        """(cells + 1,) where cells begin in a message of `words`, rounded down, and where the last ends."""
        if self.own_ends is not None:
            return self.own_ends(words)
        return cell_ends(self.cuts, words)


def cell_ends(cuts: Shares, words: int) -> Ints:
    """(cells + 1,) where cells that begin at these shares of a message begin, rounded down, and its end."""
    return np.array([words * edge.numerator // edge.denominator for edge in cuts], np.int64)


def equal_cuts(cells: int) -> Shares:
    """Where cells begin that are equal shares of a message."""
    return tuple(Fraction(cell, cells) for cell in range(cells + 1))


def in_orders(transfers: Transfers, orders: Sequence[Sequence[int]]) -> Transfers:
    """The same schedule with workers in other places: place p of channel c is `orders[c][p]`."""
    ranks = np.array(orders, np.int64)
    steps = list(transfers.steps)
    names = {id(array): array for step in steps for array in (step.source, step.target)}  # kept alive
    placed: dict[tuple[int, int], Ints] = {}  # equal arrays stay the same object

    def place(workers: Ints, channel: Ints | int) -> Ints:
        name = id(workers), id(channel) if isinstance(channel, np.ndarray) else channel
        if name not in placed:
            placed[name] = ranks[channel, names[id(workers)]]
        return placed[name]

    return replace(
        transfers,
        steps=[
            step._replace(source=place(step.source, step.channel), target=place(step.target, step.channel))
            for step in steps
        ],
    )


# Builds schedules from columns.


@dataclass
class ScheduleBuilder:
    """Transfers of a schedule that is being built; each has the number of those added before it."""

    workers: int
    cells: int
    count: int = 0
    _columns: list[tuple[Ints, ...]] = field(default_factory=list)
    _merges: list[NDArray[np.bool_]] = field(default_factory=list)
    _waits: list[tuple[Ints, Ints]] = field(default_factory=list)

    def add(
        self,
        pairs: tuple[Ints, Ints],
        cells: tuple[Ints | int, Ints | int],
        *,
        merges: bool | NDArray[np.bool_],
        follows: Ints | int = NONE,
        lane: Ints | int = NONE,
        channel: Ints | int = 0,
        name: Ints | None = None,
    ) -> Ints:
        """Add transfers (sources, targets) of cells (first, count); returns their numbers."""
        size = pairs[0].size
        numbers = np.arange(self.count, self.count + size, dtype=np.int64)
        columns = (*pairs, *cells, follows, lane, channel, numbers if name is None else name)
        self._columns.append(tuple(np.broadcast_to(column, size) for column in columns))
        self._merges.append(np.broadcast_to(np.asarray(merges, np.bool_), size))
        self.count += size
        return numbers

    def wait(self, waiting: Ints, awaited: Ints) -> None:
        """Let each transfer wait for another; for NONE of −1."""
        is_waiting = awaited >= 0
        self._waits.append((waiting[is_waiting], awaited[is_waiting]))

    def schedule(self, *, has_lanes: bool = False) -> Schedule:
        """The schedule; `has_lanes` gives every source, target and channel a window of its own."""
        *columns, names = zip(*self._columns, strict=True) if self._columns else [(_NO_INTS,)] * 8
        source, target, first, count, follows, lane, channel = (
            np.concatenate(column, dtype=np.int32, casting="unsafe") for column in columns
        )
        if has_lanes and self.count:
            flows = (channel - channel.min()).astype(np.int64)
            for end in (source, target):
                flows *= self.workers
                flows += end
            lane = _ranks(flows)
        waits_first, waits_for = _group(self._waits, self.count)
        return Schedule(
            workers=self.workers,
            chunks=self.cells,
            source=source,
            target=target,
            first=first,
            count=count,
            merges=np.concatenate(self._merges) if self._merges else np.empty(0, np.bool_),
            step=np.concatenate(names, dtype=np.int64, casting="unsafe"),
            follows=follows,
            lane=lane,
            waits_first=waits_first,
            waits_for=waits_for,
            channel=channel,
        )


_NO_INTS = np.empty(0, np.int64)


def _ranks(values: Ints) -> NDArray[np.int32]:
    """The rank of each value, none of which is negative, among the different ones."""
    if values.max() > _SPARSE * values.size:
        return np.unique(values, return_inverse=True)[1].astype(np.int32)
    is_there = np.zeros(values.max() + 1, np.bool_)
    is_there[values] = True
    ranks: NDArray[np.int32] = (np.cumsum(is_there, dtype=np.int32) - 1)[values]
    return ranks


_SPARSE = 4  # numbers for each value, above which sorting the values takes less than marking them


def _group(waits: Sequence[tuple[Ints, Ints]], count: int) -> tuple[Ints, NDArray[np.int32]]:
    """What is awaited, in the order of those that wait, and where each one's begin."""
    waiting = np.concatenate([numbers for numbers, _ in waits] or [_NO_INTS])
    awaited = np.concatenate([numbers for _, numbers in waits] or [_NO_INTS])
    if np.any(waiting[1:] < waiting[:-1]):
        order = np.argsort(waiting, kind="stable")
        waiting, awaited = waiting[order], awaited[order]
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(waiting, minlength=count), out=first[1:])
    return first, awaited.astype(np.int32)


def compile_transfers(transfers: Transfers) -> Cut:
    """The tables that the engine carries out."""
    piece = ScheduleBuilder(transfers.workers, transfers.cells // transfers.pieces)
    before = []
    for step in transfers.steps:
        numbers = piece.add(
            (step.source, step.target),
            (step.first, step.cells),
            merges=step.merges,
            follows=step.follows,
            channel=step.channel,
            name=step.name,
        )
        for awaited in np.atleast_2d(np.broadcast_to(step.waits, np.shape(step.waits) or numbers.shape)):
            piece.wait(numbers, awaited)
        before.append(np.broadcast_to(np.asarray(step.before, np.int64), numbers.shape))
    schedule = piece.schedule(has_lanes=transfers.shares_windows)
    if transfers.pieces > 1:
        schedule = _repeat(schedule, transfers.pieces, np.concatenate(before or [_NO_INTS]))
    return Cut(schedule, transfers.cuts or equal_cuts(transfers.cells), transfers.ends)


def _repeat(piece: Schedule, pieces: int, before: Ints) -> Schedule:
    """The same transfers for every piece; cell c of piece k is cell c · `pieces` + k."""
    count = piece.transfers
    number = np.repeat(np.arange(pieces, dtype=np.int64), count)
    base = number * count

    def tiled(column: NDArray[np.int32]) -> Ints:
        return np.tile(column.astype(np.int64), pieces)

    builder = ScheduleBuilder(piece.workers, piece.chunks * pieces)
    follows, chained = tiled(piece.follows), np.tile(before, pieces)
    chained = np.where((chained == NONE) | (number == 0), NONE, base - count + chained)
    assert piece.channel is not None
    builder.add(
        (tiled(piece.source), tiled(piece.target)),
        (tiled(piece.first) * pieces + number, tiled(piece.count)),
        merges=np.tile(piece.merges, pieces),
        follows=np.where(follows == NONE, chained, base + follows),
        lane=tiled(piece.lane),
        channel=tiled(piece.channel),
    )
    waiting = np.repeat(np.arange(count), np.diff(piece.waits_first))
    waits = np.repeat(np.arange(pieces, dtype=np.int64), waiting.size) * count
    builder.wait(waits + np.tile(waiting, pieces), waits + tiled(piece.waits_for))
    return builder.schedule()


# What a schedule comes to, whatever the network: who sends how much, one after the other.


Flow = tuple[int, int, int]
"""Sender, receiver and channel."""


class Level(NamedTuple):
    """Transfers as far from the start of a schedule as each other, and how often the same come again.

    Sums over workers or flows are those of one time.
    """

    source: Ints
    target: Ints
    channel: Ints
    share: NDArray[np.float64]
    """(T,) Share of a message that each carries."""
    merged: NDArray[np.float64]
    """(T,) Share of a message that its target merges, the first time of these."""
    times: int = 1
    merging_times: int = 0

    @property
    def flows(self) -> list[Flow]:
        """The flow of each transfer."""
        return list(zip(self.source.tolist(), self.target.tolist(), self.channel.tolist(), strict=True))


@dataclass(frozen=True)
class Outline:
    """What a schedule comes to."""

    workers: int
    transfers: int
    cells: int
    levels: tuple[Level, ...]
    is_pipelined: bool = False
    last_merges: int = 0
    block_words: int = 0
    """Words that follow one another as one block, where a schedule is pipelined by blocks; 0: it is not."""
    at_once: Counter[Flow] = field(default_factory=Counter)
    """Messages of each flow that one level sends, at most."""
    windows: Counter[Flow] = field(default_factory=Counter)
    """Messages of each flow that may be under way at the same time, each with a window."""

    @property
    def hops(self) -> int:
        """Transfers one after the other."""
        return sum(level.times for level in self.levels)


def outline_of(transfers: Transfers, block_words: int = 0) -> Outline:
    """What a schedule comes to; nothing is kept of equal steps but their number.

    `block_words` as in an `Outline`.
    """
    share = transfers.holds or Fraction(1, transfers.cells)
    edges = None if transfers.cuts is None else np.array([float(edge) for edge in transfers.cuts])
    steps: dict[int, list[Step]] = {}
    reached = np.zeros((1, transfers.workers), np.int64)  # the depth at which something last arrived
    count = 0
    for step in transfers.steps:
        channel = np.asarray(step.channel)
        if (most := int(channel.max(initial=0)) + 1) > len(reached):
            reached = np.concatenate([reached, np.zeros((most - len(reached), transfers.workers), np.int64)])
        depth = 1 + int(reached[channel, step.source].max(initial=0))
        reached[channel, step.target] = depth
        count += step.source.size
        if step.source.size:
            lean = step._replace(waits=NONE, follows=NONE, before=NONE, name=None)  # they take memory
            steps.setdefault(depth, []).append(lean if edges is not None else lean._replace(first=0))
    levels: list[Level] = []
    last: list[Step] = []
    for depth in sorted(steps):
        if levels and _are_alike(last, steps[depth]):
            merges = bool(np.any(steps[depth][0].merges))
            levels[-1] = levels[-1]._replace(
                times=levels[-1].times + 1, merging_times=levels[-1].merging_times + merges
            )
        else:
            levels.append(_level(steps[depth], float(share), edges))
        last = steps[depth]
    return Outline(
        transfers.workers,
        count * transfers.pieces,
        transfers.cells,
        tuple(levels),
        transfers.is_pipelined,
        transfers.last_merges,
        block_words,
        at_once=at_once_of(levels),
        windows=at_once_of(levels) if transfers.shares_windows else _all_of(levels),
    )


def _are_alike(steps: Sequence[Step], others: Sequence[Step]) -> bool:
    """Whether steps have the very same arrays of flows and the same number of cells."""
    if len(steps) != len(others):
        return False
    return all(
        step.source is other.source
        and step.target is other.target
        and step.channel is other.channel
        and isinstance(step.cells, int)
        and step.cells == other.cells
        and isinstance(step.merges, bool)
        and isinstance(other.merges, bool)
        for step, other in zip(steps, others, strict=True)
    )


def _level(steps: Sequence[Step], share: float, edges: NDArray[np.float64] | None) -> Level:
    columns = []
    for step in steps:
        size = step.source.size
        first, count = np.broadcast_to(step.first, size), np.broadcast_to(step.cells, size)
        carried = share * count if edges is None else edges[first + count] - edges[first]
        merges = carried * step.merges
        columns.append((step.source, step.target, np.broadcast_to(step.channel, size), carried, merges))
    source, target, channel, sent, merged = (np.concatenate(column) for column in zip(*columns, strict=True))
    has_merges = bool(merged.any())
    return Level(source, target, channel, sent, merged if has_merges else sent, 1, int(has_merges))


def at_once_of(levels: Sequence[Level]) -> Counter[Flow]:
    """Messages of each flow that one level sends, at most."""
    most = Counter[Flow]()
    for level in levels:
        most |= Counter(level.flows)
    return most


def _all_of(levels: Sequence[Level]) -> Counter[Flow]:
    """Messages of each flow: a worker goes on to the next before what it has sent is acknowledged."""
    every = Counter[Flow]()
    for level in levels:
        every.update({flow: level.times * count for flow, count in Counter(level.flows).items()})
    return every


def together(parts: Sequence[tuple[Counter[Flow], Sequence[int]]]) -> Counter[Flow]:
    """Messages of several parts at the same time, each with its workers by their place; all on channel 0."""
    every = Counter[Flow]()
    for messages, workers in parts:
        for (source, target, _), count in messages.items():
            every[workers[source], workers[target], 0] += count
    return every


def combine_outlines(outlines: Sequence[tuple[Sequence[Level], Ints, float]]) -> list[Level]:
    """Levels of several parts at the same time; each has its workers by their place, and its share of words.

    All are on channel 0.
    """
    lists = [_singles(levels) for levels, _, _ in outlines]
    combined_levels: list[Level] = []
    last: list[tuple[int, int]] = []
    for depth in range(max(map(len, lists), default=0)):
        present = [number for number, singles in enumerate(lists) if depth < len(singles)]
        merges = any(lists[number][depth].merging_times for number in present)
        names = [(number, id(lists[number][depth].source)) for number in present]
        if combined_levels and names == last:
            level = combined_levels[-1]
            combined_levels[-1] = level._replace(
                times=level.times + 1, merging_times=level.merging_times + merges
            )
            continue
        last = names
        columns = []
        for number in present:
            single, (_, workers, share) = lists[number][depth], outlines[number]
            columns.append(
                (
                    workers[single.source],
                    workers[single.target],
                    np.zeros(single.source.size, np.int64),
                    single.share * share,
                    single.merged * share,
                )
            )
        source, target, channel, sent, merged = (
            np.concatenate(column) for column in zip(*columns, strict=True)
        )
        combined_levels.append(Level(source, target, channel, sent, merged, 1, int(merges)))
    return combined_levels


def _singles(levels: Sequence[Level]) -> list[Level]:
    """Every level once for each of its times; those that merge come first."""
    return [
        level._replace(times=1, merging_times=int(time < level.merging_times))
        for level in levels
        for time in range(level.times)
    ]


def half_of(levels: Sequence[Level], *, merges: bool) -> list[Level]:
    """The levels that merge, or those that distribute what is merged."""
    return [
        level._replace(times=times, merging_times=times if merges else 0)
        for level in levels
        if (times := level.merging_times if merges else level.times - level.merging_times)
    ]
