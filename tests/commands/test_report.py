"""When reports are written: once results are printed or asked for; and what a report that fails leaves."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import pytest
import typer.main
from rich.table import Table
from rich.text import Text
from typer.testing import Result

import netfold
from netfold.commands.listings import profiles_table
from netfold.commands.main import app
from netfold.commands.study_commands import _duration, _progress
from netfold.commands.terminal import (
    EXIT_BROKEN_PIPE,
    EXIT_CANNOT_WRITE,
    print_json,
    print_line,
    print_table,
    progress_bar,
    under_way,
    write_figure,
)
from netfold.errors import NetfoldError
from netfold.sim import files as durable
from netfold.sim.run.run import run_scenario
from netfold.sim.studies.sweep import Ended
from tests import ROOT
from tests.command_line import run_command, run_python
from tests.examples import PROFILE, nightly
from tests.sim.scenes import TINY, write
from tests.sim.studies.sweep_scene import BASE, GRID, Inline, use_inline

OVER = ("--over", "workers=2,3")


@pytest.fixture
def command(tmp_path: Path, plain: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run or sweep a small scenario, with pages without figures."""
    monkeypatch.setattr("netfold.sim.studies.sweep_output.sweep_figures", lambda grid: {})
    use_inline(monkeypatch, Inline())

    def invoke(name: str, *words: str) -> Result:
        over = OVER if name == "sweep" else ()
        out = ("--out", str(tmp_path / "runs"))
        return run_command(name, write(tmp_path), *over, *out, *words)

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
    assert {
        "run": "Not modelled: 7 simplifications; -v lists them\n",
        "sweep": "tiny: 2 points done: pass\n",
    }[name] in table
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
    metric = {"run": "bounds", "sweep": "packets"}[name]
    picture = tmp_path / "picture.svg"
    assert run_command("report", folder, "--figure", metric, "--out", picture).output == f"{picture}\n"
    assert picture.read_bytes().endswith(b"</svg>\n")
    assert run_command("report", folder, "--out", picture).exit_code == 2  # no figure is named
    assert drawn(tmp_path) == []
    asked = run_command(*result.stdout.split("netfold ")[-1].split())
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
    latest = tmp_path / "runs" / "latest"
    assert latest.resolve() == folder.resolve()
    assert run_command("report", folder).output == f"{folder}/report.html\n"
    latest.unlink()  # as where there are no links
    latest.with_suffix(".txt").write_text(f"{folder.relative_to(latest.parent)}\n", "utf-8")
    assert run_command("report", latest).output == f"{folder}/report.html\n"


