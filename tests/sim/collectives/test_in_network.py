"""Aggregation in the switch: what arrives is the sum, union or maximum, and when."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.message import Merge, Message
from tests.examples import examples
from tests.sim.exchanges import (
    FRAME,
    INTEGER_MERGES,
    Network,
    assert_all_right,
    draw_pauses,
    exchange_all,
    messages_of,
    ring,
    switch,
)
from tests.sim.scenes import BYTE_PS, LINK, Exchanged, small_star


def test_a_switch_against_sums_by_hand() -> None:
    sent = [
        [
            (
                Message(np.array(words, np.int32), Merge.ADD, "a"),
                Message(np.array(bits, np.uint32), Merge.OR, "b"),
            )
        ]
        for words, bits in (([1, 2**31 - 1], [1]), ([20, 1], [2]), ([-300, 0], [6]))
    ]
    exchanged = Exchanged(small_star(3), switch(3, FRAME, slots=4, unit_packets=1)).run(sent)

    for ((added, united),) in exchanged.received:
        assert added.words.tolist() == [-279, -(2**31)]  # wraps
        assert united.words.tolist() == [7]


def test_time_of_one_unit_through_an_idle_switch() -> None:
    messages = messages_of(Merge.ADD, 3, FRAME.elements)
    exchanged = Exchanged(small_star(3), switch(3, FRAME, 4, 1)).run([[(one,)] for one in messages])

    assert 2 * (100 * BYTE_PS + LINK.delay_ps) == exchanged.end_ps


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
@examples(100)
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


def test_more_loss_takes_more_time() -> None:
    messages = messages_of(Merge.ADD, 4, 4000)
    runs = [
        Exchanged(small_star(4), switch(4, FRAME, 32, 4), loss, seed=2).run([[(one,)] for one in messages])
        for loss in (0.0, 0.01, 0.05, 0.2)
    ]

    assert all(less.end_ps < more.end_ps for less, more in pairwise(runs))
