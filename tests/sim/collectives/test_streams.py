"""What a collective hands to an engine and makes of its answer, where the engine echoes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from netfold.homomorphic.merge import lift
from netfold.homomorphic.message import Merge, Merged, Message, Scaling
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.in_network.run import InNetwork
from netfold.sim.engine.interface import Job, Segment
from netfold.switch.program import ProgramSpec
from netfold.switch.programs import runnable
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from tests.sim.exchanges import FRAME, TABLE

JOB = Job(
    hosts=(0, 1, 2),
    switch=3,
    slot_base=0,
    slots_count=8,
    unit_packets=1,
    frame=FRAME,  # of 16 words
    timeout_ps=1,
    first_timeout_ps=1,
    timeout_max_ps=1,
    routes=(0, 0, 0),
)


class Fabric:
    """Answers every stream at once, as one worker's words alone; keeps what it was given."""

    def __init__(self, holders: list[int] | None = None, floats: list[int] | None = None) -> None:
        self.segments: list[Segment] = []
        self._environment = simpy.Environment()
        self._holders, self._floats = holders, floats

    def add_job(self, job: Job, owner: int, ranks: Any = None) -> int:
        return 0

    def stream(self, job: int, worker: int, segments: list[Segment], scaled: Any = None) -> simpy.Event:
        for segment in segments:
            self.segments.append(segment)
            segment.result[:] = segment.words if segment.table is None else lift(segment.words, segment.table)
            if segment.own is not None:
                segment.own[:] = 1  # no packet is shared with another worker
            if self._holders is not None and segment.holders is not None:
                segment.holders[:] = self._holders
            if self._floats is not None and segment.is_float is not None:
                segment.is_float[:] = self._floats
        return self._environment.timeout(0)


def exchanged(fabric: Fabric, program: ProgramSpec, message: Message) -> Merged:
    collective = InNetwork(fabric, [replace(JOB, program=program)])  # type: ignore[arg-type]
    exchange = collective.exchange(0, (message,), OperationPlace(0, 0, 0))
    next(exchange)
    try:
        exchange.send(None)
    except StopIteration as stop:
        (merged,) = stop.value
        assert isinstance(merged, Merged)
        return merged
    raise AssertionError("more than one stream")


def integers(size: int) -> NDArray[np.int32]:
    return np.arange(size, dtype=np.int32)


def test_results_of_slots_with_timers_say_whom_they_hold() -> None:
    fabric = Fabric(holders=[0b111, 0b101])
    merged = exchanged(fabric, TIMED, Message(integers(20), Merge.ADD, "values"))

    assert merged.words.tolist() == list(range(20))
    assert merged.holders is not None
    assert (merged.holders.bitmaps.tolist(), merged.holders.unit_words) == ([0b111, 0b101], 16)
    assert merged.is_float is None


def test_other_programs_results_hold_all() -> None:
    fabric = Fabric()
    merged = exchanged(fabric, TREE, Message(integers(20), Merge.ADD, "values"))

    assert (merged.holders, merged.workers, fabric.segments[0].holders) == (None, 3, None)


def test_units_whose_words_overflow_at_the_worker_are_floats_from_the_start() -> None:
    words = integers(40)
    words[[3, 35]] = 2**31 - 1, -(2**31) + 1
    fabric = Fabric()
    merged = exchanged(fabric, ATP, Message(words, Merge.ADD, "values", floats=words.astype(np.float32)))

    (segment,) = fabric.segments
    assert segment.is_float is not None
    assert segment.is_float.tolist() == [1, 0, 1]
    assert merged.is_float is not None
    assert merged.is_float.tolist() == [True] * 16 + [False] * 16 + [True] * 8


def test_units_that_the_network_asked_for_as_floats_are_told_of() -> None:
    message = Message(integers(20), Merge.ADD, "values", floats=np.zeros(20, np.float32))
    merged = exchanged(Fabric(floats=[0, 1]), ATP, message)

    assert merged.is_float is not None
    assert merged.is_float.tolist() == [False] * 16 + [True] * 4


def test_codes_come_back_as_lanes() -> None:
    words = np.array([0x76543210, 0xFFFFFFFF], np.uint32)
    merged = exchanged(Fabric(), SWITCHML, Message(words, Merge.TABLE_ADD, "codes", table=TABLE))

    assert merged.words.dtype == np.int32
    assert merged.words.tolist() == [*TABLE[:8].tolist(), *[int(TABLE[15])] * 8]


def test_exponents_ride_ahead_on_switchml_alone() -> None:
    scaled = Message(
        np.zeros(16, np.float32), Merge.ADD, "values", scaling=Scaling(np.zeros(1, np.int8), 16, 3)
    )
    for program in runnable().values():
        collective = InNetwork(Fabric(), [replace(JOB, program=program)])  # type: ignore[arg-type]
        assert collective.pipelines(scaled) == (program is SWITCHML)
        assert collective.takes_floats == (program is ATP)
