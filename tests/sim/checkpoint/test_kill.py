"""A process that is killed at a random moment, and goes on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from netfold.sim.checkpoint.keeper import Checkpoints
from tests.examples import nightly
from tests.sim.checkpoint.stops import content, run, write

TEXT = """
name: killed
seed: 5
topology: {kind: star, hosts: 3, rate: 100Gbps, delay: 1us}
workers: 3
workload: {kind: training, model: mlp, batch: 8, steps: 40, optimizer: {kind: adam}}
codec: {kind: fixed_point}
variants:
  - {name: switch, collective: {kind: in_network}}
  - {name: ring, collective: {kind: ring}}
"""

FINISHED = "*-seed5"  # a run folder: not a checkpoint, nor one with "unfinished" in its name


def _has_newer_state(out: Path, since: float) -> bool:
    try:
        return any(one.stat().st_mtime > since for one in out.glob("killed/checkpoint-*/*.safetensors"))
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
@pytest.mark.parametrize("kills", [1, pytest.param(3, marks=nightly)])
def test_kill_and_resume(tmp_path: Path, kills: int) -> None:
    """Killed and resumed, at last in this process, it writes the folder of a run that was left alone."""
    path, out = write(tmp_path, TEXT), tmp_path / "out"
    wanted = content(run(path, tmp_path / "whole"))
    draws = random.Random()
    command = [sys.executable, "-m", "netfold", "run", str(path), "--out", str(out), "--no-report"]
    begun = 0
    for options in [["--checkpoint", "3"], ["--resume"], ["--resume"]][:kills]:
        process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        begun_at = time.time()
        while process.poll() is None and not _has_newer_state(out, begun_at):
            time.sleep(0.01)
        time.sleep(draws.uniform(0, 0.3))
        begun += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if process.returncode == 0:  # it was faster
            break
    if not list((out / "killed").glob(FINISHED)):
        run(path, out, Checkpoints(resumes=True))
    assert begun
    (finished,) = (out / "killed").glob(FINISHED)
    assert content(finished) == wanted
    assert [one.name for one in (out / "killed").iterdir()] == [finished.name], "leftovers"
