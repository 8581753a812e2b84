"""`netfold capture -- COMMAND` records a script that knows nothing of it, and ends as the command does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from netfold.sim.capture.layout import read_trace
from netfold.sim.commands.main import app
from tests import ROOT
from tests.examples import nightly

SCRIPT = """\
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if "RANK" in os.environ:
    dist.init_process_group("gloo")
else:
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)
model = DistributedDataParallel(nn.Linear(8, 3))
other = DistributedDataParallel(nn.Linear(2, 2))
assert os.environ.get("OF_THE_USER", "yes") == "yes"
for step in range(4):
    model.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    if sys.argv[1] == "raises" and step == 2 and dist.get_rank() == 1:
        raise ValueError("a bad sample")
dist.destroy_process_group()
sys.exit(5 if sys.argv[1] == "exits" else 0)
"""


def captured(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does."""
    paths = os.pathsep.join([*filter(None, [environment.pop("PYTHONPATH", "")]), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "netfold", "capture", "--out", "made", "--steps", "9", "--", *command],
        cwd=folder,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", **environment, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.processes
@pytest.mark.parametrize(
    ("folder", "command", "status", "told"),
    [
        ("made", ["./no-such-command"], 2, "./no-such-command: cannot be run: No such file or directory"),
        (".", ["touch", "ran"], 2, "is there already"),  # before the command runs
        ("made", ["sh", "-c", "exit 7"], 7, "no process of the command wrapped a model"),
        ("made", ["true"], 1, "no process of the command wrapped a model"),
    ],
)
def test_mistakes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, command: list[str], status: int, told: str
) -> None:
    """The status is the command's; 1 where that is 0."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["capture", "--out", folder, "--", *command])

    assert done.exit_code == status
    assert told in done.output + str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow  # two new interpreters import PyTorch
@pytest.mark.processes
def test_a_script_is_recorded_as_it_is(tmp_path: Path) -> None:
    """It ends before the wanted steps, with a status of its own; the user's sitecustomize runs too."""
    script = tmp_path
    (script / "train.py").write_text(SCRIPT)
    (script / "mine").mkdir()
    (script / "mine" / "sitecustomize.py").write_text("import os\nos.environ['OF_THE_USER'] = 'yes'\n")

    done = captured(
        script,
        sys.executable,
        "train.py",
        "exits",
        str(script / "meeting"),
        PYTHONPATH=str(script / "mine"),
        OF_THE_USER="no",
    )

    assert done.returncode == 5, done.stderr
    trace = read_trace(script / "made")
    assert [step.step for step in trace.steps] == [1, 2, 3]
    assert {one.name: one.shape for one in trace.tensors} == {"weight": [3, 8], "bias": [3]}
    assert trace.notes == ["9 steps were wanted, all ranks recorded 3"]
    assert "the first is recorded" in done.stderr
    assert "Linear: 3 steps of 1 ranks, 27 elements" in done.stdout


@nightly
@pytest.mark.processes
def test_a_signal_reaches_the_command(tmp_path: Path) -> None:
    """A scheduler's SIGTERM ends the training, and its status is the command's."""
    text = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(43))\n"
        "open('ready', 'w').close()\n"
        "time.sleep(200)\n"
    )
    words = [sys.executable, "-m", "netfold", "capture", "--", sys.executable, "-c", text]
    process = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        until = time.monotonic() + 200
        while not (tmp_path / "ready").exists() and time.monotonic() < until:
            time.sleep(0.05)
        process.terminate()
        assert process.wait(200) == 43
    finally:
        process.kill()


@nightly  # 20 s, of which torchrun's own start is most
@pytest.mark.processes
def test_a_rank_that_fails_is_told(tmp_path: Path) -> None:
    """torchrun ends the other one, or it sees a closed connection before; nothing is left."""
    (tmp_path / "train.py").write_text(SCRIPT)
    torchrun = shutil.which("torchrun") or str(Path(sys.executable).parent / "torchrun")
    done = captured(tmp_path, torchrun, "--standalone", "--nproc-per-node", "2", "train.py", "raises")

    assert done.returncode == 1
    assert "made was not written" in done.stderr
    assert "rank 1: the training ended with ValueError: a bad sample" in done.stderr
    assert "rank 0: " in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]
