"""Predicted steps against simulated ones, on layers that were measured, and of a codec whose steps differ."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest

from netfold.sim.workload.fusion.costs import Costs, Stages
from netfold.sim.workload.layers import Layer
from tests.examples import nightly
from tests.sim.run.costs.scene import AS_MODELLED, RING, RULES, TOPK, profile, run_all, scenario
from tests.sim.workload.fusion.drawn import measured

# A sixty-fourth of ResNet-50, a 256th of the others; a device and links slower by about as much.
SCENES = {
    "resnet50": (64, "{kind: star, hosts: 4, rate: 300Mbps, delay: 20us}", 113, "60ms"),
    "vgg19": (256, "{kind: star, hosts: 4, rate: 200Mbps, delay: 20us}", 28, "120ms"),
    "bert-qa": (256, "{kind: star, hosts: 4, rate: 150Mbps, delay: 20us}", 28, "80ms"),
}


@pytest.mark.parametrize(
    ("name", "sends"),
    [
        pytest.param("resnet50", RING, marks=nightly),
        pytest.param("bert-qa", RING, marks=nightly),
        ("vgg19", TOPK),
    ],
    ids=["resnet50, none around a ring", "bert-qa, none around a ring", "vgg19, topk by all_gather"],
)
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


def test_steps_of_signs_are_as_predicted_though_the_first_is_in_full_precision(tmp_path: Path) -> None:
    """Within 1 % for every step of signs. A job of one step is predicted for that one, in full precision."""
    file = scenario(
        tmp_path,
        "codec: {kind: marsit}\ncollective: {kind: ring}",
        workload="kind: training, model: mlp_784, data: digits, batch: 2, learning_rate: 0.01, steps: 4",
        rules={"one": RULES["one"], "layer-fusion": RULES["layer-fusion"], "short": RULES["layer-fusion"]},
        topology="{kind: star, hosts: 4, rate: 300Mbps, delay: 10us}",
    )

    found = run_all(file, "variants.short.workload.steps=1")

    for name in ("one", "layer-fusion"):
        steps = found[name].result.jobs[0].journal.steps
        first, *signs = ((step.end_ps - step.start_ps) / 1e6 for step in steps)
        assert signs == pytest.approx([found[name].predicted_us] * 3, rel=0.01)
        assert first > 5 * max(signs)
    assert found["short"].simulated_us == pytest.approx(found["short"].predicted_us, rel=0.01)
    assert found["short"].simulated_us > 5 * found["layer-fusion"].predicted_us


MLP = "kind: training, model: mlp_784, batch: 8, steps: 2"


@pytest.mark.parametrize("device", ["a100", "{kind: roofline, name: t4, launch: 40us}"])
def test_steps_are_predicted_with_the_times_of_layers_and_the_update(tmp_path: Path, device: str) -> None:
    rules = {name: RULES[name] for name in ("none", "one", "mg-wfbp")}
    file = scenario(tmp_path, RING, workload=MLP, rules=rules, overlap=AS_MODELLED, device=device)

    for one in run_all(file).values():
        assert one.predicted_us == pytest.approx(one.simulated_us, rel=0.01)


def test_layers_are_paced_by_the_device_and_stay_in_order() -> None:
    layers = [Layer(name, 10, share) for name, share in (("a", 0.1), ("b", 0.2), ("c", 1.0))]
    costs = Costs(1, 2, Stages(), ready=(("a", 0.7), ("b", 0.3)))

    assert [one.ready_share for one in costs.paced(layers)] == list(accumulate((0.7, 0.3, 1.0), max))
    assert Costs(1, 2, Stages()).paced(layers) == tuple(layers)
