"""Both engines under stress: exact under loss, drops, reuse of slots, lost registers; alike, event for event.

The compiled engine does what its plain-Python reference does on random small plans, and what they do is
right: the laws are in `plans/play.py`, plans that have failed once in `plans/rare_plans.py`.
"""

from __future__ import annotations

import ast
import heapq
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config, njit
from numpy.typing import NDArray

from netfold.kernels import rng_streams
from netfold.kernels.compiled import folder_of
from netfold.sim.engine import table_setup as tables
from netfold.sim.engine import tables as world
from netfold.sim.engine.atp_transport import first_entries
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import Fate, Frame, Job, Overflow, Rule, Scaled
from netfold.sim.engine.heap import drop_top, push, replace_top
from netfold.sim.engine.loop import HANDLERS
from netfold.sim.engine.memory_access import natural
from netfold.sim.engine.tables import HEAP, WRITE_LOG, records
from netfold.sim.plan.plan import frame_of
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.tree import TREE
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.network import Network, compile_network
from tests import ROOT
from tests.examples import examples
from tests.reference.atp import atp_job as reference_atp
from tests.reference.codecs.codecs import scale_of
from tests.reference.engine.engine import ReferenceEngine
from tests.reference.engine.fabric import STREAM_TIMER, Fabric
from tests.reference.engine.worker import JobNumber
from tests.sim.engine.plans.plans import Plan, lossy_plans, plans
from tests.sim.engine.plans.play import (
    Play,
    assert_same_registers,
    check_everything_arrived,
    check_whatever_goes_wrong,
    same_words,
    split_counters,
)
from tests.sim.engine.plans.rare_plans import (
    KEPT,
    best_effort,
    host_plans,
    lossy_steered,
    narrow_lanes,
    scaled_trees,
    schedules_of_hosts,
    several_jobs,
    steered,
    timed_slots,
    trees_of_integers,
)
from tests.sim.engine.small import (
    FAST,
    MIDDLE,
    REFERENCE_BY_NIGHT,
    Make,
    Sim,
    Words,
    aggregate,
    atp_job,
    check_received,
    check_sums,
    claimed,
    compiled,
    flow,
    gradients,
    job,
    links_total,
    logged,
    retransmitted,
    run,
    run_dry,
    seeds,
    segment,
    star_of,
    start,
)

SHORT_PS = 50_000_000
TIMEOUTS = {"timeout_ps": SHORT_PS, "first_timeout_ps": SHORT_PS, "timeout_max_ps": 4 * SHORT_PS}
UDP, ROCE = (
    replace(frame, elements=8, overhead_bytes=frame.overhead_bytes + 4 * (frame.elements - 8))
    for frame in (frame_of("udp-256"), frame_of("roce-1024"))
)


@pytest.mark.parametrize("blocks", [1, 3, 6, 11])
def test_scaled_streams_send_exponents_ahead(engine: Make, blocks: int) -> None:
    """Windows of 8 units; blocks + min(8, blocks) units are sent, two exchanges in a row.

    With fewer blocks than window slots, words wait for their exponent; with five to seven, a unit can have
    its exponent before its window slot is free.
    """
    network = star_of(3, FAST)
    sim = engine(network)
    number = sim.add_job(job(network, 8, UDP, **TIMEOUTS))
    random = np.random.default_rng(blocks)
    for _ in range(2):
        exponents = [random.integers(-20, 20, blocks).astype(np.int8) for _ in range(3)]
        words = [
            np.ldexp(random.uniform(-1, 1, blocks * 8), own.repeat(8)).astype(np.float32)[:-3]
            for own in exponents
        ]
        scaled = [Scaled(own, np.zeros(blocks, np.int8)) for own in exponents]
        outcome = aggregate(sim, number, words, scaled)
        largest = np.max(exponents, axis=0)
        assert all(np.array_equal(each.agreed, largest) for each in scaled)
        check_sums(outcome.results, [quantised(own, largest, 8) for own in words])
    run_dry(sim)
    assert sim.switch_counters(number)["packets"] == 2 * 3 * (blocks + min(8, blocks))


def quantised(words: NDArray[np.float32], exponents: NDArray[np.int8], unit_words: int) -> Words:
    """What three workers' words become with these agreed exponents, by array arithmetic."""
    scales = np.array([scale_of(int(exponent), 3) for exponent in exponents])
    scaled: NDArray[np.float32] = words * scales.repeat(unit_words)[: words.size]
    return np.rint(scaled).astype(np.int32)


