"""Finished variants are written however a run ends; and nothing of a variant stays in memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import netfold.sim.run.run
from netfold.sim.commands.main import app
from netfold.sim.errors import InvariantError, NetfoldError, RunError
from netfold.sim.files import durable as files
from netfold.sim.results import load

SCENARIO = """\
name: three
topology: {kind: star, hosts: 2}
workers: 2
workload: {kind: synthetic, elements: 300}
codec: {kind: none}
collective: {kind: ring}
variants: [{name: first}, {name: second}, {name: third}]
"""


def run_netfold(folder: Path, *words: str) -> Any:
    file = folder / "three.yaml"
    file.write_text(SCENARIO)
    out = str(folder / "runs")
    return CliRunner().invoke(app, ["run", str(file), "--out", out, "--no-report", *words])


def folders(folder: Path) -> list[str]:
    """Visible folders of runs, without the time that each begins with."""
    parent = folder / "runs" / "three"
    names = (
        [path.name for path in parent.iterdir() if not path.name.startswith(".")] if parent.is_dir() else []
    )
    return sorted(name.partition("-seed")[2] for name in names)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the variant of a name raise instead of being run."""

    def at(name: str, error: BaseException) -> None:
        run_variant = netfold.sim.run.run.run_variant

        def run(plan: Any, variant: Any, *rest: Any) -> Any:
            if variant.name == name:
                raise error
            return run_variant(plan, variant, *rest)

        monkeypatch.setattr(netfold.sim.run.run, "run_variant", run)

    return at


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError("no 5 GiB"), 1, "not enough memory: no 5 GiB\n  use fewer elements, samples or workers"),
        (InvariantError("bytes vanished"), 3, "bytes vanished\n  a bug; to reproduce: netfold run"),
        (ValueError("unexpected"), 1, ""),  # `main` prints its traceback, and exits with 3
    ],
)
def test_variants_that_are_done_are_kept(
    tmp_path: Path, failing: Any, error: BaseException, status: int, message: str
) -> None:
    failing("third", error)
    result = run_netfold(tmp_path)

    assert (result.exit_code, message in result.stderr) == (status, True)
    assert folders(tmp_path) == ["1-unfinished-2-of-3"]
    (kept,) = (tmp_path / "runs" / "three").iterdir()
    assert [one["name"] for one in load(kept).summary["variants"]] == ["first", "second"]
    assert load(kept).summary["unfinished"] == ["third"]
    assert "first" in result.stdout
    assert "Unfinished: third did not run to the end.\n" in result.stdout
    assert f"Finished variants are in {kept}\nTo write a report: netfold report {kept}\n" in result.stdout
    assert isinstance(error, NetfoldError | KeyboardInterrupt | MemoryError) or result.exception is error
    assert not (tmp_path / "runs" / "latest").exists()


def test_the_first_variant_leaves_nothing_to_keep(tmp_path: Path, failing: Any) -> None:
    failing("first", RunError("not enough memory"))
    result = run_netfold(tmp_path)

    assert (result.exit_code, result.stdout, folders(tmp_path)) == (1, "", [])


def test_a_disk_that_gets_full_keeps_what_was_written_and_prints_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file = files.write_file
    begun: list[Path] = []

    def write(path: Path, data: bytes) -> None:
        begun.extend([path] if path.name == "scenario.yaml" else [])
        if len(begun) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_file(path, data)

    monkeypatch.setattr(files, "write_file", write)
    result = run_netfold(tmp_path)

    assert result.exit_code == 1
    assert "cannot write" in result.stderr
    assert "No space left on device" in result.stderr
    assert folders(tmp_path) == ["1-unfinished-1-of-3"]
    assert "second" in result.stdout  # it was done, and is in the table
    (kept,) = [path for path in (tmp_path / "runs" / "three").iterdir() if path.name[0] != "."]
    assert f"Finished variants are in {kept}, without second\n" in result.stdout


def test_all_variants_are_kept_where_their_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(out_dir: Path, run: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(netfold.sim.run.run, "write_run", write)
    result = run_netfold(tmp_path)
    (kept,) = (tmp_path / "runs" / "three").iterdir()

    assert result.exit_code == 1
    assert folders(tmp_path) == ["1-unfinished-3-of-3"]
    assert "Results: " not in result.stdout
    assert result.stdout.endswith(
        "Unfinished: all variants are done, the run folder was not written.\n"
        f"Finished variants are in {kept}\n"
        f"To write a report: netfold report {kept}\n"
    )
    assert CliRunner().invoke(app, ["report", str(kept)]).exit_code == 0
    assert (kept / "report.html").is_file()


def test_a_variant_that_cannot_be_summed_up_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary_of = netfold.sim.run.run.summary_of

    def summed(results: Any) -> Any:
        if len(results) == 2:
            raise InvariantError("rounds of no job")
        return summary_of(results)

    monkeypatch.setattr(netfold.sim.run.run, "summary_of", summed)
    result = run_netfold(tmp_path)

    assert (result.exit_code, "rounds of no job" in result.stderr) == (3, True)
    assert folders(tmp_path) == ["1-unfinished-1-of-3"]
    assert "Unfinished: second, third did not run to the end.\n" in result.stdout


def test_some_variants_alone(tmp_path: Path) -> None:
    result = run_netfold(tmp_path, "--variant", "third", "--variant", "first")

    assert (result.exit_code, folders(tmp_path)) == (0, ["1"])
    summary = load(tmp_path / "runs" / "latest").summary
    assert "unfinished" not in summary
    assert [one["name"] for one in summary["variants"]] == ["first", "third"]


def test_a_variant_that_is_not_there(tmp_path: Path) -> None:
    result = run_netfold(tmp_path, "--variant", "secnd")

    assert result.exit_code == 2
    assert result.stderr == (
        f"{tmp_path / 'three.yaml'}: there is no variant 'secnd'\n"
        "  did you mean 'second'? variants: first, second, third\n"
    )
