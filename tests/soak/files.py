"""The files beside a drawn scenario: gradients, recordings, devices, models, profiles and networks."""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.sim.capture.folders import write_recording
from tests.sim.workload.test_devices import CPU
from tests.sim.workload.traces import data_parallel, write_all
from tests.soak.values import Scene

MODEL = """\
import torch
from torch import nn

def make():
    data = torch.randn(64, 4), torch.arange(64) % 3
    module = nn.Sequential(nn.Linear(4, {hidden}), {norm}nn.ReLU(), nn.Linear({hidden}, 3))

    def score(module):
        return (module(data[0]).argmax(dim=1) == data[1]).float().mean()

    return module, data, nn.CrossEntropyLoss(), score
"""


def gradient_file(scene: Scene, per_step: bool) -> str:
    """Gradients of several steps and workers, as one of the formats."""
    steps, elements = scene.one(1, 2), scene.one(1, 64, 500)
    made = np.random.default_rng(scene.chance.randrange(2**32))
    array = made.normal(size=(steps, scene.workers, elements)).astype(
        scene.one(np.float32, np.float32, np.float16)
    )
    if scene.maybe(0.3):
        array[..., elements // 3 :] = 0
    content = io.BytesIO()
    if per_step:
        np.savez(content, **{"w": array, "b": array[..., :1]})
        name = f"g{len(scene.files)}.npz"
    else:
        np.save(content, array if scene.maybe(0.8) else array[0])
        name = f"g{len(scene.files)}.npy"
    scene.files[name] = content.getvalue()
    return name


def recording(scene: Scene) -> str:
    """A folder as `netfold capture` writes it."""
    with tempfile.TemporaryDirectory() as folder:
        write_recording(Path(folder) / "recorded", steps=scene.one(1, 2), ranks=scene.workers)
        for path in sorted((Path(folder) / "recorded").iterdir()):
            scene.files[f"recorded/{path.name}"] = path.read_bytes()
    trace = json.loads(scene.files["recorded/trace.json"])
    for rank in (one for step in trace["steps"] for one in step["ranks"]):
        for key in ("ready_ns", "bucket_ready_ns"):  # of many ranks, the last would be ready after the pass
            rank[key] = [min(time_ns, rank["backward_end_ns"]) for time_ns in rank[key]]
    scene.files["recorded/trace.json"] = json.dumps(trace).encode()
    return "recorded"


def chakra(scene: Scene) -> str:
    """An execution trace, in one of its forms."""
    layers = scene.one(1, 2, 3)
    times, sizes = [3] * layers, [scene.one(40, 400, 4000) for _ in range(layers)]
    with tempfile.TemporaryDirectory() as folder:
        paths = write_all(Path(folder), data_parallel(scene.one(1, 2), times, times, times, sizes))
        path = scene.one(*paths)
        scene.files[path.name] = path.read_bytes()
        return str(path.name)


def device_file(scene: Scene) -> str:
    """What `netfold calibrate` writes."""
    scene.files["cpu.json"] = json.dumps(CPU).encode()
    return "cpu.json"


def device_trace(scene: Scene) -> str:
    """The times at which the tensors of `TENSORS` were ready."""
    found = {
        "res": {"fwd_ms": 0.002, "bwd_ms": 0.005},
        "order": [[f"t{n}", 0.001 * (n + 1), 100] for n in range(3)],
    }
    scene.files["backward.json"] = json.dumps(found).encode()
    return "backward.json"


def layer_profile(scene: Scene) -> str:
    """Layers with times."""
    layers = [[f"layer{n}", scene.one(10, 1000, 4000), 0.5 * (n + 1)] for n in range(scene.one(1, 3, 6))]
    scene.files["layers.json"] = json.dumps({"description": "drawn", "layers": layers}).encode()
    return "layers.json"


def user_model(scene: Scene) -> str:
    """A small model of one's own."""
    hidden = scene.one(4, 16)
    norm = scene.one("", "", f"nn.BatchNorm1d({hidden}), ")
    scene.files["mine.py"] = MODEL.format(hidden=hidden, norm=norm).encode()
    return "./mine.py:make"


def switch_profile(scene: Scene, profile: dict[str, Any]) -> str:
    """A profile in a file."""
    name = f"{profile['name']}.yaml"
    scene.files[name] = json.dumps(profile).encode()
    return name