@REFERENCE_BY_NIGHT
@pytest.mark.parametrize(
    ("frame", "unit_packets", "buffer_packets"),
    [(UDP, 1, 1), (UDP, 1, 10), (ROCE, 4, 10), (ROCE, 4, 40)],
)
def test_sums_are_exact_when_buffers_overflow(
    engine: Make, frame: Frame, unit_packets: int, buffer_packets: int
) -> None:
    """Four hosts a leaf burst into an uplink no faster than theirs, aggregation behind it.

    Where the buffer holds less than one unit of each, equal timers without jitter would let them collide
    alike for ever.
    """
    wire_bytes = frame.wire_bytes(frame.elements, first=unit_packets > 1, last=unit_packets > 1)
    uplink = replace(FAST, buffer_bytes=buffer_packets * wire_bytes)
    network = compile_network(leaf_spine(2, 1, 4, FAST, uplink))
    spine = network.nodes.index("spine0")
    sim = engine(network)
    number = sim.add_job(job(network, 8 * unit_packets, frame, unit_packets, switch=spine, **TIMEOUTS))
    words = gradients(8, 8 * 100)
    check_sums(aggregate(sim, number, words).results, words)

    assert links_total(sim, "dropped_packets") > 0
    assert retransmitted(sim, number, 8) > 0
    run_dry(sim)
    up = sim.link_counters()[network.link_names.index("leaf0->spine0")]
    assert buffer_packets * wire_bytes >= up["backlog_bytes_max"] > 0


def busy_run(sim: Engine, *, is_ample: bool) -> tuple[list[int], list[int]]:
    """An exchange of 16 workers and 13 flows; returns sizes of tables at the start and at the end.

    So much is sent at once that fewer packets are left free than an event may need: the run has to grow.
    """
    words = gradients(16, 8 * 110)
    spine = sim.network.nodes.index("spine0")
    number = sim.add_job(job(sim.network, 40, UDP, switch=spine, routes=tuple(range(16)), **TIMEOUTS))
    if is_ample:
        sim.world = tables.add_packets(sim.world, 20_000)
        sim.world = tables.add_payloads(sim.world, 20_000)
        sim.world = tables.add_flows(sim.world, 100, 100)
        heap, log = (tables.enlarge(table, 100_000) for table in (sim.world.heap, sim.world.log))
        sim.world = sim.world._replace(heap=heap, log=log)
    changes = {"timeout_ps": SHORT_PS, "window": 96, "ack_every": 2}
    flows = [
        flow(source, (3 * source + 1) % 16, words[source], UDP, route=source, **changes)
        for source in range(13)
    ]
    segments = [segment(own) for own in words]
    start(sim, number, [[each] for each in segments])
    for each in flows:
        sim.open_flow(each)
    before = table_sizes(sim)
    run(sim, 16 + len(flows))
    run_dry(sim)
    check_sums([each.result for each in segments], words)
    check_received(flows)
    return before, table_sizes(sim)


def table_sizes(sim: Engine) -> list[int]:
    return [len(table) for table in (sim.world.packets, sim.world.payloads, sim.world.log)]


def test_tables_that_grow_change_nothing() -> None:
    """The same traffic with tables that grow while packets are in flight and with ample ones."""
    network = compile_network(leaf_spine(4, 2, 4, FAST, FAST))
    small = logged(network, loss=0.01)
    ample = logged(network, loss=0.01)
    before, after = busy_run(ample, is_ample=True)
    assert before == after
    before, after = busy_run(small, is_ample=False)
    assert all(start < end for start, end in zip(before, after, strict=True))
    assert small.log == ample.log
    assert small.link_counters() == ample.link_counters()


