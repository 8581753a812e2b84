"""Random plans of one kind each: what `plans` would rarely put together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
from hypothesis import strategies as st

from netfold.homomorphic.merge import Merge
from netfold.sim.engine.congestion_policies import AIMD
from netfold.sim.engine.engine_data import AtpServer, Branch, Fate, Frame, Job, Overflow, Rule, Sender
from netfold.switch.program import runnable
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.network import HostWork, Network, compile_network, with_host_links
from netfold.topologies.routing import POLICIES
from tests.sim.engine import small
from tests.sim.engine.plans.plans import (
    FRAME,
    LARGE_LINKS,
    LATE_FATES,
    LINKS,
    SOON,
    Change,
    Exchange,
    Plan,
    Wanted,
    Words,
    abandoned,
    atp_jobs,
    changes,
    fabrics,
    failures,
    flows,
    jobs,
    networks,
    nodes,
    plans,
    rules,
    scheduled,
    with_loopbacks,
)
from tests.sim.engine.small import star_of
from tests.topologies.graphs import dragonfly, fat_tree, on_switches, torus

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


def some(draw: st.DrawFn, strategy: st.SearchStrategy[Any], least_and_most: tuple[int, int]) -> list[Any]:
    return draw(st.lists(strategy, min_size=least_and_most[0], max_size=least_and_most[1]))


def plan_of(
    draw: st.DrawFn,
    network: Network,
    made: list[tuple[Job, list[Exchange]]],
    struck: list[Rule] | None = None,
    *,
    sent: tuple[int, int],
    changed: int,
    rebooted: int = 0,
) -> Plan:
    """Jobs beside so many flows; up to three faults unless others are given, and so many accidents."""
    struck = some(draw, rules(network), (0, 3)) if struck is None else struck
    accidents = some(draw, changes(network), (0, changed)) + some(draw, reboots(network), (0, rebooted))
    if changed:
        accidents += draw(failures(network)) + draw(abandoned(made))
    return Plan(network, draw(RUN_SEEDS), made, some(draw, flows(network), sent), struck, accidents)


@st.composite
def scaled_trees(draw: st.DrawFn) -> Plan:
    """Workers agree on exponents over a tree of switches, while packets are lost and switches reboot."""
    network = draw(fabrics(LARGE_LINKS))
    struck = some(draw, rules(network, IN_LINE), (1, 3))
    program = draw(st.sampled_from([SWITCHML, SWITCHML, SWITCHML, TREE]))
    if program is SWITCHML:
        struck += some(draw, copies_in_line(network), (0, 1))
    made = draw(jobs(network, 0, [program], Wanted(must_scale=True, must_branch=True)))
    return plan_of(draw, network, [made], struck, sent=(0, 1), changed=1, rebooted=2)


@st.composite
def trees_of_integers(draw: st.DrawFn) -> Plan:
    """Integers, bits and tables over a tree of switches, under faults of packets and switches."""
    network = draw(fabrics(LARGE_LINKS))
    made = draw(jobs(network, 0, [SWITCHML, SWITCHML, TREE], Wanted(may_scale=False, must_branch=True)))
    struck = some(draw, rules(network), (1, 4))
    return plan_of(draw, network, [made], struck, sent=(0, 0), changed=2, rebooted=2)


@st.composite
def timed_slots(draw: st.DrawFn) -> Plan:
    """Slots with timers, of one job or two, under faults of packets, hosts and switches."""
    network, bases = draw(networks()), draw(st.sampled_from([[0], [0, 5]]))
    made = [draw(jobs(network, base, [TIMED], Wanted())) for base in bases]
    return plan_of(draw, network, made, sent=(0, 1), changed=2, rebooted=1)


@st.composite
def narrow_lanes(draw: st.DrawFn) -> Plan:
    """Sums in lanes of 4, 8 and 16 bits, under every program and policy, on trees where there are some."""
    network, program = draw(networks(LARGE_LINKS)), draw(st.sampled_from([SWITCHML, TREE, TIMED]))
    made = draw(jobs(network, 0, [program], Wanted(may_scale=False, must_branch=True, must_sum=True)))
    return plan_of(draw, network, [made], sent=(0, 0), changed=1, rebooted=1)


@st.composite
def best_effort(draw: st.DrawFn) -> Plan:
    """ATP, of one job or two, on few entries, beside a job with slots and flows."""
    network = draw(networks())
    made = some(draw, jobs(network, 0, SLOTTED, Wanted(may_scale=False)), (0, 1))
    made += some(draw, atp_jobs(network), (1, 2))
    return plan_of(draw, network, made, sent=(0, 2), changed=2, rebooted=1)


@st.composite
def several_jobs(draw: st.DrawFn) -> Plan:
    """Two or three jobs on the slots of the same switches, flows beside them, and something goes wrong."""
    network, bases = draw(networks()), draw(st.sampled_from([[0, 20], [0, 15, 30]]))
    struck = some(draw, rules(network), (1, 3))
    wanted = Wanted(not any(rule.fate in LATE_FATES for rule in struck))
    made = [draw(jobs(network, base, SLOTTED, wanted)) for base in bases]
    return plan_of(draw, network, made, struck, sent=(1, 3), changed=3)


@st.composite
def schedules_of_hosts(draw: st.DrawFn) -> Plan:
    """One to three operations between hosts, beside a flow, with faults and accidents."""
    network = draw(networks())
    operations = some(draw, scheduled(network), (1, 3))
    return replace(plan_of(draw, network, [], sent=(0, 1), changed=4), operations=operations)


LOSING = (Fate.LOSS, Fate.CORRUPTION, Fate.DUPLICATE)


@st.composite
def meshes(draw: st.DrawFn, links: st.SearchStrategy[LinkSpec] = LINKS) -> Network:
    """A small fabric with a policy; the last links are the switches' loopbacks."""
    policy = POLICIES[draw(st.sampled_from([kind for kind in POLICIES if kind != "ecmp"]))]
    if policy.gap_ps:
        policy = replace(policy, gap_ps=draw(st.sampled_from([10**5, 10**6, 10**7])))
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
    made = some(draw, jobs(network, 0, [SWITCHML], Wanted(may_scale=False)), (0, 1))
    return plan_of(draw, network, made, sent=(1, 4), changed=4)


