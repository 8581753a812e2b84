"""Checks by hand: just inside and just outside of every limit, on every side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.codec import Codec, Decoded
from netfold.homomorphic.codecs.fixed_point import FixedPoint
from netfold.homomorphic.codecs.none import Uncompressed
from netfold.homomorphic.codecs.packed import Packed
from netfold.homomorphic.merge import Merge, Merged, Work
from netfold.homomorphic.message import Message
from netfold.sim.checks.checks import (
    Ending,
    Finding,
    Journal,
    LeakCause,
    RoundLog,
    check_job,
    check_network,
    conservation,
    leak_causes,
    leak_warnings,
    merges_are_exact,
    merges_are_right,
    nothing_leaked,
    nothing_lost,
    replicas_agree,
    sum_is_right,
    switches_add_up,
)
from netfold.sim.checks.error_metrics import ErrorMetrics
from netfold.sim.checks.round_findings import Findings, Held, RecordedOperation, WrongWord, count_notes
from netfold.sim.collectives.in_network.in_network_run import InNetwork
from netfold.sim.engine.engine_views import points_of
from netfold.sim.plan.plan import VariantPlan
from netfold.sim.results.records import FaultRecord, LinkRecord, RoundRecord
from netfold.sim.workload.fusion import Bucket
from tests.sim.results.builders import RING
from tests.sim.results.builders import rounds as fake_rounds
from tests.sim.scenes import job_plan, only, simulate

FINE = Findings(
    wrong_words=0,
    is_integer=True,
    replicas_agree=True,
    max_bounded_error=0.0,
    max_estimate_error=0.0,
    max_error_over_bound=0.0,
    worst_element=0,
    nonzeros=0,
    union_nonzeros=0,
    loss=ErrorMetrics(),
    is_held_back=False,
    held=Held(3, 3.0),
)
WORD = WrongWord(0, 0, "values", 1, 5, 2, 3, place="slot 4")


def a_round(**changes: Any) -> RoundRecord:
    return replace(fake_rounds(RING)[0], variant="v", workers_held_min=3, workers_held_mean=3.0, **changes)


def journal(*rounds: tuple[RoundRecord, Findings]) -> Journal:
    """Of one bucket per step."""
    return Journal(1, rounds=[record for record, _ in rounds], findings=[findings for _, findings in rounds])


def of_one(found: Findings, **record: Any) -> Journal:
    """A round that is fine, then one that may not be."""
    return journal((a_round(), FINE), (a_round(step=1, **record), found))


@pytest.mark.parametrize(("over", "passes"), [(1.0, True), (1.0 + 2.0**-40, False), (10.0, False)])
def test_an_error_at_its_bound_and_beyond(over: float, passes: bool) -> None:
    found = replace(FINE, max_error_over_bound=over, max_bounded_error=7.0, worst_element=3)

    finding = sum_is_right(FixedPoint(), of_one(found, max_error_over_bound=over))

    assert finding.passed == passes
    assert finding.detail.startswith("largest error 7, at most ")
    assert ("step 1, bucket 0, element 3" in finding.detail) == (not passes)


@pytest.mark.parametrize(
    ("over", "magnitude", "is_reported"),
    [(math.inf, 2.0**128, True), (math.inf, 3.4e38, False), (1e9, 2.0**128, False)],
)
def test_partial_sums_that_may_have_left_float32_are_reported(
    over: float, magnitude: float, is_reported: bool
) -> None:
    """The largest float32 is 3.4028235e38."""
    found = replace(FINE, max_error_over_bound=over, max_bounded_error=over, worst_magnitude=magnitude)

    finding = sum_is_right(FixedPoint(), of_one(found, max_error_over_bound=over))

    note = "; partial sums may have left float32 on the way: Σ|x| is 3.4e+38 there"
    assert not finding.passed
    assert (note in finding.detail) == is_reported


def exactly(folder: Path, codec: Codec, found: Findings, **record: Any) -> tuple[bool, str]:
    job = replace(job_plan(only(folder)), codec=codec)
    return tuple(merges_are_exact(job, of_one(found, **record), [{"overflowed_words": 0}]))


@pytest.mark.parametrize("codec", [Packed(), Packed("float32")], ids=["integers", "floats"])
def test_one_wrong_integer_word_fails_with_any_codec(tmp_path: Path, codec: Codec) -> None:
    passes, detail = exactly(tmp_path, codec, replace(FINE, wrong_words=1, first_wrong=WORD))

    assert not passes
    assert detail == (
        "1 merged words are wrong, first in step 1, bucket 0, "
        "worker 1, word 5 of 'values' (received 2, the sum is 3): slot 4"
    )
    assert exactly(tmp_path, codec, FINE) == (True, "all merged words of 2 rounds equal their integer sums")


@pytest.mark.parametrize(
    ("record", "passes"),
    [
        ({}, False),
        ({"fallback_parts": 1}, True),
        ({"forecast_misses": 1}, True),
        ({"estimated_elements": 9}, False),
    ],
)
def test_a_clipped_word_is_wrong_unless_its_round_was_sent_again(
    tmp_path: Path, record: dict[str, int], passes: bool
) -> None:
    clipped = replace(FINE, clipped_words=2, first_clipped=WORD)

    assert exactly(tmp_path, Packed(), clipped, **record)[0] == passes
    both = replace(clipped, wrong_words=1, first_wrong=WORD)
    assert not exactly(tmp_path, Packed(), both, **record)[0]
    # What another round sent again does not matter.
    other = journal((a_round(fallback_parts=1), FINE), (a_round(step=1), clipped))
    assert not merges_are_exact(job_plan(only(tmp_path)), other, [{"overflowed_words": 2}]).passed


def test_one_wrong_float_word_fails() -> None:
    word = replace(WORD, received=2.5, right=2.0, allowed=1e-7)
    found = replace(FINE, float_words=30, wrong_floats=1, first_wrong_float=word)

    finding = merges_are_right(of_one(found))

    assert not finding.passed
    assert finding.detail == (
        "1 of 30 merged float32 words are not within (n − 1) · 2⁻²⁴ · Σ|x| of the words sent, "
        "first in step 1, bucket 0, worker 1, word 5 of 'values' "
        "(received 2.5, the sum is 2 within 1e-07): slot 4"
    )
    assert merges_are_right(of_one(replace(found, wrong_floats=0))).passed


def test_one_round_in_which_workers_differ() -> None:
    assert replicas_agree(of_one(FINE)).passed
    assert not replicas_agree(of_one(FINE, replicas_agree=False)).passed
    assert not replicas_agree(of_one(FINE, notes_agree=False)).passed


@pytest.mark.parametrize(("rounds", "passes"), [(1, False), (2, True), (3, False)])
def test_rounds_that_are_missing_or_too_many(tmp_path: Path, rounds: int, passes: bool) -> None:
    job = replace(job_plan(only(tmp_path)), steps=2)
    assert nothing_lost(job, journal(*[(a_round(), FINE)] * rounds), []).passed == passes


def test_checks_that_failed_stay_failed_where_a_job_did_not_finish(tmp_path: Path) -> None:
    """A check that only lacks rounds is stalled; one with wrong values fails."""
    job = replace(job_plan(only(tmp_path)), steps=3, codec=Uncompressed())
    wrong = replace(
        FINE,
        wrong_words=1,
        first_wrong=WORD,
        wrong_floats=1,
        float_words=1,
        first_wrong_float=WORD,
        max_error_over_bound=2.0,
    )
    job = replace(job, codec=Packed("float32"))
    made = of_one(wrong, max_error_over_bound=2.0, replicas_agree=False)

    checks = check_job(job, made, [], Ending("stalled", "worker 1 has crashed"), [{"overflowed_words": 0}])

    assert {check.name: check.verdict for check in checks} == {
        "finishes": "stalled",
        "decodes": "pass",
        "sum_is_right": "fail",
        "merges_are_exact": "fail",
        "merges_are_right": "fail",
        "replicas_agree": "fail",
        "nothing_lost": "stalled",
    }
    none = check_job(job, journal(), [], Ending("stalled", "worker 1 has crashed"), [{"overflowed_words": 0}])
    assert {check.name for check in none if check.verdict == "stalled"} == {
        *("finishes", "decodes", "sum_is_right", "nothing_lost")
    }


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> list[LinkRecord]:
    """Of a run in which all hosts and the loopback sent something."""
    return simulate(tmp_path_factory.mktemp("links")).links


def changed(links: Sequence[LinkRecord], row: int, **by: int) -> list[LinkRecord]:
    """One link with some counters changed by so much."""
    values = {name: getattr(links[row], name) + change for name, change in by.items()}
    return [replace(link, **values) if number == row else link for number, link in enumerate(links)]


@pytest.mark.parametrize("counter", ["bytes", "delivered_bytes", "lost_bytes", "in_flight_bytes"])
@pytest.mark.parametrize("by", [1, -1])
def test_a_byte_too_many_or_too_few_on_any_link(links: list[LinkRecord], counter: str, by: int) -> None:
    """Into a switch, out of one, and round its loopback."""
    kinds = {(link.source == "s0", link.target == "s0") for link in links}
    assert kinds == {(True, True), (True, False), (False, True)}
    assert conservation(links).passed
    for row, link in enumerate(links):
        finding = conservation(changed(links, row, **{counter: by}))

        is_sent = counter == "bytes"
        sent, accounted = link.bytes + by * is_sent, link.bytes + by * (not is_sent)
        assert finding == (False, f"link {link.link} sent {sent} B, but {accounted} B are accounted for")
    moved = changed(links, 0, delivered_bytes=-332, lost_bytes=332)
    assert conservation(moved).passed


def test_a_picosecond_too_little_on_any_link(links: list[LinkRecord]) -> None:
    """Time that a link was busy is just what its bytes take here, or more."""
    for row, link in enumerate(links):
        least_ps = -(-link.bytes * 8 * 10**12 // link.rate_bps)

        assert conservation(changed(links, row, busy_ps=least_ps - link.busy_ps)).passed
        if link.bytes:
            assert conservation(changed(links, row, busy_ps=least_ps - link.busy_ps - 1)) == (
                False,
                f"link {link.link} sent {link.bytes} B faster than {link.rate_bps} bps allows",
            )


def adding_up(variant: VariantPlan, links: list[LinkRecord], copies: int = 0, **more: int) -> Finding:
    """With the counters of a run without faults, or some of them changed: 32 units of 3 workers."""
    counters = {"packets": 96, "results": 32, **dict.fromkeys(("answers", "late", "stale_results"), 0)}
    counters |= {name: counters.get(name, 0) + by for name, by in more.items()}
    return switches_add_up(variant, links, copies, [[counters]])


def added_up(*arguments: Any, **more: int) -> bool:
    return adding_up(*arguments, **more).passed


def test_packets_too_many_or_too_few_at_a_switch(tmp_path: Path, links: list[LinkRecord]) -> None:
    variant = only(tmp_path)
    into = next(row for row, link in enumerate(links) if link.target == "s0" != link.source and link.packets)
    out = next(row for row, link in enumerate(links) if link.source == "s0" != link.target and link.packets)
    (round_,) = (row for row, link in enumerate(links) if link.source == link.target)
    assert added_up(variant, links)

    for row, counter, by in (
        *((into, "delivered_packets", by) for by in (1, -1)),
        *((out, counter, by) for counter in ("packets", "dropped_packets") for by in (1, -1)),
    ):
        assert not added_up(variant, changed(links, row, **{counter: by}))
    # As many copies as faults made may leave beyond what is due, and not one more.
    for copies, by, passes in ((1, 1, True), (1, 2, False), (1, -1, False), (3, 3, True), (3, 4, False)):
        assert added_up(variant, changed(links, out, packets=by), copies) == passes
    # What is lost in the loopback is one packet or a result for three.
    for by, passes in ((0, False), (-1, True), (-3, True), (-4, False)):
        lost = changed(changed(links, round_, lost_packets=1), out, packets=by)
        assert added_up(variant, lost) == passes
    # A program never sees more than came.
    assert added_up(variant, changed(links, into, delivered_packets=1), packets=1)
    for more, detail in (
        ({"packets": 1}, "switch s0 received 96 packets, its programs saw 97"),
        ({"results": 1}, "switch s0 sent or dropped 96 packets, 99 were due"),
        ({"answers": 1}, "switch s0 sent or dropped 96 packets, 97 were due"),
    ):
        assert adding_up(variant, links, **more) == (False, detail)


LEFT = ("slot 3, version 0 at s0 waits for 2 more",)


def test_occupied_slots_that_no_fault_explains_fail() -> None:
    clean = Ending("pass", "done")
    left = clean._replace(leaks=LEFT)
    explained = left._replace(leak_causes=(LeakCause("duplicate copied 3 packets on *", 3),))

    assert (nothing_leaked(clean).passed, leak_warnings(clean)) == (True, ())
    assert (nothing_leaked(left).passed, leak_warnings(left)) == (False, ())
    assert (
        nothing_leaked(left).detail == f"1 left behind in switches: {LEFT[0]}; no injected fault explains it"
    )
    assert nothing_leaked(explained).passed
    warning = (
        f"1 left behind in switches: {LEFT[0]}; injected faults explain it: duplicate copied 3 packets on *"
    )
    assert leak_warnings(explained) == (nothing_leaked(explained).detail,) == (warning,)
    unexplained_cause = clean._replace(leak_causes=explained.leak_causes)
    assert leak_warnings(unexplained_cause) == ()


@pytest.mark.parametrize(
    ("causes", "most"), [((2,), 2), ((2, 1), 3), ((4,), None), ((1, 3), None), ((None,), None)]
)
def test_as_many_packets_as_were_struck_explain_as_many_slots(
    causes: tuple[int | None, ...], most: int | None
) -> None:
    """A late packet opens one slot; a reboot leaves any number behind."""
    left = Ending("pass", "done", leaks=LEFT * 4)

    found = nothing_leaked(left._replace(leak_causes=[LeakCause("it did", one) for one in causes]))

    explained = "explain it" if most is None else f"explain {most} of them at most"
    assert found.passed == (most is None)
    assert f"; injected faults {explained}: it did" in found.detail


PROGRAMS = {
    "switchml": (),
    "atp": (
        "collective={kind: in_network, program: atp, frame: atp}",
        "codec={kind: fixed_point, factor: 1e6}",
    ),
    "timed": (
        "collective={kind: in_network, program: timed, frame: udp-256, slot_timer: 1ms}",
        "codec={kind: fixed_point, factor: 1e6}",
        "topology.switch=trio",
    ),
    "tree": (
        "collective={kind: in_network, program: tree, frame: roce-2048}",
        "topology.switch=sharp",
        "codec={kind: none}",
    ),
}
DUPLICATE = "{kind: duplicate, rate: 1%, links: ['h0->s0']}"
REORDER = "{kind: reorder, rate: 1%, delay: 1us, links: ['h0->s0']}"
CLEARED = "{kind: switch_reboot, switch: s0, at: 1us, clears: registers}"
NOT_INTO = [
    "{kind: duplicate, rate: 1%, links: ['s0->*']}",
    "{kind: reorder, rate: 1%, delay: 1us, links: ['s0->*']}",
    "{kind: switch_reboot, switch: s0, at: 1us, clears: tables, for: 1us}",
    "{kind: loss, rate: 1%}",
    "{kind: corruption, rate: 1%, detected: false}",
    "{kind: worker_pause, worker: 0, at: 1us, for: 1us}",
]
CAUSES = {
    DUPLICATE: "duplicate copied 5 packets on h0->s0",
    REORDER: "reorder delayed 5 packets on h0->s0",
    CLEARED: "switch_reboot cleared s0",
}
EXPLAINS = {
    "switchml": {DUPLICATE, REORDER, CLEARED},
    "atp": {DUPLICATE, REORDER, CLEARED},
    "timed": set(),  # a slot's timer ends it, whichever worker began it
    "tree": {DUPLICATE},  # no worker sends again, so no packet overtakes its copy
}


def causes(folder: Path, program: str, fault: str, count: int) -> tuple[LeakCause, ...]:
    variant = only(folder, *PROGRAMS[program], f"faults=[{fault}]")
    (planned,) = variant.faults.faults
    record = FaultRecord("v", 0, planned.kind, planned.where, "", count, "packets", 0)
    return leak_causes(variant, job_plan(variant), [record])


@pytest.mark.parametrize("program", PROGRAMS)
def test_which_faults_leave_slots_behind(tmp_path: Path, program: str) -> None:
    for fault in (DUPLICATE, REORDER, CLEARED):
        most = None if fault is CLEARED else 5
        explains = (LeakCause(CAUSES[fault], most),) if fault in EXPLAINS[program] else ()

        assert causes(tmp_path, program, fault, 5) == explains
        assert causes(tmp_path, program, fault, 0) == ()  # it never struck
    for fault in NOT_INTO:
        assert causes(tmp_path, program, fault, 5) == ()
    ring = only(tmp_path, "collective={kind: ring}", f"faults=[{DUPLICATE}]")
    record = FaultRecord("v", 0, "duplicate", "h0->s0", "", 5, "packets", 0)
    assert leak_causes(ring, job_plan(ring), [record]) == ()


ONE_OF_TWO_LEVELS = (
    "topology={kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 4, rate: 100Gbps, delay: 1us}",
    "workers=8",
    "collective={kind: in_network, frame: udp-256, slots: 64, switch: spine0, aggregators: one}",
)


@pytest.mark.parametrize(
    ("links", "explains"),
    [
        ("h*->leaf*", True),
        ("h3->leaf0", True),
        ("leaf1->spine0", True),
        ("leaf0->h*", False),
        ("leaf0->spine1", False),
    ],
)
def test_links_on_the_way_to_a_switch_that_is_not_the_first(
    tmp_path: Path, links: str, explains: bool
) -> None:
    fault = f"{{kind: duplicate, rate: 1%, links: ['{links}']}}"
    variant = only(tmp_path, *ONE_OF_TWO_LEVELS, f"faults=[{fault}]")
    record = FaultRecord("v", 0, "duplicate", links, "", 1, "packets", 0)

    found = leak_causes(variant, job_plan(variant), [record])

    assert found == ((LeakCause(f"duplicate copied 1 packet on {links}", 1),) if explains else ())


def leave_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the run, the first slot or entry is as if worker 0 had just begun it."""
    original = InNetwork.leaks

    def leaks(self: InNetwork) -> list[str]:
        world, number = self._fabric.engine.world, self._trees[0][0]
        if world.jobs[number].server >= 0:
            world.entries.rows["identity"][0] = (number + 1) << 51
        else:
            point = world.points[points_of(world, number)][0]
            slot = world.registers.slots[2 * (int(point.register_base) + int(world.jobs[number].slot_base))]
            slot.bitmap, slot.counter, slot.generation, slot.is_emitted = 1, 2, 0, 0
        return original(self)

    monkeypatch.setattr(InNetwork, "leaks", leaks)