def test_timeouts_double_every_hundred_up_to_a_bound(engine: Make) -> None:
    """A worker that hears nothing: the first timeout, then 1000, 2000 and at most 3500 ps, and a jitter."""
    network = star_of(1)
    sim = engine(network, loss=1.0)
    timeouts = {"timeout_ps": 1000, "first_timeout_ps": 100_000, "timeout_max_ps": 3500}
    number = sim.add_job(job(network, 1, **timeouts))
    start(sim, number, [[segment(each)] for each in gradients(1, 4)])
    assert sim.run(900_000) == []

    fired_ps = [row[0] for row in sim.log if row[2] == STREAM_TIMER]
    gaps_ps = np.diff(fired_ps)
    # The hundredth waits as before.
    timeouts_ps = np.repeat([1000, 2000, 3500], [100, 100, 300])[: gaps_ps.size]
    assert fired_ps[0] == 100_000
    assert np.all((timeouts_ps <= gaps_ps) & (gaps_ps < timeouts_ps + timeouts_ps // 4))
    assert np.unique(gaps_ps[:100]).size > 50
    counts = {"timeouts": len(fired_ps), "retransmitted_packets": len(fired_ps), "stale_results": 0}
    assert sim.worker_counters(number, 0) == counts


@pytest.mark.parametrize("is_atp", [False, True])
def test_streams_that_would_never_end_are_refused(engine: Make, is_atp: bool) -> None:
    network = star_of(2)
    sim = engine(network)
    number = sim.add_job(atp_job(network, 4) if is_atp else job(network, 4, hosts=(0,), routes=(0,)))
    nothing = segment(np.zeros(0, np.int32))

    with pytest.raises(ValueError, match=r"at least one word$"):
        sim.open_stream(number, 0, [nothing, nothing])
    sim.open_stream(number, 0, [nothing, segment(np.ones(1, np.int32))])
    refusal = r"^worker 0 of job 0 (already has an open stream|has stream 0 open)"
    with pytest.raises((ValueError, RuntimeError), match=refusal):
        sim.open_stream(number, 0, [segment(np.ones(1, np.int32))])


SLOTS = 8
STAR = star_of(4)  # switch 4


def pair(first_host: int, slot_base: int = 0) -> Job:
    return job(STAR, SLOTS, hosts=(first_host, first_host + 1), routes=(0, 0), slot_base=slot_base)


@pytest.mark.parametrize("is_reserved", [False, True])
def test_a_job_may_come_while_another_sends_where_slots_are_reserved(is_reserved: bool) -> None:
    """At 3 us packets of the first are on their way, and none is back."""
    engine = Engine(STAR, 1)
    if is_reserved:
        engine.reserve_slots({4: 2 * SLOTS})
    words = [gradients(2, 1000, 1), gradients(2, 1500, 2)]
    own = [[segment(each) for each in of_job] for of_job in words]
    start(engine, engine.add_job(pair(0)), [[each] for each in own[0]])
    assert engine.run(3_000_000) == []
    if not is_reserved:
        with pytest.raises(RuntimeError, match="once packets have been sent"):
            engine.add_job(pair(2, SLOTS))
        with pytest.raises(RuntimeError, match="slots cannot be reserved"):
            engine.reserve_slots({4: 2 * SLOTS})
        return
    start(engine, engine.add_job(pair(2, SLOTS)), [[each] for each in own[1]])
    run(engine, 4)

    for of_job, sent in zip(own, words, strict=True):
        check_sums([each.result for each in of_job], sent)


def test_after_a_single_packet_it_is_too_late_for_another_job() -> None:
    """A program without timers leaves nothing but the packet to be noticed."""
    engine = Engine(STAR, 1)
    engine.open_stream(engine.add_job(replace(pair(0), program=TREE)), 0, [segment(gradients(1, 4)[0])])
    with pytest.raises(RuntimeError, match="once packets have been sent"):
        engine.add_job(pair(2, SLOTS))


def test_released_slots_are_as_new() -> None:
    """Each job's first packets are version 0 of its slots, whatever the last job left there."""
    engine = Engine(STAR, 1)
    engine.reserve_slots({4: SLOTS})
    for turn, first_host in enumerate((0, 2, 1)):
        words = gradients(2, 1000 + 64 * turn, turn)
        number = engine.add_job(pair(first_host))
        check_sums(aggregate(engine, number, words).results, words)
        engine.release_job(number)
        assert not engine.world.registers.slots["bitmap"].any()
        assert (engine.world.windows["switch_expected_psn"] == -1).all()


def test_a_job_that_is_released_leaves_the_slots_behind_its_own() -> None:
    engine = Engine(STAR, 1)
    first, second = engine.add_job(pair(0)), engine.add_job(pair(2, SLOTS))
    engine.open_stream(second, 0, [segment(words) for words in gradients(1, 1000)])
    assert engine.run(100_000_000) == []
    engine.release_job(first)

    waiting = engine.world.registers.slots["bitmap"].reshape(-1, 2)[:, 0]
    assert waiting.tolist() == [0] * SLOTS + [1] * SLOTS


WORKERS, WINDOW, PACKETS = 4, 16, 400
PAIR = Frame("test", elements=2, overhead_bytes=100)
STUCK_PS = 10**10  # a hundred times the longest timeout
MARGIN = 2**31 // WORKERS  # words whose sums stay in int32
RACK, BESIDE_SERVER = star_of(WORKERS, FAST), star_of(WORKERS + 1, FAST)
PATIENT = dict.fromkeys(("timeout_ps", "first_timeout_ps", "timeout_max_ps"), 10**8)
LATER = {"timeout_ps": 2 * 10**8, "first_timeout_ps": 10**9, "timeout_max_ps": 10**8}
STICKY_ATP = {"frame": PAIR, "overflow": Overflow.STICKY, "ecn_bytes": 80_000, **LATER}
PROTOCOLS = {
    "SwitchML": (RACK, job(RACK, WINDOW, PAIR, **PATIENT)),
    "ATP": (BESIDE_SERVER, atp_job(BESIDE_SERVER, WINDOW, 20_000, **STICKY_ATP)),
}
every_protocol = pytest.mark.parametrize(("network", "plan"), PROTOCOLS.values(), ids=PROTOCOLS)


@REFERENCE_BY_NIGHT
@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
@every_protocol
def test_sums_are_exact_whatever_is_lost(engine: Make, network: Network, plan: Job, loss: float) -> None:
    """Two exchanges in a row; all that is lost is sent again, and nothing else."""
    margin = MARGIN if plan.program is ATP else 2**31
    evictions = 0
    for seed in seeds(engine, 8):
        sim = engine(network, loss, seed)
        number = sim.add_job(plan)
        for size in (PACKETS * PAIR.elements, 37 * PAIR.elements + 1):
            words = gradients(WORKERS, size, seed, margin)
            check_sums(aggregate(sim, number, words).results, words)
        run_dry(sim)
        assert claimed(sim, number) == []
        assert (links_total(sim, "lost_packets") > 0) == (retransmitted(sim, number, WORKERS) > 0)
        counters = sim.switch_counters(number)
        assert counters["collisions"] == 0
        evictions += counters["evictions"]
        if loss == 0:
            assert counters["packets"] == WORKERS * (PACKETS + 38)
    assert (evictions > 0) == (plan.program is ATP and loss > 0)


@REFERENCE_BY_NIGHT
@every_protocol
@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_lost_registers(engine: Make, network: Network, plan: Job, loss: float) -> None:
    """SwitchML finishes where no result is lost, else some never do; ATP finishes; nothing is ever wrong."""
    finished = struck = 0
    for seed in seeds(engine, 12, 4):
        sim = engine(network, loss, seed)
        number = sim.add_job(plan)
        words = gradients(WORKERS, PACKETS * PAIR.elements, seed, MARGIN)
        own = [segment(each) for each in words]
        start(sim, number, [[each] for each in own])
        assert run_until(sim, WORKERS, 5_000_000 + 1_200_000 * seed) == 0
        struck += claimed(sim, number) != []
        sim.clear(plan.switch)
        assert claimed(sim, number) == []
        finished += run_until(sim, WORKERS, STUCK_PS) == WORKERS
        total = sum(each.words.astype(np.int64) for each in own)
        for each in own:
            has_come = each.result != 0
            assert np.array_equal(each.result[has_come], total[has_come])
    assert struck > 0 or plan.program is not ATP  # SwitchML's workers are in step
    if plan.program is ATP or loss == 0:
        assert finished == len(seeds(engine, 12, 4))
    else:
        assert finished < len(seeds(engine, 12, 4)) / 2


def run_until(sim: Sim, completions: int, until_ps: int) -> int:
    """Run until so many streams are done, or a time; returns how many are."""
    done = 0
    while done < completions and sim.now_ps < until_ps:
        done += len(sim.run(until_ps))
    return done


def test_first_entries_are_the_reference_s() -> None:
    """Also where there are hardly more entries than places."""
    for entries in (2000, 20):
        plan = atp_job(BESIDE_SERVER, 20, entries)
        for seed in range(20):
            theirs = reference_atp.first_entries(Fabric(BESIDE_SERVER, (), seed), JobNumber(plan, seed))
            assert first_entries(seed, seed, entries, 20) == theirs


def test_goodput_of_atp_is_that_of_its_frame() -> None:
    """62 words in 332 B on the wire: at most 74.7 Gb/s of gradient at 100 Gb/s."""
    sim = compiled(BESIDE_SERVER)
    changes = {**STICKY_ATP, "frame": Frame("atp", 62, 84)}
    number = sim.add_job(atp_job(BESIDE_SERVER, 250, 20_000, **changes))
    packets = 10_000
    aggregate(sim, number, gradients(WORKERS, packets * 62, 1, MARGIN))
    goodput_bps = packets * 62 * 32 * 10**12 / sim.now_ps
    assert 0.95 * 74.7e9 < goodput_bps < 74.7e9


HORIZON_PS = 300 * 10**6  # plans with faults may never end
END_PS = 20 * 10**9  # plans without end long before
# With a window of one packet and losses on many links, a flow may wait for timeouts for most of 20 ms.
LONG_END_PS = 10**12


@pytest.mark.parametrize("name", KEPT)
def test_kept_plans(name: str) -> None:
    assert_same(KEPT[name]())


KINDS = {
    "any": plans(),
    "scaled_trees": scaled_trees(),
    "trees_of_integers": trees_of_integers(),
    "timed_slots": timed_slots(),
    "narrow_lanes": narrow_lanes(),
    "atp": best_effort(),
    "several_jobs": several_jobs(),
    "steered": steered(),
    "schedules": schedules_of_hosts(),
    "hosts": host_plans(),
}


@pytest.mark.parametrize("kind", KINDS)
@examples(15, at_night=9)
@given(data=st.data())
def test_plans(kind: str, data: st.DataObject) -> None:
    assert_same(data.draw(KINDS[kind]))


def assert_same(plan: Plan) -> None:
    """Both engines log the same events, deliver the same words and are left in the same state."""
    reference = Play(ReferenceEngine(plan.network, plan.seed, plan.rules), plan, HORIZON_PS)
    engine = Engine(plan.network, plan.seed, plan.rules)
    engine.start_log()
    compiled = Play(engine, plan, HORIZON_PS)

    assert engine.log == [tuple(row) for row in reference.engine.log]
    assert compiled.completions == reference.completions
    assert_same_words(compiled, reference)
    check_whatever_goes_wrong(reference)
    assert engine.rule_counters() == reference.engine.rule_counters()
    for ours_link, theirs_link in zip(engine.link_counters(), reference.engine.link_counters(), strict=True):
        assert {name: ours_link[name] for name in theirs_link} == theirs_link
    for number, (of_plan, _) in enumerate(plan.jobs):
        ours, theirs = engine.switch_counters(number), reference.engine.switch_counters(number)
        assert {name: ours[name] for name in theirs} == theirs
        assert engine.split_counters(number) == split_counters(reference.engine, number)
        for worker in range(len(of_plan.hosts)):
            assert engine.worker_counters(number, worker) == reference.engine.worker_counters(number, worker)
        assert_same_registers(engine, reference.engine, number)
    for number in set(engine.world.flows["serial"].tolist()) - {-1}:  # not forgotten yet
        assert engine.flow_counters(number) == reference.engine.flow_counters(number)


def assert_same_words(ours: Play, theirs: Play) -> None:
    for a, b in zip(ours.received, theirs.received, strict=True):
        assert np.array_equal(a, b)
    for one, other in zip(ours.results, theirs.results, strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or np.array_equal(one, other)
    for stream, twin in zip(ours.streams, theirs.streams, strict=True):
        for mine, other in zip(stream.segments, twin.segments, strict=True):
            assert same_words(mine.result, other.result)
            assert mine.holders is None or np.array_equal(mine.holders, other.holders)
            assert mine.members is None or np.array_equal(mine.members, other.members)
            assert mine.is_float is None or np.array_equal(mine.is_float, other.is_float)
        assert stream.scaled is None or np.array_equal(stream.scaled.agreed, twin.scaled.agreed)


@REFERENCE_BY_NIGHT
@examples(18, at_night=6)
@given(lossy_plans())
def test_everything_completes(engine: Make, plan: Plan) -> None:
    """Whatever is lost or dropped, every stream and flow ends within some hundred timeouts, and is right."""
    check_everything_arrived(Play(engine(plan.network, seed=plan.seed, rules=plan.rules), plan, END_PS))


@REFERENCE_BY_NIGHT
@examples(15, at_night=5)
@given(lossy_steered())
def test_every_flow_completes_under_every_policy(engine: Make, plan: Plan) -> None:
    check_everything_arrived(Play(engine(plan.network, seed=plan.seed, rules=plan.rules), plan, LONG_END_PS))


PAGES = sorted((ROOT / "docs/explanation/engine").glob("*.md"))
DRAWS = [draw for page in PAGES for draw in re.findall(r"mix\(([^)…]*)", page.read_text("utf-8"))]


def test_every_draw_on_the_pages_has_a_purpose_that_exists_and_no_number_in_its_place() -> None:
    named = {name for draw in DRAWS for name in re.findall(r"\b[A-Z][A-Z_]+\b", draw)}

    assert len(DRAWS) > 25
    assert sorted(name for name in named if not isinstance(getattr(rng_streams, name, None), int)) == []
    assert [draw for draw in DRAWS if re.search(r"(^|(seed|key|h), )\d+(,|$| \+)", draw)] == []


def test_groups_cover_all_kinds_once() -> None:
    at_atp = (*world.KINDS_AT_ATP_SWITCH, *world.KINDS_AT_ATP_HOSTS)
    assert [*world.HOT_KINDS, world.LOOP, *at_atp, world.SPLIT] == list(range(11))
    assert max(world.HOT_KINDS) == world.LAST_HOT_KIND


def test_packets_are_of_these_kinds_alone() -> None:
    """What some code gives a packet as its kind is in a group: a new kind has to be put into one."""
    given = {
        ast.unparse(node.value)
        for path in (ROOT / "netfold/sim/engine").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(".kind")
    }
    assert sorted(getattr(world, name) for name in given) == list(range(11))


TIMES = st.one_of(st.integers(0, 3), st.integers(0, np.iinfo(np.int64).max))


@given(st.lists(st.one_of(st.none(), st.tuples(st.booleans(), TIMES)), max_size=80))
def test_the_first_entry_is_always_the_one_that_comes_first(steps: list[tuple[bool, int] | None]) -> None:
    # A step drops the first entry (None), or adds one: in the place of the first, or beside all others.
    heap, expected = records(len(steps) + 1, HEAP), list[tuple[int, int]]()
    for order, step in enumerate(steps, 1 << 40):
        count = len(expected)
        if step is None:
            if count > 0:
                drop_top(heap, count)
                heapq.heappop(expected)
        elif step[0] and count > 0:
            replace_top(heap, count, step[1], order, -order)
            heapq.heapreplace(expected, (step[1], order))
        else:
            push(heap, count, step[1], order, -order)
            heapq.heappush(expected, (step[1], order))
        if expected:
            first = heap[0]
            assert (int(first.time_ps), int(first.order)) == expected[0]
            assert first.what == -first.order


def test_a_negative_index_is_told_where_bounds_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promise to the compiler elsewhere."""
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)

    @njit
    def taken(index: int) -> int:
        return natural(index)

    assert (taken(0), taken(7)) == (0, 7)
    with pytest.raises(IndexError, match=r"^a negative index$"):
        taken(-1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_in_a_handler_stops_the_engine() -> None:
    """A duplicate needs a free packet; here the table has none and is not enlarged."""
    engine = Engine(star_of(2, LinkSpec(10**9, 0, 1 << 20)), 1, [Rule(Fate.DUPLICATE, 1.0, (2, 3))])
    (words,) = gradients(1, 4)
    engine.open_flow(flow(0, 1, words, MIDDLE))
    engine._make_room = lambda reserve: None  # type: ignore[method-assign]
    engine._reserve = 0
    engine.world.clock[0].packet_free_count = 0

    with pytest.raises(RuntimeError, match="a compiled handler failed"):
        engine.run(10**12)


def test_handlers_are_cached_with_the_kernels() -> None:
    """Beside its source Numba would notice changes of that file alone, not of the kernels that it calls."""
    HANDLERS.compile(WRITE_LOG)

    folder = folder_of("netfold.sim.engine.loop")
    assert folder is not None
    assert list(folder.rglob("loop._write_log-*.nbi"))
