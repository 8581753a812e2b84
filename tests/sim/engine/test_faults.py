"""Faults and accidents of both engines, one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.sim.engine.interface import Fate, Rule
from tests.reference.engine.fabric import ARRIVAL, FLOW_TIMER, HELD
from tests.sim.engine.small import (
    FOREVER_PS,
    LINK,
    A,
    D,
    Make,
    Sim,
    X,
    aggregate,
    chain,
    check_conservation,
    gradients,
    job,
    link_between,
    message,
    segment,
    star_of,
)

LINE = chain([LINK] * 2)
UP, DOWN = link_between(LINE, 0, 1), link_between(LINE, 2, 1)


def arrivals(sim: Sim, link: int) -> list[tuple[int, int]]:
    """When packets arrived by a link, and which."""
    return [(row[0], row[5]) for row in sim.log if row[2] == ARRIVAL and row[3] == link]


@pytest.mark.parametrize("fate", [Fate.LOSS, Fate.CORRUPTION, Fate.FLIP])
def test_fates_that_lose_a_flow_packet(engine: Make, fate: Fate) -> None:
    """A flow's packets carry no words, so a flip loses them too; only what is put before 1 ps is struck."""
    sim = engine(LINE, rules=[Rule(fate, 1.0, (UP,), until_ps=1)])
    sim.open_flow(message(8))
    sim.run(5 * X + 2 * D)

    assert sim.rule_counters() == [2]
    assert sim.link_counters()[UP]["lost_packets"] == 2
    assert arrivals(sim, DOWN) == []
    check_conservation(sim)


def test_of_each_fate_the_first_rule_that_counts_is_tried_and_the_first_to_strike_decides(
    engine: Make,
) -> None:
    rules = [
        Rule(Fate.REORDER, 1.0, (DOWN,), delay_ps=9),  # another link
        Rule(Fate.LOSS, 1.0, (UP,), from_ps=1),  # not yet
        Rule(Fate.LOSS, 0.0, (UP,)),  # never, and shields from the next
        Rule(Fate.LOSS, 1.0, (UP,)),
        Rule(Fate.REORDER, 1.0, (UP,), delay_ps=5),
        Rule(Fate.CORRUPTION, 1.0, (UP,)),
    ]
    sim = engine(LINE, rules=rules)
    sim.open_flow(message(4))
    sim.run(X + D + 5)

    assert sim.rule_counters() == [1, 0, 0, 0, 1, 0]
    assert arrivals(sim, UP) == [(X + D + 5, 0)]


def test_duplicate_puts_a_copy_behind_the_packet(engine: Make) -> None:
    sim = engine(LINE, rules=[Rule(Fate.DUPLICATE, 1.0, (UP,), delay_ps=3)])
    sim.open_flow(message(8, ack_every=2))
    sim.run(4 * X + D + 3)

    assert arrivals(sim, UP) == [(X + D, 0), (2 * X + D + 3, 0), (3 * X + D, 1), (4 * X + D + 3, 1)]
    assert sim.rule_counters() == [2]  # the copies were not tried


def test_flip_inverts_one_bit_of_one_copy(engine: Make) -> None:
    network = star_of(2)
    sim = engine(network, rules=[Rule(Fate.FLIP, 1.0, (link_between(network, 2, 1),))])
    number = sim.add_job(job(network, 1))
    words = gradients(2, 3)
    results = aggregate(sim, number, words).results

    total = np.add.reduce(words, dtype=np.int32)
    key = mix_plain(1, 2, number, 65536 * 1 + 1, 0, 0, 0, 0)  # caused by worker 1, the last
    expected = total.copy()
    expected.view(np.uint32)[mix_plain(key, 0, 40) % 3] ^= np.uint32(1 << mix_plain(key, 0, 41) % 32)
    assert np.array_equal(results[0], total)
    assert np.array_equal(results[1], expected)
    assert not np.array_equal(total, expected)


def test_paused_host_holds_packets_and_timers(engine: Make) -> None:
    """The later of two pauses wins; what was held is processed in the order of arrival."""
    sim = engine(LINE)
    sim.open_flow(message(8, timeout_ps=X))
    until_ps = 50 * X + 2 * D
    sim.pause(1, until_ps)
    sim.pause(1, X)
    sim.pause(0, 40 * X)
    sim.run(until_ps + A + 2 * D)

    held = [(row[0], row[3], row[5]) for row in sim.log if row[2] == HELD]
    assert held == [(until_ps, DOWN, 0), (until_ps, DOWN, 1), *held[2:]]
    assert next(row[0] for row in sim.log if row[2] == FLOW_TIMER) == 40 * X
    assert not any(row[2] == ARRIVAL and row[6] == 1 and row[0] < until_ps for row in sim.log)


def test_crashed_host_ignores_packets_and_opens_nothing(engine: Make) -> None:
    network = star_of(2)
    sim = engine(network)
    number = sim.add_job(job(network, 4, timeout_ps=X, first_timeout_ps=X))
    words = [segment(each) for each in gradients(2, 16)]
    sim.open_stream(number, 0, [words[0]])
    sim.crash(0)
    sim.crash(1)
    sim.open_stream(number, 1, [words[1]])
    sim.open_flow(message(4))

    assert sim.run(FOREVER_PS) == []
    assert [row[2] for row in sim.log] == [ARRIVAL] * 4  # what was under way arrives; no timer fires
    assert sim.worker_counters(number, 0)["timeouts"] == 0
    assert sim.switch_counters(number)["packets"] == 4
