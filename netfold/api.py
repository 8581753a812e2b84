"""Validate and run scenarios, read runs back, and compare them; measure this machine."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from rich.table import Table

from netfold.errors import DataError, names_hint
from netfold.homomorphic.codec import Codec
from netfold.kernels.processor import note_of, pin
from netfold.kinds import register, registered
from netfold.sim import files
from netfold.sim.keys import written
from netfold.sim.report.answer import AS_GIVEN
from netfold.sim.report.compare import Comparison, results_table
from netfold.sim.report.compare import compare as compare_folders
from netfold.sim.report.result_display import Shown, Svg
from netfold.sim.results import folder as reader
from netfold.sim.results import kept_arrays
from netfold.sim.results.file_formats import plain_frame, schema
from netfold.sim.results.records import CheckRecord
from netfold.sim.results.time_series import LINK_BUSY
from netfold.sim.run.named_files import setups
from netfold.sim.scenario.load import Given, running_code, scenario_of, sets_of
from netfold.sim.scenario.load import load as load_scenario
from netfold.sim.scenario.resolve import resolve

if TYPE_CHECKING:
    from netfold.sim.run.progress import Progress
    from netfold.sim.studies.explain import Explanation

# Late imports: the engine, Matplotlib and PyTorch take longer than what only reads a scenario or a folder.


class Run(Shown):
    """A finished run, read from its folder. Tables are polars data frames; `print` shows the run's table.

    Attributes
    ----------
    path
        Its folder.
    summary
        The content of `summary.json`.
    checks
        A row for every check of every variant: variant, name, verdict, detail.
    steps, rounds, notes, phases, links, faults, nodes, series
        The tables of the run folder; `docs/explanation/run-folder.md` explains every column.
    """

    def __init__(self, folder: reader.RunFolder) -> None:
        self._folder = folder
        self.path: Path = folder.path
        self.summary: dict[str, Any] = folder.summary
        self.checks = pl.DataFrame(folder.checks, schema=schema(CheckRecord))
        self.steps, self.rounds, self.notes = folder.steps, folder.rounds, folder.notes
        self.phases, self.links, self.faults = folder.phases, folder.links, folder.faults
        self.nodes, self.series = folder.nodes, folder.series
        self._notes = note_of(folder.circumstances)

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return str(self.summary["scenario"])

    @property
    def seed(self) -> int:
        """The seed of all random choices."""
        return int(self.summary["seed"])

    @property
    def verdict(self) -> str:
        """The worst verdict of the variants.

        It is pass, approximate: N entries, pass: N % of sums checked, pass: sums not checked, stalled or
        fail.
        """
        return str(self.summary["verdict"])

    @property
    def variants(self) -> pl.DataFrame:
        """A row for every variant, or job of one: name, verdict, and a column for every metric."""
        return plain_frame(
            [
                {"name": variant["name"], "verdict": variant["verdict"], **variant["metrics"]}
                for variant in self.summary["variants"]
            ]
        )

    @property
    def bounds(self) -> pl.DataFrame:
        """A row for every part of a variant's aggregation time: variant, cause, where, stage, share, …

        `docs/explanation/run-folder.md` explains the columns. Empty if an earlier version wrote the run.
        """
        return plain_frame(
            [
                {"variant": variant["name"], **part}
                for variant in self.summary["variants"]
                for part in variant.get("bounds", ())
            ]
        )

    def gradients(
        self, step: int, bucket: int | None = None, worker: int | None = None, *, variant: str = ""
    ) -> NDArray[np.float32]:
        """Workers' gradients of a step as float32, `(workers, elements)`, or `(elements,)` of one worker.

        With local steps they are differences of weights. Like contributions, totals and weights they are
        there if the scenario's `keep` lists them. Only the step that is asked for is read from the folder.

        Parameters
        ----------
        step
            From 0; negative steps count from the end.
        bucket
            A part of the gradient; by default all buckets, one after the other.
        worker
            A worker's rank.
        variant
            Name of the variant, or "variant/job"; it may be left out if there is one.

        Raises
        ------
        DataError
            They were not kept; there is no such variant, step, bucket or worker; or the file is damaged.
        """
        return self._of_workers("gradients", step, bucket, worker, variant)

    def contributions(
        self, step: int, bucket: int | None = None, worker: int | None = None, *, variant: str = ""
    ) -> NDArray[np.float32]:
        """What workers put into the sum in a step: gradients, but for what a codec holds back or leaves out.

        Parameters and errors are those of `gradients`.
        """
        return self._of_workers("contributions", step, bucket, worker, variant)

    def totals(self, step: int, bucket: int | None = None, *, variant: str = "") -> NDArray[np.float32]:
        """What was decoded in a step, `(elements,)`: the sum over workers (worker 0's, if they disagree).

        Of a codec that makes updates of the weights it is the update. Parameters and errors are those of
        `gradients`.
        """
        return self._of_buckets("totals", step, bucket, variant)

    def weights(self, steps: int = -1, *, variant: str = "") -> dict[str, NDArray[np.float32]]:
        """The trained weights after so many steps, by parameter and in its shape; by default after the last.

        `weights(0)` are those before the first step. They are in the order of the gradient: one after the
        other they have as many elements as `totals(step)`, at the same places. Errors are those of
        `gradients`.
        """
        return kept_arrays.read(self._array_file("weights", variant), "weights", steps)

    def link_series(self, variant: str = "") -> pl.DataFrame:
        """How busy the three busiest links of a variant's network were over time, each in a column.

        Each row is one of 48 equal stretches of the variant's time, from `start_ps` to `end_ps`, and has the
        share of it in which the link was busy, from 0 to 1. `series` has more quantities.
        """
        network = self._label(variant).partition("/")[0]
        rows = self.series.filter((pl.col("quantity") == LINK_BUSY) & (pl.col("variant") == network))
        return rows.pivot("where", index=["start_ps", "end_ps"], values="value")

    def _of_workers(
        self, kept: str, step: int, bucket: int | None, worker: int | None, variant: str
    ) -> NDArray[np.float32]:
        array = self._of_buckets(kept, step, bucket, variant)
        if worker is None:
            return array
        if not 0 <= worker < len(array):
            raise DataError(f"worker: there is no {worker}", f"allowed: 0 to {len(array) - 1}")
        row: NDArray[np.float32] = array[worker]
        return row

    def _of_buckets(self, kept: str, step: int, bucket: int | None, variant: str) -> NDArray[np.float32]:
        buckets = kept_arrays.read(self._array_file(kept, variant), kept, step)
        if bucket is None:
            return np.concatenate([buckets[name] for name in sorted(buckets, key=int)], axis=-1)
        if str(bucket) not in buckets:
            raise DataError(f"bucket: there is no {bucket}", f"allowed: 0 to {len(buckets) - 1}")
        return buckets[str(bucket)]

    def _array_file(self, kept: str, variant: str) -> Path:
        """The file of a variant's arrays."""
        label = self._label(variant)
        if label not in self.summary.get("arrays", {}):
            raise kept_arrays.not_kept(self.path, kept)
        return self.path / kept_arrays.file_name(label)

    def _label(self, variant: str) -> str:
        """The only variant, or the named one."""
        names = [entry["name"] for entry in self.summary.get("repeats") or self.summary["variants"]]
        if not variant and len(names) == 1:
            return str(names[0])
        if variant not in names:
            problem = f"there is no {variant!r}" if variant else f"the run has {len(names)}, name one of them"
            raise DataError(f"variant: {problem}", names_hint(variant, names, "variants"))
        return variant

    def figure(self, name: str = "") -> Svg:
        """A figure of the report, which a notebook draws and which has `save(path)`.

        By default it is the one that shows the answer. Others are for example "bounds", "timeline" and
        "training"; the error has the names of all.

        Raises
        ------
        DataError
            There is no figure of that name, or it has nothing to show.
        """
        from netfold.sim.report.html_report import draw  # late: matplotlib is slow to import

        return draw(self._folder, name)

    def report(self) -> Path:
        """Write `report.html` and its figures into the run's folder, or write them again; returns its path.

        Raises
        ------
        DataError
            The folder is damaged, or something else has the place of a file that is to be written.
        UnwrittenError
            The folder cannot be written.
        """
        from netfold.sim.report.html_report import build_report  # late: matplotlib is slow to import

        return build_report(self.path)

    def table(self) -> Table:
        """The table that `netfold run` prints."""
        return results_table(self.summary, self._notes)

    def __repr__(self) -> str:
        return f"<netfold.Run {self.name}, seed {self.seed}: {self.verdict}, in {self.path}>"


class Objects(TypedDict, total=False):
    """Objects of Python that a run takes in the place of a scenario's values, for all variants."""

    codec: Codec
    """Its class is registered, if it is not yet."""
    model: Callable[..., Any]
    """A function of a Python file that makes the model to train, as `netfold new model` writes one."""
    gradients: ArrayLike
    """What workers send, (workers, elements), float32; kept in `inputs` below the parent folder of runs."""


def run(
    scenario: Given,
    *,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    variants: Sequence[str] = (),
    out: str | os.PathLike[str] = "runs",
    progress: Progress | None = None,
    code: bool = True,
    native: bool = False,
    **objects: Unpack[Objects],
) -> Run:
    """Run all variants of a scenario, or the named ones, and write a run folder; `report()` adds its report.

    Parameters
    ----------
    scenario
        Path of a scenario file; or its text, which has a line break; or a mapping with its content.
    set
        Values by path that override the scenario's: {"topology.rate": "25Gbps"}.
    seed
        Overrides the scenario's seed.
    out
        Parent folder of runs.
    progress
        Called with the current activity, the steps done and all steps (of "compiling kernels, once": the
        kernels done, and those known to be needed); `print` works.
    code
        Whether Python files that the scenario names may run, such as `model: ./mine.py:make`. A line on
        stderr says that one does.
    objects
        `codec`, `model` and `gradients` in the place of the scenario's, see `Objects`.
    native
        Let PyTorch use all that this processor has: faster, and not reproducible on others. Otherwise this
        process, and what it starts, computes with AVX2 from then on.

    Threads that call this take turns.

    Raises
    ------
    ScenarioError, DataError
        Nothing was run.
    RunError
        There is not enough memory, or this process was forked from one that had run.

    If an exception (Ctrl-C included) ends a run after its first variant, its note says where the results of
    the finished variants are.
    """
    from netfold.sim.run.progress import silent
    from netfold.sim.run.run import run_scenario

    if not native:
        pin()
    values = _values_of(objects, Path(out))
    path_or_text, sets = scenario_of(scenario), sets_of({**values, **(set or {})})
    # Whoever gives a function knows its file.
    with running_code(code, [values.get("workload.model", "").rpartition(":")[0]]):
        outcome = run_scenario(path_or_text, sets, seed, Path(out), progress or silent, tuple(variants))
    if outcome.stopped is not None:
        outcome.stopped.add_note("\n".join(outcome.place()))
        raise outcome.stopped
    assert outcome.run_dir is not None
    return load(outcome.run_dir)


def _values_of(objects: Objects, out: Path) -> dict[str, Any]:
    """Objects of Python as values of a scenario by path.

    Raises
    ------
    DataError
        The model's function is in no file, or within another function; or the gradients are no table.
    """
    values: dict[str, Any] = {}
    codec: Any = objects.get("codec")
    model, gradients = objects.get("model"), objects.get("gradients")
    if codec is not None:
        if codec.kind not in registered(Codec):
            register(type(codec))
        values["codec"] = written(codec)
    if model is not None:
        file, name = inspect.getsourcefile(model), model.__qualname__
        if file is None or not Path(file).is_file() or not name.isidentifier():
            raise DataError(
                f"model: {name} cannot be found in a file",
                "write the function into a Python file, outside of other functions, and import it",
            )
        values["workload.model"] = f"{Path(file).resolve()}:{name}"
    if gradients is not None:
        array = np.ascontiguousarray(gradients, np.float32)
        if array.ndim != 2:
            raise DataError(
                f"gradients: the array has {array.ndim} dimensions", "give it two: (workers, elements)"
            )
        file_name = f"gradients-{hashlib.sha256(array.tobytes()).hexdigest()[:12]}.npy"
        path = out.resolve() / "inputs" / file_name
        with files.writing(path.parent, files.WRITABLE_HINT):
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, array)
        values["workload"] = {"kind": "file", "path": str(path)}
    return values