@st.composite
def lossy_steered(draw: st.DrawFn) -> Plan:
    """Some packets are lost, some come twice, some late: every flow ends, and delivers what was sent."""
    network = draw(meshes(LARGE_LINKS))
    links = tuple(range(len(network.link_names)))
    rates = st.sampled_from([0.0, 0.01, 0.05])
    struck = [Rule(fate, draw(rates), links) for fate in LOSING]
    struck.append(Rule(Fate.REORDER, draw(rates), links, delay_ps=draw(st.sampled_from([0, 2_000_000]))))
    return plan_of(draw, network, [], struck, sent=(1, 4), changed=0)


RATES_BPS = st.sampled_from([10**15, 10**10, 3 * 10**9, 7 * 10**8])
TIMES_PS = st.sampled_from([0, 1, 70_000, 400_000, 3_000_001])


@st.composite
def works(draw: st.DrawFn, name: str, *, sends: bool) -> HostWork:
    """One direction of a host."""
    message_ps = draw(TIMES_PS) if sends else 0
    return HostWork(name, draw(RATES_BPS), draw(TIMES_PS), message_ps, draw(TIMES_PS))


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


LINK = LinkSpec(rate_bps=10**9, delay_ps=50_000, buffer_bytes=1 << 20)


def two_racks() -> Network:
    """Hosts 0 and 1 at leaf0 (node 4), 2 and 3 at leaf1 (node 5), one spine (node 6)."""
    return with_loopbacks(compile_network(leaf_spine(2, 1, 2, LINK, LINK)), LINK)


RACKS = {"switch": 6, "branches": (Branch(4, 0, -1, 0), Branch(5, 0, -1, 0)), "homes": (1, 1, 2, 2)}


def job(workers: int, slots: int, **changes: Any) -> Job:
    """Workers on the first hosts of a star, one packet a unit, short timeouts, with the given changes."""
    times = {"timeout_ps": 20_000_000, "first_timeout_ps": 20_000_000, "timeout_max_ps": 40_000_000}
    frame = replace(FRAME, first_bytes=1, last_bytes=2)
    return small.job(star_of(workers), slots, **{"frame": frame, **times, **changes})


