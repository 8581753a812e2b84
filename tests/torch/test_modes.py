"""Exact codecs give the weights of PyTorch's own sums, in every mode of DDP and with FSDP2; states resume."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.torch.modes import EXACT, MODES, every_training
from tests.torch.processes import returned

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of each of two workers: a sum of two is rounded once, by PyTorch too."""
    return returned(2, tmp_path_factory.mktemp("modes"), every_training)


@pytest.mark.parametrize("mode", MODES)
def test_exact_codecs_give_the_weights_of_plain_training(trained: list[dict[str, Any]], mode: str) -> None:
    plain = trained[0]["modes"][mode]["None"]

    assert np.isfinite(plain).all()
    for codec, _ in EXACT:
        for worker in trained:
            np.testing.assert_array_equal(worker["modes"][mode][codec], plain, f"{codec}, {mode}")
    same = ("default", "names", "bucket views", "static graph")  # the others are other trainings
    default = trained[0]["modes"]["default"]["None"]
    assert np.array_equal(plain, default) == (mode in same)


@pytest.mark.parametrize("codec", ["topk", "marsit", "sasg", "a server"])
def test_a_state_goes_on_as_if_without_a_stop(trained: list[dict[str, Any]], codec: str) -> None:
    for worker in trained:
        whole, resumed, steps = worker[codec]

        np.testing.assert_array_equal(resumed, whole)
        assert sorted(set(steps)) == [3, 4, 5]


def test_a_state_of_another_model_or_worker_is_refused(trained: list[dict[str, Any]]) -> None:
    for rank, worker in enumerate(trained):
        model, other = worker["others"]

        assert "of another model: bucket 0 has" in model
        assert f"the state has the worker [{1 - rank}, 2], here are [{rank}, 2]" in other