def load(folder: str | os.PathLike[str]) -> Run:
    """Read a run from its folder, from a file in it, or from `runs/latest`.

    Raises
    ------
    DataError
        The folder is not a finished run, or one of its files is missing or damaged.
    """
    return Run(reader.load(Path(folder)))


def compare(
    *runs: Run | str | os.PathLike[str],
    baseline: Run | str | os.PathLike[str] | None = None,
    sort: str = AS_GIVEN,
) -> Comparison:
    """Compare runs, or the variants of one: ratios, ranks, and the bottleneck of each.

    Variants of equal workload are compared: with the same variant of a baseline, by default the first run;
    those of a single run with its own baseline. `baseline` may also be a variant's name. `sort` ranks the
    rows, best first: "aggregation", or what else `netfold compare --help` lists. `draw()` of the result is a
    figure, and `report(folder)` writes a page about all runs.

    Raises
    ------
    DataError
        There is no run to compare, a folder is not a finished run, or there is no such baseline or order.
    """
    return compare_folders(
        [_folder(run) for run in runs], None if baseline is None else _folder(baseline), sort
    )


def explain(
    run: Run | str | os.PathLike[str],
    variant: str = "",
    *,
    progress: Progress | None = None,
    code: bool = True,
) -> Explanation:
    """Where the time of a variant goes, and what would shorten it, each change simulated.

    The variant runs again for a few steps, as it is and with one change at a time: nothing is written.

    Parameters
    ----------
    run
        A finished run, or its folder.
    variant
        Name of the variant, or "variant/job"; by default the winner of the run's answer.
    progress
        As for `run`.
    code
        Whether Python files that the scenario names may run.

    Raises
    ------
    DataError
        The folder is not a finished run, there is no such variant, or it did not pass its checks.
    ScenarioError
        The scenario cannot run again: a file that it names is not kept in the folder.
    """
    from netfold.sim.run.progress import silent
    from netfold.sim.studies.explain import explain_run

    return explain_run(_folder(run), variant, progress=progress or silent, code=code)