def integers(workers: int, size: int) -> Exchange:
    """Small integers of which no two are alike."""
    own = [np.arange(size, dtype=np.int32) + 1000 * (rank + 1) for rank in range(workers)]
    return Exchange([Words(Merge.ADD, own)], False, [0] * workers)


def inner_switch_answers() -> Plan:
    """Exponents are agreed over a tree, and an inner switch repeats them to a worker that has lost them.

    The other rack has the larger exponents, so what the inner switch repeats is not what it has seen itself.
    """
    network = two_racks()
    floats = [np.float32(2.0 ** (8 * rank)) * np.ones(40, np.float32) for rank in range(4)]
    racks = job(4, 3, **RACKS)
    lost = Rule(Fate.LOSS, 0.5, (network.link_names.index("leaf0->h0"),))
    return Plan(network, 3, [(racks, [Exchange([Words(Merge.ADD, floats)], True, [0] * 4)])], [], [lost])


def reboot_of_a_busy_switch() -> Plan:
    """A switch loses all its slots of a job while each of them waits for the last worker."""
    network = with_loopbacks(star_of(3, LINK), LINK)
    late = replace(integers(3, 200), waits_ps=[0, 0, 9_000_000])
    return Plan(network, 1, [(job(3, 8), [late])], [], [], [Change(5_000_000, "clear", (3,))])


def timer_of_a_filling_slot() -> Plan:
    """A slot's timer runs from its first packet on, and the last worker is too late."""
    network = with_loopbacks(star_of(3, LINK), LINK)
    one_by_one = replace(integers(3, 24), waits_ps=[0, 3_000_000, 6_000_000])
    timed = job(3, 2, program=TIMED, slot_timer_ps=4_000_000)
    return Plan(network, 1, [(timed, [one_by_one])], [])


def timeouts_that_grow() -> Plan:
    """Nothing arrives: timeouts double every hundred, up to their bound, and the next stream's begin anew."""
    network = with_loopbacks(star_of(2, LINK), LINK)
    impatient = job(2, 8, timeout_ps=1_000_000, first_timeout_ps=1_000_000, timeout_max_ps=3_000_000)
    nothing = Rule(Fate.LOSS, 1.0, (0,), until_ps=200_000_000)
    return Plan(network, 1, [(impatient, [integers(2, 32), integers(2, 32)])], [], [nothing])


def reboot_between_two_parts() -> Plan:
    """A leaf forgets the numbers of its results while half of a unit's result has passed it.

    What passes then starts at 0 again: its workers see a gap, and ask for the unit once more.
    """
    racks = job(4, 2, unit_packets=2, **RACKS)
    between = Change(1_750_000, "clear", (4,))  # they come at 1.518 us and at 1.998 us
    return Plan(two_racks(), 1, [(racks, [integers(4, 8)])], [], [], [between])


def reboot_of_waiting_timers() -> Plan:
    """A switch forgets slots with timers while they wait: none of these timers fires."""
    network = with_loopbacks(star_of(3, LINK), LINK)
    late = replace(integers(3, 24), waits_ps=[0, 0, 9_000_000])
    timed = job(3, 2, program=TIMED, slot_timer_ps=6_000_000)
    return Plan(network, 1, [(timed, [late])], [], [], [Change(4_000_000, "clear", (3,))])


def late_worker_with_results_of_the_next_stream() -> Plan:
    """A worker that is late has lost its results of the first stream, and keeps those of the second."""
    network = with_loopbacks(star_of(2, LINK), LINK)
    late = replace(integers(2, 8), waits_ps=[0, 60_000_000])
    timed = job(2, 2, program=TIMED, slot_timer_ps=4_000_000)
    lost = Rule(Fate.LOSS, 1.0, (network.link_names.index("s0->h1"),), until_ps=7_000_000)
    return Plan(network, 1, [(timed, [late, integers(2, 8)])], [], [lost])


def shorter_pause_in_a_longer_one() -> Plan:
    """A host that is to pause until 9 us pauses until 3 us as well: it wakes up at 9 us."""
    network = with_loopbacks(star_of(2, LINK), LINK)
    pauses = [Change(100_000, "pause", (1, 9_000_000)), Change(200_000, "pause", (1, 3_000_000))]
    return Plan(network, 1, [(job(2, 2), [integers(2, 24)])], [], [], pauses)


