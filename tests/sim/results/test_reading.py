"""What is refused as a run folder, and in which words."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from netfold.sim.errors import DataError
from netfold.sim.report.pages import write_pages
from netfold.sim.results import load, write_run
from tests.sim.results.builders import run_data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path, run_data())


def refusal(path: Path) -> str:
    """The error's text, the folder of the test left out."""
    with pytest.raises(DataError) as caught:
        load(path)
    return str(caught.value)


def test_nothing_there(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere") == (
        f"{tmp_path}/nowhere: no such run folder\n  give a folder that `netfold run` printed, or runs/latest"
    )


def test_latest_leads_nowhere(folder: Path) -> None:
    latest = folder.parent.parent / "latest"
    shutil.rmtree(folder)

    assert refusal(latest) == (
        f"{latest}: no such run folder\n  give a folder that `netfold run` printed, or runs/latest"
    )


def test_no_run_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path) == (
        f"{tmp_path}: not a run folder, it has no summary.json\n"
        "  give a folder that `netfold run` printed, or runs/latest"
    )


def test_folder_of_runs(folder: Path) -> None:
    assert refusal(folder.parent) == (
        f"{folder.parent}: not a run folder, it has no summary.json\n  did you mean {folder}?"
    )


def test_unfinished(folder: Path) -> None:
    partial = folder.rename(folder.with_name(".partial-here-1-0"))

    assert refusal(partial) == (
        f"{partial}: this run did not finish\n  run its scenario again; this folder can be removed"
    )


@pytest.mark.parametrize("name", ["rounds.parquet", "checks.json", "run.json", "scenario.yaml"])
def test_missing_file(folder: Path, name: str) -> None:
    (folder / name).unlink()

    assert refusal(folder) == (
        f"{folder}: {name} is missing from this run folder\n  a finished run has it; run the scenario again"
    )


def test_damaged_json(folder: Path) -> None:
    (folder / "checks.json").write_text("[{]")

    assert refusal(folder) == (
        f"{folder}/checks.json: damaged: "
        "Expecting property name enclosed in double quotes: line 1 column 3 (char 2)\n"
        "  the folder is damaged or was changed: run the scenario again"
    )


def test_damaged_table(folder: Path) -> None:
    (folder / "links.parquet").write_bytes(b"PAR1 no more")
    text = refusal(folder)

    assert text.startswith(f"{folder}/links.parquet: damaged: ")
    assert text.endswith("\n  the folder is damaged or was changed: run the scenario again")
    assert text.count("\n") == 1


def test_a_run_folder_may_be_moved(folder: Path, tmp_path: Path) -> None:
    moved = folder.rename(tmp_path / "elsewhere")

    assert load(moved).summary == json.loads((moved / "summary.json").read_bytes())


@pytest.mark.parametrize("name", ["report.html", "run.json", "figures/..", "."])
def test_a_file_of_a_run_gives_the_run(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pages(folder, {}, "the report")
    monkeypatch.chdir(folder)

    assert load(Path(name)).path == folder
    assert load(folder / name).path == folder


def test_a_file_of_no_run(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()

    assert refusal(tmp_path / "notes.txt") == (
        f"{tmp_path}/notes.txt: not a run folder, it has no summary.json\n"
        "  give a folder that `netfold run` printed, or runs/latest"
    )
