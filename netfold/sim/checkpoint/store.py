"""The files of checkpoints: a folder for each run, in which every file is whole or absent.

`<runs>/<scenario>/checkpoint-seed<N>-<digest>` holds `run.json`, what the checkpoints are of;
`variant-<number>.safetensors` for every finished variant, and `state.safetensors`, the latest state of the
variant that was under way: a newer one takes its place. The digest is that of what decides the results:
scenario, named files, `--set`, `--variant`, seed. The folder is removed when the run folder is written.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from netfold.errors import DataError, UnwrittenError
from netfold.sim.checkpoint.values import DamagedError, Reader, Writer
from netfold.sim.files import durable as files
from netfold.sim.files.packages import package_version, package_versions
from netfold.sim.processor import Instructions, instructions, recorded

FORMAT = 1
PREFIX = "checkpoint-"
_RUN, _STATE, _TREE = "run.json", "state.safetensors", "tree"
_SPARE = 1.05  # of the bytes of a checkpoint: what its file takes


@dataclass(frozen=True)
class Identity:
    """What decides the results of a run."""

    scenario: str
    seed: int
    parts: dict[str, str]  # what, in words: its digest

    @property
    def digest(self) -> str:
        """Of all parts."""
        text = json.dumps([self.scenario, self.seed, self.parts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


class Stored(NamedTuple):
    """The content of a file of a checkpoint."""

    tree: Any
    reader: Reader


class Store:
    """The checkpoints of one run."""

    def __init__(self, out_dir: Path, identity: Identity) -> None:
        self._identity = identity
        self._parent = out_dir / identity.scenario
        self._every = 0
        self.unfinished = ""  # name of the folder that has the finished variants, beside this one
        self.folder = self._parent / f"{PREFIX}seed{identity.seed}-{identity.digest}"

    def begin(self, every: int) -> None:
        """Begin anew: remove what an earlier run of the same has left."""
        self.remove()
        self._every = every
        self._write_run()

    def note_unfinished(self, name: str) -> None:
        """Note where the finished variants are, so that a run that goes on removes that folder at its end."""
        self.unfinished = name
        self._write_run()

    def _write_run(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(_RUN, json.dumps(self._circumstances(), indent=2).encode())
        except OSError as error:
            raise self._unwritten(error) from error

    def require(self) -> int:
        """Require a checkpoint that this netfold can go on from; returns after how many steps one is due.

        Raises
        ------
        DataError
            There is none, it is of another scenario, seed or version, or it is damaged.
        """
        if not self.folder.is_dir():
            raise self._nothing()
        try:
            found = json.loads((self.folder / _RUN).read_bytes())
            self._every, stored_format = int(found["every"]), found["format"]
            self.unfinished = str(found["unfinished"])
            own, kept = self._circumstances(), dict(found)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise self._damaged(_RUN, str(error)) from error
        if stored_format != FORMAT:
            raise self._refused(f"has format {stored_format}; this version reads {FORMAT}")
        if kept.get("version") != own["version"]:
            raise self._refused(f"is of netfold {kept.get('version')}; this is {own['version']}")
        if recorded(kept) != (now := instructions()):
            raise self._refused(
                f"was computed with {_named(recorded(kept))}; this run computes with {_named(now)}"
            )
        packages = dict(kept.get("packages") or {})
        changed = [
            f"{name} {packages.get(name)} (now {version})"
            for name, version in own["packages"].items()
            if packages.get(name) != version
        ]
        if changed:
            raise self._refused(f"was written with other packages: {', '.join(changed)}")
        return self._every

    def put_result(self, number: int, tree: Any, writer: Writer) -> int:
        """Keep the result of a finished variant, which ends its state; returns the bytes."""
        size = self._put(_result_name(number), tree, writer)
        (self.folder / _STATE).unlink(missing_ok=True)
        return size

    def result(self, number: int) -> Stored | None:
        """The result of a finished variant; None if it is not finished."""
        return self._get(_result_name(number))

    def put_state(self, tree: Any, writer: Writer) -> int:
        """Keep a state in place of the one before; returns the bytes."""
        return self._put(_STATE, tree, writer)

    def state(self) -> Stored | None:
        """The latest state; None if there is none."""
        return self._get(_STATE)

    def damaged(self, number: int | None, why: str) -> DataError:
        """The error of a file whose content does not fit: of a variant's result, or the state."""
        return self._damaged(_STATE if number is None else _result_name(number), why)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _put(self, name: str, tree: Any, writer: Writer) -> int:
        content = json.dumps({"tree": tree, "types": writer.types}).encode()
        tensors: dict[str, NDArray[Any]] = {_TREE: np.frombuffer(content, np.uint8)}
        for number, array in enumerate(writer.arrays):
            # As bytes: safetensors knows fewer types than NumPy, and has no order of bytes.
            tensors[f"{number}:{array.dtype.str}"] = np.frombuffer(array.tobytes(), np.uint8)
        size = sum(one.nbytes for one in tensors.values())
        try:
            if not (self.folder / _RUN).exists():  # another run of the same has ended, and removed it
                self._write_run()
            free = shutil.disk_usage(self.folder).free
            if free < size * _SPARE:
                raise UnwrittenError(
                    f"cannot write a checkpoint of {size / 1e6:.1f} MB to {self.folder}: "
                    f"{free / 1e6:.1f} MB are free",
                    "free space, give another folder with --out, or run without --checkpoint",
                )
            self._write(name, safetensors.numpy.save(tensors, {"sha256": _digest(tensors)}))
        except OSError as error:
            raise self._unwritten(error) from error
        return size

    def _get(self, name: str) -> Stored | None:
        try:
            data = (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._damaged(name, str(error)) from error
        try:
            tensors = safetensors.numpy.load(data)
            head = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
            if head["__metadata__"]["sha256"] != _digest(tensors):
                raise DamagedError("its content is not what was written")
            content = json.loads(tensors.pop(_TREE).tobytes())
            named = sorted((int(key.partition(":")[0]), key) for key in tensors)
            arrays = [np.frombuffer(tensors[key].tobytes(), key.partition(":")[2]) for _, key in named]
            return Stored(content["tree"], Reader(arrays, content["types"]))
        except Exception as error:  # whatever safetensors finds wrong
            raise self._damaged(name, str(error)) from error

    def _write(self, name: str, data: bytes) -> None:
        files.write_file(self.folder / name, data)
        files.sync_folder(self.folder)

    def _circumstances(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "scenario": self._identity.scenario,
            "seed": self._identity.seed,
            "parts": self._identity.parts,
            "every": self._every,
            "unfinished": self.unfinished,
            "version": package_version("netfold"),
            "packages": package_versions(),
            **instructions()._asdict(),
        }

    def _nothing(self) -> DataError:
        """The error of a run without a checkpoint, which says what is there instead."""
        hint = "start it without --resume; --checkpoint N then writes checkpoints"
        for other in sorted(self._parent.glob(f"{PREFIX}*/{_RUN}")):
            try:
                found = json.loads(other.read_bytes())
                parts = found["parts"].items() ^ self._identity.parts.items()
                names = sorted({name for name, _ in parts})
                if found["seed"] != self._identity.seed:
                    names.append(f"the seed ({found['seed']} there, {self._identity.seed} here)")
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                continue
            return DataError(
                f"nothing to resume: {other.parent} is of another run; what differs: {', '.join(names)}",
                "give the same scenario, --set, --variant and --seed, or start without --resume",
            )
        if finished := self._finished():
            return DataError(f"nothing to resume: this run is finished already, see {finished}", hint)
        return DataError(f"nothing to resume: there is no checkpoint at {self.folder}", hint)

    def _finished(self) -> Path | None:
        """The latest finished run folder of the same scenario text and seed."""
        for path in sorted(self._parent.glob(f"*/{_RUN}"), reverse=True):
            if "-unfinished-" in path.parent.name:
                continue
            try:
                found = json.loads(path.read_bytes())
                same = found["scenario_sha256"] == self._identity.parts["the scenario file"]
                if same and found["seed"] == self._identity.seed:
                    return path.parent
            except (OSError, ValueError, TypeError, KeyError):
                continue
        return None

    def _damaged(self, name: str, why: str) -> DataError:
        return DataError(
            f"{self.folder / name} is damaged: {why}", f"remove {self.folder} and start without --resume"
        )

    def _refused(self, why: str) -> DataError:
        return DataError(
            f"the checkpoint {self.folder} {why}: results would not be those of one run",
            "install what it was written with, or start without --resume",
        )

    def _unwritten(self, error: OSError) -> UnwrittenError:
        return UnwrittenError(
            f"cannot write a checkpoint to {self.folder}: {error.strerror or error}",
            "free space, give another folder with --out, or run without --checkpoint",
        )


def _named(found: Instructions | None) -> str:
    """Instructions in words."""
    return "another version's" if found is None else f"{found.isa}{'' if found.pinned else ', not pinned'}"


def _result_name(number: int) -> str:
    return f"variant-{number:03}.safetensors"


def _digest(tensors: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()
