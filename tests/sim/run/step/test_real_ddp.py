"""The overlap model against real processes: PyTorch's DDP over gloo, on devices calibrated beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.round import Tensor
from netfold.sim.plan.overlap import Overlap
from netfold.sim.workload import Bucket, StepCost
from netfold.sim.workload.devices.calibrated import read_device
from netfold.sim.workload.layers import placed, tensor_of
from netfold.sim.workload.training.probe import ProbedStep, probe
from tests.examples import nightly
from tests.sim.run.step.ddp import build, loss_of
from tests.sim.run.step.given import Given, Steady, Times, play

ROOT = Path(__file__).parents[4]
PS_PER_S = 10**12
WITHIN = 0.25
LOAD_MAX = 1.0


@pytest.fixture(scope="module")
def idle() -> None:
    """Skip where other programs run: gloo's threads would wait for a core, which no model knows."""
    if os.getloadavg()[0] > LOAD_MAX:
        pytest.skip("the machine does other things: its load is above one")


@pytest.fixture(scope="module")
def found(idle: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("ddp")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.sim.run.step.ddp"]
    running = [
        subprocess.Popen([*command, str(rank), str(folder)], env=environment, cwd=ROOT) for rank in range(2)
    ]
    assert [one.wait(timeout=300) for one in running] == [0, 0]
    read: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return read


@dataclass(frozen=True)
class Real(Steady):
    """The model's tensors in the buckets that DDP made of them."""

    probed: ProbedStep | None = None
    sizes: tuple[int, ...] = ()

    @property
    def cost(self) -> StepCost:  # type: ignore[override]
        assert self.probed is not None
        return self.probed.cost

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        model = build()
        assert self.probed is not None
        tensors = [tensor_of(name, tuple(model.get_parameter(name).shape)) for name in self.probed.order]
        made: list[Bucket] = []
        for index, size in enumerate(self.sizes):
            own: list[Tensor] = []
            while sum(one.elements for one in own) < size:
                own.append(tensors.pop(0))
            assert sum(one.elements for one in own) == size
            made.append(Bucket(index, f"b{index}", 4, 1.0, 4 * index, placed(own)))
        assert not tensors
        return tuple(made)


def network_ps(found: dict[str, Any], elements: int) -> int:
    """Time of an all-reduce of so many elements, by a line through those that were measured."""
    sizes, times = zip(*found["reduced_s"], strict=True)
    slope, start = np.polyfit(sizes, times, 1)
    return round(max(0.0, start + slope * elements) * PS_PER_S)


@nightly  # half a minute; with as many processes as cores, gloo's own work is not hidden behind backward
def test_a_step_of_ddp_takes_as_long_as_predicted(found: dict[str, Any]) -> None:
    model = build()
    probed = probe(model, lambda: loss_of(model))
    device = read_device(json.dumps(found["device"]))
    sizes = tuple(found["buckets"])
    assert len(sizes) > 2
    times = [[Times(0, network_ps(found, size), 0)] for size in sizes]
    workload = Real(Given(0, [1] * len(sizes), times), 2, probed=probed, sizes=sizes)

    overlap = Overlap(len(sizes), encodes_on_device=True, sends_in_turn=True)
    played = play(workload.given, overlap, device=device, workload=workload)
    step_s, predicted_s = found["step_s"], played.end_ps / PS_PER_S
    print(
        f"step: predicted {1e3 * predicted_s:.1f} ms, measured {1e3 * step_s:.1f} ms; without DDP "
        f"{1e3 * found['alone_s']:.1f} ms; all-reduces {sum(one[0].network for one in times) / 1e9:.1f} ms "
        f"in {len(sizes)} buckets"
    )
    assert predicted_s == pytest.approx(step_s, rel=WITHIN)