def test_several_runs_have_one_page_in_a_folder_of_its_own(
    command: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for out in ("a", "b"):
        assert run_command("run", write(tmp_path), "--no-report", "--out", tmp_path / out).exit_code == 0
    runs, page = (tmp_path / "a" / "latest", tmp_path / "b" / "latest"), tmp_path / "page"

    assert run_command("report", *runs, "--out", page).output == f"{page}/report.html\n"
    assert {path.name for path in tmp_path.rglob("report.html")} == {"report.html"}
    monkeypatch.chdir(tmp_path)
    assert (
        run_command("report", *runs, "--figure", "throughput").output
        == "comparison/figures/throughput-3.3in.pdf\n"
    )
    figure = tmp_path / "throughput.svg"
    assert run_command("report", *runs, "--figure", "throughput", "--out", figure).output == f"{figure}\n"
    assert figure.read_bytes().startswith(b"<?xml")
    alone = run_command("report", runs[0], "--out", page)
    assert (alone.exit_code, "the report of one run is in its folder" in alone.output) == (2, True)


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


BOLD = "\x1b[1m"


def printed(monkeypatch: pytest.MonkeyPatch, descriptor: int, table: Table) -> None:
    """Print a table where a descriptor leads, and close it."""
    with open(descriptor, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        print_table(table)


def status(monkeypatch: pytest.MonkeyPatch, stdout: IO[str]) -> int:
    """The exit status of a command whose result cannot be written."""
    monkeypatch.setattr(sys, "stdout", stdout)
    with pytest.raises(typer.Exit) as ended:
        print_line("a result")
    return ended.value.exit_code


def read_all(terminal: int) -> str:
    """What was written to a terminal or a pipe whose other end is closed."""
    read = b""
    with contextlib.suppress(OSError):
        while more := os.read(terminal, 65536):
            read += more
    os.close(terminal)
    return read.decode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_result_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        assert status(monkeypatch, full) == EXIT_CANNOT_WRITE

    assert capsys.readouterr().err == "cannot write the result: No space left on device\n"


def test_a_reader_that_goes_away(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stdout:
        assert status(monkeypatch, stdout) == EXIT_BROKEN_PIPE

    assert capsys.readouterr().err == ""


def test_tables_are_as_wide_as_they_need_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    printed(monkeypatch, writing, profiles_table())
    lines = read_all(reading).splitlines()

    assert max(len(line) for line in lines) > 100
    assert "…" not in "".join(lines)
    assert lines == [line.rstrip() for line in lines]
    assert len({len(line) for line in lines if line[0] in "┏┃┡│└"}) == 1


def test_tables_are_as_wide_as_a_terminal_says(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, stdout = pty.openpty()
    monkeypatch.setenv("COLUMNS", "60")
    table = Table("name", "words")
    table.add_row("a", "b " * 60)
    printed(monkeypatch, stdout, table)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", read_all(terminal))

    assert 40 < max(len(line) for line in shown.splitlines()) <= 60


@pytest.mark.parametrize("every_s", [10.0, 0.0])
def test_progress_without_a_terminal_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], every_s: float
) -> None:
    """What ends at once is not worth further lines."""
    monkeypatch.setattr("netfold.commands.terminal.LOG_EVERY_S", every_s)
    with progress_bar() as progress:
        for text, done in (("ring", 0), ("switch", 2), ("writing the results", 3)):
            progress(text, done, 3)

    told = capsys.readouterr()
    assert told.out == ""
    others = "switch (2 of 3 steps done)\nwriting the results (3 of 3 steps done)\n"
    assert told.err == f"ring (0 of 3 steps done)\n{others if every_s == 0 else ''}"


def test_a_sweep_without_a_terminal_says_how_far_it_is_while_no_point_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr("netfold.commands.study_commands.print_error", told.put)
    monkeypatch.setattr("netfold.commands.study_commands.POINTS_EVERY_S", 0.01)
    with _progress() as show:
        assert told.get(timeout=60) == "no point done after 1 s"
        show(Ended("workers=2", "pass", 1.0, 1, 4, 7200.0))
        lines = iter(partial(told.get, timeout=60), "no such line")
        line = next(line for line in lines if not line.startswith("no point"))
        assert line == "point 1 of 4: workers=2: pass, 1.0 s, about 2.0 h left"
        assert re.fullmatch(r"1 of 4 points done after \d+ s, about 2\.0 h left", next(lines))


def test_progress_on_a_terminal_is_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar() as progress:
        progress("ring", 1, 3)
    with under_way("looks for places"):
        pass
    with _progress() as show:
        show(Ended("workers=2", "pass", 1.0, 1, 4, 100.0))

    told = capsys.readouterr()
    assert told.out == ""
    for text in ("ring", "looks for places", "1/4", "about 2 min left"):
        assert text in told.err
    assert [_duration(left_s) for left_s in (0.2, 89, 100, 9000)] == ["1 s", "89 s", "2 min", "2.5 h"]


def test_a_figure_is_written_or_it_is_said_why_not(tmp_path: Path) -> None:
    write_figure(tmp_path / "a.svg", b"<svg/>")

    assert (tmp_path / "a.svg").read_bytes() == b"<svg/>"
    for path, svg, told in (
        ("a.png", b"", r"a\.png: figures are SVG\n  use a\.svg"),
        ("b.svg", None, r"b\.svg: nothing to draw\n  no variant has finished a step"),
        ("a.svg/b.svg", b"", r"b\.svg: Not a directory\n  give another file with --draw"),
    ):
        with pytest.raises(NetfoldError, match=told):
            write_figure(tmp_path / path, svg)


def test_colours_are_forced_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """FORCE_COLOR is for pipes into programs that show colours; NO_COLOR wins over it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = Table("name")
    table.add_row(Text("red", style="red"))
    shown = []
    for variable in ("COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.setenv(variable, "80")
        reading, writing = os.pipe()
        printed(monkeypatch, writing, table)
        shown.append(read_all(reading))

    assert [(BOLD in text, "\x1b[31m" in text) for text in shown] == [
        *((False, False), (True, True), (True, False))
    ]


ESCAPES = "\x1b]0;PWN\x07 \x9b31m \x7f"
SHOWN = "\\u001b]0;PWN\\u0007 \\u009b31m \\u007f"


def test_control_characters_of_files_are_shown(tmp_path: Path) -> None:
    """In an error, and in the lines and cells of another's run."""
    text = f"""
name: tiny
workers: 2
topology: {{kind: star, hosts: 2}}
workload: {{kind: synthetic, elements: 100}}
codec: {{kind: none}}
collective: {{kind: ring}}
published: [{{label: {json.dumps(ESCAPES)}, elements_per_s: 1e9, source: {json.dumps(ESCAPES)}}}]
"""
    (tmp_path / "t.yaml").write_text(text)
    outcome = run_scenario(tmp_path / "t.yaml", (), None, tmp_path, lambda *_: None)
    assert outcome.run_dir is not None
    summary = outcome.run_dir / "summary.json"
    summary.write_text(summary.read_text().replace('"where": "', f'"where": {json.dumps(ESCAPES)[:-1]}'))
    wrong = f"workload={{kind: file, path: {json.dumps(ESCAPES)}}}"
    for arguments in (
        ["run", str(tmp_path / "t.yaml"), "--out", str(tmp_path), "--no-report"],
        ["compare", str(outcome.run_dir)],
        ["validate", str(tmp_path / "t.yaml"), "--set", wrong],
    ):
        found = run_command(*arguments).output
        assert not set("\x1b\x07\x7f\x9b") & set(found)
        assert arguments[0] == "compare" or "\\u001b]0;PWN" in found


def test_cells_of_tables_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(ESCAPES, title=ESCAPES)
    table.add_row(Text(ESCAPES))
    inside = Table("inside")
    inside.add_row(ESCAPES)
    table.add_row(inside)
    print_table(table)
    found = capsys.readouterr().out

    assert found.count(SHOWN.replace("\\u0007", "")) == 4  # rich takes some out itself
    assert not set("\x1b\x07\x9b\x7f") & set(found)


def test_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"label": ESCAPES})
    found = capsys.readouterr().out

    assert json.loads(found) == {"label": ESCAPES}
    assert "\x7f" not in found


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    "closed", ["<&- >&- 2>&-", *(pytest.param(one, marks=nightly) for one in (">&-", "2>&-", ">&- 2>&-"))]
)
def test_closed_streams(tmp_path: Path, closed: str) -> None:
    """The run is written, and no file of it has what others print."""
    command = f"{sys.executable} -m netfold run {write(tmp_path)} --no-report --out {tmp_path} {closed}"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert (tmp_path / "latest" / "summary.json").is_file()


