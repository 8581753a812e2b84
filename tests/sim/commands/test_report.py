"""When reports are written: once results are printed or asked for; and what a report that fails leaves."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import netfold
from netfold.sim.commands.main import app
from netfold.sim.files import durable
from netfold.sim.results import load
from tests.sim.scenes import TINY, write
from tests.sim.sweep.inline import Inline, use_inline
from tests.sim.sweep.scene import BASE, GRID

OVER = ("--over", "workers=2,3")


@pytest.fixture
def command(tmp_path: Path, plain: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run or sweep a small scenario, with pages without figures."""
    monkeypatch.setattr("netfold.sim.sweep.figures.sweep_figures", lambda grid: {})
    use_inline(monkeypatch, Inline())

    def invoke(name: str, *words: str) -> Result:
        over = OVER if name == "sweep" else ()
        out = ("--out", str(tmp_path / "runs"))
        return CliRunner().invoke(app, [name, str(write(tmp_path)), *over, *out, *words])

    return invoke


def only_folder(tmp_path: Path) -> Path:
    (folder,) = (path for path in (tmp_path / "runs" / "tiny").iterdir() if path.name != "points")
    return folder


def drawn(tmp_path: Path) -> list[str]:
    """Reports and figures below a folder."""
    return sorted(path.name for path in tmp_path.rglob("*") if path.name in ("report.html", "figures"))


@pytest.mark.parametrize("name", ["run", "sweep"])
def test_the_table_is_printed_before_the_report_is_written(
    command: Callable[..., Result], tmp_path: Path, name: str
) -> None:
    result = command(name)

    folder = only_folder(tmp_path)
    table, report = result.output.split("writing the report\n")  # stdout and stderr, as they came
    assert result.exit_code == 0
    assert {"run": "Not modelled:\n", "sweep": "tiny: 2 points done: pass\n"}[name] in table
    assert report == f"Report: {folder}/report.html\n"
    assert drawn(tmp_path) == ["figures", "report.html"]  # of the sweep alone, not of its points


@pytest.mark.parametrize("name", ["run", "sweep"])
def test_without_a_report_it_is_said_how_to_write_one(
    command: Callable[..., Result], tmp_path: Path, name: str
) -> None:
    result = command(name, "--no-report")

    folder = only_folder(tmp_path)
    assert result.exit_code == 0
    assert result.stdout.endswith(f"\nResults: {folder}\nTo write a report: netfold report {folder}\n")
    assert "report" not in result.stderr
    assert drawn(tmp_path) == []
    asked = CliRunner().invoke(app, result.stdout.split("netfold ")[-1].split())
    assert (asked.exit_code, asked.stdout) == (0, f"{folder}/report.html\n")
    assert drawn(tmp_path) == ["figures", "report.html"]


def test_a_run_that_fails_has_a_report(command: Callable[..., Result], tmp_path: Path) -> None:
    result = command("run", "--set", "faults=[{kind: loss, rate: 100%}]")

    assert result.exit_code == 1
    assert result.stdout.endswith(f"Report: {only_folder(tmp_path)}/report.html\n")


@pytest.mark.parametrize("name", ["run", "sweep"])
@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 1, "No space left on device\n  free space\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_a_report_that_fails_leaves_a_whole_run(
    command: Callable[..., Result],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    error: BaseException,
    status: int,
    told: str,
) -> None:
    write_file = durable.write_file

    def failing(path: Path, data: bytes) -> None:
        if path.name == "report.html":
            raise error
        write_file(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_file", failing)
        result = command(name)

    folder = only_folder(tmp_path)
    asked = f"netfold report {folder}"
    assert (result.exit_code, "Report: " in result.stdout) == (status, False)
    assert f"the results are complete, only the report is missing; to write it: {asked}\n" in result.stderr
    assert result.stderr.endswith(told)
    assert "pass" in result.stdout
    if name == "run":
        assert load(tmp_path / "runs" / "latest").path.resolve() == folder.resolve()
    assert CliRunner().invoke(app, ["report", str(folder)]).output == f"{folder}/report.html\n"


def test_a_link_in_the_place_of_figures_is_not_followed(
    command: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write into the folder of runs makes netfold write nowhere else."""
    outside = tmp_path / "outside"
    outside.mkdir()
    write_folder = durable.write_folder

    def with_link(wanted: Path, fill: Callable[[Path], None]) -> Path:
        folder = write_folder(wanted, fill)
        (folder / "figures").symlink_to(outside)
        return folder

    monkeypatch.setattr(durable, "write_folder", with_link)
    result = command("run")

    assert result.exit_code == 2
    assert "figures: is a link, a folder is to be written there" in result.stderr
    assert list(outside.iterdir()) == []


def test_python_writes_none_until_asked(
    command: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results: list[Any] = [
        netfold.run(TINY, out=tmp_path / "run"),
        netfold.sweep(BASE + GRID, out=tmp_path / "sweep", jobs=1, keep_runs=True),
    ]
    assert drawn(tmp_path) == []
    for result in results:
        assert result._repr_html_().startswith("<pre")
        assert drawn(result.path) == []
        page = result.report()
        assert page == result.path / "report.html"
        first = page.read_bytes()
        page.write_text("old")
        assert result.report().read_bytes() == first
    assert drawn(tmp_path) == 2 * ["figures"] + 2 * ["report.html"]
