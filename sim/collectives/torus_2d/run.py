"""All-reduce on a 2-D torus over reliable messages.

Four stages, in each of which the workers of a row or a column form a ring:

1. reduce-scatter in every row: afterwards each worker holds its group of the row's words;
2. reduce-scatter in the column of every segment that it owns: each holds one part, of all workers;
3. all-gather in these columns;
4. all-gather in the rows.

A worker that is in several columns does the same step of all of them before the next step. A chunk is passed
on as soon as it is merged. Within a row, words travel as one chunk per group. A codec's own merge (HOST) cuts
a message into parts once, and every part travels as a chunk of its own in all stages, because the length of a
part may change at every hop.

Every merge weighs by the workers that its two operands hold. An absent worker passes on what arrives.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import simpy

from netfold.homomorphic.host_merge import HostHop, join_host, split_host
from netfold.homomorphic.message import Merge, Merged
from netfold.sim.collectives.collective import OperationPlace, RunContext
from netfold.sim.collectives.host_messages import HostCollective, MessageExchange
from netfold.sim.collectives.torus_2d.grid import Cut
from netfold.sim.collectives.torus_2d.plan import TorusPlan

Held = dict[range, Merged]  # chunks: ranges of the message's parts
Wait = Generator[simpy.Event, Any, None]


class Stage(IntEnum):
    """Together with the first part of a chunk, its number is the step of a send and its receipt."""

    REDUCE_ROW = 0
    REDUCE_COLUMN = 1
    GATHER_COLUMN = 2
    GATHER_ROW = 3


class Ring(NamedTuple):
    """A row or column, as one of its members sees it."""

    members: tuple[int, ...]  # ranks
    at: int  # the worker's place among them
    blocks: Sequence[Sequence[range]]  # the chunks that each member owns
    roots: tuple[int, ...]  # HOST: the worker under whose rank the hops list what each member holds

    @property
    def following(self) -> int:
        """The next member."""
        return self.members[(self.at + 1) % len(self.members)]

    def behind(self, places: int) -> int:
        """The place of the member so many places before."""
        return (self.at - places) % len(self.members)


class Side(NamedTuple):
    """How a message is cut, as one worker sees it."""

    operation: MessageExchange
    cut: Cut
    ends: Sequence[int]  # where the parts begin, and where the last one ends; of HOST none
    row: Ring
    columns: tuple[Ring, ...]  # of each segment that it owns; none if there is one row

    @property
    def is_host(self) -> bool:
        """Whether the codec cuts and merges the message."""
        return self.operation.message.merge is Merge.HOST

    def bounds(self, chunk: range) -> Sequence[int]:
        """The same of the parts of a chunk."""
        return self.ends[chunk.start : chunk.stop + 1]

    def size(self, chunk: range) -> int:
        """Words of a chunk as they are sent; of HOST it is not known."""
        return 0 if self.is_host else self.ends[chunk.stop] - self.ends[chunk.start]


class Torus2d(HostCollective):
    """One job's torus."""

    def __init__(self, plan: TorusPlan, context: RunContext) -> None:
        super().__init__(plan, context)
        self.grid = plan.grid
        self._blocks: dict[tuple[int, bool], list[list[range]]] = {}

    @property
    def chunks_count(self) -> int:
        """Chunks of a message of words; `begin` says how many one of HOST has."""
        grid = self.grid
        in_rows = sum(length * (length - 1) for length in grid.lengths)
        return 2 * in_rows + 2 * (grid.rows - 1) * grid.words.parts

    def begin(self, operation: MessageExchange) -> None:
        """All workers together receive every part of HOST 2 (n − 1) times."""
        if operation.message.merge is Merge.HOST:
            operation.finished.expected = 2 * (self.workers - 1) * self.grid.equal.parts

    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Reduce in the row and the columns, then gather in the columns and the row."""
        side = self._side(worker, operation)
        held = _own(worker, self.workers, side)
        yield from self._reduce(worker, side, Stage.REDUCE_ROW, [side.row], held)
        group = side.row.blocks[side.row.at]
        parts = {part: merged for chunk in group for part, merged in _parts_of(side, chunk, held[chunk])}
        yield from self._reduce(worker, side, Stage.REDUCE_COLUMN, side.columns, parts)
        for column in side.columns or [side.row]:
            for part in column.blocks[column.at]:
                self._finish(side, part, parts)
        yield from self._gather(worker, side, Stage.GATHER_COLUMN, side.columns, parts)
        held = {chunk: _joined(side, chunk, parts) for chunk in group}
        yield from self._gather(worker, side, Stage.GATHER_ROW, [side.row], held)
        return self._result(side, held)

    def _side(self, worker: int, operation: MessageExchange) -> Side:
        """How a worker sees a message."""
        grid, message = self.grid, operation.message
        is_host = message.merge is Merge.HOST
        cut = grid.equal if is_host else grid.words
        ends = [] if is_host else operation.finished.made("ends", {}, lambda: cut.ends(message.size))
        row, position = grid.spots[worker]
        length = grid.lengths[row]
        members = tuple(grid.worker(row, one) for one in range(length))
        own = cut.groups[length][position] if grid.rows > 1 else ()
        columns = tuple(_column(cut, segment, row) for segment in own)
        blocks = self._chunks(length, cut, is_host)
        return Side(operation, cut, ends, Ring(members, position, blocks, members), columns)

    def _chunks(self, length: int, cut: Cut, is_host: bool) -> list[list[range]]:
        """The chunks of each group of rows of some length: one of words, every part of HOST."""
        if (length, is_host) not in self._blocks:
            rows = self.grid.rows
            groups = [range(one.start * rows, one.stop * rows) for one in cut.groups[length]]
            self._blocks[length, is_host] = [
                [range(part, part + 1) for part in group] if is_host else [group] for group in groups
            ]
        return self._blocks[length, is_host]

    def _reduce(self, worker: int, side: Side, stage: Stage, rings: Sequence[Ring], held: Held) -> Wait:
        """Reduce-scatters in rings of equal length: in the end a member holds what it owns, of all.

        `held` has the worker's contributions before, and what it owns after.
        """
        operation = side.operation
        members = len(rings[0].members) if rings else 1
        for ring in rings if members > 1 else ():
            for chunk in ring.blocks[ring.behind(1)]:
                step = self._step(side, stage, chunk)
                self.send(worker, ring.following, operation, step, held.pop(chunk))
        for number, ring in _steps(members, rings):
            owner = ring.behind(number + 1)
            for chunk in ring.blocks[owner]:
                step = self._step(side, stage, chunk)
                arriving = yield from self.receive(worker, operation, step)
                merged = yield from self.merge(worker, operation, step, arriving, held.pop(chunk))
                if side.is_host:
                    into, taken = ring.roots[(owner + 1) % members], ring.roots[ring.at]
                    hop = HostHop(into, taken, self.merge_key(worker, operation, step))
                    operation.finished.hops[chunk.start].append(hop)
                if number < members - 1:
                    self.send(worker, ring.following, operation, step, merged)
                else:
                    held[chunk] = merged

    def _gather(self, worker: int, side: Side, stage: Stage, rings: Sequence[Ring], held: Held) -> Wait:
        """All-gathers in rings of equal length: in the end `held` has the chunks of all members."""
        operation = side.operation
        members = len(rings[0].members) if rings else 1
        for ring in rings if members > 1 else ():
            for chunk in ring.blocks[ring.at]:
                self.send(worker, ring.following, operation, self._step(side, stage, chunk), held[chunk])
        for number, ring in _steps(members, rings):
            for chunk in ring.blocks[ring.behind(number)]:
                step = self._step(side, stage, chunk)
                held[chunk] = yield from self.receive(worker, operation, step)
                self._finish(side, chunk, held)
                if number < members - 1:
                    self.send(worker, ring.following, operation, step, held[chunk])

    def _finish(self, side: Side, chunk: range, held: Held) -> None:
        """Turn a chunk that holds all workers' words into the one that workers keep."""
        operation = side.operation
        whole = operation.whole(held[chunk], side.size(chunk))
        held[chunk] = operation.finished.stored(chunk, whole)

    def _result(self, side: Side, held: Held) -> Merged:
        """The message, of a worker's row."""
        finished, merge = side.operation.finished, side.operation.message.host_merge
        ordered = {chunk: held[chunk] for block in side.row.blocks for chunk in block}
        if merge is not None:
            return finished.joined(ordered, partial(join_host, merge))
        joined = finished.joined(ordered, name=f"of {len(ordered)} chunks")
        return finished.stored("message", joined)  # one array for rows of all lengths

    def _step(self, side: Side, stage: Stage, chunk: range) -> int:
        """The number of a send and its receipt."""
        return stage * side.cut.parts + chunk.start

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word, and the worker's place."""
        row, position = self.grid.spots[worker]
        at = f"row {row}, column {position}"
        return f"message {part} of {place.in_words} on the torus, as worker {worker} ({at}) got it"


