"""Random plans of one kind each: what `plans` would rarely put together."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
from hypothesis import strategies as st

from netfold.sim.engine.interface import Fate, Rule
from netfold.switch.programs import runnable
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.topologies.graph import LinkSpec
from netfold.topologies.routing import POLICIES, Network, Work, compile_network, with_host_links
from tests.sim.engine.plans.plans import (
    LARGE_LINKS,
    LATE_FATES,
    LINKS,
    SOON,
    Change,
    Plan,
    Wanted,
    atp_jobs,
    changes,
    fabrics,
    flows,
    jobs,
    networks,
    nodes,
    plans,
    rules,
    with_loopbacks,
)
from tests.sim.engine.plans.schedules import scheduled
from tests.topologies.fabrics import dragonfly, fat_tree, on_switches, torus

RUN_SEEDS = st.integers(0, 2**63)
IN_LINE = tuple(fate for fate in Fate if fate not in LATE_FATES)
SLOTTED = tuple(program for program in runnable().values() if program is not ATP)


@st.composite
def copies_in_line(draw: st.DrawFn, network: Network) -> Rule:
    """Some packets come twice, one right behind the other: no stream may notice."""
    links = draw(st.sets(st.integers(0, len(network.link_names) - 1), min_size=1))
    return Rule(Fate.DUPLICATE, draw(st.sampled_from([0.02, 0.3, 1.0])), tuple(links))


@st.composite
def reboots(draw: st.DrawFn, network: Network) -> Change:
    """A switch loses its registers while plans are busy."""
    return Change(draw(SOON), "clear", (draw(st.sampled_from(nodes(network, is_host=False))),))


@st.composite
def scaled_trees(draw: st.DrawFn) -> Plan:
    """Workers agree on exponents over a tree of switches, while packets are lost and switches reboot."""
    network = draw(fabrics(LARGE_LINKS))
    struck = draw(st.lists(rules(network, IN_LINE), min_size=1, max_size=3))
    program = draw(st.sampled_from([SWITCHML, SWITCHML, SWITCHML, TREE]))
    if program is SWITCHML:
        struck += draw(st.lists(copies_in_line(network), max_size=1))
    job = draw(jobs(network, 0, [program], Wanted(must_scale=True, must_branch=True)))
    accidents = draw(st.lists(reboots(network), max_size=2)) + draw(st.lists(changes(network), max_size=1))
    return Plan(
        network, draw(RUN_SEEDS), [job], draw(st.lists(flows(network), max_size=1)), struck, accidents
    )


@st.composite
def trees_of_integers(draw: st.DrawFn) -> Plan:
    """Integers, bits and tables over a tree of switches, under faults of packets and switches."""
    network = draw(fabrics(LARGE_LINKS))
    programs = [SWITCHML, SWITCHML, TREE]
    return Plan(
        network,
        draw(RUN_SEEDS),
        [draw(jobs(network, 0, programs, Wanted(may_scale=False, must_branch=True)))],
        [],
        draw(st.lists(rules(network), min_size=1, max_size=4)),
        draw(st.lists(reboots(network), max_size=2)) + draw(st.lists(changes(network), max_size=2)),
    )


@st.composite
def timed_slots(draw: st.DrawFn) -> Plan:
    """Slots with timers, of one job or two, under faults of packets, hosts and switches."""
    network = draw(networks())
    return Plan(
        network,
        draw(RUN_SEEDS),
        [draw(jobs(network, base, [TIMED], Wanted())) for base in draw(st.sampled_from([[0], [0, 5]]))],
        draw(st.lists(flows(network), max_size=1)),
        draw(st.lists(rules(network), max_size=3)),
        draw(st.lists(changes(network), max_size=2)) + draw(st.lists(reboots(network), max_size=1)),
    )


@st.composite
def narrow_lanes(draw: st.DrawFn) -> Plan:
    """Sums in lanes of 4, 8 and 16 bits, under every program and policy, on trees where there are some."""
    network = draw(networks(LARGE_LINKS))
    programs = [draw(st.sampled_from([SWITCHML, TREE, TIMED]))]
    wanted = Wanted(may_scale=False, must_branch=True, must_sum=True)
    return Plan(
        network,
        draw(RUN_SEEDS),
        [draw(jobs(network, 0, programs, wanted))],
        [],
        draw(st.lists(rules(network), max_size=3)),
        draw(st.lists(reboots(network), max_size=1)) + draw(st.lists(changes(network), max_size=1)),
    )


@st.composite
def best_effort(draw: st.DrawFn) -> Plan:
    """ATP, of one job or two, on few entries, beside a job with slots and flows."""
    network = draw(networks())
    struck = draw(st.lists(rules(network), max_size=3))
    atp = draw(st.lists(atp_jobs(network), min_size=1, max_size=2))
    others = [draw(jobs(network, 0, SLOTTED, Wanted(may_scale=False)))] if draw(st.booleans()) else []
    return Plan(
        network,
        draw(RUN_SEEDS),
        [*others, *atp],
        draw(st.lists(flows(network), max_size=2)),
        struck,
        draw(st.lists(changes(network), max_size=2)) + draw(st.lists(reboots(network), max_size=1)),
    )


@st.composite
def several_jobs(draw: st.DrawFn) -> Plan:
    """Two or three jobs on the slots of the same switches, flows beside them, and something goes wrong."""
    network = draw(networks())
    struck = draw(st.lists(rules(network), min_size=1, max_size=3))
    may_scale = not any(rule.fate in LATE_FATES for rule in struck)
    bases = draw(st.sampled_from([[0, 20], [0, 15, 30]]))
    return Plan(
        network,
        draw(RUN_SEEDS),
        [draw(jobs(network, base, SLOTTED, Wanted(may_scale))) for base in bases],
        draw(st.lists(flows(network), min_size=1, max_size=3)),
        struck,
        draw(st.lists(changes(network), max_size=3)),
    )


@st.composite
def schedules_of_hosts(draw: st.DrawFn) -> Plan:
    """One to three operations between hosts, beside a flow, with faults and accidents."""
    network = draw(networks())
    return Plan(
        network,
        draw(RUN_SEEDS),
        [],
        draw(st.lists(flows(network), max_size=1)),
        draw(st.lists(rules(network), max_size=3)),
        draw(st.lists(changes(network), max_size=4)),
        draw(st.lists(scheduled(network), min_size=1, max_size=3)),
    )


LOSING = (Fate.LOSS, Fate.CORRUPTION, Fate.DUPLICATE)


@st.composite
def meshes(draw: st.DrawFn, links: st.SearchStrategy[LinkSpec] = LINKS) -> Network:
    """A small fabric with a policy; the last links are the switches' loopbacks."""
    policy = POLICIES[draw(st.sampled_from(["spray", "spray", "valiant", "dimension_order"]))]
    link = draw(links)
    if policy.kind == "dimension_order":
        graph = torus(draw(st.sampled_from([(3, 3), (4, 2), (2, 2, 2), (5,)])), 1, link)
    else:
        graph = draw(st.sampled_from(sorted(FABRICS)).map(FABRICS.__getitem__))(link)
    for a, b in draw(st.lists(st.sampled_from(sorted(graph.edges)), max_size=3)):  # links are not all alike
        graph.edges[a, b].update(rate_bps=draw(st.sampled_from([10**9, 10**10])))
    return with_loopbacks(compile_network(graph, policy=policy), draw(links))


