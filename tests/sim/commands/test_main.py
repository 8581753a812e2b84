"""The command line: exit statuses, what goes where, and that help is quick."""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import netfold.sim.commands.main
import netfold.sim.report.compare
import netfold.sim.report.html
import netfold.sim.run.run
import netfold.sim.workload.training.data.fetch
from netfold.sim.errors import DataError, InvariantError, ScenarioError
from netfold.sim.run.outcome import Outcome
from tests.sim.results.builders import RING, summary
from tests.sim.scenario.files import GOOD, changed, write


def run_netfold(*arguments: object) -> Result:
    return CliRunner().invoke(netfold.sim.commands.main.app, [str(argument) for argument in arguments])


def outcome(verdict: str) -> Outcome:
    """What `run_scenario` returns, with one variant, whose first check may fail."""
    found = {"baseline": None, "warnings": [], "injected": [], **summary(replace(RING, verdict=verdict))}
    return Outcome("quick", 7, Path("runs/quick/now"), {**found, "verdict": verdict}, {"packet_hops": 0})


@pytest.fixture
def run_returns(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[tuple[Any, ...]]]:
    """Replace the simulation by a result or an error, and record what it was called with."""

    def returns(result: Any) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []

        def run_scenario(*arguments: Any) -> Any:
            file, sets, seed, out, _, variants, _ = arguments
            calls.append((file, sets, seed, out, variants))
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr(netfold.sim.run.run, "run_scenario", run_scenario)
        monkeypatch.setattr(netfold.sim.commands.main, "_check_scenario", lambda *arguments: None)
        monkeypatch.setattr(netfold.sim.report.html, "build_report", lambda folder: folder / "report.html")
        return calls

    return returns


Replace = Callable[[Any], list[tuple[Any, ...]]]


def test_run_passes_its_options_on_and_prints_the_table(run_returns: Replace) -> None:
    calls = run_returns(outcome("pass"))

    result = run_netfold(
        *("run", "a.yaml", "--set", "workers=2", "--set", "name=b", "--seed", "3", "--out", "there"),
        *("--variant", "slow", "--variant", "fast"),
    )

    assert result.exit_code == 0
    assert calls == [(Path("a.yaml"), ("workers=2", "name=b"), 3, Path("there"), ("slow", "fast"))]
    assert "ring" in result.stdout
    assert f"Not modelled:\n  {netfold.sim.run.run.APPROXIMATIONS[0]}\n" in result.stdout
    assert result.stdout.endswith("\nReport: runs/quick/now/report.html\n")
    assert result.stderr == "writing the report\n"


def test_run_with_json_prints_one_object(run_returns: Replace) -> None:
    calls = run_returns(outcome("pass"))

    result = run_netfold("run", "a.yaml", "--json")

    assert calls == [(Path("a.yaml"), (), None, Path("runs"), ())]
    assert outcome("pass").as_dict() == json.loads(result.stdout)


def test_a_failed_check_is_shown_and_exits_with_1(run_returns: Replace) -> None:
    run_returns(outcome("fail"))

    result = run_netfold("run", "a.yaml")

    assert result.exit_code == 1
    assert "ring: sum_is_right: fail: round 3: element 17 is 5, should be 4\n" in result.stdout
    assert run_netfold("run", "a.yaml", "--json").exit_code == 1


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (ScenarioError("a.yaml", 3, "x", "wrong", "right"), 2, "a.yaml:3: x: wrong\n  right\n"),
        (DataError("no data", "fetch it"), 2, "no data\n  fetch it\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_errors_are_told_on_stderr_without_a_traceback(
    run_returns: Replace, error: BaseException, status: int, told: str
) -> None:
    run_returns(error)

    result = run_netfold("run", "a.yaml", "--json")

    assert (status, "", told) == (result.exit_code, result.stdout, result.stderr)


def test_a_broken_invariant_says_how_to_reproduce_it(run_returns: Replace, tmp_path: Path) -> None:
    run_returns(InvariantError("bytes vanished"))
    path = write(tmp_path, GOOD)

    words = ("--set", "faults=[]", "--seed", "3", "--variant", "a b", "--variant", "c")
    result = run_netfold("run", path, *words)

    sha256 = hashlib.sha256(GOOD.encode()).hexdigest()
    assert result.exit_code == 3
    assert result.stderr.startswith("bytes vanished\n  a bug; to reproduce: ")
    command = f"netfold run {path} --set 'faults=[]' --seed 3 --variant 'a b' --variant c   # netfold "
    assert command in result.stderr
    assert result.stderr.endswith(f", scenario sha256 {sha256}\n")


def test_what_nobody_foresaw_exits_as_a_bug(
    run_returns: Replace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_returns(ZeroDivisionError("oh"))
    monkeypatch.setattr(sys, "argv", ["netfold", "run", "a.yaml"])

    with pytest.raises(SystemExit) as caught:
        netfold.sim.commands.main.main()

    assert caught.value.code == 3
    assert "ZeroDivisionError: oh" in capsys.readouterr().err


def test_validate_goes_through_all_files(tmp_path: Path) -> None:
    good = write(tmp_path, GOOD)
    bad = tmp_path / "bad.yaml"
    bad.write_text(changed("hosts: 8", "hosts: 0"))

    result = run_netfold("validate", bad, good)

    assert result.exit_code == 2
    assert result.stdout == f"{good}: fine, variants: switch, ring\n"
    assert result.stderr == (
        f"{bad}:5: topology.hosts: must be at least 1, found 0\n  hosts: Number of hosts: h0, h1, …\n"
    )
    assert run_netfold("validate", good).exit_code == 0


@pytest.mark.parametrize(
    "arguments", [["bogus"], ["run"], ["run", "a", "--seed", "-1"], ["run", "a", "--sed", "1"]]
)
def test_bad_usage_exits_with_2(arguments: list[str]) -> None:
    result = run_netfold(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr


def test_data_sets_are_listed_and_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NETFOLD_CACHE", str(tmp_path))
    monkeypatch.setattr(netfold.sim.workload.training.data.fetch, "fetch", lambda name: tmp_path / name)

    assert "  file: not fetched yet\n" in run_netfold("data", "list").stdout
    assert run_netfold("data", "fetch", "digits").stdout == f"{tmp_path / 'digits'}\n"


def test_compare_and_report_say_what_is_no_run(tmp_path: Path) -> None:
    for arguments in (["compare", tmp_path], ["compare", tmp_path, "--json"], ["report", tmp_path]):
        result = run_netfold(*arguments)

        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"{tmp_path}: not a run folder")
