"""Carries out schedules in plain Python, by the contract in `sim/engine/schedule.py` alone."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from netfold.sim.engine.schedule import NONE, Schedule
from tests.reference.collectives.hosts import Hosts, Program, Share

Value = Any


def rows(schedule: Schedule) -> list[tuple[int, int, range, bool, int, int, list[int]]]:
    """Source, target, chunks, merges, follows, lane, and what is awaited, of each transfer."""
    found = []
    for t in range(schedule.transfers):
        first, end = int(schedule.waits_first[t]), int(schedule.waits_first[t + 1])
        chunks = range(int(schedule.first[t]), int(schedule.first[t] + schedule.count[t]))
        pair = int(schedule.source[t]), int(schedule.target[t])
        follows, lane = int(schedule.follows[t]), int(schedule.lane[t])
        found.append(
            (*pair, chunks, bool(schedule.merges[t]), follows, lane, schedule.waits_for[first:end].tolist())
        )
    return found


def in_any_order(schedule: Schedule, seed: int) -> list[list[Value]]:
    """What each worker holds of each chunk in the end, if transfers take any time at all.

    Raises
    ------
    ValueError
        A transfer sends or merges into a cell that was merged away, or one that is replaced is not whole; or
        some transfer never begins or is never processed.
    """
    choose = random.Random(seed)
    table = rows(schedule)
    cells: list[list[Value]] = [[w] * schedule.chunks for w in range(schedule.workers)]
    sent: dict[int, list[Value]] = {}
    done: set[int] = set()
    unsent = set(range(len(table)))
    while len(done) < len(table):
        ready = [t for t in unsent if all(one in done for one in table[t][6])]
        arrived = [t for t in sent if table[t][4] == NONE or table[t][4] in done]
        if not ready and not arrived:
            raise ValueError(f"nothing can go on: {sorted(unsent)[:5]} are not sent")
        number = choose.choice([*ready, *arrived])
        source, target, chunks, merges, *_ = table[number]
        if number in unsent:
            unsent.remove(number)
            sent[number] = [cells[source][chunk] for chunk in chunks]
            if any(value is None for value in sent[number]):
                raise ValueError(f"transfer {number} sends a cell that was merged away")
            if merges:
                for chunk in chunks:
                    cells[source][chunk] = None
            continue
        for chunk, value in zip(chunks, sent.pop(number), strict=True):
            if merges and cells[target][chunk] is None:
                raise ValueError(f"transfer {number} merges into a cell that was merged away")
            cells[target][chunk] = (value, cells[target][chunk]) if merges else value
        done.add(number)
    return cells


def play(
    hosts: Hosts, schedule: Schedule, cells: Sequence[Fraction], merge_ps: Any = lambda words: 0
) -> None:
    """Carry out a schedule on links; `hosts` gets the times and what workers hold."""
    _Player(hosts, schedule, cells, merge_ps)


class _Player:
    def __init__(self, hosts: Hosts, schedule: Schedule, cells: Sequence[Fraction], merge_ps: Any) -> None:
        self.hosts, self.table, self.edges, self.merge_ps = hosts, rows(schedule), cells, merge_ps
        self.held: list[list[Value]] = [[w] * schedule.chunks for w in range(schedule.workers)]
        self.missing = [len(row[6]) for row in self.table]
        self.waiting: defaultdict[int, list[int]] = defaultdict(list)
        self.followers: defaultdict[int, list[int]] = defaultdict(list)
        self.arrived: dict[int, list[Value]] = {}
        self.done: set[int] = set()
        self.left = [0] * schedule.workers
        for number, (_, target, _, _, follows, _, awaited) in enumerate(self.table):
            self.left[target] += 1
            for one in awaited:
                self.waiting[one].append(number)
            if follows != NONE:
                self.followers[follows].append(number)
        for worker, left in enumerate(self.left):
            if not left:
                self._finish(worker)
        for worker in range(schedule.workers):
            for number, row in enumerate(self.table):
                if row[0] == worker and not row[6]:
                    self._send(number)

    def _share(self, chunks: range) -> Share:
        return Share(self.edges[chunks.start], self.edges[chunks.stop])

    def _send(self, number: int) -> None:
        source, target, chunks, _, _, lane, _ = self.table[number]
        values = [self.held[source][chunk] for chunk in chunks]
        self.hosts.run(target, self._arrive(number))
        self.hosts.send(
            source, target, ("t", number), self._share(chunks), values, None if lane == NONE else lane
        )

    def _arrive(self, number: int) -> Program:
        from tests.reference.collectives.hosts import Receive

        values = yield Receive(("t", number))
        follows = self.table[number][4]
        self.arrived[number] = values
        if follows == NONE or follows in self.done:
            yield from self._process(number)

    def _process(self, number: int) -> Program:
        _, target, chunks, merges, *_ = self.table[number]
        if merges and (time_ps := self.merge_ps(self._share(chunks).words(self.hosts.size))):
            yield time_ps
        for chunk, value in zip(chunks, self.arrived.pop(number), strict=True):
            self.held[target][chunk] = (value, self.held[target][chunk]) if merges else value
        self.done.add(number)
        self.left[target] -= 1
        for one in self.waiting[number]:
            self.missing[one] -= 1
            if not self.missing[one]:
                self._send(one)
        if not self.left[target]:
            self._finish(target)
        for one in self.followers[number]:
            if one in self.arrived:
                yield from self._process(one)

    def _finish(self, worker: int) -> None:
        self.hosts.done_ps[worker] = self.hosts.links.now_ps
        self.hosts.results[worker] = [
            (self._share(range(chunk, chunk + 1)), value) for chunk, value in enumerate(self.held[worker])
        ]
