"""Rules of fusion on devices that know when each layer is ready."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest

from netfold.sim.workload.fusion.costs import Costs, Stages
from netfold.sim.workload.layers import Layer
from tests.sim.run.costs.scene import AS_MODELLED, RING, RULES, run_all, scenario

TRAINED = "kind: training, model: mlp_784, batch: 8, steps: 2"


@pytest.mark.parametrize("device", ["a100", "{kind: roofline, name: t4, launch: 40us}"])
def test_steps_are_predicted_with_the_times_of_layers_and_the_update(tmp_path: Path, device: str) -> None:
    rules = {name: RULES[name] for name in ("none", "one", "mg-wfbp")}
    file = scenario(tmp_path, RING, workload=TRAINED, rules=rules, overlap=AS_MODELLED, device=device)

    for one in run_all(file).values():
        assert one.predicted_us == pytest.approx(one.simulated_us, rel=0.01)


def test_layers_are_paced_by_the_device_and_stay_in_order() -> None:
    layers = [Layer(name, 10, share) for name, share in (("a", 0.1), ("b", 0.2), ("c", 1.0))]
    costs = Costs(1, 2, Stages(), ready=(("a", 0.7), ("b", 0.3)))

    assert [one.ready_share for one in costs.paced(layers)] == list(accumulate((0.7, 0.3, 1.0), max))
    assert Costs(1, 2, Stages()).paced(layers) == tuple(layers)
