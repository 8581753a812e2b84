"""Random plans on fabrics with several paths, under every routing policy."""

from __future__ import annotations

import networkx as nx
from hypothesis import strategies as st

from netfold.sim.engine.interface import Fate, Rule
from netfold.switch.programs.switchml import SWITCHML
from netfold.topologies.graph import LinkSpec
from netfold.topologies.routing import POLICIES, Network, compile_network
from tests.sim.engine.plans.plans import (
    LARGE_LINKS,
    LINKS,
    Plan,
    Wanted,
    changes,
    flows,
    jobs,
    rules,
    with_loopbacks,
)
from tests.topologies.fabrics import dragonfly, fat_tree, on_switches, torus

SEEDS = st.integers(0, 2**63)
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


def _complete(link: LinkSpec) -> nx.Graph:
    return on_switches(nx.complete_graph(4), 2, link)


def _bipartite(link: LinkSpec) -> nx.Graph:
    return on_switches(nx.complete_bipartite_graph(3, 2), 1, link)


FABRICS = {
    "bipartite": _bipartite,
    "complete": _complete,
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
        draw(SEEDS),
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
        draw(SEEDS),
        [],
        draw(st.lists(flows(network), min_size=1, max_size=4)),
        [*(Rule(fate, draw(rates), links) for fate in LOSING), late],
    )
