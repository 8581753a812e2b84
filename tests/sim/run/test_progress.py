"""How far a run is: told often enough, and no more often than anybody can read."""

from __future__ import annotations

import time

import pytest

from netfold.sim.commands.terminal import progress_bar
from netfold.sim.run.progress import Teller


class Clock:
    """Stands in for the time of day."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_log_tells_of_many_short_steps(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """A million steps of 40 us: 40 s, so a line at the start and one after each 10 s."""
    with progress_bar() as progress:
        teller = Teller(progress, "b", 0, 1_000_000)
        for step in range(1_000_000):
            teller.step()
            clock.now_s += 20e-6
            teller.at(f"gradients of step {step}")
            clock.now_s += 20e-6

    first, *others = capsys.readouterr().err.splitlines()
    assert first == "b (0 of 1000000 steps done)"
    assert [line.rpartition("(")[2] for line in others] == [
        f"{share} % of all steps done)" for share in (25, 50, 75)
    ]
    assert all(line.startswith(("b (", "b: gradients of step ")) for line in others)


def test_steps_are_told_ten_times_a_second_at_most(clock: Clock) -> None:
    told: list[tuple[str, float]] = []
    teller = Teller(lambda what, done, total: told.append((what, done)), "b", 0, 1000)
    for _ in range(1000):
        teller.step()
        clock.now_s += 0.00999

    assert told[0] == ("b", 0)
    assert 90 <= len(told) <= 101
    assert [done for _, done in told] == sorted(done for _, done in told)


def test_a_long_step_is_told_of_from_inside(clock: Clock) -> None:
    told: list[tuple[str, float]] = []
    teller = Teller(lambda what, done, total: told.append((what, done)), "b", 2, 4)
    teller.step()
    teller.at("too soon", 0.1)
    clock.now_s += 0.2
    teller.at("half", 0.5)

    assert told == [("b", 2), ("b: half", 2.5)]
