"""Plans that are played in every run: each has failed once, or is the only way to see one kind of mistake."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Branch, Fate, Frame, Job, Overflow, Rule, Server
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.timed import TIMED
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import Network, compile_network
from tests.sim.engine.plans.plans import FRAME, Change, Exchange, Plan, Words, with_loopbacks

LINK = LinkSpec(rate_bps=10**9, delay_ps=50_000, buffer_bytes=1 << 20)


def two_racks() -> Network:
    """Hosts 0 and 1 at leaf0 (node 4), 2 and 3 at leaf1 (node 5), one spine (node 6)."""
    return with_loopbacks(compile_network(leaf_spine(2, 1, 2, LINK, LINK)), LINK)


def job(hosts: int, slots: int, **changes: object) -> Job:
    """Workers on the first hosts of a star, one packet a unit, short timeouts, with the given changes."""
    plain = Job(
        hosts=tuple(range(hosts)),
        switch=hosts,
        slot_base=0,
        slots_count=slots,
        unit_packets=1,
        frame=replace(FRAME, first_bytes=1, last_bytes=2),
        timeout_ps=20_000_000,
        first_timeout_ps=20_000_000,
        timeout_max_ps=40_000_000,
        routes=(0,) * hosts,
        overflow=Overflow.WRAP,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


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
    racks = job(
        4,
        3,
        switch=6,
        branches=(Branch(4, 0, -1, 0), Branch(5, 0, -1, 0)),
        homes=(1, 1, 2, 2),
    )
    lost = Rule(Fate.LOSS, 0.5, (network.link_names.index("leaf0->h0"),))
    return Plan(network, 3, [(racks, [Exchange([Words(Merge.ADD, floats)], True, [0] * 4)])], [], [lost])


def reboot_of_a_busy_switch() -> Plan:
    """A switch loses all its slots of a job while each of them waits for the last worker."""
    network = with_loopbacks(compile_network(star(3, LINK)), LINK)
    late = replace(integers(3, 200), waits_ps=[0, 0, 9_000_000])
    return Plan(network, 1, [(job(3, 8), [late])], [], [], [Change(5_000_000, "clear", (3,))])


def timer_of_a_filling_slot() -> Plan:
    """A slot's timer runs from its first packet on, and the last worker is too late."""
    network = with_loopbacks(compile_network(star(3, LINK)), LINK)
    one_by_one = replace(integers(3, 24), waits_ps=[0, 3_000_000, 6_000_000])
    timed = job(3, 2, program=TIMED, slot_timer_ps=4_000_000)
    return Plan(network, 1, [(timed, [one_by_one])], [])


def timeouts_that_grow() -> Plan:
    """Nothing arrives: timeouts double every hundred, up to their bound, and the next stream's begin anew."""
    network = with_loopbacks(compile_network(star(2, LINK)), LINK)
    impatient = job(2, 8, timeout_ps=1_000_000, first_timeout_ps=1_000_000, timeout_max_ps=3_000_000)
    nothing = Rule(Fate.LOSS, 1.0, (0,), until_ps=200_000_000)
    return Plan(network, 1, [(impatient, [integers(2, 32), integers(2, 32)])], [], [nothing])


def reboot_between_two_parts() -> Plan:
    """A leaf forgets the numbers of its results while half of a unit's result has passed it.

    What passes then starts at 0 again: its workers see a gap, and ask for the unit once more.
    """
    racks = job(
        4,
        2,
        switch=6,
        branches=(Branch(4, 0, -1, 0), Branch(5, 0, -1, 0)),
        homes=(1, 1, 2, 2),
        unit_packets=2,
    )
    between = Change(1_750_000, "clear", (4,))  # they come at 1.518 us and at 1.998 us
    return Plan(two_racks(), 1, [(racks, [integers(4, 8)])], [], [], [between])


def reboot_of_waiting_timers() -> Plan:
    """A switch forgets slots with timers while they wait: none of these timers fires."""
    network = with_loopbacks(compile_network(star(3, LINK)), LINK)
    late = replace(integers(3, 24), waits_ps=[0, 0, 9_000_000])
    timed = job(3, 2, program=TIMED, slot_timer_ps=6_000_000)
    return Plan(network, 1, [(timed, [late])], [], [], [Change(4_000_000, "clear", (3,))])


def late_worker_with_results_of_the_next_stream() -> Plan:
    """A worker that is late has lost its results of the first stream, and keeps those of the second."""
    network = with_loopbacks(compile_network(star(2, LINK)), LINK)
    late = replace(integers(2, 8), waits_ps=[0, 60_000_000])
    timed = job(2, 2, program=TIMED, slot_timer_ps=4_000_000)
    lost = Rule(Fate.LOSS, 1.0, (network.link_names.index("s0->h1"),), until_ps=7_000_000)
    return Plan(network, 1, [(timed, [late, integers(2, 8)])], [], [lost])


def shorter_pause_in_a_longer_one() -> Plan:
    """A host that is to pause until 9 us pauses until 3 us as well: it wakes up at 9 us."""
    network = with_loopbacks(compile_network(star(2, LINK)), LINK)
    pauses = [Change(100_000, "pause", (1, 9_000_000)), Change(200_000, "pause", (1, 3_000_000))]
    return Plan(network, 1, [(job(2, 2), [integers(2, 24)])], [], [], pauses)


def entry_of_a_stream_long_over() -> Plan:
    """A late copy of the first stream's packet claims ATP's only entry permanently: later packets collide.

    So does the third stream, whose number is even like that of the first.
    """
    network = with_loopbacks(compile_network(star(3, LINK)), LINK)
    server = Server(host=2, entries=1, window_max=1, ecn_bytes=1 << 20, is_adaptive=False)
    atp = replace(job(2, 1), switch=3, program=ATP, overflow=Overflow.STICKY, server=server)
    up = (network.link_names.index("h0->s0"),)
    copied = Rule(Fate.DUPLICATE, 1.0, up, delay_ps=3_000_000, until_ps=1_000)
    return Plan(network, 1, [(atp, [integers(2, 4)] * 4)], [], [copied])


def mark_of_an_earlier_packet() -> Plan:
    """ATP at the spine: packets of the rack with two workers queue and are marked, those of the last are not.

    What leaves an entry with the last packet has the mark of the others.
    """
    server = Server(host=3, entries=50, window_max=4, ecn_bytes=50)
    atp = replace(job(3, 4), switch=6, program=ATP, overflow=Overflow.STICKY, server=server)
    late = replace(integers(3, 80), waits_ps=[0, 0, 9_000_000])
    return Plan(two_racks(), 1, [(atp, [late])], [])


def late_copy_that_collides() -> Plan:
    """Every packet has a late copy, and ATP's window is one unit: a copy collides after its unit is done.

    The unit's next reply proposes an entry then too. The reference made proposals only when a unit was done.
    """
    network = compile_network(star(5, LinkSpec(10**9, 0, 300)))
    server = Server(host=2, entries=3, window_max=1, ecn_bytes=0, is_adaptive=False)
    atp = Job(
        (4, 3), 5, 0, 1, 1, Frame("test", 4, 40, 0, 0, 84), 2_000_000, 3_000_000, 40_000_000, (594, 504),
        program=ATP, overflow=Overflow.STICKY, server=server,
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
    chain = replace(
        job(3, 1),
        hosts=(2, 0, 1),
        switch=4,
        branches=(Branch(5, 0, -1, 80), Branch(6, 1, -1, 453)),
        homes=(1, 2, 2),
        frame=FRAME,
        timeout_ps=3_000_000,
        first_timeout_ps=3_000_000,
        routes=(307, 40, 75),
    )
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
