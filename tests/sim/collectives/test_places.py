"""Slots, versions and units of words, against a plain count of what every window slot carried."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.in_network.places import Places
from netfold.sim.engine.interface import Frame, Job, Segment
from netfold.switch.program import ProgramSpec
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.tree import TREE
from tests.examples import examples

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
@examples(60)
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


def test_a_short_scaled_stream_has_a_short_window() -> None:
    places = Places(job_of(window=8, unit_packets=1))
    places.open(0, FIRST, [0], [segment(2 * 4)], is_scaled=True)

    assert places.locate(FIRST, 0, 7) == "slot 101, version 1, unit 3 of stream 0"


def test_programs_without_versions() -> None:
    for program, place in (
        (TREE, "slot 100, version 0, unit 1 of stream 0"),
        (
            ATP,
            "unit 1 of stream 0, in a slot that changes with collisions, or at the server",
        ),
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
