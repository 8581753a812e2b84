"""Files of others, the folder of runs, and how processes share them."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import threading
from pathlib import Path

import pytest

import netfold
from netfold.errors import DataError
from netfold.sim.files import (
    UnreadableError,
    claim,
    open_regular,
    read_bytes,
    read_text,
    require_writable,
    text_of,
    write_file,
    write_folder,
)
from netfold.sim.run.run import run_scenario
from tests.command_line import run_python
from tests.examples import nightly
from tests.sim.scenes import TINY, write


def refused(path: str | Path, limit_bytes: int = 10) -> str:
    with pytest.raises(UnreadableError) as caught:
        read_bytes(path, limit_bytes)
    return str(caught.value)


def test_a_file_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")

    assert read_bytes(path, 10) == b"0123456789"
    assert refused(path, 9) == "it is too large: it has 10 bytes, up to 9 are read"


def test_a_file_that_hides_its_size() -> None:
    """What lies in /proc has 0 bytes by its own account."""
    assert refused("/proc/self/maps") == "it is too large: it goes on, up to 10 are read"


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))

        assert refused(tmp_path / "socket") == "it is a socket, or a device that does not answer"
    assert refused(tmp_path) == "it is a directory"
    assert refused(tmp_path / "pipe") == "it is a pipe"
    assert refused("/dev/zero") == "it is a device"


def test_links(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "good").symlink_to("a")
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "loop").symlink_to("loop")

    assert read_bytes(tmp_path / "good", 1) == b"x"
    assert refused(tmp_path / "dangling") == "it is a link to 'nothing', which is not there"
    assert refused(tmp_path / "loop") == "it is a link that leads back to itself"


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")

    with pytest.raises(UnreadableError) as caught:
        open_regular(tmp_path / "b")
    assert (str(caught.value), caught.value.is_missing) == ("there is no such file", True)
    assert refused(tmp_path / "a" / "b") == "a part of its path is not a directory"
    assert refused(tmp_path / ("a" * 300)) == "its name is too long"
    assert refused("a\0b") == "its name holds a null character"


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes("\N{BYTE ORDER MARK}Größe".encode())

    assert read_text(path, 100) == "Größe"
    with pytest.raises(UnreadableError) as caught:
        text_of("a\nGröße".encode("latin-1"))
    assert str(caught.value) == "it is not UTF-8 text (line 2)\n  save the file as UTF-8"


def refused_folder(out_dir: Path) -> str:
    with pytest.raises(DataError) as caught:
        require_writable(out_dir, "tiny")
    return str(caught.value)


def test_folders_that_are_there_or_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "runs" / "tiny").mkdir(parents=True)
    (tmp_path / "link").symlink_to("runs")

    for name in ("", "runs", "link", "new", "new/below"):
        require_writable(tmp_path / name, "tiny")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["link", "runs", "tiny"]


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dead").symlink_to("nowhere")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "tiny").touch()

    for out, blocking in {"file": "file", "file/x": "file", "dead": "dead", "runs": "runs/tiny"}.items():
        assert refused_folder(tmp_path / out) == (
            f"no run folder can be made in {tmp_path / out}: {tmp_path / blocking} is not a folder\n"
            "  use --out DIR"
        )


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc, where not even root can write")
def test_a_folder_in_which_nothing_can_be_made() -> None:
    for out in (Path("/proc"), Path("/proc/x/y")):
        assert (
            refused_folder(out)
            == f"no run folder can be made in {out}: /proc cannot be written\n  use --out DIR"
        )


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="to root nothing is read-only")
def test_a_folder_that_is_read_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    assert refused_folder(tmp_path / "x") == (
        f"no run folder can be made in {tmp_path / 'x'}: {tmp_path} cannot be written\n  use --out DIR"
    )


@pytest.mark.parametrize(
    ("out", "reason"), [("x" * 256, "its name is too long"), ("a\0b", "it holds a null character")]
)
def test_a_name_that_the_file_system_does_not_take(tmp_path: Path, out: str, reason: str) -> None:
    """Before the run: nothing was said to begin."""
    assert reason in refused_folder(tmp_path / out)
    with pytest.raises(DataError, match="no run folder can be made at"):
        run_scenario(write(tmp_path), (), None, tmp_path / out, lambda *_: pytest.fail("it runs"))


def test_the_longest_names_that_it_takes(tmp_path: Path) -> None:
    require_writable(tmp_path / ("x" * 255), "tiny")
    require_writable(tmp_path, "y" * 255)


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
    return run_python(*command).stdout.splitlines()[-1]


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
