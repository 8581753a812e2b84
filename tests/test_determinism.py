"""Same seed, same bytes: in other processes, with other hash seeds, at other times."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from netfold.sim.run.run import run_scenario
from tests import ROOT

VARYING = "run.json"  # the only file that may differ
SCENARIO = """\
name: same
topology: {kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 2}
workers: {count: 4, placement: spread}
workload: {kind: synthetic, elements: 20000, density: 3%, steps: 2, bucket: 16KiB}
device: {kind: fixed, forward: 1ms, backward: 2ms, memory_rate: 900Gbps}
codec: {kind: lossless}
collective: {kind: in_network}
faults: [{kind: loss, rate: 1%}]
variants:
  - name: lossless
  - {name: dense, codec: {kind: fixed_point}}
  - {name: ring, codec: {kind: none}, collective: {kind: ring}}
  - name: training
    workload: {kind: training, model: mlp, steps: 2, batch: 16}
    codec: {kind: none}
    collective: {kind: ring}
"""

Contents = dict[str, bytes]


def contents(runs: Path) -> Contents:
    """All files of the latest run, by path."""
    folder = (runs / "latest").resolve()
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != VARYING
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Contents]:
    """One seed in two processes of different hash seeds, another seed in this one."""
    folder = tmp_path_factory.mktemp("same")
    file = folder / "same.yaml"
    file.write_text(SCENARIO)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "netfold", "run", str(file), "--out", str(folder / out)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.DEVNULL,
        )
        for out, hash_seed in (("first", "1"), ("again", "2"))
    ]
    run_scenario(file, (), 2, folder / "other", lambda *_: None)
    assert [process.wait(timeout=900) for process in processes] == [0, 0]
    return {out: contents(folder / out) for out in ("first", "again", "other")}


def test_same_seed_same_bytes(runs: dict[str, Contents]) -> None:
    first, again = runs["first"], runs["again"]

    assert {"summary.json", "checks.json", "report.html", "rounds.parquet", "links.parquet"} < set(first)
    assert any(name.startswith("figures/") and name.endswith(".svg") for name in first)
    assert set(first) == set(again)
    assert [name for name in first if first[name] != again[name]] == []


def test_another_seed_is_another_run(runs: dict[str, Contents]) -> None:
    first, other = runs["first"], runs["other"]

    same = {name for name in first if first[name] == other.get(name)}
    assert "scenario.yaml" in same
    assert not same & {"summary.json", "rounds.parquet", "links.parquet", "steps.parquet", "phases.parquet"}
