"""Checkpoints of a run: results of finished variants, and states of a variant between two steps of its job.

A run that goes on builds a variant's network and job as at time 0, and then gives the same objects the
attributes that they had. No list says what changes: all objects that can be reached are stored, or no state.

`<runs>/<scenario>/checkpoint-seed<N>-<digest>` holds `run.json`, what the checkpoints are of;
`variant-<number>.pickle` for every finished variant, and `state.pickle`, the latest state of the variant that
was under way: a newer one takes its place. Every file is whole or absent. The digest is that of what decides
the results: scenario, named files, `--set`, `--variant`, seed. The folder is removed when the run folder is
written.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import pickle
import shutil
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import simpy

from netfold.errors import DataError, InvariantError, UnwrittenError
from netfold.homomorphic.codec import Codec, Encoder, Server
from netfold.kernels.processor import instructions
from netfold.sim import files
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.table_setup import KeepAlive
from netfold.sim.engine.tables import World, records
from netfold.sim.files import package_version
from netfold.sim.keys import Option, Section
from netfold.sim.network.fabric import Fabric, Sampler, packets_of_streams
from netfold.sim.plan.plan import Change, VariantPlan
from netfold.sim.results.folder import package_versions
from netfold.sim.run.job import RunningJob
from netfold.sim.run.progress import ProgressReporter

T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)

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


def is_record(record_class: type) -> bool:
    """Whether a class is a record of netfold: a dataclass, a named tuple or an enumeration."""
    is_tuple = issubclass(record_class, tuple) and hasattr(record_class, "_fields")
    return record_class.__module__.startswith("netfold.") and (
        is_tuple or is_dataclass(record_class) or issubclass(record_class, Enum)
    )


def _is_known(module: str, name: str, member: object) -> bool:
    return (module, name) in _CONTAINERS or (isinstance(member, type) and is_record(member))


class _Writer(pickle.Pickler):
    """Writes data, and of parts that the reader has, too, only their numbers."""

    def __init__(self, file: io.BytesIO, numbers: Mapping[int, int]) -> None:
        super().__init__(file, protocol=5)
        self._numbers = numbers  # by identity

    def persistent_id(self, value: Any) -> int | None:
        return self._numbers.get(id(value))

    def reducer_override(self, value: Any) -> Any:
        value_class = type(value)
        named = (
            value if isinstance(value, _NAMED) else value_class
        )  # classes and functions are stored by name
        if isinstance(value, (np.generic, np.dtype)) or _is_known(
            named.__module__, named.__qualname__, named
        ):
            return NotImplemented
        raise UnstorableError(f"a {value_class.__module__}.{value_class.__qualname__}")


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, parts: Sequence[Any]) -> None:
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


def pack(value: object, parts: Sequence[Any] = ()) -> bytes:
    """The bytes of a value, without the `parts` that it may refer to. UnstorableError: it is not all data."""
    file = io.BytesIO()
    _Writer(file, {id(part): number for number, part in enumerate(parts)}).dump(value)
    return file.getvalue()


def unpack(content: bytes, parts: Sequence[Any] = ()) -> Any:
    return _Reader(io.BytesIO(content), parts).load()


# The folder of checkpoints.


_FORMAT = 3
_PREFIX = "checkpoint-"
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
        text = json.dumps([self.scenario, self.seed, self.parts], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


class CheckpointStore:
    def __init__(self, out_dir: Path, identity: Identity) -> None:
        self._identity = identity
        self._parent = out_dir / identity.scenario
        self._every = 0
        self.unfinished = ""  # name of the folder that has the finished variants, beside this one
        self.folder = self._parent / f"{_PREFIX}seed{identity.seed}-{identity.digest}"

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
        self._put(_STATE, content)  # in place of the one before

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
        for other in sorted(self._parent.glob(f"{_PREFIX}*/{_RUN}")):
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
    return {"format": _FORMAT, **versions, **instructions()._asdict()}


def _result_name(number: int) -> str:
    return f"variant-{number:03}.pickle"


# Objects that are there before the first step. They refer to each other by their numbers in a state.


_DATA = (type(None), bool, int, float, complex, str, bytes, Fraction, range, np.ndarray, np.generic, np.dtype)
_BUILT_ANEW = (
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, partial, type),
    *(simpy.Environment, simpy.Event, simpy.Resource, simpy.Store),
    *(
        Codec,
        Section,
        Option,
        World,
        KeepAlive,
        ProgressReporter,
    ),  # the tables of `World` are stored on their own
)
_BUILT_ANEW_IN = (
    *(
        "netfold.sim.workload.",
        "netfold.sim.plan.",
        "netfold.sim.scenario.",
        "netfold.sim.engine.engine_data",
    ),
    *("netfold.topologies.", "netfold.switch.program"),
)


def parts_of(roots: Iterable[object]) -> list[Any]:
    """All objects but data that can be reached from `roots`, in an order that is the same in every run."""
    parts: list[Any] = []
    waiting, seen = deque(roots), dict[int, object]()  # by identity, and so kept alive
    while waiting:
        value = waiting.popleft()
        if isinstance(value, _DATA) or id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple, deque)) and not _is_built_anew(value):
            waiting.extend(value)
        elif not isinstance(value, (set, frozenset)):
            if _is_built_anew(value) or not _is_frozen(value):
                parts.append(value)
            if not _is_built_anew(value):
                waiting.extend(vars(value).values())
    return parts


def _is_built_anew(value: object) -> bool:
    return isinstance(value, _BUILT_ANEW) or type(value).__module__.startswith(_BUILT_ANEW_IN)


def _is_frozen(value: object) -> bool:
    """Whether it is a record that is replaced as a whole, and therefore stored as a whole."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    return is_record(type(value)) and (parameters is None or parameters.frozen)


