"""What a run folder holds, what it is called, and that the same run gives the same bytes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from netfold.errors import DataError
from netfold.sim import files as durable
from netfold.sim.files import remove_stale_partials, write_file, write_folder
from netfold.sim.results.file_formats import TABLES, schema, to_parquet
from netfold.sim.results.folder import load, write_run
from tests import ROOT
from tests.command_line import run_python
from tests.examples import nightly
from tests.sim.results.builders import LOSSLESS, RING, SCENARIO, phases, run_data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With files that the scenario names."""
    extra = {"my net.json": b"{}", "graphs/b.json": b"b"}
    return write_run(tmp_path_factory.mktemp("runs"), run_data(sets=("seed=7",), extra_files=extra))


def test_files(folder: Path) -> None:
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    names = ("faults", "links", "nodes", "notes", "phases", "rounds", "series", "steps")
    texts = {"checks.json", "run.json", "scenario.yaml", "summary.json"}
    assert files == {f"{name}.parquet" for name in names} | texts | {"my net.json", "graphs/b.json"}
    command = b"# netfold run scenario.yaml --seed 7 --set seed=7\n"
    assert (folder / "scenario.yaml").read_bytes() == SCENARIO + command
    assert (folder / "my net.json").read_bytes() == b"{}"
    assert (folder / "graphs" / "b.json").read_bytes() == b"b"


def test_summary_says_what_was_run(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_bytes())

    keys = "approximations format injected scenario seed sets tables variants verdict warnings"
    assert list(summary) == keys.split()
    assert (summary["scenario"], summary["seed"], summary["sets"]) == ("quick", 7, ["seed=7"])


def test_run_json_holds_what_may_vary(folder: Path) -> None:
    circumstances = json.loads((folder / "run.json").read_bytes())

    assert set(circumstances) == {
        *("version", "seed", "scenario_sha256", "started_at", "wall_s", "engine"),
        *("host", "platform", "python", "packages", "isa", "pinned"),
    }
    assert circumstances["started_at"] == "2026-11-21T19:12:51+00:00"
    assert circumstances["scenario_sha256"] == hashlib.sha256(SCENARIO).hexdigest()
    assert circumstances["packages"]["polars"] == pl.__version__


def test_tables_read_back_as_the_records_were(folder: Path) -> None:
    run = load(folder)

    assert run.phases.rows() == [
        tuple(getattr(record, name) for name in schema(TABLES["phases"]))
        for fake in (RING, LOSSLESS)
        for record in phases(fake)
    ]
    assert run.steps.schema["loss"] == pl.Float64
    assert run.rounds.schema["bit_exact"] == run.rounds.schema["merges_verified"] == pl.Boolean
    assert run.links.schema["bytes"] == pl.Int64
    assert run.checks[0]["name"] == "sum_is_right"


@pytest.mark.parametrize("name", TABLES)
def test_empty_tables_keep_their_columns(name: str) -> None:
    frame = pl.read_parquet(to_parquet(TABLES[name], []))

    assert frame.schema == schema(TABLES[name])
    assert frame.is_empty()


def test_folders_are_named_by_utc_and_never_overwritten(tmp_path: Path) -> None:
    later = datetime(2026, 11, 21, 20, 12, 51, tzinfo=timezone(timedelta(hours=1)))
    written = [write_run(tmp_path, run_data(started_at=later)) for _ in range(3)]

    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "quick/2026-11-21T19-12-51-seed7",
        "quick/2026-11-21T19-12-51-seed7-2",
        "quick/2026-11-21T19-12-51-seed7-3",
    ]
    assert (tmp_path / "latest").resolve() == written[-1].resolve()
    assert os.readlink(tmp_path / "latest") == "quick/2026-11-21T19-12-51-seed7-3"


def test_a_name_taken_in_the_last_moment_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = os.rename

    def slower_than_another(source: Path, target: Path) -> None:
        if not target.name.endswith("-2"):
            target.mkdir()
            (target / "theirs").touch()
        rename(source, target)

    monkeypatch.setattr(os, "rename", slower_than_another)
    written = write_run(tmp_path, run_data())

    assert written.name == "2026-11-21T19-12-51-seed7-2"


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENOSPC, "No space left on device"), (errno.EROFS, "Read-only file system")]
)
def test_a_run_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        if path.suffix == ".parquet":
            raise OSError(number, os.strerror(number))
        write_file(path, data)

    monkeypatch.setattr(durable, "write_file", refuse)
    with pytest.raises(DataError) as caught:
        write_run(tmp_path, run_data())

    assert str(caught.value) == (
        f"cannot write {tmp_path}: {reason}\n  free space, or give another folder with --out"
    )
    assert list((tmp_path / "quick").iterdir()) == []
    assert not (tmp_path / "latest").exists()


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_file(tmp_path / "latest.txt", b"quick")

    assert list(tmp_path.iterdir()) == []


EXTRA = (
    "cannot keep the file '{}' in a run folder\n"
    "  use a relative path without parts that begin with '.', and not scenario.yaml, run.json, summary.json, "
    "checks.json, steps.parquet, rounds.parquet, notes.parquet, phases.parquet, links.parquet, "
    "faults.parquet, nodes.parquet, series.parquet, report.html, figures, arrays"
)
NAMED = (
    "cannot name a results folder after the scenario '{}'\n"
    "  use letters, digits, '.', '_' and '-', begin with a letter or digit, and not 'latest'"
)
PLACES = ("", "..", ".x", "a\\b", "summary.json", "Report.html", "steps.parquet")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        *(({"extra_files": {name: b""}}, EXTRA.format(name)) for name in PLACES),
        *(({"scenario_name": name}, NAMED.format(name)) for name in ("latest", "", "..", ".x", "latest.txt")),
    ],
)
def test_names_that_a_folder_of_runs_cannot_have(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(text)}$"):
        write_run(tmp_path, run_data(**changes))
    assert list(tmp_path.iterdir()) == []


