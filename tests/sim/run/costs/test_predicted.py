"""Predicted steps against simulated ones, on layers that were measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.run.costs.scene import RING, TOPK, profile, run_all, scenario
from tests.sim.workload.fusion.drawn import measured

# A sixty-fourth of ResNet-50, a 256th of the others; a device and links slower by about as much.
SCENES = {
    "resnet50": (64, "{kind: star, hosts: 4, rate: 300Mbps, delay: 20us}", 113, "60ms"),
    "vgg19": (256, "{kind: star, hosts: 4, rate: 200Mbps, delay: 20us}", 28, "120ms"),
    "bert-qa": (256, "{kind: star, hosts: 4, rate: 150Mbps, delay: 20us}", 28, "80ms"),
}


@pytest.mark.parametrize("sends", [RING, TOPK], ids=["none around a ring", "topk by all_gather"])
@pytest.mark.parametrize("name", SCENES)
def test_steps_are_as_predicted_and_none_is_shorter_than_layer_fusion(
    tmp_path: Path, name: str, sends: str
) -> None:
    """Within 1 % of the model (5 would do), for every rule; LayerFusion is above none by more than 1 %."""
    shrink, topology, memory_gbps, backward = SCENES[name]
    device = (
        f"{{kind: fixed, forward: 20ms, backward: {backward}, memory_rate: {memory_gbps}Gbps, launch: 50us}}"
    )
    file = scenario(tmp_path, sends, workload=profile(name, shrink), device=device, topology=topology)

    found = run_all(file)

    assert {shown.entry["verdict"] for shown in found.values()} == {"pass"}
    for shown in found.values():
        assert shown.simulated_us == pytest.approx(shown.predicted_us, rel=0.01)
    best = found["layer-fusion"]
    assert best.simulated_us <= 1.01 * min(shown.simulated_us for shown in found.values())
    assert best.predicted_us <= min(shown.predicted_us for shown in found.values()) * (1 + 1e-9)
    assert found["none"].entry["metrics"]["buckets"] == len(measured(name))
    assert found["one"].entry["metrics"]["buckets"] == 1
    assert best.simulated_us < 0.97 * max(found[rule].simulated_us for rule in ("none", "one"))
