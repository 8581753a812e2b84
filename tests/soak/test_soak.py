"""A slice of random scenarios, different in every run; and tests of the judge and the watchdog.

More of them: `python -m tests.soak --count 2000 --seed 7`.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tests.soak.__main__ as soak
from netfold.sim.checks.rounds import Findings
from tests.examples import SEED, scaled
from tests.soak import play as playing
from tests.soak.draw import Drawn, draw
from tests.soak.judge import is_rounded, wrong_elements
from tests.soak.play import EXACT, FAIL, FINDINGS, HUNG, REFUSED, SILENT, STUCK, TRACEBACK, WITHIN, play

SLICES, PER_SLICE = 5, 30


@pytest.mark.parametrize("part", range(SLICES))
def test_a_slice_of_scenarios(part: int) -> None:
    count = scaled(PER_SLICE)
    numbers = range(part * count, (part + 1) * count)
    found = {number: play(draw(SEED, number)) for number in numbers}

    wrong = {number: one for number, one in found.items() if one.kind in FINDINGS}
    assert not wrong, [f"--seed {SEED} --only {number}: {one}" for number, one in wrong.items()]


def test_a_step_from_a_forecast_may_be_eight_times_as_coarse() -> None:
    """The errors are more than half a step of the values themselves."""
    lossless, auto = draw(991, 1074), draw(4711, 533)

    assert (lossless.scenario["codec"]["kind"], lossless.scenario["codec"]["schedule"]) == (
        "lossless",
        "concurrent",
    )
    assert auto.scenario["codec"]["kind"] == "auto"
    assert play(lossless).kind == play(auto).kind == WITHIN


def test_the_same_number_is_the_same_scenario() -> None:
    assert [draw(5, number) for number in range(20)] == [draw(5, number) for number in range(20)]
    assert draw(5, 0) != draw(6, 0)


def test_scenarios_are_wide() -> None:
    """All kinds of everything come up within a thousand; a third has several faults or several jobs."""
    drawn = [draw(1, number) for number in range(1000)]
    collectives = [one.scenario["collective"] for one in drawn]
    programs = Counter(one.get("program", one["kind"]) for one in collectives)
    kinds = Counter(fault["kind"] for one in drawn for fault in one.faults)
    codecs = Counter(one.scenario["codec"]["kind"] for one in drawn)

    assert set(programs) == {"ring", "torus_2d", "switchml", "atp", "timed", "tree"}
    assert len(kinds) >= 11
    assert set(codecs) == {"none", "fixed_point", "exact", "packed", "block_sparse", "lossless", "auto"}
    assert Counter(one.scenario["topology"]["kind"] for one in drawn).keys() == {"star", "leaf_spine", "file"}
    assert sum("jobs" in one.scenario or len(one.faults) > 1 for one in drawn) > 333


PLAIN: dict[str, Any] = {
    "name": "soak",
    "seed": 1,
    "topology": {"kind": "star", "hosts": 3},
    "workers": 3,
    "workload": {"kind": "synthetic", "elements": 500},
    "codec": {"kind": "fixed_point"},
    "collective": {"kind": "in_network", "frame": "udp-256", "slots": 4},
    "faults": [],
}
FLIPS = {"kind": "corruption", "rate": 0.2, "detected": False}


def scene(**changes: Any) -> Drawn:
    return Drawn({**PLAIN, **changes})


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"codec": {"kind": "exact"}}, EXACT),
        ({"faults": [FLIPS]}, FAIL),
        ({"faults": [{"kind": "worker_crash", "worker": 1, "at": "0us"}]}, STUCK),
        ({"workers": 4}, REFUSED),
    ],
)
def test_outcomes_of_scenarios(changes: dict[str, Any], kind: str) -> None:
    assert play(scene(**changes)).kind == kind


def test_wrong_sums_that_no_check_finds_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """netfold's own verification is disabled."""

    def blind(*given: Any) -> Findings:
        found = seeing(*given)
        return replace(
            found,
            wrong_words=0,
            wrong_floats=0,
            replicas_agree=True,
            max_error_over_bound=0.0,
            first_wrong=None,
        )

    seeing = playing._examine
    monkeypatch.setattr(playing, "_examine", blind)

    assert play(scene(faults=[FLIPS])).kind == SILENT


