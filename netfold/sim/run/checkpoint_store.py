"""The files of checkpoints: what they may hold, and their folder, in which every file is whole or absent.

`<runs>/<scenario>/checkpoint-seed<N>-<digest>` holds `run.json`, what the checkpoints are of;
`variant-<number>.pickle` for every finished variant, and `state.pickle`, the latest state of the variant that
was under way: a newer one takes its place. The digest is that of what decides the results: scenario, named
files, `--set`, `--variant`, seed. The folder is removed when the run folder is written.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import types
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from netfold.errors import DataError, UnwrittenError
from netfold.sim import files
from netfold.sim.files import package_version, package_versions
from netfold.sim.processor import instructions

T = TypeVar("T")

# Files hold data alone: numbers, text, containers, arrays, and records of netfold. They are pickles, written
# and read by classes that know nothing else, so reading one runs no code that a file could choose.

_CONTAINERS = frozenset(
    {
        *(("collections", name) for name in ("Counter", "OrderedDict", "defaultdict", "deque")),
        *(("builtins", name) for name in ("set", "frozenset", "complex")),
        ("fractions", "Fraction"),
        *(("numpy", name) for name in ("ndarray", "dtype", "record")),
        *(("numpy._core.multiarray", name) for name in ("_reconstruct", "scalar")),
        ("numpy._core.numeric", "_frombuffer"),
    }
)
"""What a file may name beside records of netfold, with the functions by which NumPy reads its arrays."""


_NAMED = (type, types.FunctionType, types.BuiltinFunctionType)


class UnstorableError(Exception):
    """A value is not data: an open process, for example. The message says what it is."""


def is_record(kind: type) -> bool:
    """Whether a class is a record of netfold: a dataclass, a named tuple or an enumeration."""
    is_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return kind.__module__.startswith("netfold.") and (
        is_tuple or is_dataclass(kind) or issubclass(kind, Enum)
    )


def _is_known(module: str, name: str, found: object) -> bool:
    return (module, name) in _CONTAINERS or (isinstance(found, type) and is_record(found))


class _Writer(pickle.Pickler):
    """Writes data, and of parts that the reader has, too, only their numbers."""

    def __init__(self, file: io.BytesIO, numbers: Mapping[int, int]) -> None:
        super().__init__(file, protocol=5)
        self._numbers = numbers  # by identity

    def persistent_id(self, value: Any) -> int | None:
        return self._numbers.get(id(value))

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        named = value if isinstance(value, _NAMED) else kind  # classes and functions are stored by name
        if isinstance(value, (np.generic, np.dtype)) or _is_known(
            named.__module__, named.__qualname__, named
        ):
            return NotImplemented
        raise UnstorableError(f"a {kind.__module__}.{kind.__qualname__}")


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, parts: list[Any]) -> None:
        super().__init__(file)
        self._parts = parts

    def persistent_load(self, number: Any) -> Any:
        return self._parts[number]

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("netfold.") or (module, name) in _CONTAINERS:
            member = super().find_class(module, name)
            if _is_known(module, name, member):
                return member
        raise pickle.UnpicklingError(f"it holds a {module}.{name}, which is no data")


def packed(value: object, parts: list[Any]) -> bytes:
    """The bytes of a value; `parts` are objects that it may refer to, and are not in them.

    Raises
    ------
    UnstorableError
        It holds something else than data.
    """
    file = io.BytesIO()
    _Writer(file, {id(part): number for number, part in enumerate(parts)}).dump(value)
    return file.getvalue()


def unpacked(content: bytes, parts: list[Any]) -> Any:
    return _Reader(io.BytesIO(content), parts).load()


FORMAT = 2
PREFIX = "checkpoint-"
_RUN, _STATE = "run.json", "state.pickle"
_SPARE = 1.05
"""What the file of a checkpoint takes, as a multiple of its bytes."""
_DIGEST_BYTES = hashlib.sha256().digest_size


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
            manifest = json.loads((self.folder / _RUN).read_bytes())
            self._every, self.unfinished = int(manifest["every"]), str(manifest["unfinished"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise self._damaged(_RUN, error) from error
        changed = [
            f"{name} {manifest[name]} (now {value})"
            for name, value in _circumstances().items()
            if manifest.get(name, value) != value
        ]
        if changed:
            raise DataError(
                f"the checkpoint {self.folder} was written with {', '.join(changed)}: "
                "results would not be those of one run",
                "use what it was written with, or start without --resume",
            )
        return self._every

    def put_result(self, number: int, content: bytes) -> None:
        """Keep the result of a finished variant, which ends its state."""
        self._put(_result_name(number), content)
        (self.folder / _STATE).unlink(missing_ok=True)

    def put_state(self, content: bytes) -> None:
        """Keep a state in place of the one before."""
        self._put(_STATE, content)

    def result(self, number: int, read: Callable[[bytes], T]) -> T | None:
        # None: it is not finished.
        return self._get(_result_name(number), read)

    def state(self, read: Callable[[bytes], T]) -> T | None:
        # None: there is no state yet.
        return self._get(_STATE, read)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _put(self, name: str, content: bytes) -> None:
        try:
            if not (self.folder / _RUN).exists():  # another run of the same has ended, and removed it
                self._write_run()
            free = shutil.disk_usage(self.folder).free
            if free < len(content) * _SPARE:
                raise self._unwritten(
                    f"a checkpoint of {len(content) / 1e6:.1f} MB", f"{free / 1e6:.1f} MB are free"
                )
            self._write(name, hashlib.sha256(content).digest() + content)
        except OSError as error:
            raise self._unwritten("a checkpoint", error.strerror or str(error)) from error

    def _get(self, name: str, read: Callable[[bytes], T]) -> T | None:
        """What `read` makes of a file's content; None if there is no such file."""
        try:
            data = (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._damaged(name, error) from error
        content = data[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != data[:_DIGEST_BYTES]:
            raise self._damaged(name, "its content is not what was written")
        try:
            return read(content)
        except Exception as error:  # whatever is wrong with what pickle, a codec or a model reads
            raise self._damaged(name, error) from error

    def _write_run(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            content = {**asdict(self._identity), "every": self._every, "unfinished": self.unfinished}
            self._write(_RUN, json.dumps({**content, **_circumstances()}, indent=2).encode())
        except OSError as error:
            raise self._unwritten("a checkpoint", error.strerror or str(error)) from error

    def _write(self, name: str, data: bytes) -> None:
        files.write_file(self.folder / name, data)
        files.sync_folder(self.folder)

    def _nothing(self) -> DataError:
        """The error of a run without a checkpoint, which says what is there instead."""
        for other in sorted(self._parent.glob(f"{PREFIX}*/{_RUN}")):
            try:
                manifest = json.loads(other.read_bytes())
                parts = manifest["parts"].items() ^ self._identity.parts.items()
                names = sorted({name for name, _ in parts})
                if manifest["seed"] != self._identity.seed:
                    names.append(f"the seed ({manifest['seed']} there, {self._identity.seed} here)")
            except (OSError, ValueError, TypeError, KeyError, AttributeError):
                continue
            return DataError(
                f"nothing to resume: {other.parent} is of another run; what differs: {', '.join(names)}",
                "give the same scenario, --set, --variant and --seed, or start without --resume",
            )
        return DataError(
            f"nothing to resume: there is no checkpoint at {self.folder}",
            "a run that ends removes it; start without --resume, and --checkpoint N writes checkpoints",
        )

    def _damaged(self, name: str, why: object) -> DataError:
        return DataError(
            f"{self.folder / name} is damaged: {why}", f"remove {self.folder} and start without --resume"
        )

    def _unwritten(self, what: str, why: str) -> UnwrittenError:
        return UnwrittenError(
            f"cannot write {what} to {self.folder}: {why}",
            "free space, give another folder with --out, or run without --checkpoint",
        )


def _circumstances() -> dict[str, Any]:
    """What must be the same where a run goes on."""
    versions = {"netfold": package_version("netfold"), **package_versions()}
    return {"format": FORMAT, **versions, **instructions()._asdict()}


def _result_name(number: int) -> str:
    return f"variant-{number:03}.pickle"
