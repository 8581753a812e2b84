"""Times of collectives between hosts on an idle star against closed forms, and what codecs are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netfold.homomorphic.carrier import MessageSize
from netfold.homomorphic.message import Merge
from netfold.sim.collectives.all_gather.spec import SCHEDULE as ALL_GATHER
from netfold.sim.collectives.between_hosts import HostCarrier, carrier_of, pace_of, traffic_of
from netfold.sim.collectives.in_network.carrier import WindowCarrier
from netfold.sim.collectives.parameter_server.spec import steps_of
from netfold.sim.collectives.ring.spec import SCHEDULE as RING
from netfold.sim.engine.interface import Frame
from netfold.sim.plan.frames import frames
from netfold.sim.workload.devices.kinds.fixed import FixedDevice, NoDevice
from tests.sim.exchanges import FRAME, gathering, messages_of, ring, serving
from tests.sim.scenes import BYTE_PS, LINK, Exchanged, Started, small_star

PACKET_PS = 100 * BYTE_PS
ACK_PS = FRAME.ack_bytes * BYTE_PS
DELAY_PS = LINK.delay_ps
BYTE_A_NANOSECOND = 8 * 10**9


def time_ps(start: Started, workers: int, packets: int, hosts: int = 0, size: int | None = None) -> int:
    """When the last worker has the sums of dense words."""
    messages = messages_of(Merge.ADD, workers, packets * FRAME.elements if size is None else size)
    return Exchanged(small_star(max(hosts, workers)), start).run([[(one,)] for one in messages]).end_ps


@pytest.mark.parametrize("workers", [2, 3, 5, 8])
@pytest.mark.parametrize("packets", [1, 4])
def test_one_chunk_goes_round_hop_by_hop(workers: int, packets: int) -> None:
    """It passes both links of a hop packet by packet; all but the first wait for an ACK on the same link."""
    found = time_ps(gathering(workers, chunk_words=packets * FRAME.elements), workers, packets)

    hop_ps = (packets + 1) * PACKET_PS + 2 * DELAY_PS
    assert (workers - 1) * hop_ps + (workers - 2) * ACK_PS == found


@pytest.mark.parametrize(("workers", "packets", "chunk"), [(2, 100, 10), (5, 2000, 50), (4, 4000, 50)])
def test_long_messages_keep_every_link_of_an_all_gather_busy(workers: int, packets: int, chunk: int) -> None:
    """A link carries n − 1 messages back to back, and at most as many ACKs as chunks."""
    start = gathering(workers, chunk_words=chunk * FRAME.elements, ack_every=chunk)
    found = time_ps(start, workers, packets)

    busy_ps = (workers - 1) * packets * PACKET_PS + PACKET_PS + 2 * DELAY_PS
    acks_ps = (workers - 1) * -(-packets // chunk) * ACK_PS
    assert busy_ps <= found <= busy_ps + acks_ps


@pytest.mark.parametrize(("workers", "packets", "chunk"), [(1, 1, 1), (2, 1, 1), (2, 4, 4), (4, 2000, 50)])
def test_the_link_of_one_server_carries_everything_up_and_the_last_chunk_down(
    workers: int, packets: int, chunk: int
) -> None:
    """n · P packets up and n · K down after the last chunk; and a packet's way to the server and back."""
    start = serving(workers, 1, chunk_words=chunk * FRAME.elements, ack_every=chunk)
    found = time_ps(start, workers, packets, workers + 1)

    busy_ps = workers * (packets + chunk) * PACKET_PS + 2 * PACKET_PS + 4 * DELAY_PS
    acks_ps = workers * -(-packets // chunk) * ACK_PS
    assert busy_ps <= found <= busy_ps + acks_ps
    if packets == 1:
        assert busy_ps + ACK_PS == found  # the server acknowledges the last chunk before it sends


@pytest.mark.parametrize(("workers", "servers"), [(8, 2), (4, 4), (2, 4), (8, 4)])
def test_servers_share_the_words(workers: int, servers: int) -> None:
    packets, chunk = 4000, 50
    start = serving(workers, servers, chunk_words=chunk * FRAME.elements, ack_every=chunk)
    found = time_ps(start, workers, packets, workers + servers)

    most = max(workers, servers) / servers * packets + workers * chunk / min(workers, servers)
    busy_ps = most * PACKET_PS + 2 * PACKET_PS + 4 * DELAY_PS
    assert busy_ps <= found <= 1.06 * busy_ps


def test_the_closed_forms_say_so_too() -> None:
    """Rates in words per second: all-gather (n − 1) messages, servers n / N, beside them as a ring."""
    workers, servers, network = 8, 2, small_star(10)
    nodes = list(range(10))
    wire = FRAME.elements / (PACKET_PS * 1e-12)

    gather = ALL_GATHER.pace(network, nodes[:8], 1, 0, FRAME)
    served = pace_of(network, nodes, steps_of(workers, servers), lambda *flow: 0, FRAME)
    beside = pace_of(network, [*nodes[:8], *nodes[:8]], steps_of(8, 8), lambda *flow: 0, FRAME)
    around = RING.pace(network, nodes[:8], 1, 0, FRAME)

    assert gather.elements_per_s == pytest.approx(wire / 7)
    assert served.elements_per_s == pytest.approx(wire * servers / workers)
    assert beside.elements_per_s == pytest.approx(wire * 8 / 14)
    assert beside.elements_per_s == pytest.approx(around.elements_per_s)
    way_ps = 2 * (PACKET_PS + DELAY_PS)
    assert (gather.latency_ps, served.latency_ps) == (7 * way_ps, 2 * way_ps)


def test_a_server_is_charged_for_merging_one_chunk_after_the_other() -> None:
    """The first chunk to arrive is stored; every other one is read with the sum and written."""
    workers, size = 3, FRAME.elements
    device = FixedDevice(0, 0, memory_bps=BYTE_A_NANOSECOND)
    found = time_ps(serving(workers, 1, device=device), workers, 1, workers + 1)

    merge_ps = 3 * 4 * size * 1000
    second_ps = 3 * PACKET_PS + 2 * DELAY_PS  # the second of three packets is at the server
    down_ps = workers * PACKET_PS + PACKET_PS + 2 * DELAY_PS
    assert second_ps + 2 * merge_ps + down_ps == found


def test_every_worker_of_an_all_gather_is_charged_for_merging_all() -> None:
    workers, size = 4, FRAME.elements
    device = FixedDevice(0, 0, memory_bps=BYTE_A_NANOSECOND)
    free, charged = (time_ps(gathering(workers, device=one), workers, 1) for one in (None, device))

    assert free + (workers - 1) * 3 * 4 * size * 1000 == charged


@pytest.mark.parametrize("packets", [1, 4000])
@pytest.mark.parametrize("name", ["all_gather", "one", "beside"])
def test_codecs_that_choose_by_time_are_told_about_what_it_takes(name: str, packets: int) -> None:
    workers, words = 4, packets * FRAME.elements
    steps, servers, start = {
        "all_gather": (ALL_GATHER.steps(workers), [], gathering(workers, chunk_words=50 * FRAME.elements)),
        "one": (steps_of(workers, 1), [4], serving(workers, 1, chunk_words=50 * FRAME.elements)),
        "beside": (
            steps_of(workers, workers),
            [0, 1, 2, 3],
            serving(workers, workers, beside=True, chunk_words=50 * FRAME.elements),
        ),
    }[name]
    traffic = traffic_of(small_star(5), [*range(workers), *servers], steps.flows, lambda *flow: 0)
    carrier = carrier_of(small_star(5), traffic, FRAME, NoDevice(), steps)

    found = time_ps(start, workers, packets, 5)
    assert carrier.time_ps([MessageSize(words)]) == pytest.approx(found, rel=0.08)


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


def test_a_ring_counts_what_it_sends_again() -> None:
    messages = messages_of(Merge.ADD, 4, 2000)
    sent = [[(one,)] for one in messages]

    lossless, lossy = (
        Exchanged(small_star(4), ring(4, FRAME), loss, seed=3).run(sent) for loss in (0.0, 0.02)
    )

    assert lossless.collective.retransmitted_packets() == 0
    data_packets = 4 * 6 * -(-2000 // 4 // FRAME.elements)
    assert 0 < lossy.collective.retransmitted_packets() < data_packets


NS, US, GBPS = 10**3, 10**6, 10**9
SHORT = WindowCarrier(
    unit_elements=100, latency_ps=5 * US, rate_bps=32 * GBPS, window_words=400, sends_exponents_ahead=True
)
LONG = replace(SHORT, window_words=8000)


def plain(*messages: int) -> list[MessageSize]:
    return [MessageSize(words) for words in messages]


def test_messages_to_a_switch_follow_each_other_in_whole_units() -> None:
    """A word is 1 ns."""
    assert LONG.time_ps(plain(50, 130)) == 5 * US + 300 * NS
    assert LONG.time_ps(plain(1000)) == 5 * US + 1000 * NS
    assert LONG.time_ps(plain(0)) == LONG.time_ps([]) == 0


def test_a_window_waits_for_its_first_answer_or_for_the_link() -> None:
    # Three windows: each of the first two waits 5.1 us for its first answer.
    assert SHORT.time_ps(plain(1000)) == 2 * 5100 * NS + 5 * US + 200 * NS
    assert SHORT.time_ps(plain(800)) == 5100 * NS + 5 * US + 400 * NS
    assert LONG.time_ps(plain(20_000)) == 2 * 8 * US + 5 * US + 4 * US


def test_exponents_go_a_window_ahead() -> None:
    """It takes a round trip, or its own time where that is longer."""
    assert SHORT.time_ps([MessageSize(400, 100)]) == 5100 * NS + 5 * US + 400 * NS
    assert LONG.time_ps([MessageSize(20_000, 100)]) == 8 * US + 2 * 8 * US + 5 * US + 4 * US


def test_exponents_have_an_operation_of_their_own_where_they_cannot_go_ahead() -> None:
    own, others = MessageSize(400, 100), MessageSize(400, 50)
    without = replace(SHORT, sends_exponents_ahead=False)
    staged_ps = SHORT.time_ps(plain(100)) + SHORT.time_ps(plain(400))

    assert without.time_ps([own]) == SHORT.time_ps([others]) == staged_ps
    assert SHORT.time_ps([own, *plain(90)]) == SHORT.time_ps(plain(100, 90)) + SHORT.time_ps(plain(400))


def test_each_message_on_a_ring_waits_for_the_one_before_it() -> None:
    ring = HostCarrier(latency_ps=5 * US, rate_bps=32 * GBPS)

    assert ring.time_ps(plain(50, 0, 130)) == 5 * US + 50 * NS + 5 * US + 130 * NS
    assert ring.time_ps([MessageSize(1000, 64)]) == 5 * US + 16 * NS + 5 * US + 1000 * NS