def test_a_failed_check_that_no_fault_explains_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    seeing = playing._examine
    monkeypatch.setattr(playing, "_examine", lambda *given: replace(seeing(*given), wrong_words=1))

    assert play(scene()).kind == "FALSE ALARM"
    assert play(scene(faults=[FLIPS | {"rate": 0.0}])).kind == FAIL  # a fault that could explain it


def test_an_exception_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(playing, "run_variant", fail)
    found = play(scene())

    assert found.kind == TRACEBACK
    assert "KeyError: 'lost'" in found.text


def test_a_process_that_does_not_answer_is_hung_and_one_that_ends_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = iter(["import time; time.sleep(600)", "raise SystemExit(7)", "import time; time.sleep(600)"])
    start = subprocess.Popen

    def started(_: list[str], **options: Any) -> Any:
        return start([sys.executable, "-c", next(commands)], **options)

    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setattr(soak, "FIRST_TIMEOUT_S", 3.0)

    (_, hung), (_, ended) = soak.verdicts(1, range(2))
    assert hung.kind == HUNG
    assert (ended.kind, ended.text) == (TRACEBACK, "the process ended with status 7")


def codec(**options: Any) -> Any:
    return SimpleNamespace(**{"kind": "fixed_point", "factor": None, **options})


@pytest.mark.parametrize(
    ("made", "inside", "outside"),
    [
        (codec(kind="none"), 3 * 2.0**-24 * 3.4, 3 * 2.0**-24 * 3.8),
        (codec(factor=100.0), 0.0149, 0.0152),
        (codec(), 3.5 * 2.0**-23 + 9 * 2.0**-30, 3.5 * 2.0**-23 + 9 * 2.0**-28),
        (codec(schedule="staged"), 3.5 * 2.0**-23 + 9 * 2.0**-30, 3.5 * 2.0**-23 + 9 * 2.0**-28),
        (codec(kind="auto"), 3.5 * 2.0**-23 + 9 * 2.0**-27, 3.5 * 2.0**-23 + 9 * 2.0**-25),
        (codec(schedule="concurrent"), 3.5 * 2.0**-23 + 9 * 2.0**-27, 3.5 * 2.0**-23 + 9 * 2.0**-25),
    ],
)
def test_the_judges_bounds(made: Any, inside: float, outside: float) -> None:
    """Three workers with 1, 1 and 1.5; Σ|x| is 3.5."""
    gradients = [np.array([value], np.float32) for value in (1.0, 1.0, 1.5)]
    nothing = np.empty(0, np.int64)

    assert not wrong_elements(made, gradients, np.array([3.5 + inside]), None, nothing).any()
    assert wrong_elements(made, gradients, np.array([3.5 + outside]), None, nothing).any()
    assert wrong_elements(made, gradients, np.array([np.nan]), None, nothing).any()
    assert wrong_elements(made, gradients, np.array([np.inf]), None, nothing).any()
    assert wrong_elements(made, gradients, np.array([3.5, 0]), None, nothing).all()


def test_exact_sums_are_the_nearest_float() -> None:
    """2^24 + 1 lies in the middle of two floats; half a unit more is nearer to the upper one."""
    exact = codec(kind="exact")
    gradients = [np.array([value], np.float32) for value in (2.0**24, 1.0, 0.5)]
    nothing = np.empty(0, np.int64)

    assert not wrong_elements(exact, gradients, np.array([2.0**24 + 2], np.float32), None, nothing).any()
    assert wrong_elements(exact, gradients, np.array([2.0**24], np.float32), None, nothing).any()
    assert is_rounded(2.0**24, np.array([2.0**24, 1.0]))
    assert is_rounded(2.0**24 + 2, np.array([2.0**24, 1.0]))
    assert not is_rounded(2.0**24 + 4, np.array([2.0**24, 1.0]))


def test_a_partial_sum_is_that_of_its_holders() -> None:
    gradients = [np.array([1.0, 2.0], np.float32), np.array([10.0, 20.0], np.float32)]
    holds = np.array([[True, True], [False, True]])
    nothing = np.empty(0, np.int64)

    assert not wrong_elements(codec(factor=1e6), gradients, np.array([1.0, 22.0]), holds, nothing).any()
    wrong = wrong_elements(codec(factor=1e6), gradients, np.array([11.0, 22.0]), holds, nothing)
    assert wrong.tolist() == [True, False]
