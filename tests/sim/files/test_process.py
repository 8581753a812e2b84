"""netfold in threads, and in processes that were forked."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import netfold
from netfold.sim.files.durable import claim, write_file, write_folder
from tests import ROOT
from tests.examples import nightly
from tests.sim.scenes import TINY

THREADS, RUNS = 4, 1
TABLES = ("summary.json", "checks.json", "steps", "rounds", "phases", "links", "nodes", "notes", "faults")


def tables(folder: Path) -> dict[str, bytes]:
    names = [name if name.endswith(".json") else f"{name}.parquet" for name in TABLES]
    return {name: (folder / name).read_bytes() for name in names}


def in_threads(work: object) -> list[BaseException]:
    """Call a function with the number of each thread, at the same time; what was raised."""
    raised: list[BaseException] = []
    gate = threading.Barrier(THREADS)

    def one(number: int) -> None:
        try:
            gate.wait()
            work(number)  # type: ignore[operator]
        except BaseException as error:
            raised.append(error)

    started = [threading.Thread(target=one, args=(number,)) for number in range(THREADS)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return raised


def test_runs_in_threads_equal_a_lone_one(tmp_path: Path) -> None:
    alone = netfold.run(f"{TINY}\n", out=tmp_path / "alone")
    folders: list[Path] = []

    def work(number: int) -> None:
        folders.extend(netfold.run(f"{TINY}\n", out=tmp_path / "runs").path for _ in range(RUNS))

    assert in_threads(work) == []
    assert len({*folders}) == THREADS * RUNS
    assert all(tables(folder) == tables(alone.path) for folder in folders)
    assert netfold.load(tmp_path / "runs" / "latest").path in [folder.resolve() for folder in folders]
    assert not list((tmp_path / "runs").rglob(".*"))


def test_threads_write_folders_beside_each_other(tmp_path: Path) -> None:
    made: list[Path] = []

    def work(number: int) -> None:
        made.extend(
            write_folder(tmp_path / "wanted", lambda folder: (folder / "x").touch()) for _ in range(50)
        )

    assert in_threads(work) == []
    assert len({*made}) == 50 * THREADS
    assert sorted(tmp_path.iterdir()) == sorted(made)


def test_threads_write_one_file(tmp_path: Path) -> None:
    def work(number: int) -> None:
        for _ in range(200):
            write_file(tmp_path / "latest.txt", b"%d" % number)

    assert in_threads(work) == []
    assert [path.name for path in tmp_path.iterdir()] == ["latest.txt"]


def test_a_taken_path_is_left_alone(tmp_path: Path) -> None:
    taken = claim(tmp_path, os.mkdir)
    assert claim(tmp_path, Path.touch) != claim(tmp_path, os.mkdir) != taken


def test_a_file_may_have_the_longest_name(tmp_path: Path) -> None:
    write_file(tmp_path / ("x" * 255), b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 255]


FORKED = """
import json, multiprocessing, os, sys, tempfile
import netfold
text = sys.argv[1]

def work(_):
    try:
        return netfold.run(text, out=tempfile.mkdtemp()).verdict
    except netfold.RunError as error:
        return str(error)

if __name__ == "__main__":
    netfold.run(text, out=tempfile.mkdtemp())
    if sys.argv[2] == "alone":
        child = os.fork()
        if not child:
            print(json.dumps([work(0)]), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    else:
        with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
            print(json.dumps(pool.map(work, range(2))))
"""
REFUSED = (
    "this process was forked from one that had used netfold or polars: their threads are missing\n"
    "  start it with multiprocessing.get_context('spawn') or 'forkserver', or use netfold.sweep"
)


def printed(*command: str) -> str:
    """The last line that a program prints, which gets a small scenario as its first argument."""
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("alone", [REFUSED]),
        pytest.param("fork", [REFUSED] * 2, marks=nightly),
        pytest.param("spawn", ["pass"] * 2, marks=nightly),
    ],
)
def test_a_forked_child_ends(tmp_path: Path, how: str, words: list[str]) -> None:
    (tmp_path / "script.py").write_text(FORKED)

    assert json.loads(printed(str(tmp_path / "script.py"), f"{TINY}\n", how)) == words


@nightly
@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_one_that_has_not_run_may_run() -> None:
    """polars is imported, and has not started a thread."""
    script = (
        "import os, sys, tempfile, netfold; netfold.run; child = os.fork()\n"
        "if not child: print(netfold.run(sys.argv[1], out=tempfile.mkdtemp()).verdict, flush=True)\n"
        "if not child: os._exit(0)\n"
        "os.waitpid(child, 0)"
    )
    assert printed("-c", script, f"{TINY}\n") == "pass"
