"""Faults of packets, links and switches in a run: what they cost, what they break, and what is counted."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.results.records import FaultRecord, LinkRecord
from netfold.sim.run.outcome import VariantResult
from tests.examples import examples
from tests.sim.scenes import RING, TINY, simulate

US, MS = 10**6, 10**9
BYTE_PS = 80  # at 100 Gbps
PASS_AND_WIRE_PS = 1_600_000  # of a link into the switch: 1 us, and 0.6 us of a pass
SETS = ("workload.elements=100000", "collective.timeout=1ms")
EITHER = pytest.mark.parametrize("collective", [(), (RING,)], ids=["switch", "ring"])
FINE = {
    *("finishes", "sum_is_right", "merges_are_exact", "replicas_agree", "nothing_lost", "nothing_leaked"),
    *("conservation", "switches_add_up", "decodes", "merges_are_right"),
}


def faulty(folder: Path, *faults: str, collective: tuple[str, ...] = ()) -> VariantResult:
    """Run with some faults; a ring after its own collective is set, so that its timeout is."""
    return simulate(folder, *collective, *SETS, f"faults=[{', '.join('{' + one + '}' for one in faults)}]")


def passed(result: VariantResult) -> set[str]:
    return {check.name for check in result.checks if check.verdict == "pass"}


def end_ps(result: VariantResult) -> int:
    return result.steps[-1].end_ps


def total(result: VariantResult, column: str, name: str = "") -> int:
    """Of all links, or of one."""
    links: list[LinkRecord] = [link for link in result.links if name in ("", link.link)]
    return sum(getattr(link, column) for link in links)


def only(result: VariantResult) -> FaultRecord:
    (record,) = result.faults
    return record


STRUCK = {  # a fault, and whether what it strikes is lost
    "kind: loss, rate: 1%": True,
    "kind: corruption, rate: 1%": True,
    "kind: burst_loss, good_to_bad: 0.5%, bad_to_good: 20%, links: ['h*->s0']": True,
    "kind: duplicate, rate: 5%": False,
}
BETWEEN_HOSTS = {  # a checksum sees all corruption, and overtaken packets are waited for
    "kind: corruption, rate: 1%, detected: false": True,
    "kind: reorder, rate: 3%, delay: 20us": False,
}


@pytest.mark.parametrize(
    ("fault", "collective"),
    [*((fault, ()) for fault in STRUCK), *((fault, (RING,)) for fault in BETWEEN_HOSTS)],
)
def test_what_is_struck_is_counted_and_overcome(
    tmp_path: Path, fault: str, collective: tuple[str, ...]
) -> None:
    result = faulty(tmp_path, fault, collective=collective)

    assert passed(result) == FINE
    assert only(result).count > 0
    assert total(result, "lost_packets") == only(result).count * (STRUCK | BETWEEN_HOSTS)[fault]
    assert only(result).kind in fault
    assert (only(result).counted, only(result).first_ps) == ("packets", 0)


def test_an_earlier_fault_spares_links_and_counts_nothing(tmp_path: Path) -> None:
    result = faulty(tmp_path, "kind: loss, rate: 0%, links: ['h0->*']", "kind: loss, rate: 3%")

    assert total(result, "lost_packets", "h0->s0") == 0 < total(result, "lost_packets", "h1->s0")
    assert [record.count for record in result.faults] == [0, total(result, "lost_packets")]
    assert [record.first_ps for record in result.faults] == [None, 0]


def test_packets_are_struck_in_their_stretch_of_time_alone(tmp_path: Path) -> None:
    result = faulty(
        tmp_path, "kind: loss, rate: 100%, links: ['h1->s0'], until: 10us", "kind: loss, rate: 100%, from: 1s"
    )
    first, late = result.faults

    assert passed(result) == FINE
    assert first.count == total(result, "lost_packets", "h1->s0") == total(result, "lost_packets") > 0
    assert (late.count, late.first_ps) == (0, None)
    assert end_ps(result) > MS  # only a timeout brings back what was lost


def test_corruption_that_is_not_seen_makes_wrong_sums(tmp_path: Path) -> None:
    result = faulty(tmp_path, "kind: corruption, rate: 1%, detected: false, links: ['h*->s0']")

    assert "merges_are_exact" not in passed(result)
    assert {"conservation", "nothing_lost", "switches_add_up"} <= passed(result)
    assert total(result, "lost_packets") < only(result).count  # what carries no words is lost instead


def test_a_late_copy_breaks_switchml_silently(tmp_path: Path) -> None:
    """A copy of version v that comes after its worker sent 1 − v is taken for a new packet."""
    result = faulty(tmp_path, "kind: duplicate, rate: 3%, delay: 20us, links: ['h*->s0']")

    assert "merges_are_exact" not in passed(result)
    assert {"conservation", "nothing_lost", "switches_add_up"} <= passed(result)


@EITHER
def test_a_link_that_is_down_for_a_while_costs_time(tmp_path: Path, collective: tuple[str, ...]) -> None:
    result = faulty(
        tmp_path, "kind: link_down, links: ['h1->s0'], at: 10us, for: 500us", collective=collective
    )

    assert passed(result) == FINE
    assert (only(result).count, only(result).first_ps) == (1, 10 * US)
    link = next(link for link in result.links if link.link == "h1->s0")
    packet_ps = link.bytes * BYTE_PS // link.packets
    assert total(result, "lost_packets") == link.lost_packets <= 1 + PASS_AND_WIRE_PS // packet_ps
    assert total(result, "dropped_packets") == 0  # what comes meanwhile waits at its host
    assert end_ps(result) > 510 * US


@EITHER
def test_a_slow_link_sets_the_pace(tmp_path: Path, collective: tuple[str, ...]) -> None:
    result = faulty(
        tmp_path, "kind: link_rate, links: ['h1->s0'], rate: 10Gbps, at: 0s", collective=collective
    )
    sent_bytes = total(result, "bytes", "h1->s0")

    assert passed(result) == FINE
    assert end_ps(result) >= sent_bytes * 800 > 2 * end_ps(faulty(tmp_path, collective=collective))
    assert total(result, "busy_ps", "h1->s0") == sent_bytes * 800  # picoseconds of a byte at 10 Gbps


@pytest.mark.parametrize("clears", ["clears: registers", "clears: tables, for: 300us", "for: 300us"])
def test_switchml_gets_over_a_reboot_where_no_result_was_lost(tmp_path: Path, clears: str) -> None:
    """A worker that is late leaves slots half full, so that there is something to forget."""
    late = "kind: start_skew, worker: 1, delay: 5us"
    result = faulty(tmp_path, f"kind: switch_reboot, switch: s0, at: 20us, {clears}", late)

    assert passed(result) == FINE
    extent = "for 300us" if "for" in clears else ""
    assert result.faults[0] == FaultRecord("tiny", 0, "switch_reboot", "s0", extent, 1, "times", 20 * US)
    assert end_ps(result) > MS > end_ps(faulty(tmp_path, late))


def test_a_pause_delays_what_arrives_at_the_worker(tmp_path: Path) -> None:
    result = faulty(tmp_path, "kind: worker_pause, worker: 1, at: 20us, for: 5ms")

    assert passed(result) == FINE
    assert 5020 * US < end_ps(result) < 7 * MS


def test_the_longest_queue_is_told_in_bytes(tmp_path: Path) -> None:
    """A window of 16 packets of 332 B joins the queue of a host at once."""
    result = simulate(tmp_path, "codec={kind: fixed_point, factor: 1e6}", "workload.elements=1024")

    assert [link.backlog_bytes_max for link in result.links if link.link == "h0->s0"] == [16 * 332]


TIMED = TINY + "device: {kind: fixed, forward: 1ms, backward: 2ms, memory_rate: 1Gbps}\n"


def spans_ps(result: VariantResult, worker: int, phase: str) -> list[tuple[int, int]]:
    """When a worker was busy with a phase."""
    return [
        (record.start_ps, record.end_ps)
        for record in result.phases
        if (record.worker, record.phase) == (worker, phase)
    ]


def lengths_ps(result: VariantResult, worker: int, phase: str) -> list[int]:
    return [end_ps - start_ps for start_ps, end_ps in spans_ps(result, worker, phase)]


def timed(folder: Path, fault: str, *sets: str) -> VariantResult:
    return simulate(folder, f"faults=[{{{fault}}}]", *sets, text=TIMED)


@pytest.mark.parametrize("collective", [(), (RING,)])
def test_a_worker_that_starts_late_holds_up_the_first_step_alone(
    tmp_path: Path, collective: tuple[str, ...]
) -> None:
    steps = "workload.steps=2"
    sound = simulate(tmp_path, steps, *collective, text=TIMED)
    late = timed(tmp_path, "kind: start_skew, worker: 2, delay: 5ms", steps, *collective)

    assert spans_ps(late, 2, "forward")[0] == (5 * MS, 6 * MS)
    assert spans_ps(late, 1, "forward")[0] == (0, MS)
    (sound_1, sound_2), (late_1, late_2) = (
        [step.end_ps - step.start_ps for step in result.steps] for result in (sound, late)
    )
    assert late_1 - sound_1 == pytest.approx(5 * MS, rel=0.01)
    assert late_2 == pytest.approx(sound_2, rel=0.01)
    assert all(check.verdict == "pass" for check in late.checks)


@pytest.mark.parametrize("collective", [(), (RING,)])
def test_a_slow_host_takes_longer_for_all_it_computes(tmp_path: Path, collective: tuple[str, ...]) -> None:
    slow = timed(tmp_path, "kind: slow_host, worker: 1, factor: 4", *collective)

    for phase in ("forward", "backward", "encode", "decode"):
        assert [4 * length for length in lengths_ps(slow, 0, phase)] == lengths_ps(slow, 1, phase)
    (step,) = slow.steps
    assert (step.forward_end_ps, step.backward_end_ps) == (4 * MS, 12 * MS)
    assert step.aggregation_start_ps == 3 * MS
    assert all(check.verdict == "pass" for check in slow.checks)


def test_a_pause_stretches_what_it_falls_into(tmp_path: Path) -> None:
    paused = timed(tmp_path, "kind: worker_pause, worker: 1, at: 1500us, for: 10ms")

    assert spans_ps(paused, 1, "forward") == [(0, MS)]
    assert spans_ps(paused, 1, "backward") == [(MS, 13 * MS)]
    assert spans_ps(paused, 0, "backward") == [(MS, 3 * MS)]
    assert all(check.verdict == "pass" for check in paused.checks)
    assert [(record.count, record.first_ps) for record in paused.faults] == [(1, 1_500_000_000)]


QUICK = ("workload.elements=3000", "workload.steps=2", "collective.timeout=1ms")
FEW_SLOTS = ("collective.slots=8", "collective.first_timeout=200us")

RATES = st.sampled_from(["0%", "1%", "5%"])
LINKS = st.sampled_from(["'*'", "'h*->s0'", "'s0->h1'", "'h2->s0', 's0->*'"])
TIMES = st.sampled_from(["0s", "3us", "5us", "20us", "210us"])
STRETCHES = st.sampled_from(["1us", "30us", "700us"])
WORKERS = st.integers(0, 2)
FAULTS = st.one_of(
    st.builds("kind: loss, rate: {}, links: [{}], from: {}".format, RATES, LINKS, TIMES),
    st.builds("kind: corruption, rate: {}, links: [{}]".format, RATES, LINKS),
    st.builds("kind: duplicate, rate: {}, links: [{}]".format, RATES, LINKS),
    st.builds("kind: link_down, links: [{}], at: {}, for: {}".format, LINKS, TIMES, STRETCHES),
    st.builds("kind: link_rate, links: [{}], at: {}, for: {}, rate: 5Gbps".format, LINKS, TIMES, STRETCHES),
    st.builds("kind: switch_reboot, switch: s0, at: {}, clears: tables, for: {}".format, TIMES, STRETCHES),
    st.builds("kind: worker_pause, worker: {}, at: {}, for: {}".format, WORKERS, TIMES, STRETCHES),
    st.builds("kind: start_skew, worker: {}, delay: {}".format, WORKERS, STRETCHES),
)


@examples(25)
@given(st.lists(FAULTS, max_size=5), st.sampled_from([(), FEW_SLOTS, (RING,)]))
def test_sums_are_right_and_every_packet_is_accounted_for(
    faults: list[str], collective: tuple[str, ...]
) -> None:
    written = f"faults=[{', '.join('{' + fault + '}' for fault in faults)}]"
    with tempfile.TemporaryDirectory() as folder:
        result = simulate(Path(folder), *collective, *QUICK, written)

    assert [check for check in result.checks if check.verdict != "pass"] == []
    struck = sum(record.count for record in result.faults if record.kind in ("loss", "corruption"))
    lost = sum(link.lost_packets for link in result.links)
    assert struck == lost or (struck < lost and re.search("link_down|switch_reboot", written))
