"""The ring: what arrives is what merging in one process gives, and when."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.merge import merge_all
from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Frame
from netfold.sim.plan.frames import frames
from netfold.sim.workload.devices.kinds.fixed import FixedDevice
from tests.examples import examples
from tests.sim.exchanges import (
    FRAME,
    INTEGER_MERGES,
    Network,
    around_the_ring,
    assert_all_right,
    draw_pauses,
    exchange_all,
    messages_of,
    ring,
)
from tests.sim.scenes import BYTE_PS, LINK, Exchanged, small_star


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


@pytest.mark.parametrize("frame", [FRAME, *frames().values()], ids=lambda frame: frame.name)
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
@examples(20)
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
