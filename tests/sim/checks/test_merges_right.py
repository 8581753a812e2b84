"""Runs whose float sums were merged wrong fail with any codec."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from netfold.homomorphic.message import Message
from netfold.sim.collectives.collective import OperationPlace, Wait
from netfold.sim.collectives.ring.run import Ring
from netfold.sim.results import summarize
from netfold.sim.run.outcome import VariantResult
from tests.sim.scenes import DENSE, RING, simulate

ANY_MERGE = "topology.switch=ideal"
LARGE = "codec={kind: fixed_point, factor: 4.5e8}"  # some sums leave int32: their units are sent as floats
ATP = "collective={kind: in_network, program: atp, frame: atp}"


def published(ratio: int) -> tuple[str, ...]:
    """The released code's sketch in float32, most of whose members are estimates."""
    codec = f"codec={{kind: lossless, setting: published, values: float32, index_bits: 1, ratio: {ratio}}}"
    sizes = "topology.hosts=8", "workers=8", "workload.elements=50000", "workload.density=30%"
    return codec, ANY_MERGE, *sizes, "collective.slots=8"


def failed(result: VariantResult) -> dict[str, str]:
    return {check.name: check.detail for check in result.checks if check.verdict == "fail"}


def verdict(result: VariantResult) -> str:
    found: str = summarize(result.facts, result.records)["verdict"]
    return found


def test_estimates_are_made_of_sums_that_were_added_right(tmp_path: Path) -> None:
    result = simulate(tmp_path, *published(5))

    (said,) = failed(result).items()
    assert said[0] == "sum_is_right"  # not merges_are_right
    assert said[1].startswith("totals are far from the sums of the gradients, which workers contribute whole")


@pytest.mark.parametrize(
    ("ratio", "fault"),
    [
        (5, "{kind: duplicate, rate: 2%, delay: 20us}"),
        (50, "{kind: corruption, detected: false, rate: 20%, links: ['h0->*']}"),
    ],
    ids=["copies", "flips"],
)
def test_wrong_sums_do_not_pass_as_approximate(tmp_path: Path, ratio: int, fault: str) -> None:
    result = simulate(tmp_path, *published(ratio), f"faults=[{fault}]")

    assert result.faults[0].count > 0
    assert verdict(result) == "fail"
    assert " merged float32 words are not within " in failed(result)["merges_are_right"]
    assert ": slot " in failed(result)["merges_are_right"]


def test_a_flip_in_dense_floats(tmp_path: Path) -> None:
    """All that change a word by more than additions do; a run with the same network and no flips has none."""
    sets = DENSE, ANY_MERGE, "workload.elements=20000"

    result = simulate(
        tmp_path, *sets, "faults=[{kind: corruption, detected: false, rate: 3%, links: ['h*->s0']}]"
    )

    assert "merges_are_right" in failed(result)
    assert failed(simulate(tmp_path, *sets)) == {}


@pytest.mark.parametrize("by", [6e-5, -6e-5])
def test_a_float_sum_that_is_a_little_off(tmp_path: Path, by: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Normal values of three workers: additions are off by 1e-6 at most."""
    original = Ring.exchange

    def exchange(self: Ring, worker: int, messages: tuple[Message, ...], place: OperationPlace) -> Wait:
        (merged,) = yield from original(self, worker, messages, place)
        words = merged.words.copy()
        words[7] += np.float32(by)
        return (dataclasses.replace(merged, words=words),)

    assert failed(simulate(tmp_path, RING, DENSE)) == {}
    monkeypatch.setattr(Ring, "exchange", exchange)

    failures = failed(simulate(tmp_path, RING, DENSE))

    assert set(failures) == {"merges_are_right", "sum_is_right"}
    assert failures["merges_are_right"].startswith("3 of 3000 merged float32 words are not within ")
    assert "worker 0, word 7 of 'values' (received " in failures["merges_are_right"]


def test_atp_s_float_units_are_held_to_the_words_sent(tmp_path: Path) -> None:
    (job,) = simulate(tmp_path, ATP, LARGE).jobs
    checks = {check.name: (check.verdict, check.detail) for check in job.checks}

    assert {passed for passed, _ in checks.values()} == {"pass"}
    assert checks["merges_are_right"][1].endswith(
        " merged float32 words are within (n − 1) · 2⁻²⁴ · Σ|x| of the words sent"
    )
    count = int(checks["merges_are_right"][1].split()[1])
    assert 0 < count < 3000
    assert checks["merges_are_exact"][1] == "all merged integer words of 1 rounds equal their integer sums"
