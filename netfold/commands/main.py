"""The command line. Results go to stdout, progress and errors to stderr.

Exit status: 0 success · 1 a check failed, a variant stalled, or the result cannot be written · 2 bad usage,
scenario or data · 3 a bug in netfold · 130 interrupted · 141 the reader of stdout closed it. Slow imports are
in the commands that need them, so that `--help` stays quick.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from netfold.commands.demo_command import demo
from netfold.commands.example_commands import examples, new
from netfold.commands.network_commands import switch, topology
from netfold.commands.study_commands import codecs, sweep
from netfold.commands.terminal import (
    RUNS,
    JsonOrTable,
    JsonOrText,
    NoCode,
    NoReport,
    Out,
    ScenarioFile,
    Seed,
    Sets,
    exit_with,
    print_error,
    print_json,
    print_line,
    print_table,
    progress_bar,
    report,
    report_printed,
    show,
    write_figure,
)
from netfold.commands.workload_commands import calibrate, capture, data, models
from netfold.errors import InvariantError, NetfoldError, escaped
from netfold.sim.results.metrics import SORTS

if TYPE_CHECKING:
    from netfold.sim.run.variant import Outcome
    from netfold.sim.scenario.load import Scenario


# The command that repeats a run that has shown a bug.


def installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("netfold")
    except PackageNotFoundError:
        return "(not installed)"


def reproducible(
    error: InvariantError, file: Path, sets: list[str] | None, seed: int | None, variants: list[str] | None
) -> InvariantError:
    return InvariantError(error.message, f"a bug; to reproduce: {_command(file, sets, seed, variants)}")


def _command(file: Path, sets: list[str] | None, seed: int | None, variants: list[str] | None) -> str:
    """The command that repeats a run, with netfold's version and the hash of the scenario."""
    import hashlib

    words = ["netfold", "run", str(file)]
    words += [word for text in sets or () for word in ("--set", text)]
    words += [] if seed is None else ["--seed", str(seed)]
    words += [word for name in variants or () for word in ("--variant", name)]
    version = f"# netfold {installed_version()}"
    if not file.is_file():  # standard input cannot be read again
        return f"{shlex.join(words)}   {version}"
    return f"{shlex.join(words)}   {version}, scenario sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}"


EXIT_BUG = 3
EXIT_INTERRUPTED = 130


