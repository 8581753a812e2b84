"""What a worker gets, does and returns: text and bytes alone, because it may run on another machine."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import tempfile
import threading
import time
import traceback
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from netfold.errors import NetfoldError
from netfold.sim.files.packages import package_versions
from netfold.sim.processor import UNREPRODUCIBLE, expected, instructions, pin, pinned_isa

RANKING = ("group", "by", "baseline", "times_baseline")  # of a row, from the summary
_FOLDERS = ("homomorphic", "switch", "topologies", "sim")  # of the package, besides single files
_one_at_a_time = threading.Lock()  # a Dask worker may have several threads


@dataclass(frozen=True)
class Versions:
    """What decides results besides a task: both sides must agree on it."""

    python: str
    netfold: str
    sources: str  # digest of netfold's files
    packages: Mapping[str, str]
    isa: str = ""  # what runs compute with

    def difference(self, other: Versions) -> str:
        """What differs in words, other first: "python 3.12, here 3.11"; empty if nothing does."""
        mine, theirs = self._named(), other._named()
        return ", ".join(
            f"{name} {theirs.get(name, 'missing')}, here {mine.get(name, 'missing')}"
            for name in {**mine, **theirs}
            if mine.get(name) != theirs.get(name)
        )

    def _named(self) -> dict[str, str]:
        own = {
            "python": self.python,
            "netfold": self.netfold,
            "netfold's sources": self.sources,
            "isa": self.isa,
        }
        return own | dict(self.packages)


@cache
def own_versions() -> Versions:
    """Those of this process."""
    try:
        own = version("netfold")
    except PackageNotFoundError:
        own = "not installed"
    python = ".".join(platform.python_version_tuple()[:2])
    return Versions(python, own, _sources_digest(), package_versions(), pinned_isa())


def _sources_digest() -> str:
    """A digest of all files of netfold."""
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        found = find_spec(f"netfold.{folder}")
        assert found is not None
        below = Path(str(found.origin)).parent
        for path in sorted(path for path in below.rglob("*") if is_source(path)):
            digest.update(f"{folder}/{path.relative_to(below).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def is_source(path: Path) -> bool:
    """Whether a file is netfold's own, and not one that Python writes while others read."""
    return path.suffix not in (".pyc", "") and "__pycache__" not in path.parts


@dataclass(frozen=True)
class Task:
    """A point to run."""

    text: str  # a scenario with everything merged, as JSON
    files: Mapping[str, bytes] = field(repr=False)  # that it names, by their path in it
    versions: Versions
    keeps_run: bool = False  # send the run folder back


@dataclass(frozen=True)
class Outcome:
    """What came of a task."""

    rows: tuple[dict[str, Any], ...] = ()  # of every variant or job: name, verdict, plain metrics
    error: str = ""  # why there are none
    wall_s: float = 0.0
    host: str = ""
    archive: bytes = field(default=b"", repr=False)  # the run folder, zipped; empty if it is not kept


def work(task: Task) -> Outcome:
    """Run a task in this process. Errors are outcomes, so that an executor repeats only what died."""
    with _one_at_a_time:
        started_s = time.perf_counter()
        pin()
        rows: tuple[dict[str, Any], ...] = ()
        archive, error = b"", ""
        if difference := task.versions.difference(own_versions()):
            error = f"the worker on {platform.node()} has other versions: {difference}"
        elif instructions() != expected():
            error = f"{UNREPRODUCIBLE}: PyTorch has computed before in the worker on {platform.node()}"
        else:
            with tempfile.TemporaryDirectory(prefix="netfold-") as name:
                try:
                    rows, archive = _run(task, Path(name))
                except NetfoldError as refused:
                    error = str(refused).replace(f"{name}/", "")
                except MemoryError:
                    error = "not enough memory"
                except Exception:
                    error = traceback.format_exc().replace(f"{name}/", "")
        return Outcome(rows, error, time.perf_counter() - started_s, platform.node(), archive)


def _run(task: Task, folder: Path) -> tuple[tuple[dict[str, Any], ...], bytes]:
    """The rows of a task, and its run folder if it is to be kept."""
    from netfold.sim.results.format import metric_types
    from netfold.sim.run.run import (
        run_scenario,  # late: the engine is slow to import
        summary_of_scenario,  # late: the engine is slow to import
    )

    file = _unpack(task, folder)
    if task.keeps_run:
        outcome = run_scenario(file, (), None, folder / "runs", lambda *_: None)
        if outcome.stopped is not None:
            raise outcome.stopped
        assert outcome.run_dir is not None
        summary, archive = outcome.summary, _zipped(outcome.run_dir)
    else:
        summary, archive = summary_of_scenario(file), b""
    names = metric_types()
    rows = tuple(
        {
            "variant": one["name"],
            "verdict": one["verdict"],
            **{name: one["ranking"][name] for name in RANKING},
            **{name: value for name, value in one["metrics"].items() if name in names},
        }
        for one in summary["variants"]
    )
    return rows, archive


def _unpack(task: Task, folder: Path) -> Path:
    """Write the scenario and its files; paths that lead up (`../x`) stay inside the folder."""
    up = max((PurePosixPath(path).parts.count("..") for path in task.files), default=0)
    below = folder.joinpath("scenario", *map(str, range(up)))
    below.mkdir(parents=True)
    for path, content in task.files.items():
        if not PurePosixPath(path).is_absolute():
            target = below / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    file = below / "scenario.yaml"
    file.write_text(task.text, "utf-8")
    return file


def _zipped(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            archive.write(path, path.relative_to(folder).as_posix())
    return buffer.getvalue()


def unzip(archive: bytes, folder: Path) -> None:
    """Write a run folder that a worker sent."""
    with zipfile.ZipFile(io.BytesIO(archive)) as found:
        for member in found.namelist():
            target = folder / member
            if not target.resolve().is_relative_to(folder.resolve()):
                raise ValueError(f"{member!r} leads out of the folder")
            target.parent.mkdir(parents=True, exist_ok=True)
            with found.open(member) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)


def digest_of(text: str, files: Mapping[str, bytes], versions: Versions, known: Mapping[str, str]) -> str:
    """The name of a point: the same for the same scenario, files, seed, versions, and what else is known."""
    content = {
        "known": dict(known),
        "scenario": text,
        "files": {path: hashlib.sha256(one).hexdigest() for path, one in sorted(files.items())},
        "versions": [versions.python, versions.netfold, versions.sources, dict(versions.packages)],
        "isa": versions.isa,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
