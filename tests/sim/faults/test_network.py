"""Faults of packets, links and switches in a run: what they cost, what they break, and what is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.sim.results.records import FaultRecord, LinkRecord
from netfold.sim.run.outcome import VariantResult
from tests.sim.scenes import RING, simulate

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


@EITHER
def test_what_is_lost_is_counted(tmp_path: Path, collective: tuple[str, ...]) -> None:
    result = faulty(tmp_path, "kind: loss, rate: 1%", collective=collective)

    assert passed(result) == FINE
    assert only(result).count == total(result, "lost_packets") > 0
    assert (only(result).kind, only(result).where, only(result).first_ps) == ("loss", "*", 0)


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


@EITHER
def test_corruption_that_is_seen_is_loss(tmp_path: Path, collective: tuple[str, ...]) -> None:
    result = faulty(tmp_path, "kind: corruption, rate: 1%", collective=collective)

    assert passed(result) == FINE
    assert only(result).count == total(result, "lost_packets") > 0


def test_corruption_that_is_not_seen_makes_wrong_sums(tmp_path: Path) -> None:
    result = faulty(tmp_path, "kind: corruption, rate: 1%, detected: false, links: ['h*->s0']")

    assert "merges_are_exact" not in passed(result)
    assert {"conservation", "nothing_lost", "switches_add_up"} <= passed(result)
    assert total(result, "lost_packets") < only(result).count  # what carries no words is lost instead


def test_between_hosts_a_checksum_sees_all_corruption(tmp_path: Path) -> None:
    result = faulty(tmp_path, "kind: corruption, rate: 1%, detected: false", collective=(RING,))

    assert passed(result) == FINE
    assert only(result).count == total(result, "lost_packets") > 0


@EITHER
def test_a_copy_right_behind_changes_no_sum(tmp_path: Path, collective: tuple[str, ...]) -> None:
    result = faulty(tmp_path, "kind: duplicate, rate: 5%", collective=collective)
    sound = faulty(tmp_path, collective=collective)

    assert passed(result) == FINE
    assert only(result).count > 0
    assert total(result, "packets") > total(sound, "packets")


def test_a_late_copy_breaks_switchml_silently(tmp_path: Path) -> None:
    """A copy of version v that comes after its worker sent 1 − v is taken for a new packet."""
    result = faulty(tmp_path, "kind: duplicate, rate: 3%, delay: 20us, links: ['h*->s0']")

    assert "merges_are_exact" not in passed(result)
    assert {"conservation", "nothing_lost", "switches_add_up"} <= passed(result)


def test_a_ring_gets_over_packets_that_are_overtaken(tmp_path: Path) -> None:
    result = faulty(tmp_path, "kind: reorder, rate: 3%, delay: 20us", collective=(RING,))

    assert passed(result) == FINE
    assert only(result).count > 0
    assert total(result, "lost_packets") == 0


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
def test_a_link_that_is_down_for_a_microsecond_loses_what_is_on_its_wire(
    tmp_path: Path, collective: tuple[str, ...]
) -> None:
    """A window of 512 packets waits at the host by then, and goes on waiting."""
    sets = ("workload.elements=1e6", "collective.timeout=1ms")
    for when, least in (("at: 0s", 0), ("at: 50us", 10)):
        fault = f"faults=[{{kind: link_down, links: ['h1->s0'], {when}, for: 1us}}]"
        result = simulate(tmp_path, *collective, *sets, "collective.frame=roce-1024", fault)
        on_wire = 2 + PASS_AND_WIRE_PS // (1106 * BYTE_PS)  # an acknowledgement may be among them

        assert passed(result) == FINE
        assert least <= total(result, "lost_packets") <= on_wire
        assert total(result, "dropped_packets") == 0


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


def test_bursts_are_counted_and_overcome(tmp_path: Path) -> None:
    result = faulty(tmp_path, "kind: burst_loss, good_to_bad: 0.5%, bad_to_good: 20%, links: ['h*->s0']")

    assert passed(result) == FINE
    assert only(result).count == total(result, "lost_packets") > 0
    assert (only(result).kind, only(result).counted) == ("burst_loss", "packets")