def _state_of(part: Any) -> Any:
    """What is stored of a part: its attributes, or what it says itself; None where it is built anew."""
    if isinstance(part, (Encoder, Server)):
        return dict(part.state())
    if isinstance(part, simpy.Resource) and (part.users or part.queue):
        raise UnstorableError("a resource in use")
    if isinstance(part, simpy.Store) and part.items:
        raise UnstorableError("a message that waits")
    if _is_built_anew(part):
        return None
    if not type(part).__module__.startswith("netfold."):
        raise UnstorableError(f"a {type(part).__module__}.{type(part).__qualname__}")
    return {name: value for name, value in vars(part).items() if not isinstance(value, (simpy.Event, World))}


def _put_back(part: Any, state: Any) -> None:
    if isinstance(part, (Encoder, Server)):
        part.restore(state)
    elif state is not None:
        vars(part).update(state)


# The tables of the engine.
#
# They hold addresses of words that workers send and receive. When no stream and no schedule is open, only
# flows that are delivered and not yet acknowledged are left: their words are never read or written again.
# Packets that carry words of a stream must not be on their way.


_REBUILT_TABLES = frozenset(
    {"nodes", "choice", "sets", "ports", "groups", "first_entry", "entries_of_groups"}
)
_OF_THIS_PROCESS = ("at", "handlers")  # addresses in the clock


def _require_quiet(fabric: Fabric, environment: simpy.Environment) -> None:
    """Require that nothing is under way but late acknowledgements, which are in the tables.

    Raises
    ------
    UnstorableError
        What is still under way.
    """
    world, clock = fabric.engine.world, fabric.engine.world.clock[0]
    flows = world.flows
    if world.streams["is_open"].any() or packets_of_streams(world).size:
        raise UnstorableError("packets between workers and switches are on their way")
    if world.schedules["is_open"].any() or clock.attention or clock.done_count:
        raise UnstorableError("a message between hosts is under way")
    if ((flows["is_open"] != 0) & (flows["is_delivered"] == 0)).any():
        raise UnstorableError("a message between hosts is not delivered")
    for time, _, _, event in environment._queue:
        for callback in event.callbacks or ():
            # A run that goes on starts the network's process at this instant.
            if getattr(callback, "__self__", None) is not fabric.process or time > environment.now:
                raise UnstorableError("something else is under way at this instant")


def _tables(world: World) -> dict[str, Any]:
    """All tables that change, by name."""
    tables: dict[str, Any] = {}
    for name, table in world._asdict().items():
        inner = table._asdict() if isinstance(table, tuple) else None  # type: ignore[attr-defined]
        tables |= (
            {name: table} if inner is None else {f"{name}.{key}": subtable for key, subtable in inner.items()}
        )
    return {name: table for name, table in tables.items() if name not in _REBUILT_TABLES}


def _put_tables(engine: Engine, stored: dict[str, tuple[tuple[int, ...], bytes]]) -> None:
    """Put stored tables into an engine of the same network and jobs."""
    world, tables = engine.world, dict[str, Any]()
    for name, table in _tables(world).items():
        shape, content = stored[name]
        rows = np.frombuffer(content, table.dtype).reshape(shape)
        tables[name] = rows.copy() if table.dtype.names is None else records(shape, table.dtype)
        tables[name].view(np.ndarray)[...] = rows
    for name in _OF_THIS_PROCESS:
        tables["clock"][name] = world.clock[name]
    for name, table in world._asdict().items():
        if isinstance(table, tuple):
            inner = {key: tables[f"{name}.{key}"] for key in table._fields}  # type: ignore[attr-defined]
            tables[name] = table._replace(**inner)  # type: ignore[attr-defined]
    engine.world = world._replace(
        **{name: new_table for name, new_table in tables.items() if "." not in name}
    )


@dataclass(frozen=True)
class Checkpoints:
    """What a user asks for: a checkpoint every so many steps, or to go on from one."""

    every: int = 0  # 0, where a run goes on: as before
    resumes: bool = False