def _folder(run: Run | str | os.PathLike[str]) -> Path:
    return run.path if isinstance(run, Run) else Path(run)


# Validate a scenario without running it.


def validate(
    scenario: Given, *, set: Mapping[str, Any] | None = None, seed: int | None = None, code: bool = True
) -> dict[str, dict[str, Any]]:
    """Check a scenario; return the settings of every variant (or job, "variant/job") by name.

    All points of a sweep are checked; the settings are those of its first point.

    Settings are the sections of the scenario: each has the values that differ from their defaults, and the
    values that defaults resolve to on this network, such as the collective's `switch` and `timeout`.

    A model in a Python file that the scenario names is built, so its code runs, which a line on stderr says;
    with `code=False` it is refused.

    Raises
    ------
    ScenarioError
        All mistakes in it, or the reason why it cannot run on its network.
    """
    with running_code(code):
        loaded = load_scenario(scenario_of(scenario), sets_of(set), seed)
        if loaded.sweep is not None:
            from netfold.sim.studies.sweep_points import points_of
            from netfold.sim.studies.sweep_workers import own_versions

            points_of(loaded, own_versions())
        return setups(resolve(loaded))


def calibrate(file: str | Path = "cpu.json", threads: int = 1) -> Path:
    """Measure this machine's processor, and write a device file that scenarios can name; returns its path.

    Parameters
    ----------
    file
        Ends in .json.
    threads
        That PyTorch computes with, 1 or more.

    Raises
    ------
    NetfoldError
        The file's name does not end in .json, or it cannot be written.
    """
    from netfold.sim.studies.calibrate import calibrate as measured
    from netfold.sim.studies.calibrate import device_path, write_device

    path = device_path(Path(file))
    write_device(path, measured(threads, lambda what: None))
    return path
