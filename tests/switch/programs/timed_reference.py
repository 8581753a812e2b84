"""The switch of TIMED in plain Python, without a network around it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from netfold.homomorphic.codec import Merge
from netfold.sim.engine.interface import Overflow
from tests.reference.engine.chunk import Cause, Chunk
from tests.reference.engine.fabric import Timer
from tests.reference.switch.timed import Row, TimedSwitch
from tests.switch.pipeline import TABLE, Packet

# A verdict is what the reference counts, or nothing.
COUNTED = {
    "results": "complete",
    "answers": "answer",
    "late": "late",
    "expired": "expired",
    "duplicates_dropped": "dropped",
}


class Surroundings:
    """Replaces the fabric and the egress: time does not advance, results arrive at once."""

    now_ps = 0

    def __init__(self) -> None:
        self.sign_key = 0  # of the packet that is under way
        self.results: list[tuple[int, Chunk]] = []  # with the worker that got it

    def key(self, *_: int) -> int:
        return self.sign_key

    def arm(self, timer: Timer, time_ps: int) -> None:
        timer.armed_ps = time_ps

    def disarm(self, timer: Timer) -> None:
        timer.armed_ps = None

    def pass_again(self, chunk: Chunk, then: Callable[[Chunk], None], _: int = 0) -> None:
        then(chunk)

    def to_worker(self, worker: int, result: Chunk, _: int = 0) -> None:
        self.results.append((worker, result))

    def clear(self) -> None:
        """Nothing is on its way."""


class TimedReference:
    """`TimedSwitch`, a packet at a time."""

    def __init__(self, workers: int, slots: int, overflow: Overflow) -> None:
        self.surroundings = Surroundings()
        job = SimpleNamespace(
            switch=0, loopback_link=-1, slots_count=slots, overflow=overflow, slot_timer_ps=1
        )
        number = SimpleNamespace(job=job, number=0, slot=lambda chunk: chunk.window_slot, owner=int)
        self.switch = TimedSwitch(self.surroundings, number)  # type: ignore[arg-type]
        self.switch.egress = self.surroundings  # type: ignore[assignment]
        self.switch.workers = list(range(workers))  # type: ignore[arg-type]

    @property
    def overflowed_words(self) -> int:
        """Words that overflowed so far."""
        return self.switch.counters["overflowed_words"]

    def row(self, slot: int, turn: int) -> Row:
        """Registers of a slot and turn."""
        return self.switch.rows[slot][turn % 2]

    def packet(self, packet: Packet) -> str:
        """Process one packet; returns the name of its verdict."""
        before = self.switch.counters.copy()
        self.surroundings.sign_key = packet.key
        self.surroundings.results.clear()
        self.switch.receive(
            packet.child,
            Chunk(
                Cause(packet.child, 0, packet.turn, 0, 0),
                packet.slot,
                packet.turn,
                packet.merge,
                packet.words,
                packet.exponent,
                workers=packet.workers,
                table=TABLE if packet.merge is Merge.TABLE_ADD else None,
            ),
        )
        counted = self.switch.counters - before
        return next((verdict for name, verdict in COUNTED.items() if counted[name]), "consumed")

    def time_out(self, slot: int, turn: int) -> None:
        """The timer of a row ends."""
        timer = self.row(slot, turn).timer
        timer.armed_ps = None
        self.surroundings.results.clear()
        timer.fire()
