"""Collectives over the simulated network: what arrives is what folding in one process gives, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from homomorphic.codec import Merge, Message, Scaling
from homomorphic.fixed_point import block_exponents
from homomorphic.fold import merged_reference
from homomorphic.merge import merge_all
from sim.collectives.collective import Collective
from sim.collectives.in_network import SWITCH_MERGES, InNetwork, refused_merges
from sim.collectives.ring import Ring, RingOptions
from sim.engine.model import Frame, Job
from sim.fabric import Fabric
from sim.frames import FRAMES
from sim.workload.device import FixedDevice, NoDevice
from tests.sim.scenes import BYTE_PS, LINK, Exchanged, Started, small_star

TABLE = np.array([3 * code - 20 for code in range(16)], np.int32)
DTYPES: dict[Merge, type[np.generic]] = {
    Merge.ADD: np.int32,
    Merge.OR: np.uint32,
    Merge.MAX: np.int32,
    Merge.TABLE_ADD: np.uint32,
    Merge.SIGN: np.uint32,
}
INTEGER_MERGES = (Merge.ADD, Merge.OR, Merge.MAX)
FRAME = Frame("test", elements=16, overhead_bytes=36, ack_bytes=50)  # 100 B a packet


def words_of(merge: Merge, size: int, seed: int) -> NDArray[Any]:
    """Random words, of all 32 bits where the merge takes integers."""
    random = np.random.default_rng(seed)
    if merge is Merge.FLOAT_ADD:
        return (random.standard_normal(size) * 10.0 ** random.integers(-3, 4, size)).astype(np.float32)
    return random.integers(0, 2**32, size, dtype=np.uint32).view(DTYPES[merge])


def messages_of(merge: Merge, workers: int, size: int, seed: int = 0) -> list[Message]:
    table = TABLE if merge is Merge.TABLE_ADD else None
    return [
        Message(words_of(merge, size, 100 * seed + worker), merge, "values", table=table)
        for worker in range(workers)
    ]


def ring(workers: int, frame: Frame = FRAMES["udp-256"], device: Any = None, **changes: int) -> Started:
    options = {"window": 512, "timeout_ps": 10**9, "ack_every": 16, "seed": 1, **changes}

    def start(environment: simpy.Environment, fabric: Fabric) -> Collective:
        return Ring(
            environment, fabric, RingOptions(tuple(range(workers)), frame, **options), device or NoDevice()
        )

    return start


def switch(workers: int, frame: Frame, slots: int, unit_packets: int) -> Started:
    """A job on the switch of a small star."""
    times = {"timeout_ps": 10**9, "first_timeout_ps": 10**9, "timeout_max_ps": 10**10}
    job = Job(
        hosts=tuple(range(workers)),
        switch=workers,
        slot_base=0,
        slots_count=slots,
        unit_packets=unit_packets,
        frame=frame,
        routes=(0,) * workers,
        **times,
    )
    return lambda environment, fabric: InNetwork(fabric, job)


def around_the_ring(messages: list[Message]) -> Exchanged:
    return Exchanged(small_star(len(messages)), ring(len(messages))).run([[(one,)] for one in messages])


# The ring


@pytest.mark.parametrize("merge", [*INTEGER_MERGES, Merge.TABLE_ADD])
@pytest.mark.parametrize("workers", range(1, 10))
def test_every_worker_of_a_ring_gets_the_merge_of_all(merge: Merge, workers: int) -> None:
    for size in (0, 1, workers - 1, workers, 1000):
        messages = messages_of(merge, workers, size, seed=size)
        exchanged = around_the_ring(messages)

        expected = merge_all(merge, [one.words for one in messages], table=messages[0].table)
        for ((merged,),) in exchanged.received:
            assert expected.dtype == merged.words.dtype
            assert expected.tolist() == merged.words.tolist()
            assert workers == merged.workers


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_a_ring_adds_floats_segment_by_segment_from_its_first_worker_on(workers: int) -> None:
    size = 101
    messages = messages_of(Merge.FLOAT_ADD, workers, size)
    exchanged = around_the_ring(messages)

    expected = []
    for first in range(workers):
        for element in range(size * first // workers, size * (first + 1) // workers):
            total = messages[first].words[element]
            for behind in range(1, workers):
                total = np.float32(total + messages[(first + behind) % workers].words[element])
            expected.append(total)
    for ((merged,),) in exchanged.received:
        assert np.array(expected, np.float32).tobytes() == merged.words.tobytes()


@pytest.mark.parametrize("workers", range(1, 10))
def test_a_ring_merges_signs_into_one_random_workers_bits(workers: int) -> None:
    size = 1000 * workers + 7
    messages = messages_of(Merge.SIGN, workers, size)
    exchanged = around_the_ring(messages)

    words = exchanged.received[0][0][0].words
    assert {words.tobytes()} == {merged.words.tobytes() for ((merged,),) in exchanged.received}
    bits = np.array([np.unpackbits(one.words.view(np.uint8)) for one in messages])
    kept = np.unpackbits(words.view(np.uint8))
    # A bit that all workers agree on survives; every worker's bits survive equally often.
    assert np.all(kept[bits.all(axis=0)] == 1)
    assert np.all(kept[~bits.any(axis=0)] == 0)
    agreement = (bits == kept).mean(axis=1)
    expected = 1 / workers + (1 - 1 / workers) / 2
    assert agreement == pytest.approx([expected] * workers, abs=5 * 0.5 / np.sqrt(32 * size))


def packet_bytes(frame: Frame, words_count: int) -> list[int]:
    """Sizes of the packets of one message."""
    counts = [frame.elements] * (words_count // frame.elements)
    counts += [words_count % frame.elements] if words_count % frame.elements else []
    return [
        frame.wire_bytes(count, first=index == 0, last=index == len(counts) - 1)
        for index, count in enumerate(counts)
    ]


@pytest.mark.parametrize("frame", [FRAME, *FRAMES.values()], ids=lambda frame: frame.name)
@pytest.mark.parametrize(("workers", "packets"), [(2, 1), (2, 3), (3, 4), (5, 1), (8, 2)])
def test_time_of_a_ring_on_an_idle_network(frame: Frame, workers: int, packets: int) -> None:
    """2(n − 1) times a segment through a switch; all but the first wait for an ACK on the same link."""
    messages = messages_of(Merge.ADD, workers, workers * packets * frame.elements)
    exchanged = Exchanged(small_star(workers), ring(workers, frame)).run([[(one,)] for one in messages])

    sizes = packet_bytes(frame, packets * frame.elements)
    # Its packets follow each other on both links, the first one is waited for twice.
    segment_ps = (sum(sizes) + sizes[0]) * BYTE_PS + 2 * LINK.delay_ps
    steps = 2 * (workers - 1)
    assert steps * segment_ps + (steps - 1) * frame.ack_bytes * BYTE_PS == exchanged.end_ps


def test_a_ring_is_charged_for_merging() -> None:
    workers, words = 3, 30
    messages = messages_of(Merge.ADD, workers, words)
    device = FixedDevice(0, 0, memory_bps=8 * 10**9)  # a byte a nanosecond

    free, charged = (
        Exchanged(small_star(workers), ring(workers, FRAME, device)).run([[(one,)] for one in messages])
        for device in (None, device)
    )

    # n − 1 times: read two segments, write one. While it waits, the ACK before the next segment is gone.
    merge_ps = 3 * 4 * (words // workers) * 1000
    ack_ps = FRAME.ack_bytes * BYTE_PS
    assert free.end_ps + (workers - 1) * (merge_ps - ack_ps) == charged.end_ps


@given(data=st.data())
@settings(max_examples=20)
def test_a_ring_survives_loss_and_stragglers(data: st.DataObject) -> None:
    workers = data.draw(st.integers(2, 5))
    merges = st.sampled_from([*INTEGER_MERGES, Merge.TABLE_ADD])
    sizes = st.sampled_from([0, 1, 3, 100, 700])
    operations = data.draw(
        st.lists(st.lists(st.tuples(merges, sizes), min_size=1, max_size=3), min_size=1, max_size=3)
    )
    seed = data.draw(st.integers(0, 1000))
    window, ack_every = data.draw(st.sampled_from([(1, 1), (4, 2), (512, 16)]))
    start = ring(workers, FRAME, window=window, ack_every=ack_every, timeout_ps=10**8)

    exchanged = exchange_all(workers, operations, Network(start, loss=0.03, seed=seed), draw_pauses(data))

    assert_all_right(exchanged)


def test_a_ring_counts_what_it_sends_again() -> None:
    messages = messages_of(Merge.ADD, 4, 2000)
    sent = [[(one,)] for one in messages]

    lossless, lossy = (
        Exchanged(small_star(4), ring(4, FRAME), loss, seed=3).run(sent) for loss in (0.0, 0.02)
    )

    assert lossless.collective.retransmitted_packets() == 0
    data_packets = 4 * 6 * -(-2000 // 4 // FRAME.elements)
    assert 0 < lossy.collective.retransmitted_packets() < data_packets


# In the switch


Operations = Sequence[Sequence[tuple[Merge | None, int]]]  # None: a scaled message


@dataclass(frozen=True)
class Network:
    """How the words get about: a collective, and what its links lose."""

    start: Started
    loss: float = 0.0
    seed: int = 1


@dataclass(frozen=True)
class Result:
    sent: list[list[tuple[Message, ...]]]
    exchanged: Exchanged


def scaled_messages(workers: int, size: int, block_elements: int, seed: int) -> list[Message]:
    gradients = [words_of(Merge.FLOAT_ADD, size, 100 * seed + worker) for worker in range(workers)]
    return [
        Message(
            gradient,
            Merge.ADD,
            "values",
            scaling=Scaling(block_exponents(gradient, block_elements, workers), block_elements, workers),
        )
        for gradient in gradients
    ]


def exchange_all(
    workers: int,
    operations: Operations,
    network: Network,
    pauses_ps: list[int],
    block_elements: int = 16,
) -> Result:
    """Carry operations of random words; worker r waits `pauses_ps[r]` before each."""
    sent: list[list[tuple[Message, ...]]] = [[] for _ in range(workers)]
    for number, operation in enumerate(operations):
        columns = [
            scaled_messages(workers, size, block_elements, 10 * number + part)
            if merge is None
            else messages_of(merge, workers, size, 10 * number + part)
            for part, (merge, size) in enumerate(operation)
        ]
        for worker in range(workers):
            sent[worker].append(tuple(column[worker] for column in columns))
    pauses = [[pauses_ps[worker]] * len(operations) for worker in range(workers)]
    exchanged = Exchanged(small_star(workers), network.start, network.loss, network.seed)
    return Result(sent, exchanged.run(sent, pauses))


def draw_pauses(data: st.DataObject) -> list[int]:
    """Up to 3 ms each: several timeouts."""
    return data.draw(st.lists(st.integers(0, 3 * 10**9), min_size=8, max_size=8), label="pauses_ps")


def assert_all_right(result: Result) -> None:
    """Every word at every worker is the sum, union or maximum, by the independent account of it."""
    workers = len(result.sent)
    for number, operation in enumerate(result.sent[0]):
        for part, message in enumerate(operation):
            right = merged_reference([result.sent[worker][number][part] for worker in range(workers)]).merged
            for worker in range(workers):
                merged = result.exchanged.received[worker][number][part]
                assert right.words.dtype == merged.words.dtype
                assert right.words.tolist() == merged.words.tolist()
                assert workers == merged.workers
                if message.scaling is not None:
                    assert right.exponents is not None
                    assert merged.exponents is not None
                    assert right.exponents.tolist() == merged.exponents.tolist()


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
@settings(max_examples=100)
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


def test_merges_of_a_switch() -> None:
    assert set(INTEGER_MERGES) == set(SWITCH_MERGES)
    assert refused_merges(list(Merge)) == [merge for merge in Merge if merge not in INTEGER_MERGES]


def test_more_loss_takes_more_time() -> None:
    messages = messages_of(Merge.ADD, 4, 4000)
    runs = [
        Exchanged(small_star(4), switch(4, FRAME, 32, 4), loss, seed=2).run([[(one,)] for one in messages])
        for loss in (0.0, 0.01, 0.05, 0.2)
    ]

    assert all(less.end_ps < more.end_ps for less, more in pairwise(runs))