def test_numbers_from_numpy_are_written_as_numbers(tmp_path: Path) -> None:
    record = phases(RING)[0]
    values = {name: getattr(record, name) for name in schema(TABLES["phases"])}
    numpy_record = TABLES["phases"](**(values | {"start_ps": np.int64(5), "payload_bytes": np.int32(3)}))
    frame = pl.read_parquet(to_parquet(TABLES["phases"], [numpy_record]))

    assert frame.select("start_ps", "payload_bytes").row(0) == (5, 3)


def test_a_folder_is_held_while_it_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run that takes every process for dead does not remove it."""
    monkeypatch.setattr("netfold.sim.files._is_alive", lambda pid: False)

    def fill(folder: Path) -> None:
        remove_stale_partials(tmp_path)
        (folder / "x").touch()

    assert [path.name for path in write_folder(tmp_path / "run", fill).iterdir()] == ["x"]


def test_a_folder_that_is_removed_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir, removed = os.mkdir, list[Path]()

    def removing(path: Path, *mode: int) -> None:
        mkdir(path, *mode)
        if len(removed) < 3:
            removed.append(path)
            shutil.rmtree(path)

    monkeypatch.setattr(os, "mkdir", removing)
    write_folder(tmp_path / "run", lambda folder: (folder / "x").touch())

    assert len(removed) == 3
    assert [path.name for path in tmp_path.rglob("*")] == ["run", "x"]


@pytest.mark.parametrize("is_taken", [False, True])
def test_where_latest_cannot_be_a_link_it_is_a_text_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_taken: bool
) -> None:
    """Another file that is called so is left alone."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if is_taken:
        (tmp_path / "latest").write_text("keep")
    else:
        monkeypatch.setattr(os, "symlink", refuse)
    written = write_run(tmp_path, run_data())

    assert (tmp_path / "latest.txt").read_text() == "quick/2026-11-21T19-12-51-seed7\n"
    assert load(tmp_path / "latest").path == load(tmp_path / "latest.txt").path == written
    assert (tmp_path / "latest").exists() == is_taken
    assert not is_taken or (tmp_path / "latest").read_text() == "keep"


HOLDS = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
def test_only_folders_of_dead_processes_of_this_machine_that_nobody_holds_are_removed(tmp_path: Path) -> None:
    """Held as of a run in another container with the same host name, whose process ids mean nothing here."""
    dead = subprocess.Popen([sys.executable, "-S", "-c", ""])
    dead.wait()
    names = {
        f".partial-{platform.node()}-{dead.pid}-0": False,
        f".partial-{platform.node()}-{dead.pid}-1": True,  # is held
        f".partial-{platform.node()}-{os.getpid()}-7": True,
        f".partial-{platform.node()}-{os.getppid()}-0": True,
        f".partial-{platform.node()}-other-{dead.pid}-0": True,
        "notes": True,
    }
    live, *_ = (tmp_path / "quick" / name for name in names if name.endswith(f"{dead.pid}-1"))
    for name in names:
        (tmp_path / "quick" / name / "figures").mkdir(parents=True)
    (tmp_path / f".partial-{platform.node()}-{dead.pid}-0").symlink_to("quick")
    with subprocess.Popen(
        [sys.executable, "-S", "-c", HOLDS, str(live)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holds\n"
        write_run(tmp_path, run_data())
        assert {name: (tmp_path / "quick" / name).exists() for name in names} == names
        assert holder.stdin is not None
        holder.stdin.close()
    remove_stale_partials(tmp_path / "quick")
    assert not live.exists()
    assert not list(tmp_path.glob(".partial-*"))


def test_a_renamed_metric_names_the_new_ones(tmp_path: Path) -> None:
    metrics = load(write_run(tmp_path, run_data())).summary["variants"][0]["metrics"]

    assert metrics["bit_exact"] is True
    with pytest.raises(KeyError, match="exact: since format 3, see bit_exact and merges_verified"):
        metrics["exact"]
    with pytest.raises(KeyError, match=r"^'other'$"):
        metrics["other"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("options", [[], pytest.param(["--before"], marks=nightly)])
def test_a_run_that_is_killed_at_any_file_operation(tmp_path: Path, options: list[str]) -> None:
    done = run_python("-m", "tests.sim.results.killed", tmp_path, *options, cwd=ROOT)
    attempts = [json.loads(line) for line in done.stdout.splitlines()]

    # Ten files, a figure and the page are two operations each, the folders and the rename are more.
    assert attempts[-1]["number"] > 24
    assert [one for one in attempts if one["unreadable"] or one["half"]] == []
    assert all(one["latest_is_readable"] for one in attempts)
    # Runs appear only at the rename.
    visible = [one["visible"] for one in attempts]
    first_late = next(index for index, count in enumerate(visible) if count > 1)
    assert visible[:first_late] == [1] * first_late
    assert visible[first_late:] == list(range(2, 2 + len(visible) - first_late))
    assert attempts[first_late]["after"]
    # What a killed run left is removed by the next.
    assert all(one["hidden"] <= 1 for one in attempts)
    assert attempts[-1]["hidden"] == 0
