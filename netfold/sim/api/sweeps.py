"""Run a sweep and read its table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table

from netfold.sim.api.given import Given, scenario_of, sets_of
from netfold.sim.report.style import Shown
from netfold.sim.scenario.load import running_code
from netfold.sim.studies.sweep import OnPoint, Settings, cores, require_jobs, run_sweep, sweep_of
from netfold.sim.studies.sweep_output import Sweep, counts, load_sweep, sweep_table, write_report
from netfold.sim.studies.sweep_workers import LOCAL, cluster_of


class Swept(Shown):
    """A finished sweep; `print` shows the fastest variant of every point.

    Attributes
    ----------
    path
        Its folder.
    points
        A row for every point and variant (or job): the swept keys, seed, variant, status, verdict, error, and
        a column for every metric.
    summary
        The content of `sweep.json`.
    """

    def __init__(self, found: Sweep) -> None:
        self._found = found
        self.path: Path = found.path
        self.points: pl.DataFrame = found.frame
        self.summary: dict[str, Any] = found.content

    @property
    def verdict(self) -> str:
        """The worst of all points: "pass", "approximate: N entries", "stuck" or "fail"."""
        return str(self.summary["verdict"])

    def report(self) -> Path:
        """Write `report.html` and its figures into the sweep's folder, or write them again; returns its path.

        Raises
        ------
        DataError
            Something else has the place of a file that is to be written.
        UnwrittenError
            The folder cannot be written.
        """
        return write_report(self._found)

    def table(self) -> Table:
        """The table that `netfold sweep` prints."""
        return sweep_table(self._found)

    def __repr__(self) -> str:
        return f"<netfold sweep of {self.summary['scenario']}: {counts(self.summary)}, in {self.path}>"


def sweep(  # noqa: PLR0913  as many as the command has options
    scenario: Given,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    out: str | os.PathLike[str] = "runs",
    fresh: bool = False,
    keep_runs: bool = False,
    scheduler: str = LOCAL,
    scheduler_file: str | os.PathLike[str] | None = None,
    progress: OnPoint | None = None,
    trust_kept: bool = False,
    code: bool = True,
) -> Swept:
    """Run every point of a scenario's sweep that is not kept from an earlier one, several at a time.

    `report()` of the result writes figures and a page.

    A script that calls this does so below `if __name__ == "__main__":`, because every worker imports it.

    Parameters
    ----------
    scenario
        Path of a scenario file; or its text, which has a line break; or a mapping with its content.
    over
        Keys to sweep, besides those of the file: {"topology.rate": ["10Gbps", "100Gbps"]}.
    set
        Values by path that override the scenario's: {"workload.elements": 1000}.
    seed
        Overrides the scenario's seed.
    jobs
        Points at a time; by default one for each core.
    out
        Parent folder of runs; finished points are kept there, too.
    fresh
        Run points again that are kept.
    keep_runs
        Keep the run folder of every point.
    scheduler, scheduler_file
        The address of a Dask scheduler, or the file that it wrote; by default this machine's processes.
    progress
        Called with what came of each point, when it ends.
    trust_kept
        Take kept points also where what decided them cannot be known, such as data that your own model reads.
    code
        Whether Python files that the scenario names may run, as for `run`.

    Raises
    ------
    ScenarioError, DataError, NetfoldError
        Nothing was run.
    RunError
        No worker can run points.

    If an exception (Ctrl-C included) ends a sweep, its note says how many points are kept.
    """
    swept = {f"sweep.{path}": list(values) for path, values in (over or {}).items()}
    file = None if scheduler_file is None else Path(scheduler_file)
    settings = Settings(
        require_jobs(cores() if jobs is None else jobs),
        cluster_of(scheduler, file),
        fresh,
        keep_runs,
        trust_kept,
    )
    with running_code(code):
        found = sweep_of(scenario_of(scenario), (*sets_of(swept), *sets_of(set)), seed)
        return Swept(load_sweep(run_sweep(found, settings, Path(out), progress or _ignore_points)))


def _ignore_points(ended: object) -> None:
    """Default: progress is discarded."""
