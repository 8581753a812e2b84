"""Checkpoints of a run: results of finished variants, and states of a variant between two steps of its job.

A run that goes on builds a variant's network and job as at time 0, and then gives the same objects the
attributes that they had. No list says what changes: all objects that can be reached are stored, or no state.
"""

from __future__ import annotations

import logging
import types
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeVar

import numpy as np
import simpy

from netfold.errors import InvariantError
from netfold.homomorphic.codec import Codec, Encoder, Server
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.setup import KeepAlive
from netfold.sim.engine.tables import World, records
from netfold.sim.keys import Option, Section
from netfold.sim.network.fabric import Fabric, Sampler, packets_of_streams
from netfold.sim.plan.plan import Change, VariantPlan
from netfold.sim.run.checkpoint_store import CheckpointStore, UnstorableError, is_record, packed, unpacked
from netfold.sim.run.context import ProgressReporter
from netfold.sim.run.job import RunningJob

T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)

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
    *("netfold.sim.workload.", "netfold.sim.plan.", "netfold.sim.scenario.", "netfold.sim.engine.interface"),
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

    def keeper(self, store: CheckpointStore) -> Keeper:
        # A DataError if there is nothing to go on from, or it cannot be used.
        if not self.resumes:
            store.begin(self.every)
            return Keeper(store, self.every)
        every = store.require()
        return Keeper(store, self.every or every, resumes=True)


class Keeper:
    """The checkpoints of one run: a state after every so many steps, and the result of each variant.

    Parameters
    ----------
    store
        Where they are.
    every
        After how many steps the next state is due.
    resumes
        Whether to go on from what is there.
    """

    def __init__(self, store: CheckpointStore, every: int, resumes: bool = False) -> None:
        self.store, self._every, self._resumes = store, every, resumes
        self._steps = 0  # since the latest state
        self._variant = 0
        self._refused: set[str] = set()  # reasons that were told
        self._saved: SavedVariant | None = None

    def begin_variant(self, number: int) -> None:
        """The variant with this number begins."""
        self._variant, self._steps = number, 0
        self._refused.clear()

    def end_variant(self) -> None:
        # Nothing of it stays in memory.
        self._saved = None

    def result(self, number: int) -> Any:
        """The result of a variant that is finished already; None if it is not."""
        return self.store.result(number, partial(unpacked, parts=[])) if self._resumes else None

    def put_result(self, number: int, result: object) -> None:
        """Keep the result of a variant that has ended."""
        try:
            self.store.put_result(number, packed(result, []))
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
        state = self.store.state(partial(unpacked, parts=[]))
        return None if state is None or state[0] != self._variant else state

    def watch(
        self, variant: VariantPlan, running: list[RunningJob], fabric: Fabric, sampler: Sampler
    ) -> None:
        """All jobs are started, and nothing has happened yet: put back a state that is there."""
        self._saved = self._watched(variant, running, fabric, sampler)
        if self._saved is not None and self._state() is not None:
            self.store.state(self._saved.read)

    def _watched(
        self, variant: VariantPlan, running: list[RunningJob], fabric: Fabric, sampler: Sampler
    ) -> SavedVariant | None:
        """What states are taken of; None where a variant has none, which is said."""
        reason = ""
        if len(variant.jobs) > 1:
            reason = "it has several jobs"
        elif not running:
            reason = "its job waits to be admitted"
        elif any(isinstance(fault.effect, Change) for fault in variant.faults.faults):
            reason = "it has faults that begin at a time"
        if not reason:
            return SavedVariant(running[0], fabric, sampler)
        _LOGGER.warning("%s: no checkpoint before its end: %s", variant.name, reason)
        return None

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
        self.store.put_state(packed((self._variant, *saved.written()), []))
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
        return int(self._environment.now), job.steps_done, packed(content, parts)

    def read(self, stored: bytes) -> None:
        """Put back what was written."""
        _, _, steps_done, content = unpacked(stored, [])
        job = self._job
        job.make_ready(steps_done)
        states, encoders, workload, tables = unpacked(content, [*self._parts, *job.encoders])
        for part, state in zip(self._parts, states, strict=True):
            _put_back(part, state)
        for encoder, state in zip(job.encoders, encoders, strict=True):
            encoder.restore(state)
        job.workload.restore(workload)
        _put_tables(self._fabric.engine, tables)