def entry_of_a_stream_long_over() -> Plan:
    """A late copy of the first stream's packet claims ATP's only entry permanently: later packets collide.

    So does the third stream, whose number is even like that of the first.
    """
    network = with_loopbacks(star_of(3, LINK), LINK)
    server = AtpServer(host=2, entries=1, window_max=1)
    atp = job(2, 1, switch=3, program=ATP, overflow=Overflow.STICKY, server=server)
    up = (network.link_names.index("h0->s0"),)
    copied = Rule(Fate.DUPLICATE, 1.0, up, delay_ps=3_000_000, until_ps=1_000)
    return Plan(network, 1, [(atp, [integers(2, 4)] * 4)], [], [copied])


def mark_of_an_earlier_packet() -> Plan:
    """ATP at the spine: packets of the rack with two workers queue and are marked, those of the last are not.

    What leaves an entry with the last packet has the mark of the others.
    """
    server = AtpServer(host=3, entries=50, window_max=4)
    marks = {"policy": AIMD, "ecn_bytes": 50}
    atp = job(3, 4, switch=6, program=ATP, overflow=Overflow.STICKY, server=server, **marks)
    late = replace(integers(3, 80), waits_ps=[0, 0, 9_000_000])
    return Plan(two_racks(), 1, [(atp, [late])], [])


def late_copy_that_collides() -> Plan:
    """Every packet has a late copy, and ATP's window is one unit: a copy collides after its unit is done.

    The unit's next reply proposes an entry then too. The reference made proposals only when a unit was done.
    """
    network = star_of(5, LinkSpec(10**9, 0, 300))
    server = AtpServer(host=2, entries=3, window_max=1)
    atp = Job(
        (4, 3), 5, 0, 1,
        Sender(Frame("test", 4, 40, 0, 0, 84), 1, 2_000_000, 1, 3_000_000, 40_000_000, ecn_bytes=0),
        (594, 504), program=ATP, overflow=Overflow.STICKY, server=server,
    )  # fmt: skip
    sent = replace(integers(2, 25), waits_ps=[0, 9_000_000])
    return Plan(network, 0, [(atp, [sent])], [], [Rule(Fate.DUPLICATE, 1.0, tuple(range(8)), 3_000_000)])


def exponent_that_a_reboot_forgets() -> Plan:
    """A switch of a chain forgets an exponent while its block is in flight: the agreed one is too small.

    Quantised with it, words leave int32. The engine made -2**31 of them, the reference wrapped them.
    """
    own, trunk = LinkSpec(10**9, 0, 2_000), LinkSpec(10**9, 1_000_000, 2_000)
    network = with_loopbacks(compile_network(leaf_spine(2, 1, 2, own, trunk)), own)
    largest = [[-0.004, -0.74, 4e-5], [0.08, 47.0, -0.067], [6e-5, 0.0045, -0.0025]]
    sent = [np.repeat(np.array(blocks, np.float32), 4)[:9] for blocks in largest]
    tree = {"switch": 4, "branches": (Branch(5, 0, -1, 80), Branch(6, 1, -1, 453)), "homes": (1, 2, 2)}
    times = dict.fromkeys(("timeout_ps", "first_timeout_ps"), 3_000_000)
    chain = job(3, 1, hosts=(2, 0, 1), routes=(307, 40, 75), frame=FRAME, **times, **tree)
    stream = Exchange([Words(Merge.ADD, sent)], True, [0] * 3)
    return Plan(network, 0, [(chain, [stream])], [], [], [Change(7_086_774, "clear", (5,))])


MAKERS = (
    inner_switch_answers,
    reboot_of_a_busy_switch,
    timer_of_a_filling_slot,
    timeouts_that_grow,
    reboot_between_two_parts,
    reboot_of_waiting_timers,
    late_worker_with_results_of_the_next_stream,
    shorter_pause_in_a_longer_one,
    entry_of_a_stream_long_over,
    mark_of_an_earlier_packet,
    late_copy_that_collides,
    exponent_that_a_reboot_forgets,
)
KEPT = {make.__name__: make for make in MAKERS}
