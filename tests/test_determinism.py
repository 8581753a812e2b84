"""Same scenario and seed, same bytes: in other processes, with other hash seeds, on other processors.

NumPy, PyTorch, oneDNN, MKL, BLAS and Numba take other code where variables say so. A run that is not pinned
obeys them; that its bytes differ, which is looked at by night, shows that those of a pinned run could.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netfold.kernels.processor import host_isa, variables
from netfold.sim.run.run import run_scenario
from tests import ROOT
from tests.command_line import run_command
from tests.examples import PROFILE, nightly

VARYING = "run.json"  # the only file that may differ
SCENARIO = """\
name: same
topology: {kind: leaf_spine, leaves: 2, spines: 2, hosts_per_leaf: 2}
workers: {count: 4, placement: spread}
workload: {kind: synthetic, elements: 20000, density: 3%, steps: 2, bucket: 16KiB}
device: {kind: fixed, forward: 1ms, backward: 2ms, memory_rate: 900Gbps}
codec: {kind: none}
collective: {kind: ring}
variants:
  - name: lossless
    codec: {kind: lossless}
    collective: {kind: in_network}
    faults: [{kind: loss, rate: 1%}]
  - {name: lognormal, workload: {distribution: lognormal, density: 100%}}
  - {name: bird, codec: {kind: bird_plus}, collective: {kind: all_gather}}
  - {name: cnn, workload: {kind: training, model: cnn, data: digits, steps: 2, batch: 4, bucket: 1MiB}}
"""
MORE_BY_NIGHT = """\
  - {name: mlp, workload: {kind: training, model: mlp, steps: 3, batch: 16, bucket: 1MiB}}
"""
OTHER = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "AUTO",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Prescott",
}
OTHERS = {"other": ({"PYTHONHASHSEED": "2", **OTHER}, ())}
BY_NIGHT = {
    "first": ({"PYTHONHASHSEED": "1"}, ()),  # by day it is this process, whose hash seed is any
    "haswell": ({"NUMBA_CPU_NAME": "haswell"}, ()),  # in the cache beside the code for this processor
    "native": ({}, ("--native",)),
    "unpinned": ({"ATEN_CPU_CAPABILITY": "default"}, ("--native",)),
}
RECORDS = {"summary.json", "rounds.parquet", "links.parquet", "steps.parquet", "phases.parquet"}
NOT_PINNED = "not reproducible on other processors"

pytestmark = [pytest.mark.slow, pytest.mark.processes]
pinned = pytest.mark.skipif(not variables(), reason="this processor has no AVX2: nothing is pinned")

Contents = dict[str, bytes]


def contents(runs: Path) -> Contents:
    """All files of the latest run, by path."""
    folder = (runs / "latest").resolve()
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != VARYING
    }


def differing(first: Contents, second: Contents) -> set[str]:
    assert first.keys() == second.keys()
    return {name for name in first if first[name] != second[name]}


def environment(**changes: str) -> dict[str, str]:
    """That of a process in which nothing is pinned yet, with changes."""
    unpinned = {name: value for name, value in os.environ.items() if name not in variables()}
    return unpinned | {"PYTHONPATH": str(ROOT)} | changes


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs for each process."""
    folder = tmp_path_factory.mktemp("same")
    (folder / "same.yaml").write_text(SCENARIO + (MORE_BY_NIGHT if PROFILE == "nightly" else ""))
    if PROFILE != "nightly":
        with contextlib.chdir(folder):
            here = run_command("run", "same.yaml", "--out", "first")
        assert here.exit_code == 0, here.output
    for out, (changes, options) in {**OTHERS, **(BY_NIGHT if PROFILE == "nightly" else {})}.items():
        done = subprocess.run(
            [sys.executable, "-m", "netfold", "run", "same.yaml", "--out", out, *options],
            env=environment(**changes),
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        (folder / f"{out}.txt").write_text(done.stdout)
    return folder


def test_same_seed_same_bytes_in_processes_that_are_told_to_be_another_one(runs: Path) -> None:
    first = contents(runs / "first")

    assert {*RECORDS, "checks.json", "report.html"} < set(first)
    assert any(name.startswith("figures/") and name.endswith(".svg") for name in first)
    assert differing(first, contents(runs / "other")) == set()


def test_another_seed_is_another_run(runs: Path) -> None:
    run_scenario(runs / "same.yaml", (), 2, runs / "seed", lambda *_: None, ("lossless",))
    run_scenario(runs / "same.yaml", (), 1, runs / "here", lambda *_: None, ("lossless",))
    found = differing(contents(runs / "here"), contents(runs / "seed"))

    assert "scenario.yaml" not in found
    assert found >= RECORDS


def recorded(runs: Path, out: str) -> tuple[str, bool]:
    circumstances = json.loads((runs / out / "latest" / VARYING).read_bytes())
    return circumstances["isa"], circumstances["pinned"]


@nightly
@pinned
def test_bytes_differ_where_nothing_is_pinned_and_it_is_said(runs: Path) -> None:
    """Otherwise the test above sees nothing."""
    first = contents(runs / "first")
    note = f"{NOT_PINNED}: computed with what this one has ({host_isa()})"

    assert differing(first, contents(runs / "haswell")) == set()
    for out in ("unpinned", *(["native"] if host_isa() == "x86-64-v4" else [])):
        assert {"steps.parquet", "rounds.parquet"} <= differing(first, contents(runs / out))
    for out, is_pinned in (("first", True), ("haswell", True), ("native", False)):
        assert recorded(runs, out) == ("x86-64-v3" if is_pinned else host_isa(), is_pinned)
        assert (f"note: {note}" in (runs / f"{out}.txt").read_text()) is not is_pinned
        assert (note in (runs / out / "latest" / "report.html").read_text()) is not is_pinned


PINS = """
import os, torch
from netfold.kernels.processor import instructions, pin
if os.fork():
    os.wait()
    torch.randn(64, 64) @ torch.randn(64, 64)
pin()
print(*instructions(), torch.backends.cpu.get_cpu_capability(), flush=True)
"""


@pinned
@pytest.mark.parametrize("changes", [{"ATEN_CPU_CAPABILITY": "default"}, pytest.param({}, marks=nightly)])
def test_a_pin_wins_over_the_environment_and_says_where_it_is_too_late(changes: dict[str, str]) -> None:
    """A notebook: PyTorch has chosen its kernels, those of AVX2 too, where MKL was free to choose its own."""
    done = subprocess.run(
        [sys.executable, "-c", PINS], env=environment(**changes), capture_output=True, text=True, check=True
    )
    in_time, too_late = (line.split() for line in done.stdout.splitlines())

    assert in_time == ["x86-64-v3", "True", "AVX2"]
    assert too_late[:2] == [host_isa(), "False"]
    assert done.stderr.startswith(f"{NOT_PINNED}: PyTorch has computed in this process")
    assert done.stderr.count(NOT_PINNED) == 1