def complete(link: LinkSpec) -> nx.Graph:
    return on_switches(nx.complete_graph(4), 2, link)


def bipartite(link: LinkSpec) -> nx.Graph:
    return on_switches(nx.complete_bipartite_graph(3, 2), 1, link)


FABRICS = {
    "bipartite": bipartite,
    "complete": complete,
    "dragonfly": lambda link: dragonfly(2, 1, 1, link),
    "fat_tree": lambda link: fat_tree(4, link),
    "torus": lambda link: torus((4, 3), 1, link),
}


@st.composite
def steered(draw: st.DrawFn) -> Plan:
    """Flows, and at times a job, while links fail and packets are lost, copied and delayed."""
    network = draw(meshes())
    struck = draw(st.lists(rules(network), max_size=3))
    wanted = Wanted(may_scale=False)
    job = draw(st.lists(jobs(network, 0, [SWITCHML], wanted), max_size=1))
    return Plan(
        network,
        draw(RUN_SEEDS),
        job,
        draw(st.lists(flows(network), min_size=1, max_size=4)),
        struck,
        draw(st.lists(changes(network), max_size=4)),
    )


@st.composite
def lossy_steered(draw: st.DrawFn) -> Plan:
    """Some packets are lost, some come twice, some late: every flow ends, and delivers what was sent."""
    network = draw(meshes(LARGE_LINKS))
    links = tuple(range(len(network.link_names)))
    rates = st.sampled_from([0.0, 0.01, 0.05])
    late = Rule(Fate.REORDER, draw(rates), links, delay_ps=draw(st.sampled_from([0, 2_000_000])))
    return Plan(
        network,
        draw(RUN_SEEDS),
        [],
        draw(st.lists(flows(network), min_size=1, max_size=4)),
        [*(Rule(fate, draw(rates), links) for fate in LOSING), late],
    )


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
