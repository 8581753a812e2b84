"""Flows of both engines against closed forms, and exact whatever is lost or dropped."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Completion, Fate, Flow, Frame, Rule
from netfold.topologies.graph import LinkSpec
from tests.examples import examples
from tests.reference.engine.fabric import ARRIVAL, FLOW_TIMER
from tests.sim.engine.small import (
    FAST,
    FOREVER_PS,
    FRAME,
    LINK,
    A,
    D,
    Make,
    X,
    chain,
    check_conservation,
    check_received,
    compiled,
    flow,
    link_between,
    links_total,
    message,
    run,
    run_dry,
    star_of,
    transmit_ps,
)

LINE = chain([LINK] * 2)


def delivered_ps(links: list[tuple[int, int]], sizes: list[int]) -> int:
    """When packets that are all sent at 0 have passed links of these rates and delays in a row."""
    free_ps, now_ps = [0] * len(links), 0
    for size_bytes in sizes:
        now_ps = 0
        for place, (rate_bps, delay_ps) in enumerate(links):
            free_ps[place] = max(now_ps, free_ps[place]) + transmit_ps(size_bytes, rate_bps)
            now_ps = free_ps[place] + delay_ps
    return now_ps


@examples(40)
@given(
    st.lists(st.tuples(st.integers(10**9, 4 * 10**11), st.integers(0, 10**7)), min_size=2, max_size=5),
    st.integers(0, 50),
)
def test_a_flow_pipelines_through_its_links(engine: Make, links: list[tuple[int, int]], words: int) -> None:
    """34 B of headers and 16 B of words each, or less; a message without words is a header."""
    sizes = [34 + 4 * min(4, words - first) for first in range(0, max(1, words), 4)]
    sim = engine(chain([LinkSpec(*link, 1 << 30) for link in links]))
    sent = message(words)
    sim.open_flow(sent)

    assert run_dry(sim) == [Completion(delivered_ps(links, sizes), "flow", -1, 0)]
    assert links_total(sim, "sent_bytes") == len(links) * (sum(sizes) + len(sizes) * FRAME.ack_bytes)
    check_received([sent])


def test_a_window_of_one_waits_a_round_trip_per_packet(engine: Make) -> None:
    sim = engine(chain([LINK] * 3))
    sim.open_flow(message(4 * 6, window=1))

    round_trip = 3 * (X + D) + 3 * (A + D)
    assert run_dry(sim) == [Completion(5 * round_trip + 3 * (X + D), "flow", -1, 0)]


def test_log_of_one_packet_and_its_ack(engine: Make) -> None:
    """Order 1 is the timer's, which the ACK voids."""
    sim = engine(LINE)
    sim.run(D)
    sim.open_flow(message(4))
    run_dry(sim)

    up, down, back_up, back_down = (
        link_between(LINE, node, target) for node, target in [(0, 1), (2, 1), (1, 0), (2, 0)]
    )
    there = D + 2 * (X + D)
    assert sim.log == [
        (D + X + D, 0, ARRIVAL, up, 0, 0, 0, 0),
        (there, 2, ARRIVAL, down, 0, 0, 0, 0),
        (there + A + D, 3, ARRIVAL, back_up, 0, 0, 1, 0),
        (there + 2 * (A + D), 4, ARRIVAL, back_down, 0, 0, 1, 0),
    ]
    assert sim.now_ps == FOREVER_PS


def test_a_full_buffer_drops_what_does_not_fit(engine: Make) -> None:
    """Packets come ten times faster than they leave: of the first ten, the buffer of three holds three."""
    rates = np.where(LINE.is_host[LINE.link_source], 10**10, 10**9)
    sim = engine(replace(LINE, rate_bps=rates, buffer_bytes=np.full(4, 150)))
    sent = message(40, timeout_ps=50_000_000)
    sim.open_flow(sent)
    sim.run(D + X)

    counters = sim.link_counters()[link_between(LINE, 2, 1)]
    assert (counters["sent_packets"], counters["dropped_packets"], counters["busy_ps"]) == (3, 7, 3 * X)
    run(sim, 1)
    check_received([sent])
    check_conservation(sim)


