"""The 2-D torus (Mikami et al., arXiv 1811.05233, 2018): its keys and closed forms.

With R rows of C workers, a message of M words takes 2 (C − 1) steps of M / C words in the rows, and
2 (R − 1) steps of M / (R C) words in the columns. On an idle network with equal links that is

    2 (1 − 1 / (R C)) · M words at the rate of a link, and 2 (C + R − 2) ways from host to host.

A ring of n = R C workers sends as many words, over 2 (n − 1) ways. All workers together send 2 (n − 1) · M
words in any grid. Rows that are not equally long cost rate: where the shortest has c workers, the rows need
up to 2 (1 − 1 / C) · M at the rate of a link, and the columns up to 2 (R − 1) / (R c) · M.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from netfold.homomorphic.message import MERGEABLE, Merge
from netfold.sim.collectives.between_hosts import HostSection, Schedule
from netfold.sim.collectives.closed_form import Cut as Part
from netfold.sim.collectives.closed_form import ScheduleSize, Steps, estimate_by
from netfold.sim.collectives.collective import CollectiveSpec, Composable, JobContext, Resolved
from netfold.sim.collectives.torus_2d.grid import Grid, squarest
from netfold.sim.collectives.torus_2d.plan import TorusPlan
from netfold.sim.collectives.torus_2d.run import Torus2d
from netfold.sim.collectives.torus_2d.schedule import torus_schedule
from netfold.sim.keys.fields import Count

KIND = "torus_2d"
_IN_FLIGHT_BYTES = 8  # per element and row: chunks that a row's workers send and receive at the same time


class Torus2dSection(HostSection):
    """All-reduce between the hosts on a logical 2-D torus: rings in rows, and rings in columns."""

    kind: Literal["torus_2d"]
    rows: Count | None = None
    """Rows of workers, in rank order, equally long or some longer by one; by default the largest divisor of
    the workers up to their square root, and of a prime the root."""
    columns: Count | None = None
    """Workers of the longest row; by default as many as `rows` need."""


def steps_of(grid: Grid) -> Steps:
    """Rings of the rows, half of whose steps merge; then rings of the columns."""
    shortest, cut = min(grid.lengths), grid.words
    in_rows = [
        (grid.worker(row, at), grid.worker(row, (at + 1) % length))
        for row, length in enumerate(grid.lengths)
        for at in range(length)
    ]
    columns = [cut.column(segment) for segment in range(cut.segments)]
    down = [(one[row], one[(row + 1) % grid.rows]) for one in columns for row in range(grid.rows)]
    most = max(len(group) for group in cut.groups[shortest])  # columns of a worker of the shortest row
    parts = grid.rows * shortest * most  # of their average size
    below = Steps(down, hops=2 * (grid.rows - 1), chunks=parts, merges=grid.rows - 1)
    if grid.columns == 1:
        return below
    hops = 2 * (grid.columns - 1)
    after = below if grid.rows > 1 else None
    return Steps(in_rows, hops=hops, chunks=grid.columns, merges=grid.columns - 1, then=after)


def size_of(grid: Grid, is_host: bool) -> ScheduleSize:
    """The size of its schedule for words, or for HOST, whose parts all travel each for itself."""
    if is_host:
        return ScheduleSize(2 * (grid.workers - 1) * grid.equal.parts, grid.equal.parts)
    in_rows = 2 * sum(length * (length - 1) for length in grid.lengths)
    return ScheduleSize(in_rows + 2 * (grid.rows - 1) * grid.words.parts, grid.words.parts)


def _resolve(section: Torus2dSection, job: JobContext) -> Resolved:
    """The plan of a job's torus.

    Raises
    ------
    ScenarioError
        The workers do not fit the rows and columns; or as for `Schedule.resolve`.
    """
    grid = _grid(section, job)
    is_host = Merge.HOST in job.codec.merges
    schedule = Schedule(KIND, lambda workers: steps_of(grid), lambda workers: size_of(grid, is_host))
    found = schedule.resolve_on(section, job, job.nodes, partial(TorusPlan, grid=grid))
    plan = replace(
        found.plan,
        held_bytes=found.plan.held_bytes + _IN_FLIGHT_BYTES * (grid.rows - 1),
        settled={**found.plan.settled, "rows": grid.rows, "columns": grid.columns},
    )
    return found._replace(plan=plan)


def _grid(section: Torus2dSection, job: JobContext) -> Grid:
    """The grid of a job's workers."""
    workers, rows, columns = len(job.hosts), section.rows, section.columns
    for key, asked in (("rows", rows), ("columns", columns)):
        if asked is not None and asked > workers:
            found = f"{workers} worker{'s' if workers > 1 else ''} cannot stand in {asked} {key}"
            raise job.location.job_error(f"collective.{key}", found, f"use at most {workers}")
    grid = _grid_of(section, workers)
    if columns is not None and columns != grid.columns:
        lengths = " + ".join(map(str, grid.lengths))
        raise job.location.job_error(
            "collective.columns",
            f"{workers} workers in {grid.rows} rows are {lengths}, {columns} columns do not fit them",
            f"use collective.columns: {grid.columns}" + ("" if section.rows is None else ", or only rows"),
        )
    return grid


def _grid_of(section: Any, workers: int) -> Grid:
    """The grid that the keys ask for, whether the columns fit or not."""
    rows, columns = section.rows, section.columns
    if rows is None:
        rows = squarest(workers) if columns is None else -(-workers // columns)
    return Grid.of(workers, rows)


def _part_of(section: Any, workers: int) -> Part:
    """Its schedule, and where the parts of its segments begin."""
    grid = _grid_of(section, workers)
    edges, rows = [*grid.words.starts, Fraction(1)], grid.rows
    cells = [start + (end - start) * row / rows for start, end in pairwise(edges) for row in range(rows)]
    return Part(torus_schedule(grid, is_host=False), (*cells, Fraction(1)))


def _check(section: Any, workers: int, job: JobContext) -> None:
    """Raises as `_grid`."""
    _grid(section, replace(job, hosts=job.hosts[:workers]))


def _steps(section: Any, workers: int) -> Steps:
    return steps_of(_grid_of(section, workers))


TORUS_2D = CollectiveSpec(
    KIND,
    MERGEABLE | {Merge.HOST},
    Torus2dSection,
    _resolve,
    Torus2d,
    carries_absence=True,
    composable=Composable(_part_of, _steps, _check),
    estimate=estimate_by(_steps),
)