class _Commands(TyperGroup):
    """Commands that report errors without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except NetfoldError as error:
            print_error(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            print_error("interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None


class _EscapedFormatter(logging.Formatter):
    """Logged lines without the control characters of files."""

    def format(self, record: logging.LogRecord) -> str:
        return escaped(super().format(record))


app = typer.Typer(
    name="netfold",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(new, name="new")
app.add_typer(topology, name="topology")
app.add_typer(data, name="data")
app.add_typer(models, name="models")
app.add_typer(switch, name="switch")
app.add_typer(codecs, name="codecs")
app.command()(examples)
app.command()(demo)
app.command()(report)
app.command()(sweep)
app.command()(calibrate)
app.command()(capture)


def _version(wanted: bool) -> None:
    if wanted:
        print_line(f"netfold {installed_version()}")
        raise typer.Exit


@app.callback()
def _netfold(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Emulate in-network aggregation of gradients: packets, switches, codecs and training."""
    handler = logging.StreamHandler()
    handler.setFormatter(_EscapedFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


VariantNames = Annotated[
    list[str] | None,
    typer.Option("--variant", metavar="NAME", help="Run only this variant; can be repeated."),
]
CheckpointSteps = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Write a checkpoint every N steps of a job, and after each variant."
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on from the checkpoint of a run that did not end.")
]
Native = Annotated[
    bool, typer.Option("--native", help="Be faster, and not reproducible on other processors.")
]
Columns = Annotated[
    str,
    typer.Option(
        metavar="METRIC,…", help="Columns of the table, or all; by default what answers the question."
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the answer, the verdict and the folder.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Explain every column, and all that is not modelled.")
]


@app.command()
def run(  # noqa: PLR0913  one argument an option
    file: ScenarioFile,
    sets: Sets = None,
    seed: Seed = None,
    out: Out = RUNS,
    variant: VariantNames = None,
    checkpoint: CheckpointSteps = None,
    resume: Resume = False,
    no_code: NoCode = False,
    native: Native = False,
    no_report: NoReport = False,
    columns: Columns = "",
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: JsonOrTable = False,
) -> None:
    """Run all variants of a scenario, write a run folder and, once the table is printed, its report.

    It begins with the answer: which variant comes first, and how far. The table has the columns that answer
    the question and fit into 100 characters; --columns shows others.

    A variant's verdict is pass, "pass: sums not checked" (packets carry no words), "pass: N % of sums
    checked" (some packets do), approximate (all checks hold, and the codec reports how many elements are
    estimates), fail (a check does not hold, or a codec cannot continue) or stalled (no traffic makes
    progress; the report says which workers wait for what). The run's verdict is the worst of its variants;
    fail is worse than stalled. The exit status is 0 if all variants pass or are approximate, otherwise 1.

    If a run ends early (Ctrl-C, out of memory, a full disk), netfold prints the table of the finished
    variants and keeps their results in a folder with "unfinished" in its name.

    With --checkpoint N a run can be killed at any moment: the same command with --resume goes on from the
    last checkpoint, and the run folder is the same, byte for byte, as without the stop (except run.json).

    A scenario may name a Python file (model: ./mine.py:make), whose code then runs with your rights. A line
    on stderr says so; with --no-code the scenario is refused.

    Training computes with AVX2 alone, so that results do not depend on what else a processor has.
    With --native PyTorch uses all that this processor has, and the result says that others get other bits.
    """
    scenario = _read_scenario(file, sets, seed, no_code)
    from netfold.kernels.processor import pin
    from netfold.sim.report.columns import require_metrics

    require_metrics(columns)
    if not native:
        pin()
    from netfold.sim.results.summary import GOOD, kind
    from netfold.sim.run.checkpoint import Checkpoints
    from netfold.sim.run.run import run_scenario

    try:
        with progress_bar() as progress:
            checkpoints = Checkpoints(checkpoint or 0, resume) if checkpoint or resume else None
            names = tuple(variant or ())
            outcome = run_scenario(scenario, tuple(sets or ()), seed, out, progress, names, checkpoints)
    except InvariantError as error:
        raise reproducible(error, file, sets, seed, variant) from error
    if as_json:
        print_json(outcome.as_dict())
    elif quiet:
        _print_answer(outcome)
    else:
        _print_outcome(outcome, columns, verbose)
    if isinstance(outcome.stopped, InvariantError):
        raise reproducible(outcome.stopped, file, sets, seed, variant)
    if outcome.stopped is not None:
        raise outcome.stopped
    assert outcome.run_dir is not None
    is_good = kind(outcome.summary["verdict"]) in GOOD
    if is_good and not (as_json or quiet):
        print_line(f"Advice: netfold explain {shlex.quote(str(outcome.run_dir))}")
    report_printed(outcome.run_dir, not no_report, as_json or quiet)
    exit_with(is_good)


@app.command()
def validate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Scenario files; - for standard input.")
    ],
    sets: Sets = None,
    no_code: NoCode = False,
) -> None:
    """Check scenario files without running them.

    A model in a Python file that a scenario names (model: ./mine.py:make) is built to check it, so its code
    runs. A line on stderr says so; with --no-code the scenario is refused.
    """
    from netfold.sim.scenario.load import load, running_code
    from netfold.sim.scenario.resolve import resolve

    wrong = False
    for file in files:
        try:
            with running_code(not no_code):
                scenario = load(file, sets or ())
                points = _points(scenario) if scenario.sweep else ""
                names = scenario.variants if points else resolve(scenario).variants
            print_line(f"{file}: fine, variants: {', '.join(variant.name for variant in names)}{points}")
        except NetfoldError as error:
            print_error(error)
            wrong = True
    if wrong:
        raise typer.Exit(NetfoldError.exit_code)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Baseline of the ratios: a run folder, its number in the table, or a variant; by default "
            "the first run or, of a single run, its own baseline.",
        ),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            metavar="METRIC",
            help=f"Rank by {', '.join(SORTS)}; or given, the order of the runs.",
        ),
    ] = "aggregation",
    draw: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the ranking as a figure (SVG), too.")
    ] = None,
    as_json: JsonOrTable = False,
) -> None:
    """Rank the variants of one or more runs, and name the bottleneck of each.

    Variants of equal workload are ranked and divided, by the baseline's variant of the same name. The
    bottleneck is the largest part of the aggregation time: a link or loopback port that is always busy, slots
    or windows that are full, retransmission timers, latency, the workers' devices, a straggler, or merging on
    hosts.
    """
    from netfold.sim.report.compare import compare as compare_runs

    comparison = compare_runs(runs, baseline, sort)
    if draw is not None:
        write_figure(draw, comparison.draw())
    show(comparison, as_json)


