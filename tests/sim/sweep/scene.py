"""A small scenario to sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from netfold.sim.scenario import Scenario
from netfold.sim.scenario.source import ScenarioText
from netfold.sim.sweep.make import sweep_of
from netfold.sim.sweep.points import Point, points_of
from netfold.sim.sweep.task import Versions

VERSIONS = Versions("3.11", "1.0", "abc", {"numpy": "2.0"})
BASE = """\
name: small
seed: 7
topology: {kind: star, hosts: 8, rate: 100Gbps, delay: 1us}
workers: 4
workload: {kind: synthetic, elements: 2000, density: 10%}
variants:
  - {name: ring, codec: {kind: none}, collective: {kind: ring}}
  - name: switch
    codec: {kind: fixed_point}
    collective: {kind: in_network, frame: udp-256, slots: 16}
"""
GRID = "sweep: {workers: [2, 4], workload.density: [1%, 10%], seeds: 2}\n"


def scenario(sweep: str = GRID, sets: Sequence[str] = (), base: str = BASE) -> Scenario:
    return sweep_of(ScenarioText(base + sweep, "small.yaml"), sets)


def points(sweep: str = GRID, sets: Sequence[str] = (), base: str = BASE) -> tuple[Point, ...]:
    return points_of(scenario(sweep, sets, base), VERSIONS)


def write(folder: Path, sweep: str = GRID, base: str = BASE) -> Path:
    file = folder / "small.yaml"
    file.write_text(base + sweep)
    return file