def test_a_timer_backs_off(engine: Make) -> None:
    sim = engine(LINE, loss=1.0)
    sim.open_flow(message(1, timeout_ps=1000))
    assert sim.run(300_000) == []

    pauses = [1000 * min(2**k, 64) for k in range(11)]
    fired = [row[0] for row in sim.log if row[2] == FLOW_TIMER]
    assert fired == [time for time in accumulate(pauses) if time <= 300_000]
    assert sim.flow_counters(0) == {
        "timeouts": len(fired),
        "retransmitted_packets": len(fired),
        "reordered_packets": 0,  # nothing arrived
        "spurious_retransmissions": 0,
    }
    assert sim.now_ps == 300_000


def test_losses_are_those_the_keys_name(engine: Make) -> None:
    sim = engine(LINE, loss=0.3, seed=9)
    sim.open_flow(message(4 * 60))
    sim.run(60 * X)

    lost = [mix_plain(mix_plain(9, 3, 5, q, 0), 0) < int(0.3 * 2.0**64) for q in range(60)]
    assert lost.count(True) == sim.link_counters()[link_between(LINE, 0, 1)]["lost_packets"] > 0


@pytest.mark.parametrize("end", ["source", "target"])
@pytest.mark.parametrize("node", [-1, 3, 4])
def test_flows_end_at_hosts(end: str, node: int) -> None:
    """Node 3 is the switch of a star of three hosts, and node 4 is none."""
    sim = compiled(star_of(3))
    with pytest.raises(ValueError, match=rf"{end} is node {node}: must be a host, of \[0, 1, 2\]"):
        sim.open_flow(replace(message(8), **{end: node}))


def test_neighbours_on_a_star_send_at_line_rate() -> None:
    """8 hosts send 100 MB each in packets of 1000 B: 8.00208 ms, as ns.py 0.5.0 and csg-htsim measure too."""
    sim = compiled(star_of(8, LinkSpec(100 * 10**9, 10**6, 64 << 20)))
    frame = Frame("plain", elements=250, overhead_bytes=0)
    for host in range(8):
        plain = flow(host, (host + 1) % 8, np.zeros(0, np.int32), frame)
        limits = {"window": 100_000, "ack_every": 100_000, "timeout_ps": FOREVER_PS}
        sim.open_flow(replace(plain, words_count=25 * 10**6, words=None, received=None, **limits))
    done = run(sim, 8)

    assert {8_002_080_000} == {completion.time_ps for completion in done}
    assert sim.packet_hops == 2 * 800_000


FAR_PS = 10**12
SMALL = Frame("small", elements=250, overhead_bytes=0, ack_bytes=64)
SECOND_PS = 10_000_000  # when the second flow opens; the first one is done long before


def two_hosts(loss_until_ps: int = 0) -> Engine:
    """What host 0 sends from the second flow on is lost until a time."""
    network = star_of(2, FAST)
    return Engine(network, 1, [Rule(Fate.LOSS, 1.0, (0,), from_ps=SECOND_PS, until_ps=loss_until_ps)])


def ended_ps(sim: Engine, timeout_ps: int) -> int:
    """Open a flow now and run to its end."""
    sim.open_flow(Flow(0, 1, 2500, None, None, SMALL, 8, timeout_ps, 4, 0, 7))
    (done,) = sim.run(FAR_PS)
    return done.time_ps


@pytest.mark.parametrize("first_ps", [1_000_000_000, 12_000_000, 36_000_000])
@pytest.mark.parametrize("timeout_ps", [5_000_000, 25_000_000, 26_000_000])
def test_a_flow_in_a_used_row_times_out_as_one_in_a_new_row(first_ps: int, timeout_ps: int) -> None:
    """Entries that the first flow left are before, at and after the deadlines of the second."""
    fresh, used = two_hosts(SECOND_PS + 30_000_000), two_hosts(SECOND_PS + 30_000_000)
    assert ended_ps(used, first_ps) < SECOND_PS
    for sim in (fresh, used):
        assert sim.run(SECOND_PS) == []

    ends_ps = [ended_ps(sim, timeout_ps) for sim in (fresh, used)]

    assert ends_ps[0] == ends_ps[1] > SECOND_PS + 30_000_000
    assert fresh.world.flows[0].timeouts == used.world.flows[0].timeouts > 0


def test_closed_flows_do_not_fill_the_heap() -> None:
    """300 flows, one after the other, in whose time no timer ends."""
    sim = two_hosts()
    for _ in range(300):
        ended_ps(sim, FAR_PS)
        sim.run(sim.now_ps + 10_000_000)

    assert sim.world.clock[0].heap_count == 1