@app.command()
def explain(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    variant: Annotated[
        str, typer.Argument(metavar="VARIANT", help="By default the winner of the run's answer.")
    ] = "",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List all changes, with the reasons of those refused.")
    ] = False,
    no_code: NoCode = False,
    as_json: JsonOrText = False,
) -> None:
    """Say where the time of a variant goes, and what would shorten it.

    The shares of a step are those of its critical path, from the tables of the run. Changes that make sense
    for it (more slots, another frame, chunk, tree, codec or collective, overlap, a higher rate) are simulated
    one at a time, for a few steps with the same seed, beside the variant as it is: a gain is computed, not
    guessed. A change that saves less than 2 % is no advice. Settings come first, then what needs other
    hardware, then what changes the sums. Each has the command that applies it. Nothing is written.
    """
    from netfold.sim.studies.explain import explain_run

    with progress_bar() as progress:
        result = explain_run(run_folder, variant, progress=progress, code=not no_code, is_verbose=verbose)
    show(result, as_json)


@app.command()
def warm() -> None:
    """Compile all kernels now, once, so that no later command waits for them."""
    from netfold.sim.studies.warm import warm as compile_ahead

    with progress_bar() as progress:
        runs = compile_ahead(progress)
    print_line(f"compiled what every codec, collective and switch program needs, by {runs} small runs")


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files."""
    from netfold.sim.scenario.load import schema as scenario_schema

    print_json(scenario_schema())


def _read_scenario(file: Path, sets: list[str] | None, seed: int | None, no_code: bool) -> Scenario:
    """A scenario file, read before slow imports."""
    from netfold.sim.scenario.load import load, running_code

    with running_code(not no_code):
        return load(file, sets or (), seed)


def _points(scenario: Scenario) -> str:
    """How many points the sweep of a scenario has; checks all of them."""
    from netfold.sim.studies.sweep_points import points_of, swept
    from netfold.sim.studies.sweep_workers import own_versions

    return swept(points_of(scenario, own_versions()))


def _print_outcome(outcome: Outcome, columns: str, is_verbose: bool) -> None:
    """Print the table of a run, what fails, what is not modelled and, if it was stopped, what is missing."""
    from netfold.kernels.processor import note_of
    from netfold.sim.report.compare import results_table
    from netfold.sim.run.run import not_modelled

    result = outcome.as_dict()
    print_table(results_table(result, note_of(result), columns, is_verbose))
    _print_failures(outcome)
    for line in not_modelled(outcome, is_verbose):
        print_line(line)
    if outcome.stopped is not None:
        print_line("\n".join(outcome.place()))


def _print_answer(outcome: Outcome) -> None:
    """Print the answer of a run, its verdict, what fails, and where the results are."""
    for answer in outcome.summary.get("answer", ()):
        if answer["text"]:
            print_line(answer["text"])
    print_line(f"verdict: {outcome.summary['verdict']}; results: {outcome.run_dir}")
    _print_failures(outcome)
    if outcome.stopped is not None:
        print_line("\n".join(outcome.place()))


def _print_failures(outcome: Outcome) -> None:
    from netfold.sim.results.summary import GOOD, kind

    for variant in outcome.summary["variants"]:
        for check in variant["checks"]:
            if kind(check["verdict"]) not in GOOD:
                print_line(f"{variant['name']}: {check['name']}: {check['verdict']}: {check['detail']}")


def main() -> None:
    """Entry point of the `netfold` command; an unexpected exception is a bug and keeps its traceback."""
    for name in ("stdout", "stderr"):  # None where the shell has closed it: netfold run FILE >&-
        if getattr(sys, name) is None:
            # It also takes the descriptor, which a file of the run would get, with all that others print.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  until the end
    try:
        app(prog_name="netfold")
    except Exception:
        print_error(traceback.format_exc())
        sys.exit(EXIT_BUG)
