"""`count_sketch` over simulated networks: the same sums everywhere, and damage is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netfold.homomorphic.codecs.sketched.count_sketch import encoder
from netfold.homomorphic.codecs.sketched.count_sketch.codec import CountSketch
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Round
from netfold.sim.results import summarize
from netfold.sim.workload import TrainingSpec, training_workload
from tests.sim.scenes import simulate

WORKERS, STEPS, SEED = 4, 2, 7
TRAINING = f"""\
name: trained
seed: {SEED}
topology: {{kind: star, hosts: {WORKERS}, rate: 100Gbps, delay: 1us, switch: tofino1}}
workers: {WORKERS}
workload: {{kind: training, model: mlp, batch: 8, learning_rate: 0.2, steps: {STEPS}}}
codec: {{kind: count_sketch, share: 0.02}}
collective: {{kind: ring}}
"""
SWITCHML = "collective={kind: in_network, program: switchml}"
SERVER = "collective={kind: parameter_server, placement: beside_workers}"
LOSS = "faults=[{kind: loss, rate: 1%}]"


def trained(folder: Path, *sets: str) -> dict[str, Any]:
    """The summary of the only variant."""
    result = simulate(folder, *sets, text=TRAINING)
    found: dict[str, Any] = summarize(result.facts, result.records)["variants"][0]
    return found


@pytest.fixture
def sketches(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The added sketches that workers read, as they come."""
    read: list[bytes] = []
    estimate: Callable[..., Gradient] = encoder.estimate

    def reading(rows: Any, sketch: Gradient, elements: int) -> Gradient:
        read.append(sketch.tobytes())
        return estimate(rows, sketch, elements)

    monkeypatch.setattr(encoder, "estimate", reading)
    return read


def folded_losses(codec: CountSketch) -> list[float]:
    """The losses of the same training in one process, without a network."""
    workload = training_workload(TrainingSpec("mlp", batch=8, learning_rate=0.2), WORKERS, SEED)
    encoders = [codec.worker(rank, WORKERS, SEED) for rank in range(WORKERS)]
    losses = []
    for step in range(STEPS):
        gradients = workload.gradients(step)
        losses.append(workload.loss)
        totals = [
            fold(
                encoders, [own[one.index] for own in gradients], Round(step, one.index, WORKERS, SEED)
            ).decoded[0]
            for one in workload.buckets
        ]
        workload.apply(step, totals)
    return [float(loss) for loss in losses if loss is not None]


def test_a_switch_adds_the_bits_that_hosts_add(tmp_path: Path, sketches: list[bytes]) -> None:
    """Integers: a switch, a ring, a server and one process read the same sketches in every step."""
    losses = folded_losses(CountSketch(block_elements=256, share=0.02))
    expected = sketches.copy()
    assert len(expected) == WORKERS * STEPS
    assert len(set(expected)) == STEPS
    for sets in (["collective={kind: ring}"], [SERVER], [SWITCHML, LOSS]):
        sketches.clear()
        found = trained(tmp_path, "codec.block_elements=256", *sets)

        assert sorted(sketches) == sorted(expected), sets
        assert found["verdict"] == "pass"
        assert found["metrics"]["merges_verified"]
        assert (found["metrics"]["packets_lost"] > 0) == (LOSS in sets)
        assert [found["metrics"][name] for name in ("loss_first", "loss")] == [losses[0], losses[-1]]


def test_damaged_sums_are_noticed(tmp_path: Path) -> None:
    """The negative control: bits that flip on the way, undetected."""
    damaged = "faults=[{kind: corruption, rate: 5%, detected: false, links: ['h*->s0']}]"
    for codec in ("{kind: count_sketch}", "{kind: count_sketch, candidates: 0}"):
        found = trained(tmp_path, f"codec={codec}", SWITCHML, damaged)

        assert found["verdict"] == "fail"
        assert "fail" in {check["verdict"] for check in found["checks"] if "merges" in check["name"]}
