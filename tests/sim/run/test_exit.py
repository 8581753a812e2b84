"""`netfold run` from outside: exit statuses, and what an interrupted or killed run leaves behind."""

from __future__ import annotations

import contextlib
import math
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import netfold.sim.commands.terminal
import netfold.sim.engine.loop.loop
import netfold.sim.run.run
import netfold.sim.run.variant
from netfold.sim.checks import Finding
from netfold.sim.commands.main import app
from netfold.sim.errors import InvariantError
from netfold.sim.results import load
from netfold.sim.run.warm_up import compile_engine, is_cold
from tests import ROOT
from tests.sim.scenes import write

# SIGINT is ignored where tests run as a job in the background; a person's terminal does not.
NETFOLD = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from netfold.sim.commands.main import main; main()"
)
LONG = ("--set", "workload.steps=1000000")


@pytest.fixture(autouse=True)
def warm_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output does not depend on the machine: kernels are compiled, and nothing takes long."""
    monkeypatch.setattr(netfold.sim.run.run, "is_cold", lambda: False)
    monkeypatch.setattr(netfold.sim.commands.terminal, "LOG_EVERY_S", math.inf)


def run_netfold(folder: Path, *arguments: str) -> Result:
    words = ["run", str(write(folder)), "--out", str(folder / "runs"), "--no-report", *arguments]
    return CliRunner().invoke(app, words)


@contextlib.contextmanager
def started(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run in a process of its own, and the terminal that its stderr is."""
    terminal, stderr = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", NETFOLD, "run", str(write(folder)), "--out", str(folder / "runs"), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=stderr,
    )
    os.close(stderr)
    try:
        yield process, terminal
    finally:
        process.kill()
        process.communicate()
        os.close(terminal)


def read_until(terminal: int, text: bytes) -> bytes:
    """What a terminal shows up to a text, or to its end; at most for a minute."""
    seen, deadline = b"", time.monotonic() + 60
    with contextlib.suppress(OSError):  # the other end is closed
        while text not in seen and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1.0)[0]:
                seen += os.read(terminal, 4096)
    return seen


def test_a_run_that_passes_exits_with_0(tmp_path: Path) -> None:
    result = run_netfold(tmp_path, "--seed", "3")

    expected = "tiny (0 of 1 steps done)\nwriting the results (1 of 1 steps done)\n"
    assert (result.exit_code, result.stderr) == (0, expected)
    assert load(tmp_path / "runs" / "latest").summary["verdict"] == "pass"
    assert load(tmp_path / "runs" / "latest").summary["seed"] == 3


def test_compilation_of_kernels_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netfold.sim.run.run, "is_cold", lambda: True)
    result = run_netfold(tmp_path)

    expected = "compiling kernels (once, about a minute) (0 of 1 steps done)\ntiny (0 of 1 steps done)\n"
    assert (result.exit_code, result.stderr.startswith(expected)) == (0, True)


COLD = "from netfold.sim.run.warm_up import is_cold; print(is_cold())"


def is_cold_in(checkout: Path, **more: str) -> bool:
    """What a process says that runs these sources."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), **more}
    done = subprocess.run(
        [sys.executable, "-c", COLD],
        env=environment,
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout == "True\n"


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


def test_a_stuck_run_exits_with_1_and_is_written(tmp_path: Path) -> None:
    result = run_netfold(tmp_path, "--set", "faults=[{kind: loss, rate: 100%}]")

    assert result.exit_code == 1
    assert "tiny: finishes: stuck: likely cause: link h0->s0 loses every packet (" in result.stdout
    assert load(tmp_path / "runs" / "latest").summary["verdict"] == "stuck"


def test_a_gradient_that_cannot_be_encoded_exits_with_1(tmp_path: Path) -> None:
    diverging = "workload={kind: training, model: mlp, batch: 4, steps: 3, learning_rate: 1.0e+30}"

    result = run_netfold(tmp_path, "--set", diverging)

    assert result.exit_code == 1
    assert "tiny: finishes: fail: gradient[0] is nan: " in result.stdout
    assert load(tmp_path / "runs" / "latest").summary["verdict"] == "fail"


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


def test_an_interrupted_run_exits_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    with started(tmp_path, *LONG) as (process, terminal):
        assert b"tiny" in read_until(terminal, b"tiny")  # beside the progress bar
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        shown = read_until(terminal, b"\0")
        output, _ = process.communicate(timeout=30)

    assert (process.returncode, output) == (130, b"")
    assert shown.rstrip().endswith(b"interrupted")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "begun"),
    [(LONG, ""), ((), ".partial-*"), ((), ".partial-*/summary.json"), ((), "*-seed*/figures")],
    ids=["simulating", "folder", "summary", "report"],
)
def test_a_killed_run_leaves_nothing_that_looks_finished(
    tmp_path: Path, arguments: tuple[str, ...], begun: str
) -> None:
    """Killed while it simulates, or as soon as a first part of its folder or of its report is there."""
    runs = tmp_path / "runs"
    assert run_netfold(tmp_path).exit_code == 0
    first = (runs / "latest").resolve()

    with started(tmp_path, *arguments) as (process, terminal):
        read_until(terminal, b"tiny")
        while begun and not any((runs / "tiny").glob(begun)) and process.poll() is None:
            time.sleep(0.0005)
        process.kill()
        process.wait()

    assert process.returncode in (-signal.SIGKILL, 0)  # under load it may get to its end
    visible = [path for path in (runs / "tiny").iterdir() if not path.name.startswith(".")]
    assert [load(path).summary["verdict"] for path in visible] == ["pass"] * len(visible)
    assert load(runs / "latest").path in visible
    assert begun or visible == [first]
