"""A scenario that is right, to make wrong ones from."""

from pathlib import Path

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


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, f"{old!r} must be there once"
    return GOOD.replace(old, new)
