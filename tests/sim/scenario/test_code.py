"""Python files that a scenario names: said before they run, or refused with the key's place."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import netfold
from netfold.sim.commands.main import app
from netfold.sim.errors import ScenarioError

TEXT = """\
name: mine
topology: {kind: star, hosts: 4, rate: 10Gbps}
workers: 2
codec: {kind: none}
collective: {kind: ring}
workload: {kind: training, model: mlp, batch: 4, steps: 1}
variants:
  - {name: own}
  - name: theirs
    workload: {model: ../code/mdl.py:make}
jobs: null
"""
MODEL = """
import pathlib
from torch import nn, zeros
pathlib.Path(__file__).with_name("ran").touch()

def make():
    return nn.Linear(4, 2), (zeros(16, 4), zeros(16, 2)), nn.MSELoss()
"""
SAID = "runs code from ../code/mdl.py\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    for folder in ("code", "scenario"):
        (tmp_path / folder).mkdir()
    (tmp_path / "code" / "mdl.py").write_text(MODEL)
    path = tmp_path / "scenario" / "mine.yaml"
    path.write_text(TEXT.replace("jobs: null\n", ""))
    return path


def ran(file: Path) -> bool:
    return (file.parents[1] / "code" / "ran").exists()


@pytest.mark.parametrize("command", ["validate", "run", "sweep"])
def test_the_command_refuses_it_with_its_place(file: Path, command: str) -> None:
    sets = ["--over", "workers=2,3"] if command == "sweep" else []
    done = CliRunner().invoke(app, [command, str(file), "--no-code", *sets])

    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{file}:10: variants.theirs.workload.model: names the Python file '../code/mdl.py'" in done.stderr
    assert not ran(file)


def test_the_command_says_it_once(file: Path) -> None:
    assert CliRunner().invoke(app, ["validate", str(file)]).stderr == SAID
    assert ran(file)


@pytest.mark.parametrize("model", ["../code/mdl.py:make", "{kind: user, make: ../code/mdl.py:make}"])
def test_swept_models_are_refused_and_said(
    file: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    file.write_text(
        TEXT.partition("variants:")[0]
        + f"sweep: {{workload.model: [mlp, '{model}']}}\n".replace("'{", "{").replace("}']", "}]")
    )
    with pytest.raises(ScenarioError, match=r"names the Python file '\.\./code/mdl\.py'"):
        netfold.validate(file, code=False)
    with pytest.raises(ScenarioError, match=r"names the Python file '\.\./code/mdl\.py'"):
        netfold.sweep(file, code=False, out=file.parent)
    assert not ran(file)
    netfold.validate(file)
    assert capsys.readouterr().err == SAID


def test_jobs_are_refused_by_name(file: Path) -> None:
    file.write_text(
        TEXT.replace("jobs: null", "jobs: [{name: a}, {name: b, workload: {model: ../code/mdl.py:make}}]")
        .replace("    workload: {model: ../code/mdl.py:make}\n", "")
        .replace("workers: 2", "workers: 1")
    )
    with pytest.raises(ScenarioError, match=r"mine.yaml:10: jobs.b.workload.model: names the Python file"):
        netfold.validate(file, code=False)


def test_python_says_it_too(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ScenarioError, match="names the Python file"):
        netfold.run(file, out=file.parent, code=False)
    assert not ran(file)
    netfold.run(file, out=file.parent, variants=["theirs"])
    netfold.run(file, out=file.parent, variants=["theirs"])
    assert capsys.readouterr().err == 2 * SAID


def test_models_of_netfold_are_no_code(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    netfold.validate(file, set={"workload.model": "mlp"}, code=False)
    assert capsys.readouterr().err == ""
