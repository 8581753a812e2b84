"""Small sections of any kind, such as workloads, drawn by what the soak knows of their keys."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from netfold.homomorphic.round import StepFact
from netfold.sim.resolve import resolve
from netfold.sim.scenario import load
from tests.soak import files
from tests.soak.hints import FIXES, HINTS
from tests.soak.language import Schema, alternatives, kind_of, root
from tests.soak.values import Scene, Section, Values

LIKELY = 0.5  # keys that the soak writes less often are left out
BUCKET = "2KB"
MODEL_FILE = "mine.py"
HIDDEN = 100  # units of the model that is trained


@dataclass
class Usual(Scene):
    """Draws what is likely, and of several values the last, which is the largest in most lists."""

    def one(self, *values: Any) -> Any:
        return values[-1]

    def maybe(self, share: float) -> bool:
        return share >= LIKELY


def scene_of(seed: str, workers: int, hosts: int) -> Usual:
    """What the sections of a scenario have to agree on."""
    names = tuple(f"h{number}" for number in range(hosts))
    return Usual(random.Random(seed), {}, workers=workers, hosts=hosts, host_names=names)


def drawn(schema: Schema, path: str, kind: str, scene: Scene) -> Section:
    """A section of a kind; files that it names go to the scene."""
    scene.kinds = {path: kind, "workload.model": "user"}
    section: Section = Values(scene, HINTS, FIXES).value(schema, path)
    return section


def workload(kind: str, scene: Scene) -> Section:
    """A workload of two steps and some thousand elements, in several buckets where it can be cut."""
    schema = root()["properties"]["workload"]
    section = drawn(schema, "workload", kind, scene)
    if MODEL_FILE in scene.files:
        scene.files[MODEL_FILE] = files.MODEL.format(hidden=HIDDEN, norm="").encode()
    (keys,) = (one["properties"] for one in alternatives(schema) if kind_of(one) == kind)
    more: Mapping[str, Any] = {"steps": 2, "bucket": BUCKET}
    return {**section, **{name: value for name, value in more.items() if name in keys}}


def arrivals(kind: str, scene: Scene) -> Section:
    """How jobs come."""
    (job,) = alternatives({"$ref": "#/$defs/JobSection"})
    return drawn(job["properties"]["arrivals"], "jobs.arrivals", kind, scene)


@cache
def facts_of(kind: str) -> frozenset[StepFact]:
    """What a workload of a kind knows of a step."""
    scene = scene_of(kind, workers=2, hosts=2)
    settings = {
        "name": "facts",
        "topology": {"kind": "star", "hosts": 2},
        "workers": 2,
        "workload": workload(kind, scene),
        "codec": {"kind": "none"},
        "collective": {"kind": "ring"},
    }
    with tempfile.TemporaryDirectory() as folder:
        plan = resolve(load(written(Path(folder), settings, scene)))
    found: frozenset[StepFact] = plan.variants[0].jobs[0].workload.facts
    return found


def written(folder: Path, settings: Section, scene: Scene) -> Path:
    """The scenario's file, beside those that it names."""
    for name, content in scene.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    file = folder / "pairs.yaml"
    file.write_text(json.dumps(settings))
    return file