class Keeper:
    """The checkpoints of one run: a state after every so many steps, and the result of each variant.

    Raises
    ------
    DataError
        There is nothing to go on from, or it cannot be used.
    """

    def __init__(self, store: CheckpointStore, wanted: Checkpoints) -> None:
        self.store, self._every, self._resumes = store, wanted.every, wanted.resumes
        if wanted.resumes:
            every = store.require()
            self._every = wanted.every or every
        else:
            store.begin(wanted.every)
        self._steps = 0  # since the latest state
        self._variant = 0
        self._refused: set[str] = set()  # reasons that were told
        self._saved: SavedVariant | None = None

    def begin_variant(self, number: int) -> None:
        self._variant, self._steps = number, 0
        self._refused.clear()

    def end_variant(self) -> None:
        # Nothing of it stays in memory.
        self._saved = None

    def result(self, number: int) -> Any:
        # Of a variant that is finished already; None if it is not.
        return self.store.result(number, unpack) if self._resumes else None

    def put_result(self, number: int, result: object) -> None:
        """Keep the result of a variant that has ended."""
        try:
            self.store.put_result(number, pack(result))
        except UnstorableError as error:
            raise InvariantError(f"a variant's result holds {error}") from error

    @property
    def start_ps(self) -> int:
        """The time at which the variant that begins now goes on; 0 if it begins at its start."""
        state = self._state()
        return 0 if state is None else int(state[1])

    def _state(self) -> Any:
        """The state from which the variant goes on that begins now; None: it begins at its start."""
        if not self._resumes:
            return None
        state = self.store.state(unpack)
        return None if state is None or state[0] != self._variant else state

    def watch(
        self, variant: VariantPlan, running: list[RunningJob], fabric: Fabric, sampler: Sampler
    ) -> None:
        """All jobs are started, and nothing has happened yet: put back a state that is there."""
        if len(variant.jobs) > 1:
            reason = "it has several jobs"
        elif not running:
            reason = "its job waits to be admitted"
        elif any(isinstance(fault.effect, Change) for fault in variant.faults.faults):
            reason = "it has faults that begin at a time"
        else:
            self._saved = SavedVariant(running[0], fabric, sampler)
            if self._state() is not None:
                self.store.state(self._saved.read)
            return
        _LOGGER.warning("%s: no checkpoint before its end: %s", variant.name, reason)

    def after_step(self, variant: VariantPlan) -> None:
        """A step has ended and the next has not begun: store a state if one is due and can be."""
        self._steps += 1
        saved = self._saved
        if saved is None or self._steps < self._every or saved.steps_done == variant.steps:
            return  # after the last step, the variant's result is next
        try:
            self.put_state(saved)
        except UnstorableError as error:
            if str(error) not in self._refused:
                self._refused.add(str(error))
                _LOGGER.warning(
                    "%s: no checkpoint now: %s; it is taken after a later step", variant.name, error
                )

    def put_state(self, saved: SavedVariant) -> None:
        """Keep the state of a variant between two steps."""
        self.store.put_state(pack((self._variant, *saved.written())))
        self._steps = 0


class SavedVariant:
    """A variant that is built and has not begun, and whose state can be written and read from then on."""

    def __init__(self, job: RunningJob, fabric: Fabric, sampler: Sampler) -> None:
        self._job, self._fabric = job, fabric
        self._parts = parts_of([fabric, sampler, job])
        environments = (part for part in self._parts if isinstance(part, simpy.Environment))
        self._environment = next(environments)

    @property
    def steps_done(self) -> int:
        return self._job.steps_done

    def written(self) -> tuple[int, int, bytes]:
        """Time, steps done, and all else.

        Raises
        ------
        UnstorableError
            This instant is not quiet, the next one may be; or something cannot be stored.
        """
        _require_quiet(self._fabric, self._environment)
        job, tables = self._job, _tables(self._fabric.engine.world)
        content = (
            [_state_of(part) for part in self._parts],
            [dict(encoder.state()) for encoder in job.encoders],
            job.workload.state(),
            {name: (table.shape, table.tobytes()) for name, table in tables.items()},
        )
        # A job makes its encoders when it begins, so they are not among the parts that are there before.
        parts = [*self._parts, *job.encoders]
        return int(self._environment.now), job.steps_done, pack(content, parts)

    def read(self, stored: bytes) -> None:
        """Put back what was written."""
        _, _, steps_done, content = unpack(stored)
        job = self._job
        job.make_ready(steps_done)
        states, encoders, workload, tables = unpack(content, [*self._parts, *job.encoders])
        for part, state in zip(self._parts, states, strict=True):
            _put_back(part, state)
        for encoder, state in zip(job.encoders, encoders, strict=True):
            encoder.restore(state)
        job.workload.restore(workload)
        _put_tables(self._fabric.engine, tables)
