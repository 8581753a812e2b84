"""A user's own gradients in a run, and a run folder that has all it takes to run it again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from netfold.sim.commands.main import app
from netfold.sim.results import load
from netfold.sim.run import named_files as run_files

SCENARIO = """\
name: own
topology: {kind: star, hosts: 3, switch: mine}
profiles: [parts/mine.yaml]
workers: 3
workload: {kind: file, path: parts/g.npy}
codec: {kind: none}
collective: {kind: ring}
"""
PROFILE = "{name: mine, like: ideal}\n"


def run_netfold(file: Path, *words: str) -> Any:
    return CliRunner().invoke(
        app, ["run", str(file), "--out", str(file.parent / "runs"), "--no-report", *words]
    )


def listed(path: str, content: bytes, kept: bool = True) -> dict[str, Any]:
    """What a summary says of a file."""
    return {
        "path": path,
        "kept": kept,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """Two steps of three workers, whole numbers: every sum is exact, and sparse in the second step."""
    (tmp_path / "parts").mkdir()
    gradients = np.arange(2 * 3 * 500, dtype=np.float32).reshape(2, 3, 500)
    gradients[1, :, 10:] = 0
    np.save(tmp_path / "parts" / "g.npy", gradients)
    (tmp_path / "parts" / "mine.yaml").write_text(PROFILE)
    (tmp_path / "own.yaml").write_text(SCENARIO)
    return tmp_path / "own.yaml"


def test_a_run_sends_what_the_file_holds(scenario: Path) -> None:
    result = run_netfold(scenario)
    assert result.exit_code == 0, result.output

    run = load(scenario.parent / "runs" / "latest")
    content = (scenario.parent / "parts" / "g.npy").read_bytes()
    assert run.rounds["elements"].to_list() == [500, 500]
    assert run.rounds["nonzeros"].to_list() == [499, 10]  # element 0 of worker 0 is 0
    assert run.rounds["union_nonzeros"].to_list() == [500, 10]
    assert run.summary["inputs"] == [
        listed("parts/g.npy", content),
        listed("parts/mine.yaml", PROFILE.encode()),
    ]


def test_a_run_folder_runs_again(scenario: Path) -> None:
    """Its scenario names a profile and gradients, which lie beside it."""
    assert run_netfold(scenario).exit_code == 0
    first = (scenario.parent / "runs" / "latest").resolve()
    assert (first / "parts" / "mine.yaml").read_text() == PROFILE
    again = run_netfold(first / "scenario.yaml")

    assert again.exit_code == 0, again.output
    second = (first / "runs" / "latest").resolve()
    assert json.loads((first / "summary.json").read_text()) == json.loads(
        (second / "summary.json").read_text()
    )


def test_of_large_gradients_only_the_digest_is_recorded(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = (scenario.parent / "parts" / "g.npy").stat().st_size
    for limit, is_kept in ((size_bytes, True), (size_bytes - 1, False)):
        monkeypatch.setattr(run_files, "KEPT_BYTES_MAX", limit)
        assert run_netfold(scenario).exit_code == 0
        run = (scenario.parent / "runs" / "latest").resolve()
        assert (run / "parts" / "g.npy").is_file() == is_kept
        assert load(run).summary["inputs"][0]["bytes"] == size_bytes


def test_fewer_workers_than_the_file_has_are_a_warning(scenario: Path) -> None:
    result = run_netfold(scenario, "--set", "workers=2")

    assert result.exit_code == 0
    warning = "own: the first 2 of the 3 workers' gradients in parts/g.npy are used"
    assert load(scenario.parent / "runs" / "latest").summary["warnings"] == [warning]


def test_more_workers_than_the_file_has_are_refused(scenario: Path) -> None:
    result = run_netfold(scenario, "--set", "workers=4", "--set", "topology.hosts=4")

    assert result.exit_code == 2
    assert result.stderr == (
        f"{scenario}:5: workload.path: parts/g.npy: holds the gradients of 3 workers, 4 are needed\n"
        "  use 3 workers at most\n"
    )


def test_steps_beyond_those_of_the_file_begin_anew(scenario: Path) -> None:
    assert run_netfold(scenario, "--set", "workload.steps=3").exit_code == 0
    assert load(scenario.parent / "runs" / "latest").rounds["nonzeros"].to_list() == [499, 10, 499]


def test_a_gradient_that_is_not_finite_ends_the_run_in_words(scenario: Path) -> None:
    gradients = np.ones((3, 20), np.float32)
    gradients[1, 7] = np.nan
    np.save(scenario.parent / "parts" / "g.npy", gradients)
    result = run_netfold(scenario, "--set", "codec={kind: exact}")

    path = scenario.parent / "parts" / "g.npy"
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-2:] == [
        f"{path}: holds numbers that are not finite: nan at [1, 7], worker 1",
        "  a gradient must be finite; look for an error in the training step that computed it",
    ]
