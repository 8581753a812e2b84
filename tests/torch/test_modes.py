"""Exact codecs give the weights of PyTorch's own sums, in every mode of DDP and with FSDP2; states resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.torch.modes import EXACT, MODES, every_training
from tests.torch.processes import returned


@pytest.mark.processes
def test_exact_codecs_give_the_weights_of_plain_training_and_states_go_on(tmp_path: Path) -> None:
    """Of two workers: a sum of two is rounded once, by PyTorch too. Others' states are refused."""
    trained = returned(2, tmp_path, every_training)
    plain = {mode: trained[0]["modes"][mode]["None"] for mode in MODES}
    for mode, weights in plain.items():
        assert np.isfinite(weights).all()
        for codec, _ in EXACT:
            for worker in trained:
                np.testing.assert_array_equal(worker["modes"][mode][codec], weights, f"{codec}, {mode}")
    same = {mode for mode, weights in plain.items() if np.array_equal(weights, plain["default"])}
    assert "static graph" in same
    assert not same & {"no_sync", "bfloat16", "uneven inputs"}  # these are other trainings
    for rank, worker in enumerate(trained):
        for codec in ("topk", "marsit", "sasg", "a server"):
            whole, resumed, steps = worker[codec]
            np.testing.assert_array_equal(resumed, whole, codec)
            assert sorted(set(steps)) == [3, 4, 5]
        model, other = worker["others"]
        assert "of another model: bucket 0 has" in model
        assert f"the state has the worker [{1 - rank}, 2], here are [{rank}, 2]" in other
