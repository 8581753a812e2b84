"""Progress of a run is reported, at most ten times a second."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from netfold.sim.commands.terminal import progress_bar
from netfold.sim.run import progress as module
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.variant import run_variant
from tests.sim.scenes import plan


class Clock:
    """Replaces the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_many_short_steps_are_logged(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """100,000 steps of 400 us: 40 s, so a line at the start and one after each 10 s."""
    with progress_bar() as progress:
        reporter = ProgressReporter(progress, "b", 0, 100_000)
        for step in range(100_000):
            reporter.begin_step()
            clock.now_s += 200e-6
            reporter.report(f"gradients of step {step}")
            clock.now_s += 200e-6

    first, *others = capsys.readouterr().err.splitlines()
    assert first == "b (0 of 100000 steps done)"
    assert [line.rpartition("(")[2] for line in others] == [
        f"{share} % of all steps done)" for share in (25, 50, 75)
    ]
    assert all(line.startswith(("b (", "b: gradients of step ")) for line in others)


def test_steps_are_reported_at_most_ten_times_a_second(clock: Clock) -> None:
    reports: list[tuple[str, float]] = []
    reporter = ProgressReporter(lambda what, done, total: reports.append((what, done)), "b", 0, 1000)
    for _ in range(1000):
        reporter.begin_step()
        clock.now_s += 0.00999

    assert reports[0] == ("b", 0)
    assert 90 <= len(reports) <= 101
    assert [done for _, done in reports] == sorted(done for _, done in reports)


def test_a_long_step_reports_while_it_runs(clock: Clock) -> None:
    reports: list[tuple[str, float]] = []
    reporter = ProgressReporter(lambda what, done, total: reports.append((what, done)), "b", 2, 4)
    reporter.begin_step()
    reporter.report("too soon", 0.1)
    clock.now_s += 0.2
    reporter.report("half", 0.5)

    assert reports == [("b", 2), ("b: half", 2.5)]


def test_it_is_said_what_is_being_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVERY_S", 0.0)
    told: list[str] = []
    whole = plan(tmp_path)
    run_variant(whole, whole.variants[0], ProgressReporter(lambda what, *_: told.append(what), "tiny"))

    assert told[-2:] == ["tiny: bucket 0 of step 0 is being checked", "tiny: results are being checked"]
