"""Where results go: terminals, pipes, full disks, readers that went away."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from netfold.sim.commands.main import app
from netfold.sim.commands.terminal import print_json, print_table, progress_bar
from netfold.sim.run.run import run_scenario
from tests import ROOT
from tests.sim.scenes import write

SCENARIO = "scenarios/01-quickstart.yaml"
BOLD = "\x1b[1m"


def started(
    command: str, stdout: int = subprocess.PIPE, **variables: str
) -> subprocess.CompletedProcess[str]:
    """netfold in a process of its own, with its result going to a file descriptor or into `stdout`."""
    return subprocess.run(
        [sys.executable, "-m", "netfold", *command.split(" ")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **variables},
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
        check=False,
    )


def read_all(terminal: int) -> str:
    """What was written to a terminal whose other end is closed."""
    read = b""
    with contextlib.suppress(OSError):
        while more := os.read(terminal, 65536):
            read += more
    os.close(terminal)
    return read.decode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize("command", ["codecs", "schema", "--version"])
def test_a_result_that_cannot_be_written(command: str) -> None:
    with open("/dev/full", "w") as full:
        done = started(command, full.fileno())

    assert (done.returncode, done.stderr) == (1, "cannot write the result: No space left on device\n")


@pytest.mark.parametrize("command", ["codecs", "schema"])
def test_a_reader_that_goes_away(command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = started(command, writing)
    os.close(writing)

    assert (done.returncode, done.stderr) == (141, "")


def test_tables_are_as_wide_as_they_need_where_there_is_no_terminal() -> None:
    lines = started("switch profiles").stdout.splitlines()

    assert max(len(line) for line in lines) > 100
    assert "…" not in "".join(lines)
    assert lines == [line.rstrip() for line in lines]
    assert len({len(line) for line in lines if line[0] in "┏┃┡│└"}) == 1


def test_tables_are_as_wide_as_a_terminal_says() -> None:
    terminal, stdout = pty.openpty()
    done = started(f"topology show {SCENARIO}", stdout, COLUMNS="60")
    os.close(stdout)
    shown = read_all(terminal)

    assert done.returncode == 0
    assert 40 < max(len(line) for line in re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()) <= 60


def test_progress_without_a_terminal_is_a_line_for_each_thing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar() as progress:
        for text, done in (("ring", 0), ("ring", 1), ("switch", 2), ("writing the results", 3)):
            progress(text, done, 3)

    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == (
        "ring (0 of 3 steps done)\nswitch (2 of 3 steps done)\nwriting the results (3 of 3 steps done)\n"
    )


def test_colours_are_forced_and_refused() -> None:
    """FORCE_COLOR is for pipes into programs that show colours; NO_COLOR wins over it."""
    assert BOLD not in started("switch profiles").stdout
    assert BOLD in started("switch profiles", FORCE_COLOR="1").stdout
    assert "\x1b[3" not in started("switch profiles", NO_COLOR="1", FORCE_COLOR="1").stdout


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
        found = CliRunner().invoke(app, arguments).output
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


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams(tmp_path: Path, closed: str) -> None:
    """The run is written, and no file of it has what others print."""
    command = f"{sys.executable} -m netfold run {write(tmp_path)} --out {tmp_path} {closed}"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert (tmp_path / "latest" / "report.html").is_file()
