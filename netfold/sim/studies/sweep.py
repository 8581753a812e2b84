"""Sweeps: every point of a scenario's grid, run in parallel and kept, with one table and figures of all.

`sweep_points.py` makes the points of a scenario. `sweep_workers.py` has what a worker gets and does, and runs
tasks here or on a Dask cluster. This file keeps finished points, and has a sweep from beginning to end.
`sweep_output.py` writes its folder, and shows it.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from netfold.errors import NetfoldError, UnwrittenError
from netfold.kernels.compile_progress import COMPILING
from netfold.kernels.processor import expected
from netfold.sim import files
from netfold.sim.files import require_threads, require_writable
from netfold.sim.plan.memory_footprint import available_bytes
from netfold.sim.report.words import format_count
from netfold.sim.results import summary
from netfold.sim.results.file_formats import parquet_bytes
from netfold.sim.results.folder import circumstances, point_latest, repeatable, to_json
from netfold.sim.run.compiling import compile_engine, is_cold
from netfold.sim.run.progress import silent
from netfold.sim.scenario.load import Given, Scenario, load, running_code, scenario_of, sets_of
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.sim.studies import sweep_output, sweep_workers
from netfold.sim.studies.sweep_output import DONE, FAILED, SKIPPED, PointResult, SweepResult, load_sweep
from netfold.sim.studies.sweep_points import Point, plain_text, points_of, refuse_absolute, seeds_of, text_of
from netfold.sim.studies.sweep_workers import (
    FailedError,
    Limits,
    TaskOutcome,
    WorkerCall,
    WorkerPool,
    dispatch,
    own_versions,
    unzip,
    work,
)

# Finished points, each in a file of its own, so that a sweep goes on where it was stopped.
#
# A file is named by the digest of its point and is written whole or not at all. Points of other grids of the
# same scenario are used too, and all can be removed at any time.


FOLDER = "points"
_FORMAT = 1


class Store:
    """The finished points of a scenario.

    Parameters
    ----------
    folder
        Where they are; made when the first is put in.
    keeps_runs
        A point counts as finished only if its run folder is there, too.
    """

    def __init__(self, folder: Path, keeps_runs: bool = False) -> None:
        self._folder, self._keeps_runs = folder, keeps_runs

    def run_folder(self, digest: str) -> Path:
        return self._folder / digest

    def get(self, digest: str) -> TaskOutcome | None:
        """A finished point; None if it is not there, or its file is damaged."""
        try:
            content = json.loads((self._folder / f"{digest}.json").read_bytes())
            if content["format"] != _FORMAT or content["digest"] != digest:
                return None
            rows = tuple({str(name): value for name, value in row.items()} for row in content["rows"])
            outcome = TaskOutcome(rows, wall_s=float(content["wall_s"]), host=str(content["host"]))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        if not outcome.rows or (self._keeps_runs and not self.run_folder(digest).is_dir()):
            return None
        return outcome

    def kept_at(self, digest: str) -> datetime:
        return datetime.fromtimestamp((self._folder / f"{digest}.json").stat().st_mtime).astimezone()

    def put(self, digest: str, outcome: TaskOutcome) -> None:
        """Keep a finished point.

        Raises
        ------
        UnwrittenError
            It cannot be written, because the disk is full, for example.
        """
        content = asdict(replace(outcome, archive=b""))
        del content["archive"], content["error"]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if outcome.archive:
                folder = self.run_folder(digest)
                shutil.rmtree(folder, ignore_errors=True)
                files.write_folder(folder, lambda partial: unzip(outcome.archive, partial))
            text = json.dumps({"format": _FORMAT, "digest": digest, **content}, allow_nan=False)
            files.write_file(self._folder / f"{digest}.json", text.encode())
        except OSError as error:
            if self.get(digest) is not None:  # another sweep was writing the same point
                return
            raise UnwrittenError(
                f"cannot write {self._folder}: {error.strerror or error}",
                files.WRITABLE_HINT,
            ) from error


# A sweep from beginning to end: all points are checked, those not kept yet run, and a folder is written.


_LOGGER = logging.getLogger(__name__)
_ROOM = 0.9  # share of the memory that is free which points may take together


@dataclass(frozen=True)
class SweepSettings:
    """How a sweep is run; nothing here changes a result."""

    jobs: int  # points at a time on this machine
    cluster: sweep_workers.Cluster | None = None  # instead of this machine
    is_fresh: bool = False  # run points again that are kept
    keeps_runs: bool = False  # keep the run folder of every point
    trusts_kept: bool = False  # take kept points that may be stale


@dataclass(frozen=True)
class Ended:
    """A point has ended, and how far the sweep is."""

    text: str  # the point: "workers=16, seed 1"
    result: str  # its verdict, or that it failed and why
    wall_s: float
    done: int  # points, with those that were kept
    total: int
    left_s: float | None  # an estimate of the time until the end; None without a point to go by


OnPoint = Callable[[Ended], None]


@dataclass
class _Clock:
    """Estimates the time left, from what finished points took for their weight."""

    weights: dict[int, float]
    """The weights of the points that are to run, by index."""
    places: int
    took_s: float = 0.0
    weight: float = 0.0
    ended: set[int] = field(default_factory=set)

    def left_s(self, index: int, wall_s: float) -> float | None:
        """The time left when a point has ended that took this long; 0 seconds is one that failed."""
        self.ended.add(index)
        if wall_s:
            self.took_s += wall_s
            self.weight += self.weights[index]
        weight_left = sum(
            weight for point_index, weight in self.weights.items() if point_index not in self.ended
        )
        if not self.weight:
            return None
        return weight_left * self.took_s / self.weight / max(1, min(self.places, len(self.weights)))


def sweep_of(given: str | Path | ScenarioText, sets: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """A scenario that has a sweep.

    Raises
    ------
    ScenarioError
        It has mistakes, or no sweep.
    """
    scenario = load(given, sets, seed)
    if scenario.sweep is None:
        raise scenario.document.error(
            "this scenario has no sweep",
            "add `sweep: {workers: [4, 16]}` or --over workers=4,16; `netfold run` runs one point",
        )
    if seed is not None and not isinstance(scenario.sweep.seeds, int):
        raise scenario.sweep.node.error(
            "the sweep lists its seeds, so --seed changes nothing", "use --set sweep.seeds=[…]"
        )
    return scenario


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
    scheduler: str = sweep_workers.LOCAL,
    scheduler_file: str | os.PathLike[str] | None = None,
    progress: OnPoint | None = None,
    trust_kept: bool = False,
    code: bool = True,
) -> SweepResult:
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
    settings = SweepSettings(
        require_jobs(cores() if jobs is None else jobs),
        sweep_workers.cluster_of(scheduler, file),
        fresh,
        keep_runs,
        trust_kept,
    )
    with running_code(code):
        swept_scenario = sweep_of(scenario_of(scenario), (*sets_of(swept), *sets_of(set)), seed)
        return load_sweep(run_sweep(swept_scenario, settings, Path(out), progress or silent))


def run_sweep(scenario: Scenario, settings: SweepSettings, out_dir: Path, progress: OnPoint) -> Path:
    """Run the points of a sweep that are not kept from an earlier one; returns the folder of the whole.

    Raises
    ------
    ScenarioError, DataError, NetfoldError
        Nothing was run.
    RunError, UnwrittenError, KeyboardInterrupt
        The sweep ended early. Its finished points are kept, and the note says how to go on.
    """
    require_threads()
    started_at, started_s = datetime.now(UTC), time.perf_counter()
    versions = own_versions()
    if not settings.keeps_runs and any(
        job.keep for variant in scenario.variants for job in variant.jobs or (variant,)
    ):
        raise scenario.error("keep", "a sweep has no run folders to keep arrays in", "add --keep-runs")
    points = points_of(scenario, versions, settings.keeps_runs)
    if settings.cluster is not None:
        refuse_absolute(points)
    require_writable(out_dir, scenario.name)
    store = Store(out_dir / scenario.name / FOLDER, settings.keeps_runs)
    running = _Running(scenario, points, store, progress)
    if not settings.is_fresh:
        running.take_kept(settings.trusts_kept)
    try:
        running.run(settings)
    except BaseException as error:
        error.add_note(running.note())
        raise
    results = running.finished()
    contents = {
        "scenario.yaml": repeatable(scenario.source_text, "sweep", scenario.seed, scenario.sets),
        "run.json": to_json(
            {**circumstances(started_at, time.perf_counter() - started_s), **expected()._asdict()}
        ),
        "times.parquet": parquet_bytes(sweep_output.times_frame(results)),
    }
    folder = out_dir / scenario.name / f"{started_at:%Y-%m-%dT%H-%M-%S}-sweep"
    with files.writing(out_dir, files.WRITABLE_HINT):
        finished = files.write_folder(folder, partial(_fill, scenario, results, contents))
        point_latest(out_dir, finished)
    return finished


class _Running:
    """The points of a sweep, and what came of each so far."""

    def __init__(self, scenario: Scenario, points: Sequence[Point], store: Store, progress: OnPoint) -> None:
        assert scenario.sweep is not None
        self._paths = [axis.path for axis in scenario.sweep.axes]
        self._points, self._store, self._progress = points, store, progress
        self._results: dict[int, PointResult] = {
            index: PointResult(point, SKIPPED, point.error)
            for index, point in enumerate(points)
            if point.task is None
        }

    def take_kept(self, trusts: bool) -> None:
        """Take the results of points that an earlier sweep finished; say how many, of when, and which not."""
        sure, doubtful = list[Point](), list[Point]()
        for index, point in enumerate(self._points):
            outcome = self._store.get(point.digest) if point.task is not None else None
            if outcome is None:
                continue
            (doubtful if point.doubts else sure).append(point)
            if trusts or not point.doubts:
                self._results[index] = PointResult(point, DONE, outcome=outcome)
        if sure:
            _LOGGER.info("%s", self._kept(sure))
        if doubtful:
            doubts = ", ".join(dict.fromkeys(doubt for point in doubtful for doubt in point.doubts))
            what = "are taken, though" if trusts else "run again, because"
            hint = "" if trusts else "; --trust-kept (from Python: trust_kept=True) takes them"
            _LOGGER.warning("%s %s %s may have changed since%s", self._kept(doubtful), what, doubts, hint)

    def _kept(self, points: Sequence[Point]) -> str:
        since = min(self._store.kept_at(point.digest) for point in points)
        return f"{format_count(len(points), 'point')} kept from {since:%Y-%m-%d %H:%M}"

    def run(self, settings: SweepSettings) -> None:
        """Run the points without results."""
        missing = [index for index in range(len(self._points)) if index not in self._results]
        if not missing:
            return
        jobs = [
            WorkerCall(self._points[index].task, self._points[index].bytes, self._points[index].weight)
            for index in missing
        ]
        with _executor(settings, len(missing)) as (executor, limits, places):
            _LOGGER.info(
                "running %s, %d at a time", format_count(len(missing), "point"), min(places, len(missing))
            )
            clock = _Clock({index: self._points[index].weight for index in missing}, places)
            dispatch(executor, work, jobs, limits, lambda index, got: self._end(missing[index], got, clock))

    def _end(self, index: int, got: TaskOutcome | FailedError, clock: _Clock) -> None:
        """Record what came of a point, and keep it if it has results."""
        point = self._points[index]
        outcome = got if isinstance(got, TaskOutcome) else TaskOutcome(error=str(got))
        if outcome.rows:
            self._store.put(point.digest, outcome)
            self._results[index] = PointResult(point, DONE, outcome=outcome)
            verdict = summary.worst(row["verdict"] for row in outcome.rows)
        else:
            self._results[index] = PointResult(point, FAILED, outcome.error)
            verdict = f"failed: {outcome.error.strip().splitlines()[-1]}"
        left_s = clock.left_s(index, outcome.wall_s if outcome.rows else 0.0)
        done = sum(point_result.status != SKIPPED for point_result in self._results.values())
        skipped = len(self._results) - done
        text = ", ".join(part for part in (text_of(self._paths, point.values), f"seed {point.seed}") if part)
        self._progress(Ended(text, verdict, outcome.wall_s, done, len(self._points) - skipped, left_s))

    def finished(self) -> list[PointResult]:
        # Of failed and skipped points, too, in the order of the grid.
        return [self._results[index] for index in range(len(self._points))]

    def note(self) -> str:
        """What is kept of a sweep that ended early."""
        done = sum(point_result.status == DONE for point_result in self._results.values())
        total = sum(point.task is not None for point in self._points)
        doubtful = any(point.doubts for point in self._points)
        option = " with --trust-kept (from Python: trust_kept=True)" if doubtful else ""
        return f"{done} of {total} points are finished and kept; the same command{option} goes on from there"


@contextmanager
def _executor(settings: SweepSettings, wanted: int) -> Iterator[tuple[Any, Limits, int]]:
    """What runs the points, how many at a time, and how many places it has."""
    if settings.cluster is not None:
        with sweep_workers.connected(settings.cluster, own_versions()) as (executor, threads, deaths):
            yield executor, Limits(wanted, float("inf"), deaths), threads
        return
    places = min(settings.jobs, wanted)
    if is_cold():
        _LOGGER.info(COMPILING)
        compile_engine(is_whole=True)  # here, or every process would
    pool = WorkerPool(places)
    try:
        yield pool, Limits(places, _ROOM * available_bytes()), places
        pool.shutdown()
    finally:
        pool.kill()


def _fill(
    scenario: Scenario, results: Sequence[PointResult], contents: dict[str, bytes], folder: Path
) -> None:
    assert scenario.sweep is not None
    points = [result.point for result in results]
    keys = sweep_output.keys_of([axis.path for axis in scenario.sweep.axes], points)
    frame = sweep_output.points_frame(keys, results)
    done = [row["verdict"] for result in results for row in result.outcome.rows]
    content = {
        "scenario": scenario.name,
        "description": scenario.description,
        "sets": list(scenario.sets),
        "seed": scenario.seed,
        "seeds": list(seeds_of(scenario)),
        "keys": [{"path": key.path, "column": key.column} for key in keys],
        "variants": list(dict.fromkeys(frame["variant"].to_list())),
        "verdict": _verdict(results, done),
        "points": [_describe(result, [key.path for key in keys]) for result in results],
    }
    sweep_output.write_sweep(folder, {**contents, sweep_output.TABLE: parquet_bytes(frame)}, content)


def _verdict(results: Sequence[PointResult], errors: Sequence[str]) -> str:
    return "fail" if any(result.status == FAILED for result in results) else summary.worst(errors)


def _describe(result: PointResult, paths: Sequence[str]) -> dict[str, Any]:
    point = result.point
    return {
        "point": point.number,
        "values": {path: plain_text(value) for path, value in zip(paths, point.values, strict=True)},
        "text": text_of(paths, point.values),
        "seed": point.seed,
        "digest": point.digest,
        "status": result.status,
        "error": result.error,
    }


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def require_jobs(jobs: int) -> int:
    if jobs < 1:
        raise NetfoldError(f"--jobs must be at least 1, found {jobs}", "leave it out: one for each core")
    return jobs