INTERRUPTED = """
import os, runpy, signal, sys
from importlib.abc import MetaPathFinder

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[-1]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
runpy.run_module("netfold", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    "module",
    [
        "netfold.commands.study_commands",
        *(pytest.param(one, marks=nightly) for one in ("netfold.commands.main", "typer")),
    ],
)
def test_an_interrupt_is_answered_while_modules_are_imported(module: str) -> None:
    done = run_python("-c", INTERRUPTED, module, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


OWN_MODEL = "17-bring-your-own-model"
OF_ALL_DAYS = (  # steps and jobs, networks, codecs, trainings; by night all scenarios
    "02-loss",
    "03-two-jobs-one-switch",
    "07-lossless",
    "11-compare-topologies",
    "15-time-to-accuracy",
    "16-overlap-and-fusion",
    OWN_MODEL,
    "18-jobs-that-come-and-go",
)
SCENARIOS = sorted(
    str(path)
    for path in (ROOT / "scenarios").rglob("*.yaml")
    if PROFILE == "nightly" or path.stem in OF_ALL_DAYS
)
# A tenth of a second or more each.
HEAVY = ("numba", "torch", "polars", "matplotlib", "pandas", "simpy", "rich")
HEAVIER = (*HEAVY, "numpy", "networkx", "ruamel.yaml")  # of help
BELOW = {  # commands by the words before them
    "": "demo run sweep validate compare report explain schema warm topology data models capture codecs "
    "switch calibrate examples new",
    "topology": "list show measure size export",
    "data": "list fetch",
    "models": "list show measure",
    "codecs": "matrix study",
    "switch": "profiles programs fit",
    "new": "scenario model",
}
COMMANDS = [[], *([*group.split(), name] for group, names in BELOW.items() for name in names.split())]
# Prints the status of every command, and which of some modules are there after it.
PROGRAM = """
import json, sys, netfold.commands.main
for words, heavy in json.loads(sys.argv[1]):
    sys.argv = ["netfold", *words]
    status = 0
    try:
        netfold.commands.main.main()
    except SystemExit as stop:
        status = stop.code
    print(f"STATUS {status} {[name for name in heavy if name in sys.modules]}", flush=True)
