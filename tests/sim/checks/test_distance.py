"""Totals that keep a codec's bound and are wrong all the same: they fail, and the check says what to do."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netfold
from netfold.homomorphic import codec as registry
from netfold.homomorphic.codec import Decoded
from netfold.homomorphic.codecs.dense.kinds import FixedPoint, Uncompressed
from netfold.homomorphic.message import Gradient
from netfold.sim.checks.rounds import Findings
from netfold.sim.checks.rounds import examine as examine_decoded
from tests.homomorphic.test_toy_codec import Steps
from tests.sim.checks.wholes import examine

WORKERS, ELEMENTS = 4, 300
NORMAL = np.random.default_rng(1).standard_normal((WORKERS, ELEMENTS)).astype(np.float32)
LARGEST = np.full((WORKERS, ELEMENTS), 3e38, np.float32)
TINY = NORMAL * np.float32(1e-42)


def run(folder: Path, gradients: Any, codec: Any, **changes: Any) -> tuple[netfold.Run, str]:
    """A run on these gradients, and the detail of the check of its sums."""
    np.save(folder / "gradients.npy", gradients)
    scenario = {
        "name": "distance",
        "topology": {"kind": "star", "hosts": WORKERS},
        "workers": WORKERS,
        "workload": {"kind": "file", "path": str(folder / "gradients.npy")},
        "codec": {"kind": codec} if isinstance(codec, str) else codec,
        "collective": {"kind": "ring"},
    }
    found = netfold.run({**scenario, **changes}, out=folder / "runs")
    (variant,) = found.summary["variants"]
    return found, next(one["detail"] for one in variant["checks"] if one["name"] == "sum_is_right")


@pytest.mark.parametrize("codec", ["none", "exact"])
def test_sums_beyond_float32_fail_with_the_element_and_what_to_do(tmp_path: Path, codec: str) -> None:
    """4 · 3e38 is 1.2e39, and the largest float32 3.4e38."""
    found, detail = run(tmp_path, LARGEST, codec)

    assert found.verdict == "fail"
    assert detail.startswith("the sum of 4 workers is beyond float32 at step 0, bucket 0, element 0: 1.2e+39")
    assert "clip or scale the gradients" in detail


@pytest.mark.parametrize("codec", ["fixed_point", "fp16"])
def test_gradients_of_which_nothing_is_decoded_fail(tmp_path: Path, codec: str) -> None:
    found, detail = run(tmp_path, TINY, codec)

    assert found.verdict == "fail"
    assert detail.startswith("all totals are zero, and the sums of the gradients are not, in 1 of 1 rounds")
    assert detail.endswith("use a codec that promises exact sums, or scale the gradients")


@pytest.mark.parametrize(
    ("codec", "gradients"), [("none", TINY), ("exact", TINY), ("majority", TINY), ("fixed_point", 0 * NORMAL)]
)
def test_what_carries_tiny_gradients_or_zeros_passes(tmp_path: Path, codec: str, gradients: Any) -> None:
    assert run(tmp_path, gradients, codec)[0].verdict == "pass"


def test_a_lossless_codec_that_estimates_badly_fails(tmp_path: Path) -> None:
    """Fifty elements for each counter of the released sketch: hardly any is decoded."""
    gradients = np.random.default_rng(2).standard_normal((WORKERS, 20_000)).astype(np.float32)
    published = {"kind": "lossless", "setting": "published"}
    bad, detail = run(tmp_path, gradients, {**published, "ratio": 50.0})

    assert bad.verdict == "fail"
    assert "which workers contribute whole: NMSE " in detail
    assert (
        "estimates, at most 0.001 is allowed, in 1 of 1 rounds; use setting: repaired, or a lower" in detail
    )
    assert bad.summary["variants"][0]["metrics"]["nmse"] > 1
    tail = gradients[:, :1000]  # less than a block of 1,024: sent as it is
    assert run(tmp_path, tail, {**published, "ratio": 50.0})[0].verdict == "pass"


def findings(total: Gradient, gradients: list[Gradient], codec: Any = None) -> Findings:
    """On a total for which all workers contributed their gradients."""
    return examine(codec or Loose(), gradients, [total] * len(gradients), [])


class Loose(FixedPoint):
    """Allows any total."""

    def error_bound(self, gradients: Any) -> Any:
        return Wide()


class Wide:
    def of(self, sums: Any) -> Any:
        return np.full(sums.total.size, 1e30)


@pytest.mark.parametrize(("nmse", "is_far"), [(0.0009, False), (0.0011, True), (5.0, True)])
def test_the_limit_is_a_thousandth(nmse: float, is_far: bool) -> None:
    right = NORMAL.astype(np.float64).sum(axis=0)
    error = np.sqrt(nmse * np.square(right).mean()) * np.where(np.arange(ELEMENTS) % 2, 1, -1)

    found = findings((right + error).astype(np.float32), list(NORMAL))

    assert found.loss.nmse == pytest.approx(nmse, rel=1e-3)
    assert found.is_far == is_far


def test_rounding_is_no_fault_where_sums_cancel() -> None:
    """1 + x and −1, of which float32 keeps no x: the NMSE is 1, and the error a rounding."""
    ones = np.ones(ELEMENTS, np.float32)
    gradients = [ones + np.float32(2.0**-23), -ones]

    found = findings(np.zeros(ELEMENTS, np.float32), gradients, Uncompressed())

    assert found.loss.nmse == 1
    assert not found.is_far


def test_what_is_held_back_is_no_fault() -> None:
    """Half of the elements are contributed, so the NMSE is about a half."""
    halves = [np.where(np.arange(ELEMENTS) % 2, own, np.float32(0)) for own in NORMAL]
    total = np.sum(halves, axis=0, dtype=np.float32)
    decoded = [Decoded(total, own) for own in halves]

    assert not examine_decoded(Loose(), list(NORMAL), decoded, []).is_far


@pytest.mark.parametrize("codec", ["topk", "fixed_point"])
def test_no_warning_of_numpy_reaches_the_terminal(tmp_path: Path, codec: str) -> None:
    """Twice the largest values: sums, residuals and velocities leave float32."""
    gradients = np.stack([LARGEST, LARGEST, LARGEST])
    collective = {"kind": "all_gather"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, detail = run(tmp_path, gradients, codec, collective=collective)

    assert found.verdict == "fail"
    assert "3e+38" in detail or "beyond float32" in detail or "no round was aggregated" in detail


# Codecs whose encoding is free.


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec that declares no work."""
    assert "none" in netfold.codecs()
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    netfold.register(Steps)


SAID = "codec steps declares no work: its encoding takes no time on the device"


@pytest.mark.usefixtures("steps")
def test_a_codec_without_work_is_named_where_a_device_takes_time(tmp_path: Path) -> None:
    workload = {"kind": "synthetic", "elements": 1000, "steps": 1}
    device = {"kind": "roofline", "model": "v100"}
    timed, _ = run(tmp_path, NORMAL, "steps", device=device, workload=workload)
    counted, _ = run(tmp_path, NORMAL, "fixed_point", device=device, workload=workload)
    free, _ = run(tmp_path, NORMAL, "steps")

    assert any(SAID in one for one in timed.summary["warnings"])
    assert SAID in timed.report().read_text("utf-8")
    assert not any(
        "declares no work" in one for one in counted.summary["warnings"] + free.summary["warnings"]
    )


@pytest.mark.usefixtures("steps")
def test_a_study_names_codecs_without_work() -> None:
    found = netfold.study(["steps", "packed"], elements=1000, density="5%")

    text = str(found)
    assert "codec steps declares no work" in text
    assert "codec packed declares no work" not in text
