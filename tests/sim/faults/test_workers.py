"""Faults of workers in a run: who is late, by how much, and that sums stay right."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.sim.run.outcome import VariantResult
from tests.sim.scenes import RING, TINY, simulate

MS = 10**9
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


def faulty(folder: Path, fault: str, *sets: str) -> VariantResult:
    return simulate(folder, f"faults=[{{{fault}}}]", *sets, text=TIMED)


@pytest.mark.parametrize("collective", [(), (RING,)])
def test_a_worker_that_starts_late_holds_up_the_first_step_alone(
    tmp_path: Path, collective: tuple[str, ...]
) -> None:
    steps = "workload.steps=2"
    sound = simulate(tmp_path, steps, *collective, text=TIMED)
    late = faulty(tmp_path, "kind: start_skew, worker: 2, delay: 5ms", steps, *collective)

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
    slow = faulty(tmp_path, "kind: slow_host, worker: 1, factor: 4", *collective)

    for phase in ("forward", "backward", "encode", "decode"):
        assert [4 * length for length in lengths_ps(slow, 0, phase)] == lengths_ps(slow, 1, phase)
    (step,) = slow.steps
    assert (step.forward_end_ps, step.backward_end_ps) == (4 * MS, 12 * MS)
    assert step.aggregation_start_ps == 3 * MS
    assert all(check.verdict == "pass" for check in slow.checks)


def test_a_pause_stretches_what_it_falls_into(tmp_path: Path) -> None:
    paused = faulty(tmp_path, "kind: worker_pause, worker: 1, at: 1500us, for: 10ms")

    assert spans_ps(paused, 1, "forward") == [(0, MS)]
    assert spans_ps(paused, 1, "backward") == [(MS, 13 * MS)]
    assert spans_ps(paused, 0, "backward") == [(MS, 3 * MS)]
    assert all(check.verdict == "pass" for check in paused.checks)
    assert [(record.count, record.first_ps) for record in paused.faults] == [(1, 1_500_000_000)]
