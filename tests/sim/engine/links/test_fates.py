"""Statistics of packets' fates: bursts follow the closed forms, copies have independent fates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Burst, Fate, Flow, Frame, Rule
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import compile_network
from tests.reference.engine.engine import ReferenceEngine

FRAME = Frame("one", elements=1, overhead_bytes=84)
NETWORK = compile_network(star(2, LinkSpec(10**11, 10**6, 1 << 30)))
UP, DOWN = (NETWORK.link_names.index(name) for name in ("h0->s0", "s0->h1"))
BACK = [NETWORK.link_names.index(name) for name in ("h1->s0", "s0->h0")]
NEVER_PS = 10**17


def sent_once(rules: list[Rule], packets: int, seed: int = 1, *, is_answered: bool = True) -> Engine:
    """One message of so many packets, all at once; nothing is sent again."""
    engine = Engine(NETWORK, seed, rules)
    engine.start_log()
    if not is_answered:
        engine.crash(1)
    engine.open_flow(Flow(0, 1, packets, None, None, FRAME, packets, NEVER_PS, 1, 0, 7))
    engine.run(10**15)
    return engine


def lost(engine: Engine, packets: int) -> NDArray[np.bool_]:
    """Which packets did not arrive at the switch at first."""
    found = np.ones(packets, bool)
    for row in engine.log:
        if row[2] == 0 and row[3] == UP and row[7] == 0:
            found[row[5]] = False
    return found


def bursts(rule: Rule, packets: int, seed: int = 1) -> NDArray[np.bool_]:
    """Which of some packets a link lost."""
    return lost(sent_once([rule], packets, seed, is_answered=False), packets)


def chain(good_to_bad: float, bad_to_good: float, loss_bad: float = 1.0, loss_good: float = 0.0) -> Rule:
    return Rule(Fate.BURST_LOSS, loss_bad, (UP,), burst=Burst(good_to_bad, bad_to_good, loss_good))


PACKETS = 40_000


@pytest.mark.parametrize(
    ("p", "r", "bad", "good"),
    [(0.05, 0.5, 0.7, 0.01), (0.3, 0.3, 0.5, 0.5), (1.0, 1.0, 1.0, 0.0)],
)
def test_loss_and_its_autocorrelation_are_those_of_the_chain(
    p: float, r: float, bad: float, good: float
) -> None:
    """Gilbert-Elliott: stationary loss, and covariance (b (1 − b)) (loss_bad − loss_good)² (1 − p − r)^k."""
    found = bursts(chain(p, r, bad, good), PACKETS).astype(float)
    share = p / (p + r)
    mean = share * bad + (1 - share) * good
    memory = 1 - p - r
    # Variance of the mean of a correlated series, to first order; 5 standard deviations.
    spread = mean * (1 - mean)
    between = share * (1 - share) * (bad - good) ** 2
    deviation = math.sqrt((spread + 2 * between * memory / (1 - memory)) / PACKETS)

    assert abs(found.mean() - mean) < 5 * deviation + 1e-5
    for lag in (1, 2, 5):
        covariance = np.mean((found[:-lag] - mean) * (found[lag:] - mean))
        assert covariance == pytest.approx(between * memory**lag, abs=6 * math.sqrt(spread / PACKETS))


def test_the_first_packet_finds_the_stationary_state() -> None:
    """Over many seeds, a share of p / (p + r) of the first packets is lost."""
    first = [bursts(chain(0.02, 0.06), 1, seed)[0] for seed in range(200)]

    assert abs(np.mean(first) - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 200)


@pytest.mark.parametrize("make", [Engine, ReferenceEngine])
def test_a_link_goes_on_in_its_own_state_whatever_other_links_do(make: Any) -> None:
    """Every packet finds the other state than the one before it on the link: of eight, sent one by one, the
    first link loses four, and the second two of the rest."""
    both = Rule(Fate.BURST_LOSS, 1.0, (UP, DOWN), burst=Burst(1.0, 1.0))
    engine = make(NETWORK, 1, [both])
    engine.crash(1)
    for number in range(8):
        engine.open_flow(Flow(0, 1, 1, None, None, FRAME, 1, NEVER_PS, 1, 0, number))
        engine.run((number + 1) * 10**8)

    counters = engine.link_counters()
    assert [(counters[link]["sent_packets"], counters[link]["lost_packets"]) for link in (UP, DOWN)] == [
        (8, 4),
        (4, 2),
    ]


def test_copies_of_copies_have_fates_of_their_own() -> None:
    """Copied on both links, a packet comes four times; each of the four is acknowledged by itself."""
    packets = 5_000
    rules = [Rule(Fate.DUPLICATE, 1.0, (UP, DOWN)), Rule(Fate.LOSS, 0.5, (BACK[0],))]
    engine = sent_once(rules, packets)
    count = np.zeros(packets, int)
    for row in engine.log:
        if row[2] == 0 and row[3] == BACK[1] and row[6] == 1 and row[7] < packets:
            count[row[7]] += 1

    for n, expected in enumerate((1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)):
        assert abs(np.mean(count == n) - expected) < 5 * math.sqrt(expected / packets)


@pytest.mark.parametrize("make", [Engine, ReferenceEngine])
@pytest.mark.parametrize(("put_ps", "is_struck"), [(99, False), (100, True), (199, True), (200, False)])
def test_a_fault_strikes_from_its_beginning_up_to_its_end(make: Any, put_ps: int, is_struck: bool) -> None:
    """The first instant is in it, and the last is not."""
    engine = make(NETWORK, 1, [Rule(Fate.LOSS, 1.0, (UP,), from_ps=100, until_ps=200)])
    engine.run(put_ps)
    engine.open_flow(Flow(0, 1, 1, None, None, FRAME, 1, NEVER_PS, 1, 0, 7))

    assert engine.rule_counters() == [int(is_struck)]
    assert engine.link_counters()[UP]["lost_packets"] == int(is_struck)


def test_what_flows_have_sent_again_is_counted_when_they_are_over_too() -> None:
    """Rows of flows that are over are used again: all that went up beyond a packet each was sent again."""
    engine = Engine(NETWORK, 1, [Rule(Fate.LOSS, 0.2, (UP, DOWN))])
    flows, packets = 30, 40
    for number in range(flows):
        job = number % 2
        engine.open_flow(Flow(0, 1, packets, None, None, FRAME, 8, 10**8, 2, 0, number, job))
        while not engine.run(10**15):
            pass
    while (time_ps := engine.next_event_ps()) is not None:
        engine.run(time_ps)

    again = engine.link_counters()[UP]["sent_packets"] - flows * packets
    assert engine.flow_retransmissions(0) + engine.flow_retransmissions(1) == again > 100
    assert engine.world.flows.size < flows
    assert 0.5 < engine.flow_retransmissions(0) / engine.flow_retransmissions(1) < 2
