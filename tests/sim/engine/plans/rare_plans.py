"""Random plans of one kind each: what `plans` would rarely put together."""

from __future__ import annotations

from hypothesis import strategies as st

from netfold.sim.engine.interface import Fate, Rule
from netfold.switch.programs import runnable
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.topologies.routing import Network
from tests.sim.engine.plans.plans import (
    LARGE_LINKS,
    LATE_FATES,
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
    rules,
)
from tests.sim.engine.plans.schedules import scheduled

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
