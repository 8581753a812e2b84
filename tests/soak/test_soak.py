"""A few scenarios, the coverage of what is drawn, and tests of the judge and the watchdog.

More of them: `python -m tests.soak --count 2000 --seed 7`.
"""

from __future__ import annotations

import copy
import random
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tests.soak.__main__ as soak
from netfold.homomorphic.codec import codec_kinds
from netfold.sim.collectives.collective import collectives
from tests.examples import nightly, scaled
from tests.soak import breaks
from tests.soak import play as playing
from tests.soak.draw import Drawn, draw
from tests.soak.drawn import Coverage, units_of
from tests.soak.judge import is_rounded, nmse, wrong_elements
from tests.soak.language import language, pairs
from tests.soak.plan import PERIOD
from tests.soak.play import (
    EXACT,
    FAIL,
    FINDINGS,
    GIVEN_UP,
    HUNG,
    REFUSED,
    SILENT,
    STUCK,
    TRACEBACK,
    WITHIN,
    play,
)

PER_SLICE = 3


@pytest.mark.slow
def test_a_slice_of_scenarios() -> None:
    found = {number: play(draw(1, number)) for number in range(scaled(PER_SLICE))}

    wrong = {number: one for number, one in found.items() if one.kind in FINDINGS}
    assert not wrong, [f"--seed 1 --only {number}: {one}" for number, one in wrong.items()]


def test_a_step_from_a_forecast_may_be_eight_times_as_coarse() -> None:
    """The errors are more than half a step of the values themselves."""
    forecast = [{"kind": "lossless", "schedule": "concurrent"}, {"kind": "auto", "rate_gbps": 0.001}]
    for made in forecast:
        played = play(scene(codec=made, workload={"kind": "synthetic", "elements": 500, "steps": 3}))
        assert played.kind in (EXACT, WITHIN), played


def test_the_same_number_is_the_same_scenario() -> None:
    assert [draw(1, number) for number in range(20)] == [draw(1, number) for number in range(20)]
    assert draw(1, 0) != draw(1, 1)


@nightly
def test_two_thousand_numbers_have_the_whole_language_five_times() -> None:
    """Drawn only: every key, word, form, kind and pair of kinds, without scenarios that break a rule."""
    coverage, broken = Coverage(), 0
    for number in range(PERIOD):
        drawn = draw(1, number)
        broken += bool(drawn.broken)
        if not drawn.broken:
            coverage.add(drawn.scenario)

    assert coverage.rare() == []
    assert PERIOD / 20 < broken < PERIOD / 5


def test_the_language_is_that_of_the_schema() -> None:
    """Keys, kinds and pairs, counted by hand in a few places."""
    units, both = language(), set(map(frozenset, pairs()))

    assert {"topology[star].hosts", "jobs.arrivals[poisson].mean_gap", "variants[grid].codec"} <= units.keys
    assert {"workload.pattern=rows", "profiles=string", "routing=ecmp"} <= units.choices
    assert set(codec_kinds()) == units.kinds["codec"]
    assert set(collectives()) == units.kinds["collective"]
    assert frozenset({("codec", "topk"), ("topology", "star")}) in both
    # Only training has a model.
    assert frozenset({("workload", "file"), ("workload.model", "ncf")}) not in both


def test_what_a_scenario_has_is_counted_in_jobs_and_variants() -> None:
    jobs = [{"name": "a"}, {"name": "b", "codec": {"kind": "topk"}, "collective": {"kind": "all_gather"}}]
    variants = [{"name": "x"}, {"name": "y", "codec": {"kind": "none"}}]
    has = units_of({**PLAIN, "jobs": jobs, "variants": variants})

    assert {"codec=topk & collective=all_gather", "codec=none & collective=in_network"} <= has.pairs
    assert "codec=fixed_point & collective=all_gather" not in has.pairs  # job b has another codec
    assert {"jobs.codec", "variants[list].codec", "topology[star].hosts"} <= has.keys


@pytest.mark.parametrize("seed", range(8))
def test_a_scenario_that_breaks_a_rule_is_refused(seed: int) -> None:
    chance, scenario = random.Random(seed), copy.deepcopy(PLAIN)
    rule = breaks.broken(chance, scenario)

    assert play(Drawn(scenario, broken=rule)).kind == REFUSED, rule


