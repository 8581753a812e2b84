"""Random plans on networks some of whose hosts take time for packets."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from netfold.topologies.routing import Network, Work, with_host_links
from tests.sim.engine.plans.plans import Plan, nodes, plans
from tests.sim.engine.plans.rare_plans import best_effort, schedules_of_hosts, several_jobs
from tests.sim.engine.plans.steered_plans import steered

RATES_BPS = st.sampled_from([10**15, 10**10, 3 * 10**9, 7 * 10**8])
TIMES_PS = st.sampled_from([0, 1, 70_000, 400_000, 3_000_001])


@st.composite
def works(draw: st.DrawFn, name: str, *, sends: bool) -> Work:
    """One direction of a host."""
    message_ps = draw(TIMES_PS) if sends else 0
    return Work(name, draw(RATES_BPS), draw(TIMES_PS), message_ps, draw(TIMES_PS))


@st.composite
def working(draw: st.DrawFn, network: Network) -> Network:
    """The network with work inside some of its hosts, at least one."""
    hosts = draw(st.sets(st.sampled_from(nodes(network, is_host=True)), min_size=1))
    work = {}
    for host in sorted(hosts):
        name = network.nodes[host]
        sending, receiving = works(f"{name} sends", sends=True), works(f"{name} receives", sends=False)
        work[host] = (draw(sending), draw(receiving))
    return with_host_links(network, work)


@st.composite
def host_plans(draw: st.DrawFn) -> Plan:
    """A plan of any kind; its faults and changes strike links of the topology."""
    plan = draw(st.one_of(plans(), several_jobs(), best_effort(), steered(), schedules_of_hosts()))
    return replace(plan, network=draw(working(plan.network)))
