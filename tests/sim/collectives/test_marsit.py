"""Marsit from scenario to verdict: collectives under faults, the bytes on the links, and K = 1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.codec import Exchange
from netfold.homomorphic.codecs.dense.encoders import AgreedEncoder
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Round
from netfold.sim.run.outcome import VariantResult
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.sim.sabotage import ignore_weights
from tests.sim.scenes import simulate

ELEMENTS = 9610  # of the digits model, in one bucket
TEXT = """\
name: marsit
seed: 5
topology: {kind: star, hosts: 8, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 8
workload: {kind: training, model: mlp, batch: 2, learning_rate: 0.01, steps: 5}
codec: {kind: marsit, every: 3}
collective: {kind: ring}
"""
IN_NETWORK = "collective={kind: in_network, program: switchml}"
RACKS = "topology={kind: leaf_spine, leaves: 3, spines: 2, hosts_per_leaf: 5, switch: ideal}"  # 5, 5 and 1
FAULTS = "faults=[{kind: loss, rate: 2%}, {kind: duplicate, rate: 20%}]"


def checks(result: VariantResult) -> dict[str, str]:
    (job,) = result.jobs
    return {check.name: check.verdict for check in job.checks}


def detail(result: VariantResult, name: str) -> str:
    (job,) = result.jobs
    (found,) = (check.detail for check in job.checks if check.name == name)
    return found


@pytest.mark.parametrize(
    "sets",
    [
        ("collective={kind: in_network, program: switchml, timeout: 100us}", FAULTS),
        (RACKS, "workers=11", "collective={kind: in_network, program: tree, aggregators: tree, slots: 16}"),
        ("codec={kind: marsit, every: 0, eta_s: 0.001, compensation: false}",),
    ],
    ids=" ".join,
)
def test_every_collective_keeps_the_promise(tmp_path: Path, sets: tuple[str, ...]) -> None:
    result = simulate(tmp_path, *sets, text=TEXT)

    assert set(checks(result).values()) == {"pass"}
    assert "around the sum of the contributions; no bias: " in detail(result, "sum_is_right")
    assert "each worker's as often as is fair" in detail(result, "merges_are_right")


def test_a_merge_without_weights_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Always one half, as if every partial aggregate were one worker."""
    ignore_weights(monkeypatch)
    result = simulate(tmp_path, text=TEXT)

    failed = {name for name, verdict in checks(result).items() if verdict != "pass"}
    assert failed == {"merges_are_right"}
    assert "bits survive" in detail(result, "merges_are_right")


def test_full_precision_is_held_to_the_promise_of_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum of digits that is off by the last bit is within any bound of signs."""
    exact = AgreedEncoder.exchange

    def off_by_a_bit(self: AgreedEncoder, gradient: Gradient, round: Round) -> Exchange:
        decoded = yield from exact(self, gradient, round)
        return replace(decoded, total=np.nextafter(decoded.total, np.float32(np.inf)))

    monkeypatch.setattr(AgreedEncoder, "exchange", off_by_a_bit)
    result = simulate(tmp_path, "codec={kind: marsit, every: 3, values: exact}", text=TEXT)

    failed = {name for name, verdict in checks(result).items() if verdict != "pass"}
    assert failed == {"sum_is_right"}
    assert re.search(
        "are not the exact sum of the contributions|of the codec's bound", detail(result, *failed)
    )


def weights_after(folder: Path, monkeypatch: pytest.MonkeyPatch, *sets: str) -> tuple[dict[str, Any], str]:
    """The weights at the end of a run, and the verdicts."""
    seen: list[TrainingWorkload] = []
    apply = TrainingWorkload.apply

    def kept(
        self: TrainingWorkload, step: int, totals: Sequence[Gradient], are_updates: Sequence[bool] = ()
    ) -> None:
        seen.append(self)
        apply(self, step, totals, are_updates)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingWorkload, "apply", kept)
        result = simulate(folder, *sets, text=TEXT)
    state = {name: one for name, one in seen[-1].state().items() if name.startswith("weights.")}
    return state, " ".join(sorted(set(checks(result).values())))


@pytest.mark.parametrize(
    ("collective", "values", "plain"),
    [
        ("collective={kind: ring}", "float32", "none"),
        (IN_NETWORK, "block_exponent", "fixed_point"),
        (IN_NETWORK, "exact", "exact"),
    ],
)
def test_k_of_one_gives_the_weights_of_the_dense_codec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collective: str, values: str, plain: str
) -> None:
    """But for the rounding of an update, which `torch.optim.SGD` adds without: at a rate of 0.01."""
    own, passed = weights_after(
        tmp_path, monkeypatch, collective, f"codec={{kind: marsit, every: 1, values: {values}}}"
    )
    dense, also = weights_after(tmp_path, monkeypatch, collective, f"codec={{kind: {plain}}}")
    signs, _ = weights_after(tmp_path, monkeypatch, collective, f"codec={{kind: marsit, values: {values}}}")

    assert passed == also == "pass"
    assert own.keys() == dense.keys()
    for name in own:
        np.testing.assert_allclose(own[name], dense[name], rtol=2.0**-20, atol=2.0**-23)
    assert any(np.abs(signs[name] - dense[name]).max() > 1e-3 for name in own)  # what it could miss


def test_k_steps_announce_the_bits_of_the_paper(tmp_path: Path) -> None:
    """(K − 1 + 32) / K bits for each element, but for the padding and the mean of full rounds."""
    result = simulate(tmp_path, "workload.steps=10", "codec={kind: marsit, every: 5}", text=TEXT)
    announced = sum(record.payload_bytes_up for record in result.records.rounds) / 8
    right = 2 * (4 * 4 * 301 + 4 * (ELEMENTS + 1))
    assert announced == right
    assert 8 * announced / 10 / ELEMENTS == pytest.approx((5 - 1 + 32) / 5, rel=1e-3)
