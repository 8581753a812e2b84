"""Same scenario and seed, same bytes on every processor: here in processes that are told to be another one.

NumPy, PyTorch, oneDNN, MKL, BLAS and Numba take other code where variables say so. A run that is not pinned
obeys them; that its bytes differ shows that those of a pinned run could.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from netfold.sim.processor import host_isa, variables
from tests import ROOT
from tests.test_determinism import Contents, contents

SCENARIO = """\
name: processor
topology: {kind: star, hosts: 4}
workers: 4
workload: {kind: synthetic, elements: 20000, steps: 2, distribution: lognormal}
codec: {kind: none}
collective: {kind: ring}
variants:
  - name: lognormal
  - {name: bird, codec: {kind: bird_plus}, collective: {kind: all_gather}}
  - {name: convolutions, workload: {kind: training, model: cnn, data: digits, steps: 2, batch: 4}}
  - {name: products, workload: {kind: training, model: mlp, steps: 3, batch: 16}}
"""
OTHER = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "AUTO",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Prescott",
}
HASWELL = {"NUMBA_CPU_NAME": "haswell"}  # in the cache beside the code for this processor

pytestmark = pytest.mark.skipif(not variables(), reason="this processor has no AVX2: nothing is pinned")


def environment(**changes: str) -> dict[str, str]:
    """That of a process in which nothing is pinned yet, with changes."""
    unpinned = {name: value for name, value in os.environ.items() if name not in variables()}
    return unpinned | {"PYTHONPATH": str(ROOT)} | changes


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs for each processor that a process was told to be; two at a time."""
    folder = tmp_path_factory.mktemp("processors")
    (folder / "same.yaml").write_text(SCENARIO)
    for pair in (
        {"found": ({}, ()), "other": (OTHER, ())},
        {"haswell": (HASWELL, ()), "native": ({}, ("--native",))},
        {"unpinned": ({"ATEN_CPU_CAPABILITY": "default"}, ("--native",))},
    ):
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "netfold", "run", "same.yaml", "--out", out, *options],
                env=environment(**changes),
                cwd=folder,
                stdout=subprocess.PIPE,
                text=True,
            )
            for out, (changes, options) in pair.items()
        ]
        for out, process in zip(pair, processes, strict=True):
            (folder / f"{out}.txt").write_text(process.communicate(timeout=1800)[0])
            assert process.returncode == 0
    return folder


def differing(first: Contents, second: Contents) -> list[str]:
    assert first.keys() == second.keys()
    return [name for name in first if first[name] != second[name]]


def recorded(runs: Path, out: str) -> tuple[str, bool]:
    circumstances = json.loads((runs / out / "latest" / "run.json").read_bytes())
    return circumstances["isa"], circumstances["pinned"]


@pytest.mark.parametrize("out", ["other", "haswell"])
def test_a_pinned_run_has_the_same_bytes_on_other_processors(runs: Path, out: str) -> None:
    assert differing(contents(runs / "found"), contents(runs / out)) == []
    assert recorded(runs, "found") == recorded(runs, out) == ("x86-64-v3", True)


def test_bytes_differ_where_nothing_is_pinned(runs: Path) -> None:
    """Otherwise the test above sees nothing."""
    assert {"steps.parquet", "rounds.parquet"} <= {
        *differing(contents(runs / "found"), contents(runs / "unpinned"))
    }


@pytest.mark.skipif(host_isa() != "x86-64-v4", reason="this processor has no AVX-512")
def test_bytes_differ_on_this_processor_where_nothing_is_pinned(runs: Path) -> None:
    assert {"steps.parquet", "rounds.parquet"} <= {
        *differing(contents(runs / "found"), contents(runs / "native"))
    }


def test_a_run_that_is_not_pinned_says_so(runs: Path) -> None:
    note = f"not reproducible on other processors: computed with what this one has ({host_isa()})"

    assert recorded(runs, "native") == (host_isa(), False)
    for out, is_said in (("native", True), ("found", False)):
        assert (f"note: {note}" in (runs / f"{out}.txt").read_text()) is is_said
        assert (note in (runs / out / "latest" / "report.html").read_text()) is is_said


def python(script: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], env=environment(**changes), capture_output=True, text=True, check=True
    )


PIN = "from netfold.sim.processor import instructions, pin; pin(); print(*instructions())"


@pytest.mark.parametrize("capability", ["", "default", "avx2"])
def test_a_pin_wins_over_the_environment_and_an_imported_pytorch(capability: str) -> None:
    changes = {"ATEN_CPU_CAPABILITY": capability} if capability else {}

    done = python(f"import torch; {PIN}; print(torch.backends.cpu.get_cpu_capability())", **changes)

    assert done.stdout.split() == ["x86-64-v3", "True", "AVX2"]
    assert done.stderr == ""


@pytest.mark.parametrize("capability", ["", "default"])
def test_a_pin_that_is_too_late_says_so(capability: str) -> None:
    """A notebook: PyTorch has chosen its kernels, those of AVX2 too, where MKL was free to choose its own."""
    changes = {"ATEN_CPU_CAPABILITY": capability} if capability else {}

    done = python(f"import torch; torch.randn(64, 64) @ torch.randn(64, 64); {PIN}", **changes)

    assert done.stdout.split() == [host_isa(), "False"]
    assert done.stderr.startswith(
        "not reproducible on other processors: PyTorch has computed in this process"
    )


def test_the_hook_of_ddp_pins_nothing() -> None:
    done = python(
        "import os, netfold.torch, netfold, numpy as np\n"
        "netfold.fold('packed', np.ones((2, 100), np.float32))\n"
        f"print([name for name in {[*variables()]} if name in os.environ])"
    )

    assert done.stdout.strip() == "[]"
