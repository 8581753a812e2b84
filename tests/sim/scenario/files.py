"""A scenario that is right, to make wrong ones from."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from netfold.errors import ScenarioError
from netfold.sim.scenario.load import load
from netfold.sim.scenario.yaml_tree import ScenarioText

GOOD = """\
name: quick
seed: 7
topology:
  kind: star
  hosts: 8
  rate: 100Gbps
  delay: 500ns
workers: 8
workload:
  kind: synthetic
  elements: 1000
  density: 5%
device:
  kind: fixed
  forward: 1ms
  backward: 2ms
codec:
  kind: fixed_point
collective:
  kind: in_network
  frame: udp-256
faults:
  - kind: loss
    rate: 1%
variants:
  - name: switch
  - name: ring
    collective:
      kind: ring
      window: 64
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def told(file: Path | ScenarioText, sets: Sequence[str] = ()) -> str:
    """What is said of a mistake, with FILE for the path."""
    with pytest.raises(ScenarioError) as caught:
        load(file, sets)
    return str(caught.value).replace(str(file), "FILE")


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} must be there once"
    return GOOD.replace(old, new)
