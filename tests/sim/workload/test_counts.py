"""Whole numbers of workloads that are too large for any use: refused before the run, with the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.homomorphic.round import Tensor
from netfold.sim.errors import NetfoldError
from tests.sim.scenes import plan

TRAINING, SYNTHETIC = "kind: training, model: mlp", "kind: synthetic, elements: 1000"
KEYS = {
    "elements": "kind: synthetic, elements: {}",
    "row_elements": f"{SYNTHETIC}, row_elements: {{}}",
    "steps": f"{SYNTHETIC}, steps: {{}}",
    "batch": f"{TRAINING}, batch: {{}}",
    "local_steps": f"{TRAINING}, local_steps: {{}}",
    "warmup": f"{TRAINING}, schedule: {{{{kind: cosine, warmup: {{}}}}}}",
    "every": f"{TRAINING}, evaluate: {{{{every: {{}}}}}}",
    "expand": "kind: training, model: ncf, expand: [{}, 1]",
    "hidden": "kind: training, model: {{kind: mlp_784, hidden: [{}]}}",
}


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, 2**64, 10**30])
@pytest.mark.parametrize("key", KEYS)
def test_numbers_beyond_all_use_are_refused(tmp_path: Path, key: str, number: int) -> None:
    with pytest.raises(NetfoldError) as caught:
        plan(tmp_path, f"workload={{{KEYS[key].format(number)}}}")

    assert key in str(caught.value)
    assert f"must be at most 9007199254740992, found {number}" in str(caught.value)


def test_a_tensor_has_as_many_elements_as_it_has() -> None:
    """A product beyond 64 bits must not become a small number, which would pass for little memory."""
    assert Tensor("w", (2**33, 2**32), "").elements == 2**65
    assert Tensor("w", (), "").elements == 1
    assert Tensor("w", (3, 0), "").elements == 0
