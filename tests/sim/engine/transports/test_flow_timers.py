"""Timers of flows that follow one another in a row of the table: closed flows leave one entry in the heap."""

from __future__ import annotations

import pytest

from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Fate, Flow, Frame, Rule
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import compile_network

FAR_PS = 10**12
FRAME = Frame("small", elements=250, overhead_bytes=0, ack_bytes=64)
SECOND_PS = 10_000_000  # when the second flow opens; the first one is done long before


def engine(loss_until_ps: int = 0) -> Engine:
    """Two hosts at a switch; what host 0 sends from the second flow on is lost until a time."""
    network = compile_network(star(2, LinkSpec(100 * 10**9, 10**6, 64 << 20)))
    return Engine(network, 1, [Rule(Fate.LOSS, 1.0, (0,), from_ps=SECOND_PS, until_ps=loss_until_ps)])


def flow(timeout_ps: int) -> Flow:
    return Flow(0, 1, 2500, None, None, FRAME, 8, timeout_ps, 4, 0, 7)


def ended_ps(sim: Engine, timeout_ps: int) -> int:
    """Open a flow now and run to its end."""
    sim.open_flow(flow(timeout_ps))
    (done,) = sim.run(FAR_PS)
    return done.time_ps


@pytest.mark.parametrize("first_ps", [1_000_000_000, 12_000_000, 35_000_000, 36_000_000, 37_000_000])
@pytest.mark.parametrize("timeout_ps", [5_000_000, 25_000_000, 26_000_000])
def test_a_flow_in_a_used_row_times_out_as_one_in_a_new_row(first_ps: int, timeout_ps: int) -> None:
    """Entries that the first flow left are before, at and after the deadlines of the second."""
    fresh, used = engine(SECOND_PS + 30_000_000), engine(SECOND_PS + 30_000_000)
    assert ended_ps(used, first_ps) < SECOND_PS
    for sim in (fresh, used):
        assert sim.run(SECOND_PS) == []

    ends_ps = [ended_ps(sim, timeout_ps) for sim in (fresh, used)]

    assert ends_ps[0] == ends_ps[1] > SECOND_PS + 30_000_000
    assert fresh.world.flows[0].timeouts == used.world.flows[0].timeouts > 0


def test_closed_flows_do_not_fill_the_heap() -> None:
    """A thousand flows, one after the other, in whose time no timer ends."""
    sim = engine()
    for _ in range(1000):
        ended_ps(sim, FAR_PS)
        sim.run(sim.now_ps + 10_000_000)

    assert sim.world.clock[0].heap_count == 1