def _column(cut: Cut, segment: int, row: int) -> Ring:
    """The column of a segment, as its owner in a row sees it."""
    rows = cut.grid.rows
    parts = range(segment * rows, (segment + 1) * rows)
    members = tuple(cut.column(segment))
    return Ring(members, row, [[range(part, part + 1)] for part in parts], tuple(cut.roots(segment)))


def _steps(members: int, rings: Sequence[Ring]) -> Iterator[tuple[int, Ring]]:
    """One step of every ring after the other, from 1 to the last."""
    for step in range(1, members):
        for ring in rings:
            yield step, ring


def _own(worker: int, workers: int, side: Side) -> Held:
    """A worker's contributions to its row; their words are empty if it has none."""
    operation = side.operation
    message, chunks = operation.message, [chunk for block in side.row.blocks for chunk in block]
    if message.host_merge is not None:
        pieces = split_host(message.host_merge, message.words, side.cut.parts)
        return {chunk: operation.own(worker, workers, pieces[chunk.start]) for chunk in chunks}
    return {
        chunk: operation.own(worker, workers, message.words[side.ends[chunk.start] : side.ends[chunk.stop]])
        for chunk in chunks
    }


def _parts_of(side: Side, chunk: range, merged: Merged) -> Iterator[tuple[range, Merged]]:
    """A row's chunk, part by part; lanes that codes were lifted to are cut as their codes."""
    if len(chunk) == 1:
        yield chunk, merged
        return
    bounds = side.bounds(chunk)
    size = bounds[-1] - bounds[0]
    times = merged.words.size // size if size else 0  # 0: the words of nobody
    for part, ends in zip(chunk, pairwise(bounds), strict=True):
        first, end = ((bound - bounds[0]) * times for bound in ends)
        yield range(part, part + 1), replace(merged, words=merged.words[first:end])


def _joined(side: Side, chunk: range, parts: Held) -> Merged:
    """A row's chunk of finished parts."""
    ordered = {range(part, part + 1): parts[range(part, part + 1)] for part in chunk}
    if len(ordered) == 1:
        return ordered[chunk]
    finished = side.operation.finished
    return finished.stored(chunk, finished.joined(ordered, np.concatenate, f"chunk {chunk}"))