"""


@pytest.mark.slow
@pytest.mark.processes
def test_what_answers_at_once_imports_nothing_that_takes_long() -> None:
    """Help, mistakes in typing, and the check of scenarios: one after the other in a process."""
    others, own = ([one for one in SCENARIOS if (OWN_MODEL in one) is own] for own in (False, True))
    asked: list[tuple[list[str], tuple[str, ...], str]] = [
        (["--help"], (*HEAVIER, "pydantic"), "0 []"),
        *(([*words, "--help"], HEAVIER, "0 []") for words in COMMANDS[1:]),
        (["vlidate"], HEAVIER, "2 []"),
        (["validate", "--st", "a=1", "x"], HEAVIER, "2 []"),
        (["validate", "none.yaml"], HEAVY, "2 []"),
        (["run", "none.yaml"], HEAVY, "2 []"),
        (["validate", *others], HEAVY, "0 []"),
        (["validate", *own], ("torch",), "0 ['torch']"),
    ]
    done = run_python("-c", PROGRAM, json.dumps([(words, heavy) for words, heavy, _ in asked]))

    found = re.findall(r"^STATUS (.*)$", done.stdout, re.MULTILINE)
    assert list(zip([words for words, *_ in asked], found, strict=True)) == [
        (words, expected) for words, _, expected in asked
    ]
    assert done.stdout.count("Usage: netfold") == len(COMMANDS)
    assert done.stdout.count(": fine, variants: ") == len(SCENARIOS) > 6


# Whether a class was prepared to read mappings.
WATCHED = """
from netfold.sim import keys
prepared, adapter_of = [], keys._adapter_of
keys._adapter_of = lambda option: prepared.append(option.__name__) or adapter_of(option)
"""
PREPARED = """
print(sorted({"GradientFile", "Synthetic", "Training"} & set(prepared)))
"""


@pytest.mark.slow
@pytest.mark.processes
def test_a_run_imports_only_what_its_scenario_names_and_its_report_none_of_it(tmp_path: Path) -> None:
    words = ["run", str(write(tmp_path)), "--no-report", "--out", str(tmp_path / "runs")]

    done = run_python(
        "-c", WATCHED + PROGRAM + PREPARED, json.dumps([(words, ("torch", "matplotlib", "jinja2", "PIL"))])
    )

    assert done.stdout.splitlines()[-2:] == ["STATUS 0 []", "['Synthetic']"]
    heavy = ("numba", "torch", "simpy", "ruamel.yaml", "netfold.sim.collectives", "netfold.sim.scenario")

    done = run_python("-c", PROGRAM, json.dumps([(["report", str(tmp_path / "runs" / "latest")], heavy)]))

    assert done.stdout.splitlines()[-1:] == ["STATUS 0 []"]


def test_the_list_of_commands_is_whole() -> None:
    def walk(group: Any, words: list[str]) -> list[list[str]]:
        below = getattr(group, "commands", {})
        return [words, *(found for name, one in below.items() for found in walk(one, [*words, name]))]

    assert sorted(COMMANDS) == sorted(walk(typer.main.get_command(app), []))
