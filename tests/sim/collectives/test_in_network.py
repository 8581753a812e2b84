"""Aggregation in switches: what arrives and when, what engines are handed, and where each word was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.merge import lift
from netfold.homomorphic.message import Merge, Merged, Message, Scaling
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.in_network.places import Places
from netfold.sim.collectives.in_network.run import InNetwork
from netfold.sim.engine.interface import Frame, Job, Segment
from netfold.switch.program import ProgramSpec
from netfold.switch.programs import runnable
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from tests.examples import examples
from tests.sim.exchanges import (
    FRAME,
    INTEGER_MERGES,
    TABLE,
    Network,
    assert_all_right,
    draw_pauses,
    exchange_all,
    messages_of,
    ring,
    switch,
)
from tests.sim.scenes import BYTE_PS, LINK, Exchanged, small_star


def test_time_of_a_long_message_is_that_of_its_bytes() -> None:
    """With a window beyond the round trip the links never rest: all packets in a row, and one round trip."""
    packets = 2000
    messages = messages_of(Merge.ADD, 3, packets * FRAME.elements)
    exchanged = Exchanged(small_star(3), switch(3, FRAME, 1024, 1)).run([[(one,)] for one in messages])

    assert packets * 100 * BYTE_PS + 2 * LINK.delay_ps + 100 * BYTE_PS == exchanged.end_ps


def test_a_small_window_sends_one_window_a_round_trip() -> None:
    windows = 10
    messages = messages_of(Merge.ADD, 3, 4 * windows * FRAME.elements)
    exchanged = Exchanged(small_star(3), switch(3, FRAME, 4, 1)).run([[(one,)] for one in messages])

    # The results of a window arrive spaced like its packets left; each lets the next one of its slot go.
    round_trip_ps = 2 * (100 * BYTE_PS + LINK.delay_ps)
    assert windows * round_trip_ps + 3 * 100 * BYTE_PS == exchanged.end_ps


@given(data=st.data())
@examples(40)
def test_a_switch_against_the_reference(data: st.DataObject) -> None:
    """Several messages at once, empty ones, short tails, rounds of different length, stragglers, loss."""
    workers = data.draw(st.integers(1, 5))
    slots, unit_packets = data.draw(st.sampled_from([(1, 1), (3, 1), (8, 1), (4, 4), (8, 4), (6, 2)]))
    message = st.tuples(
        st.sampled_from([*INTEGER_MERGES, None]), st.sampled_from([0, 1, 15, 16, 17, 64, 65, 500])
    )
    operations = data.draw(
        st.lists(st.lists(message, min_size=1, max_size=4), min_size=1, max_size=4), label="operations"
    )
    loss = data.draw(st.sampled_from([0.0, 0.02]))
    network = Network(switch(workers, FRAME, slots, unit_packets), loss, data.draw(st.integers(0, 1000)))

    result = exchange_all(
        workers, operations, network, draw_pauses(data), block_elements=unit_packets * FRAME.elements
    )

    assert_all_right(result)


@pytest.mark.parametrize("unit_packets", [1, 4])
def test_slot_positions_carry_over_between_rounds(unit_packets: int) -> None:
    """Streams of every length around the window, one after the other, meet every slot in both versions."""
    window = 3
    unit = unit_packets * FRAME.elements
    operations = [[(Merge.ADD, units * unit - 1)] for units in (1, 2, 3, 4, 5, 6, 7, 1, 1, 4, 2)]
    network = Network(switch(2, FRAME, window * unit_packets, unit_packets))

    assert_all_right(exchange_all(2, operations, network, [0, 5000]))


def test_workers_wait_for_the_last_one() -> None:
    late_ps = 5 * 10**9
    messages = messages_of(Merge.ADD, 3, 100)
    sent = [[(one,)] for one in messages]

    exchanged = Exchanged(small_star(3), switch(3, FRAME, 8, 1))
    on_time = Exchanged(small_star(3), switch(3, FRAME, 8, 1)).run(sent)
    exchanged.run(sent, [[0], [late_ps], [0]])

    assert exchanged.end_ps == late_ps + on_time.end_ps
    # The others' timers expired while they waited: whether anything was lost they cannot know.
    assert exchanged.collective.retransmitted_packets() > 0
    assert on_time.collective.retransmitted_packets() == 0


def test_empty_messages_do_not_travel() -> None:
    messages = messages_of(Merge.ADD, 3, 0)
    for start in (switch(3, FRAME, 8, 1), ring(1)):
        exchanged = Exchanged(small_star(3), start).run([[(one,)] for one in messages][:1])

        assert exchanged.received[0][0][0].words.tolist() == []
        assert (exchanged.end_ps, exchanged.engine.packet_hops) == (0, 0)


def test_the_words_sent_are_left_as_they_were() -> None:
    for start in (switch(3, FRAME, 8, 1), ring(3, FRAME)):
        messages = messages_of(Merge.ADD, 3, 500)
        before = [one.words.copy() for one in messages]
        Exchanged(small_star(3), start).run([[(one,)] for one in messages])

        for words, message in zip(before, messages, strict=True):
            assert words.tolist() == message.words.tolist()


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


Operation = list[list[int]]  # of each stream, the words of its messages
FIRST, SECOND = OperationPlace(0, 0, 0), OperationPlace(0, 0, 1)


def job_of(window: int, unit_packets: int, program: ProgramSpec = SWITCHML) -> Job:
    return Job(
        hosts=(0, 1),
        switch=2,
        slot_base=100,
        slots_count=window * unit_packets,
        unit_packets=unit_packets,
        frame=Frame("test", elements=4, overhead_bytes=36),
        timeout_ps=1,
        first_timeout_ps=1,
        timeout_max_ps=1,
        routes=(0, 0),
        program=program,
    )


def segment(size: int) -> Segment:
    return Segment(np.zeros(size, np.int32), np.zeros(size, np.int32), Merge.ADD)


def expected(
    operations: list[Operation], window: int, unit_packets: int
) -> dict[tuple[OperationPlace, int, int], str]:
    """Place of every word by operation, part and word: units sent one by one."""
    versions, places, stream = [0] * window, {}, 0
    unit_words = 4 * unit_packets
    for number, operation in enumerate(operations):
        part = 0
        for sizes in operation:
            unit = 0
            for size in sizes:
                for begin in range(0, size, unit_words):
                    slot = unit % window
                    for word in range(begin, min(begin + unit_words, size)):
                        physical = 100 + slot * unit_packets + (word - begin) // 4
                        where = f"slot {physical}, version {versions[slot]}, unit {unit} of stream {stream}"
                        places[OperationPlace(0, number % 3, number // 3), part, word] = where
                    versions[slot] = 1 - versions[slot]
                    unit += 1
                part += 1
            stream += 1
    return places


@given(
    operations=st.lists(
        st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=3), min_size=1, max_size=2), max_size=4
    ),
    window=st.integers(1, 5),
    unit_packets=st.integers(1, 3),
)
@examples(30)
def test_places_of_plain_streams(operations: list[Operation], window: int, unit_packets: int) -> None:
    places = Places(job_of(window, unit_packets))
    for worker in (1, 0):  # whoever is first
        for number, operation in enumerate(operations):  # of three buckets in turn
            place, part = OperationPlace(0, number % 3, number // 3), 0
            for sizes in operation:
                parts = range(part, part + len(sizes))
                places.open(worker, place, parts, [segment(size) for size in sizes])
                part += len(sizes)

    found = {key: places.locate(*key) for key in expected(operations, window, unit_packets)}

    assert found == expected(operations, window, unit_packets)


def test_words_of_a_scaled_stream_come_a_window_later() -> None:
    places = Places(job_of(window=3, unit_packets=1))
    for place in (FIRST, SECOND):
        places.open(0, place, [0], [segment(5 * 4)], is_scaled=True)  # 5 blocks, 3 ahead: 8 units

    # Slots 0 and 1 had three units of the first stream, slot 2 had two.
    assert places.locate(FIRST, 0, 0) == "slot 100, version 1, unit 3 of stream 0"
    assert places.locate(SECOND, 0, 0) == "slot 100, version 0, unit 3 of stream 1"
    assert places.locate(SECOND, 0, 8) == "slot 102, version 1, unit 5 of stream 1"


def test_programs_without_versions() -> None:
    for program, place in (
        (TREE, "slot 100, version 0, unit 1 of stream 0"),
        (ATP, "unit 1 of stream 0, in a slot that changes with collisions, or at the server"),
    ):
        places = Places(job_of(1, 1, program))
        places.open(0, FIRST, [0], [segment(8)])

        assert places.locate(FIRST, 0, 4) == place


def test_a_word_of_a_lifted_message_is_where_its_code_was() -> None:
    """Every word of codes becomes eight; 30 words are two units of sixteen."""
    places = Places(job_of(window=4, unit_packets=4))
    lifted = Segment(np.zeros(30, np.uint32), np.zeros(240, np.int32), Merge.TABLE_ADD)
    places.open(0, FIRST, [0], [lifted])

    assert [places.locate(FIRST, 0, word) for word in (0, 127, 128, 239)] == [
        "slot 100, version 0, unit 0 of stream 0",
        "slot 103, version 0, unit 0 of stream 0",
        "slot 104, version 0, unit 1 of stream 0",
        "slot 107, version 0, unit 1 of stream 0",
    ]


def test_operations_of_the_step_before_are_forgotten_and_their_streams_still_count() -> None:
    places = Places(job_of(window=2, unit_packets=1))
    places.open(0, FIRST, [0], [segment(3 * 4)])
    later = OperationPlace(1, 0, 0)
    places.open(0, later, [0], [segment(4)])

    assert places.locate(later, 0, 0) == "slot 100, version 0, unit 0 of stream 1"
    with pytest.raises(KeyError):
        places.locate(FIRST, 0, 0)
