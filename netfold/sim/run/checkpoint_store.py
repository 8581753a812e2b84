"""Data as JSON and arrays, and back: numbers, text, containers, records and arrays, each with its exact type.

A record is a dataclass, a named tuple or an enumeration of netfold. It is read back by its fields: no
constructor runs, and only modules of netfold are looked into.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import shutil
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from netfold.errors import DataError, UnwrittenError
from netfold.sim import files
from netfold.sim.files import package_version, package_versions
from netfold.sim.processor import Instructions, instructions, recorded

OWN = "netfold."  # the package whose records are stored
_CONTAINERS: dict[str, type[Any]] = {"l": list, "t": tuple, "s": set, "z": frozenset, "q": deque}
_MAPPINGS: dict[str, type[Any]] = {"m": dict, "c": Counter}


class UnstorableError(Exception):
    """A value is not data: an open process, for example. The message says what it is."""


class DamagedError(Exception):
    """What is stored does not fit what it is read into."""


def is_record(value: object) -> bool:
    """Whether a value is a record of netfold."""
    kind = type(value)
    is_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return kind.__module__.startswith(OWN) and (is_tuple or is_dataclass(kind) or issubclass(kind, Enum))


class Writer:
    """Turns values into JSON; arrays are kept apart."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self.types: list[str] = []
        self._numbers: dict[type[Any], int] = {}

    def write(self, value: Any) -> Any:
        """The JSON of a value.

        Raises
        ------
        UnstorableError
            It is not data.
        """
        kind = type(value)
        if value is None or kind in (bool, int, str, float):
            return value
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise UnstorableError("an array of objects")
            self.arrays.append(np.ascontiguousarray(value))
            return ["a", len(self.arrays) - 1, list(value.shape), bool(value.flags.writeable)]
        if isinstance(value, np.generic):
            return ["n", value.dtype.str, np.asarray(value).tobytes().hex()]
        if kind is Fraction:
            return ["f", value.numerator, value.denominator]
        if is_record(value):
            return self._record(value)
        for name, container in _CONTAINERS.items():
            if kind is container:
                items = sorted(value) if kind in (set, frozenset) else value
                length = value.maxlen if kind is deque else None
                return [name, [self.write(one) for one in items], *([length] if kind is deque else [])]
        if kind in (dict, Counter, defaultdict):
            name = "c" if kind is Counter else "m"
            return [name, [[self.write(key), self.write(one)] for key, one in value.items()]]
        raise UnstorableError(f"a {kind.__module__}.{kind.__qualname__}")

    def _record(self, value: Any) -> Any:
        kind = type(value)
        if kind not in self._numbers:
            self._numbers[kind] = len(self.types)
            self.types.append(f"{kind.__module__}:{kind.__qualname__}")
        number = self._numbers[kind]
        if isinstance(value, Enum):
            return ["e", number, value.name]
        if isinstance(value, tuple):
            return ["u", number, [self.write(one) for one in value]]
        return ["r", number, [self.write(getattr(value, field.name)) for field in fields(value)]]


class Reader:
    """Turns JSON and arrays back into values."""

    def __init__(self, arrays: list[NDArray[Any]], types: list[str]) -> None:
        self._arrays = arrays
        self._types = [_type_named(name) for name in types]

    def read(self, stored: Any) -> Any:
        try:
            return self._read(stored)
        except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(f"it holds what cannot be read ({error})") from error

    def _read(self, stored: Any) -> Any:
        if not isinstance(stored, list):
            return stored
        match stored:
            case ["a", number, shape, is_writeable]:
                array = self._arrays[number].reshape(shape).copy()
                array.flags.writeable = is_writeable
                return array
            case ["n", dtype, content]:
                return np.frombuffer(bytes.fromhex(content), dtype)[0]
            case ["f", numerator, denominator]:
                return Fraction(numerator, denominator)
            case ["q", items, length]:
                return deque((self._read(one) for one in items), length)
            case [("m" | "c") as name, pairs]:
                return _MAPPINGS[name]({self._read(key): self._read(one) for key, one in pairs})
            case ["e", number, member]:
                return self._types[number][member]
            case ["u", number, items]:
                return self._types[number]._make(self._read(one) for one in items)
            case ["r", number, items]:
                return self._record(self._types[number], items)
            case [name, items]:
                return _CONTAINERS[name](self._read(one) for one in items)
        raise DamagedError("it holds what cannot be read")

    def _record(self, kind: type[Any], items: list[Any]) -> Any:
        value = object.__new__(kind)
        for field, one in zip(fields(kind), items, strict=True):
            object.__setattr__(value, field.name, self._read(one))
        return value


def _type_named(name: str) -> Any:
    """A record's type, of a module of netfold."""
    module, _, path = name.partition(":")
    found: Any = None
    if module.startswith(OWN):
        try:
            found = importlib.import_module(module)
        except ImportError:
            found = None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not (
        is_dataclass(found) or issubclass(found, Enum) or hasattr(found, "_fields")
    ):
        raise DamagedError(f"it holds a record that is not known, {name}")
    return found


# The files of checkpoints: a folder for each run, in which every file is whole or absent.
#
# `<runs>/<scenario>/checkpoint-seed<N>-<digest>` holds `run.json`, what the checkpoints are of;
# `variant-<number>.safetensors` for every finished variant, and `state.safetensors`, the latest state of the
# variant that was under way: a newer one takes its place. The digest is that of what decides the results:
# scenario, named files, `--set`, `--variant`, seed. The folder is removed when the run folder is written.


FORMAT = 1
PREFIX = "checkpoint-"
_RUN, _STATE, _TREE = "run.json", "state.safetensors", "tree"
_SPARE = 1.05
"""What the file of a checkpoint takes, as a multiple of its bytes."""


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


class CheckpointStore:
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
        # None: it is not finished.
        return self._get(_result_name(number))

    def put_state(self, tree: Any, writer: Writer) -> int:
        # It takes the place of the one before; returns its bytes.
        return self._put(_STATE, tree, writer)

    def state(self) -> Stored | None:
        # None: there is no state yet.
        return self._get(_STATE)

    def damaged(self, number: int | None, why: str) -> DataError:
        # Without a number, the state's file is damaged.
        return self._damaged(_STATE if number is None else _result_name(number), why)

    def remove(self) -> None:
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
    return "another version's" if found is None else f"{found.isa}{'' if found.pinned else ', not pinned'}"


def _result_name(number: int) -> str:
    return f"variant-{number:03}.safetensors"


def _digest(tensors: dict[str, Any]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].tobytes())
    return digest.hexdigest()
