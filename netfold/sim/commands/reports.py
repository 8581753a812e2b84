"""`netfold report`, and the report that `run` and `sweep` write once their results are printed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from netfold.sim.commands.terminal import print_error, print_line, under_way

NoReport = Annotated[
    bool, typer.Option("--no-report", help="Write no figures and no page; `netfold report` does it later.")
]


def report(folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run or sweep folder.")]) -> None:
    """Write the figures and the HTML report of a run or a sweep, or write them again."""
    print_line(write_report(folder))


def report_printed(folder: Path, is_wanted: bool, as_json: bool) -> None:
    """Write the report of a folder whose results are printed, if it is wanted, and say where they are."""
    command = f"netfold report {shlex.quote(str(folder))}"
    if is_wanted:
        try:
            with under_way("writing the report"):
                write_report(folder)
        except BaseException:
            print_error(f"the results are complete, only the report is missing; to write it: {command}")
            raise
    if not as_json:
        written = f"Report: {folder}/report.html"
        print_line(written if is_wanted else f"Results: {folder}\nTo write a report: {command}")


def write_report(folder: Path) -> Path:
    """Write the figures and the page of a run or a sweep; returns the page."""
    from netfold.sim.report.html import build_report  # late: matplotlib is slow to import
    from netfold.sim.studies import sweep_output as page

    return page.write_report(page.load_sweep(folder)) if page.is_sweep(folder) else build_report(folder)
