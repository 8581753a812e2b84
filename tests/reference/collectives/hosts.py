"""Hosts that send messages to each other: packets, windows, acknowledgements, and programs that wait.

A worker's program is a generator. It yields a `Receive` and gets what was sent under that name, a number of
picoseconds to compute, or None to let its other programs go on first. What it holds is a nest of pairs that
says how values were merged.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from netfold.sim.engine.engine_data import NONE, Schedule
from tests.reference.collectives.links import Links, Packet


class Share(NamedTuple):
    """A stretch of the message, from one fraction of it to another."""

    start: Fraction
    end: Fraction

    def parts(self, count: int) -> list[Share]:
        step = (self.end - self.start) / count
        return [Share(self.start + step * i, self.start + step * (i + 1)) for i in range(count)]

    def words(self, size: int) -> int:
        """Words of it in a message of `size`, cut where a word begins."""
        return int(self.end * size) - int(self.start * size)


WHOLE = Share(Fraction(0), Fraction(1))


class Receive(NamedTuple):
    """Wait for what was sent under a name."""

    name: tuple[Any, ...]


Program = Generator[Any, Any, Any]


@dataclass(frozen=True)
class Wire:
    """How messages become packets."""

    elements: int
    overhead_bytes: int
    first_bytes: int = 0
    last_bytes: int = 0
    ack_bytes: int = 64
    window: int = 512
    ack_every: int = 16

    def sizes(self, words: int) -> list[int]:
        """Bytes of each packet of a message; at least one packet."""
        counts = [self.elements] * (words // self.elements)
        counts += [words % self.elements] if words % self.elements or not words else []
        sizes = [self.overhead_bytes + 4 * one for one in counts]
        sizes[0] += self.first_bytes
        sizes[-1] += self.last_bytes
        return sizes


@dataclass
class _Lane:
    """A connection whose messages share a window."""

    outstanding: int = 0
    waiting: deque[Callable[[], None]] = field(default_factory=deque)


class Hosts:
    """Workers on a network; `path(source, target)` gives the links between two of them."""

    def __init__(
        self, links: Links, path: Callable[[int, int], tuple[int, ...]], wire: Wire, size: int
    ) -> None:
        self.links, self.path, self.wire, self.size = links, path, wire, size
        self.arrived: dict[tuple[int, Any], Any] = {}
        self.waiting: dict[tuple[int, Any], Program] = {}
        self.lanes: defaultdict[Any, _Lane] = defaultdict(_Lane)
        self.done_ps: dict[int, int] = {}
        self.results: dict[int, list[tuple[Share, Any]]] = defaultdict(list)
        self._running: defaultdict[int, int] = defaultdict(int)
        self._ready: deque[tuple[int, Program, Any, bool]] = deque()
        self._is_going = False

    def run(self, worker: int, program: Program) -> None:
        """Start a program of a worker; the worker is done when all of its programs are."""
        self._running[worker] += 1
        self._go_on(worker, self._ending(worker, program), None)

    def start(self, worker: int, programs: Iterable[Program]) -> None:
        """Start programs of a worker at the same time: they take turns."""
        for program in programs:
            self._running[worker] += 1
            self._ready.append((worker, self._ending(worker, program), None, False))
        self._drain()

    def _ending(self, worker: int, program: Program) -> Program:
        yield from program
        self._running[worker] -= 1
        if not self._running[worker]:
            self.done_ps[worker] = self.links.now_ps

    def send(
        self, source: int, target: int, name: tuple[Any, ...], share: Share, value: Any, lane: Any = None
    ) -> None:
        """Send a share; messages of one lane share a window."""
        sizes = self.wire.sizes(share.words(self.size))

        def open_() -> None:
            _Message(self, source, target, sizes, delivered)

        def delivered() -> None:
            if lane is not None:
                self.lanes[lane].outstanding -= len(sizes)
            self._deliver(target, name, value)
            if lane is not None:
                self._pump(lane)

        if lane is None:
            open_()
            return

        def begin() -> bool:
            one = self.lanes[lane]
            if one.outstanding and one.outstanding + len(sizes) > self.wire.window:
                return False
            one.outstanding += len(sizes)
            open_()
            return True

        self.lanes[lane].waiting.append(begin)
        self._pump(lane)

    def _pump(self, lane: Any) -> None:
        waiting = self.lanes[lane].waiting
        while waiting and waiting[0]():
            waiting.popleft()

    def _deliver(self, worker: int, name: Any, value: Any) -> None:
        if program := self.waiting.pop((worker, name), None):
            self._go_on(worker, program, value)
        else:
            self.arrived[worker, name] = value

    def _go_on(self, worker: int, program: Program, value: Any) -> None:
        """Let a program go on; what may be sent at once is sent before what has arrived is taken in."""
        self._ready.append((worker, program, value, False))
        if self._is_going:
            self._step(*self._ready.pop())
            return
        self._drain()

    def _drain(self) -> None:
        if self._is_going:
            return
        self._is_going = True
        while self._ready:
            self._step(*self._ready.popleft())
        self._is_going = False

    def _step(self, worker: int, program: Program, value: Any, is_name: bool) -> None:
        if is_name:
            value = self.arrived.pop((worker, value))
        try:
            wanted = program.send(value)
        except StopIteration:
            return
        if wanted is None:
            self._ready.append((worker, program, None, False))
        elif isinstance(wanted, int):
            self.links.at(self.links.now_ps + wanted, lambda: self._go_on(worker, program, None))
        elif (worker, wanted.name) in self.arrived:
            self._ready.append((worker, program, wanted.name, True))
        else:
            self.waiting[worker, wanted.name] = program


class _Message:
    """A message under way: a window of packets, and one acknowledgement for several of them."""

    def __init__(
        self, hosts: Hosts, source: int, target: int, sizes: list[int], delivered: Callable[[], None]
    ) -> None:
        self.hosts, self.sizes, self.delivered = hosts, sizes, delivered
        self.there, self.back = hosts.path(source, target), hosts.path(target, source)
        self.window = min(hosts.wire.window, max(hosts.wire.ack_every, len(sizes)))
        self.base = self.next = self.came = 0
        self.pump()

    def pump(self) -> None:
        while self.next < min(len(self.sizes), self.base + self.window):
            self.hosts.links.put(Packet(self.sizes[self.next], self.there, self.arrive))
            self.next += 1

    def arrive(self) -> None:
        """Nothing is lost and links keep the order: what comes is always the next packet."""
        self.came += 1
        if self.came % self.hosts.wire.ack_every == 0 or self.came == len(self.sizes):
            came = self.came
            ack = Packet(self.hosts.wire.ack_bytes, self.back, lambda: self.acknowledge(came), is_ack=True)
            self.hosts.links.put(ack)
        if self.came == len(self.sizes):
            self.delivered()

    def acknowledge(self, came: int) -> None:
        self.base = came
        self.pump()


def leaves(value: Any) -> Iterable[int]:
    """The workers whose words a value holds; one that was merged twice appears twice."""
    if isinstance(value, int):
        yield value
        return
    for one in value:
        yield from leaves(one)


Value = Any


def rows(schedule: Schedule) -> list[tuple[int, int, range, bool, int, list[int]]]:
    """Source, target, chunks, merges, follows, and what is awaited, of each transfer."""
    found = []
    for t in range(schedule.transfers):
        first, end = int(schedule.waits_first[t]), int(schedule.waits_first[t + 1])
        chunks = range(int(schedule.first[t]), int(schedule.first[t] + schedule.count[t]))
        pair = int(schedule.source[t]), int(schedule.target[t])
        awaited = schedule.waits_for[first:end].tolist()
        found.append((*pair, chunks, bool(schedule.merges[t]), int(schedule.follows[t]), awaited))
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
        ready = [t for t in unsent if all(one in done for one in table[t][5])]
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
