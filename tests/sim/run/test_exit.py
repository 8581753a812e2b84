"""`netfold run` from outside: exit statuses, and what an interrupted run leaves behind."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import netfold.sim.commands.terminal
import netfold.sim.run.run
import netfold.sim.run.variant
from netfold.sim.checks import Finding
from netfold.sim.commands.main import app
from netfold.sim.errors import InvariantError
from netfold.sim.results import load
from netfold.sim.run.warm_up import compile_engine, is_cold
from tests import ROOT
from tests.examples import nightly
from tests.sim.scenes import TINY, write

# SIGINT is ignored where tests run as a job in the background; a person's terminal does not.
NETFOLD = """
import signal
import netfold.sim.commands.terminal
from netfold.sim.commands.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)
netfold.sim.commands.terminal.LOG_EVERY_S = 0.2
main()
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(autouse=True)
def warm_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output does not depend on the machine: kernels are compiled, and nothing takes long."""
    monkeypatch.setattr(netfold.sim.run.run, "is_cold", lambda: False)
    monkeypatch.setattr(netfold.sim.commands.terminal, "LOG_EVERY_S", math.inf)


def run_netfold(folder: Path, *arguments: str) -> Result:
    words = ["run", str(write(folder)), "--out", str(folder / "runs"), "--no-report", *arguments]
    return CliRunner().invoke(app, words)


def test_a_run_that_passes_exits_with_0_and_says_that_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run_netfold(tmp_path, "--seed", "3")

    expected = "tiny (0 of 1 steps done)\nwriting the results (1 of 1 steps done)\n"
    assert (result.exit_code, result.stderr) == (0, expected)
    assert load(tmp_path / "runs" / "latest").summary["verdict"] == "pass"
    assert load(tmp_path / "runs" / "latest").summary["seed"] == 3

    monkeypatch.setattr(netfold.sim.run.run, "is_cold", lambda: True)
    result = run_netfold(tmp_path)
    expected = "compiling kernels (once, about a minute) (0 of 1 steps done)\ntiny (0 of 1 steps done)\n"
    assert (result.exit_code, result.stderr.startswith(expected)) == (0, True)


COLD = "from netfold.sim.run.warm_up import is_cold; print(is_cold())"


def is_cold_in(checkout: Path, **more: str) -> bool:
    """What a process says that runs these sources."""
    environment = ENVIRONMENT | {"PYTHONPATH": str(checkout), **more}
    done = subprocess.run(
        [sys.executable, "-c", COLD],
        env=environment,
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout == "True\n"


@nightly
@pytest.mark.processes
def test_compiled_code_is_looked_for_where_it_lies(tmp_path: Path) -> None:
    """Numba keeps it apart for each path of a source."""
    compile_engine()
    assert not is_cold()
    assert not is_cold_in(ROOT)
    assert is_cold_in(ROOT, NUMBA_CACHE_DIR=str(tmp_path / "empty"))

    shutil.copytree(ROOT / "netfold", tmp_path / "checkout" / "netfold")
    assert is_cold_in(tmp_path / "checkout")


def test_a_run_that_fails_a_check_exits_with_1_and_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "netfold.sim.checks.network.conservation", lambda links: Finding(False, "a byte too many")
    )

    result = run_netfold(tmp_path)

    assert result.exit_code == 1
    assert "tiny: conservation: fail: a byte too many\n" in result.stdout
    assert load(tmp_path / "runs" / "latest").summary["verdict"] == "fail"


@pytest.mark.parametrize(
    "arguments", [("--set", "workers=9"), ("--set", "workers=0"), ("--set", "nothing=1"), ("--seed", "x")]
)
def test_what_cannot_be_run_exits_with_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = run_netfold(tmp_path, *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert not (tmp_path / "runs").exists()


def test_a_contradiction_exits_with_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def contradict(*arguments: object) -> None:
        raise InvariantError("bytes vanished")

    monkeypatch.setattr(netfold.sim.run.variant, "check_network", contradict)

    result = run_netfold(tmp_path)

    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith(
        "tiny (0 of 1 steps done)\nbytes vanished\n  a bug; to reproduce: netfold run "
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.processes
def test_an_interrupted_run_reports_progress_exits_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    """Without a terminal: a line now and then, until Ctrl-C."""
    path = write(tmp_path, TINY.replace("elements: 1000", "elements: 1000\n  steps: 1000000"))
    command = [sys.executable, "-c", NETFOLD, "run", str(path), "--out", str(tmp_path / "runs")]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        shown = [process.stderr.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        output, rest = process.communicate(timeout=60)

    assert shown[0] == "tiny (0 of 1000000 steps done)\n"
    assert all("% of all steps done" in line for line in shown[1:])
    assert (process.returncode, output, rest.splitlines()[-1]) == (130, "", "interrupted")
    assert not (tmp_path / "runs").exists()
