"""What a link that is slow or down for a moment costs a whole exchange: SwitchML on a star of 8 workers.

A million elements in packets of 1100 B at 100 Gbps: T = 3907 packets of X = 88 ns, and two links of 1 us.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Segment
from netfold.sim.plan.frames import frame_of
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import compile_network
from tests.sim.engine.small import (
    DELAY_PS,
    FAST,
    FOREVER_PS,
    compiled,
    gradients,
    job,
    transmit_ps,
    wrapping_sum,
)

WORKERS, ELEMENTS, SLOTS = 8, 1_000_000, 512
US = 10**6
X = transmit_ps(1100)
PACKETS = -(-ELEMENTS // 256)
CLEAN_PS = (PACKETS + 1) * X + 2 * DELAY_PS
TIMEOUT_PS = 10 * 1000 * US

Step = tuple[int, str, str, int]  # when, what, which link, a rate


class Outcome(NamedTuple):
    """What the exchange came to."""

    end_ps: int
    resent: int
    lost: int
    dropped: int
    backlog_bytes: int  # of the link that was touched


def exchange(*steps: Step) -> Outcome:
    """One exchange, with something done to links on the way; its sums are right."""
    network = compile_network(star(WORKERS, FAST))
    sim = compiled(network)
    timeouts = {"timeout_ps": TIMEOUT_PS, "first_timeout_ps": TIMEOUT_PS, "timeout_max_ps": 10 * TIMEOUT_PS}
    number = sim.add_job(job(network, SLOTS, frame_of("udp-1024"), **timeouts))
    words = gradients(2, ELEMENTS) * (WORKERS // 2)
    results = [np.zeros(ELEMENTS, np.int32) for _ in words]
    for rank, (own, result) in enumerate(zip(words, results, strict=True)):
        sim.open_stream(number, rank, [Segment(own, result, Merge.ADD)])
    ends_ps: list[int] = []
    for time_ps, name, link, rate_bps in (*steps, (FOREVER_PS, "", "", 0)):
        while len(ends_ps) < WORKERS and (done := sim.run(time_ps)):
            ends_ps += [completion.time_ps for completion in done]
        if name:
            row = network.link_names.index(link)
            getattr(sim, name)(row, *([rate_bps] if name == "set_rate" else []))
    expected = wrapping_sum(words)
    assert all(np.array_equal(result, expected) for result in results)
    links = sim.link_counters()
    touched = network.link_names.index(steps[0][2]) if steps else 0
    return Outcome(
        max(ends_ps),
        sum(sim.worker_counters(number, rank)["retransmitted_packets"] for rank in range(WORKERS)),
        sum(link["lost_packets"] for link in links),
        sum(link["dropped_packets"] for link in links),
        links[touched]["backlog_bytes_max"],
    )


def slow(link: str, from_us: int, for_us: int) -> tuple[Step, Step]:
    """At a hundredth of its rate for a while."""
    return (
        (from_us * US, "set_rate", link, FAST.rate_bps // 100),
        ((from_us + for_us) * US, "set_rate", link, FAST.rate_bps),
    )


def test_nothing_happens() -> None:
    assert exchange() == (CLEAN_PS, 0, 0, 0, 1100 * SLOTS)
    assert CLEAN_PS == 345_904_000


@pytest.mark.parametrize(("link", "from_us"), [("s0->h3", 50), ("h3->s0", 50), ("h3->s0", 0)])
def test_a_slow_link_costs_the_time_that_it_loses(link: str, from_us: int) -> None:
    """100 us at a hundredth of the rate carry what 1 us does: all is 99 us late, and nothing is sent again.

    A model that gives a packet the rate at which it began lets the one on the wire take up to 8.7 us longer:
    450.4 us, 1.2 % more.
    """
    found = exchange(*slow(link, from_us, 100))

    assert found[:4] == (CLEAN_PS + 99 * US, 0, 0, 0)
    assert found.end_ps == pytest.approx(450.4 * US, rel=0.03)
    assert found.backlog_bytes <= 1100 * SLOTS  # the whole window: 0.56 MB


def test_a_link_that_is_slow_for_a_microsecond_costs_a_microsecond() -> None:
    """Such a model: 8.7 us, 354.6."""
    found = exchange(*slow("h3->s0", 0, 1))

    assert found == (CLEAN_PS + 99 * US // 100, 0, 0, 0, 1100 * SLOTS)
    assert found.end_ps == pytest.approx(354.6 * US, rel=0.03)


@pytest.mark.parametrize("link", ["h3->s0", "s0->h3"])
def test_an_outage_of_a_microsecond_loses_what_is_on_the_wire(link: str) -> None:
    """1 us of wire holds 11.4 packets; the one that is being sent is lost too. Some 500 wait at the host."""
    found = exchange((50 * US, "cut", link, 0), (51 * US, "restore", link, 0))

    assert DELAY_PS // X <= found.lost <= DELAY_PS // X + 2
    assert found.dropped == 0
    assert TIMEOUT_PS < found.end_ps < TIMEOUT_PS + 100 * US  # their timers bring them back