@pytest.mark.parametrize("program", PROGRAMS)
def test_occupied_slots_are_found_with_every_program(
    tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = PROGRAMS[program]
    (job,) = simulate(tmp_path, *sets).jobs
    assert {check.verdict for check in job.checks} == {"pass"}

    leave_behind(monkeypatch)
    (job,) = simulate(tmp_path, *sets).jobs

    (failed,) = (check for check in job.checks if check.verdict == "fail")
    assert failed.name == "nothing_leaked"
    what = "entry 0 is claimed" if program == "atp" else "slot 0, version 0 at s0 waits for 2 more"
    assert failed.detail == f"1 left behind in switches: {what}; no injected fault explains it"
    assert job.facts.warnings == ()


def test_network_checks_are_made_of_every_link(tmp_path: Path, links: list[LinkRecord]) -> None:
    (down,) = (row for row, link in enumerate(links) if (link.source, link.target) == ("s0", "h1"))
    counters = [[{"packets": 96, "results": 32}]]
    for by, verdict in ((0, "pass"), (1, "fail")):
        checks = check_network(only(tmp_path), changed(links, down, lost_bytes=by), [], counters, "v")
        assert {check.name: check.verdict for check in checks}["conservation"] == verdict


def test_the_record_of_a_round_by_hand() -> None:
    """Two operations of two workers: one is summed, of the other each gets what its fellow sent."""

    def message(words: int, label: str = "values", merge: Merge = Merge.ADD, **costs: Work) -> Message:
        return Message(np.ones(words, np.int32), merge, label, **costs)

    total = Merged(np.ones(3, np.int32), 2)
    lists = {worker: (message(words, "fallback", Merge.GATHER),) for worker, words in ((0, 1), (1, 5))}
    both = Merged(np.zeros(0, np.int32), 2, parts=tuple(lists[worker][0].words for worker in (0, 1)))
    sums = RecordedOperation({0: (message(3),), 1: (message(3),)}, {0: (total,), 1: (total,)})
    log = RoundLog([np.ones(3, np.float32)] * 2, [sums, RecordedOperation(lists, {0: (both,), 1: (both,)})])
    log.start_ps, log.end_ps, log.wire_bytes[:] = 7, 9, (100, 200)
    for worker in (0, 1):
        log.store(worker, Decoded(np.full(3, 2, np.float32), log.gradients[worker]))
    record = log.record("v", 4, Bucket(2, "a", 3, 1.0, 0), FINE, count_notes([[], []], 3))

    assert (record.step, record.bucket, record.elements, record.start_ps, record.end_ps) == (4, 2, 3, 7, 9)
    assert (record.wire_bytes_up, record.wire_bytes_down) == (100, 200)
    assert (record.payload_bytes_up, record.payload_bytes_down) == (4 * 12, 4 * (3 + 3) + 4 * (5 + 1))
    assert (record.messages, record.fallback_messages, record.uploads) == (2, 1, 2)
    assert log.decoded[0].total is log.decoded[1].total
    free, costly = Work(launches=0), Work(1)
    for work, decode_work, has_work in ((free, free, False), (costly, free, True), (free, costly, True)):
        log.operations[:] = [RecordedOperation({0: (message(3, work=work, decode_work=decode_work),)})]
        assert log.has_work == has_work