def test_what_is_refused_goes_and_the_rest_runs() -> None:
    played = play(scene(collective={**PLAIN["collective"], "entries": 100}))

    assert (played.kind, played.refusals) == (WITHIN, 1)
    assert played.ran is not None
    assert "entries" not in played.ran["collective"]


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
    ],
)
def test_outcomes_of_scenarios(changes: dict[str, Any], kind: str) -> None:
    assert play(scene(**changes)).kind == kind


def test_wrong_sums_that_no_check_finds_and_failed_checks_that_no_fault_explains_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """netfold's own verification is disabled; then it finds what is not there."""
    seeing = playing._examine

    def examined_with(**changes: Any) -> None:
        monkeypatch.setattr(playing, "_examine", lambda *given: replace(seeing(*given), **changes))

    nothing = {"wrong_words": 0, "wrong_floats": 0, "replicas_agree": True, "first_wrong": None}
    examined_with(max_error_over_bound=0.0, **nothing)
    assert play(scene(faults=[FLIPS])).kind == SILENT
    examined_with(wrong_words=1)
    assert play(scene()).kind == "FALSE ALARM"
    assert play(scene(faults=[FLIPS | {"rate": 0.0}])).kind == FAIL  # a fault that could explain it


def test_an_exception_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(playing, "run_variant", fail)
    found = play(scene())

    assert found.kind == TRACEBACK
    assert "KeyError: 'lost'" in found.text


@pytest.mark.processes
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
        (codec(), 10.5 * 2.0**-24 + 9 * 2.0**-30, 10.5 * 2.0**-24 + 9 * 2.0**-28),
        (codec(schedule="staged"), 10.5 * 2.0**-24 + 9 * 2.0**-30, 10.5 * 2.0**-24 + 9 * 2.0**-28),
        (codec(kind="auto"), 10.5 * 2.0**-24 + 9 * 2.0**-27, 10.5 * 2.0**-24 + 9 * 2.0**-25),
        (codec(schedule="concurrent"), 10.5 * 2.0**-24 + 9 * 2.0**-27, 10.5 * 2.0**-24 + 9 * 2.0**-25),
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


def test_faults_of_variants_count() -> None:
    down, skew = {"kind": "link_down", "at": "1us"}, {"kind": "start_skew", "delay": "1us"}

    assert Drawn({"faults": [skew], "variants": {"faults": {"x": [down]}}}).faults == [skew, down]
    assert Drawn({"variants": [{"name": "a"}, {"name": "b", "faults": [down]}]}).faults == [down]


def test_the_judge_of_unbiased_samples() -> None:
    """Of ten elements one is sent, ten times as large."""
    made = codec(kind="random_k", share=0.1, unbiased=True, feedback=False, values="float32")
    gradients, nothing = [np.arange(10.0), np.full(10, 0.5)], np.zeros(0, np.int64)

    def wrong(**elements: float) -> int:
        total = np.zeros(10)
        for name, value in elements.items():
            total[int(name[1:])] = value
        return int(wrong_elements(made, gradients, total, None, nothing).sum())

    assert wrong() == 10
    assert wrong(e3=35.0) == 0
    assert wrong(e3=3.5) == 1
    assert wrong(e3=35.0, e4=45.0) == 10


def test_the_judge_of_distances() -> None:
    gradients = [np.array([3.0, 0.0]), np.array([0.0, 4.0])]
    assert nmse(gradients, np.array([3.0, 4.0])) == 0
    assert nmse(gradients, np.array([3.0, 5.0])) == 1 / 25
    assert nmse([np.zeros(2)], np.ones(2)) == np.inf


def test_a_codec_that_gives_up_in_the_warm_up_explains_it() -> None:
    workload = {"kind": "synthetic", "tensors": ["a=64", "b=64"], "fusion": {"kind": "mg_wfbp"}}
    parts = {"codec": {"kind": "fp16"}, "collective": {"kind": "ring"}, "workload": workload}
    drawn = scene(**parts, device={"kind": "fixed", "forward": "1us", "backward": "1us"})
    played = play(replace(drawn, transform="huge"))
    assert played.kind == GIVEN_UP, played
