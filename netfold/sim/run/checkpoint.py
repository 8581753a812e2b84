"""Checkpoints of a run: what they hold, when they can be taken, and how a run goes on from one.

What may be stored is data alone: no code is stored, and none runs when a checkpoint is read.
"""

from __future__ import annotations

import functools
import logging
import types
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
import simpy

from netfold.errors import InvariantError
from netfold.homomorphic.codec import Carrier, Codec, Encoder, Server
from netfold.sim.collectives.transfers import Cut
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Condition
from netfold.sim.engine.setup import KeepAlive
from netfold.sim.engine.tables import World, records
from netfold.sim.keys import Section
from netfold.sim.network.fabric import packets_of_streams
from netfold.sim.plan.plan import (
    Crash,
    FaultPlan,
    HostSlowdown,
    LateStart,
    LinksDown,
    LinksSlower,
    Pause,
    PlannedFault,
    Reboot,
)
from netfold.sim.run.checkpoint_store import (
    OWN,
    CheckpointStore,
    DamagedError,
    Reader,
    Stored,
    UnstorableError,
    Writer,
    is_record,
)
from netfold.sim.run.context import ProgressReporter
from netfold.sim.workload import Workload

# The state of objects that a run builds anew: all of it is stored, or the reason why it cannot be.
#
# A run that goes on builds its network and jobs as at time 0, and then puts the stored state into the same
# places. What an object's attributes hold is one of these:
#
# * data: stored, and put back, into the same list, dictionary or array, because others may refer to it;
# * state with a method of its own (`Encoder` and `Server` of codecs: `state` and `restore`);
# * another object of netfold: its attributes in turn, each object once;
# * what is built anew and does not change: plans, devices, networks, functions. A dictionary of such objects
#   is a cache.
#
# Anything else, such as an open process, cannot be stored.


_BUILT_ANEW_IN = (
    "netfold.sim.workload.",
    "netfold.sim.plan.",
    "netfold.sim.scenario.",
    "netfold.sim.engine.interface",
    "netfold.topologies.",
    "netfold.switch.program",
)
_CHANGES_IN_FORCE = (  # data, although they belong to the plan
    LinksDown,
    LinksSlower,
    Reboot,
    Crash,
    Pause,
    LateStart,
    HostSlowdown,
    PlannedFault,
    Condition,
    FaultPlan,
)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, type)
_BUILT_ANEW = (
    *(simpy.Environment, simpy.Event, Codec, Carrier, *_FUNCTIONS),
    World,  # its tables have a file of their own
    *(KeepAlive, Cut, Section, ProgressReporter),
)


def is_built_anew(value: object) -> bool:
    if isinstance(value, simpy.Resource):
        if value.users or value.queue:
            raise UnstorableError("a resource in use")
        return True
    # Events of SimPy are built anew, too: what they resume is known (`require_quiet`).
    if isinstance(value, _BUILT_ANEW):
        return True
    return type(value).__module__.startswith(_BUILT_ANEW_IN) and not isinstance(value, _CHANGES_IN_FORCE)


def _is_live(value: object) -> bool:
    """Whether a value is an object of netfold whose attributes change."""
    if isinstance(value, (Encoder, Server)):
        return True
    return type(value).__module__.startswith(OWN) and not is_record(value)


def _kind(value: Any) -> str:
    """What a value is: "data", "anew" or "live"; a container the last of these that an item is."""
    if is_built_anew(value):
        return "anew"
    if _is_live(value):
        return "live"
    items = list(_items(value))
    if isinstance(value, (list, tuple, dict, set, deque)) and any(map(_is_waited_for, items)):
        raise UnstorableError("an event that something waits for")
    kinds = {_kind(one) for one in items}
    return "live" if "live" in kinds else "anew" if "anew" in kinds else "data"


def _is_waited_for(value: object) -> bool:
    return isinstance(value, (simpy.Event, simpy.Store))


def _items(value: Any) -> Iterator[Any]:
    """The values in a container or record."""
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from value
    elif is_record(value) and is_dataclass(value):
        yield from (getattr(value, field.name) for field in fields(value))


def _named_items(value: Any) -> Iterator[tuple[str, Any]]:
    """The same, with names; of an object its attributes."""
    if isinstance(value, dict):
        yield from ((str(key), one) for key, one in value.items())
    elif is_record(value) and is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))
    elif isinstance(value, (list, tuple)):
        yield from ((str(at), one) for at, one in enumerate(value))
    else:
        yield from vars(value).items()


def _is_mutable_record(value: object) -> bool:
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and is_record(value) and not parameters.frozen


class LiveWriter:
    """Stores the state of objects; each object once, where it is met first."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._seen: dict[int, object] = {}  # objects by identity; kept alive

    def write(self, value: Any, path: str) -> Any:
        """The JSON of a value's state.

        Raises
        ------
        UnstorableError
            Where something is that cannot be stored, and what.
        """
        try:
            kind = "live" if _is_mutable_record(value) else _kind(value)
        except UnstorableError as error:
            raise UnstorableError(f"{path} holds {error}") from None
        if kind == "anew":
            return None
        shares = isinstance(value, (list, dict, set, deque, np.ndarray)) or kind == "live"
        if shares and id(value) in self._seen:
            return None
        if shares:
            self._seen[id(value)] = value
        if kind == "data":
            try:
                return ["=", self._writer.write(value)]
            except UnstorableError as error:
                raise UnstorableError(f"{path} holds {error}") from None
        if isinstance(value, (Encoder, Server)):
            return ["state", self._writer.write(dict(value.state()))]
        stored = ((name, self.write(one, f"{path}.{name}")) for name, one in _named_items(value))
        return ["in", {name: one for name, one in stored if one is not None}]


class LiveReader:
    """Puts a stored state into objects that were built as those that it is of."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, value: Any, stored: Any, path: str) -> None:
        """Put a state into an object.

        Raises
        ------
        DamagedError
            The state is not of such an object.
        """
        match stored:
            case None:
                return
            case ["state", state]:
                try:
                    value.restore(self._reader.read(state))
                except ValueError as error:
                    raise DamagedError(f"{path}: {error}") from error
            case ["in", dict(parts)]:
                own = dict(_named_items(value))
                for name, part in parts.items():
                    if name not in own:
                        raise DamagedError(f"{path} has no {name}")
                    if part is not None and part[0] == "=":
                        self._put(value, name, own[name], self._reader.read(part[1]))
                    else:
                        self.read(own[name], part, f"{path}.{name}")
            case _:
                raise DamagedError(f"{path} holds what cannot be read")

    def _put(self, owner: Any, name: str, old: Any, new: Any) -> None:
        """Put a value where it was, into the same container where others may hold it."""
        if isinstance(old, list) and isinstance(new, list):
            old[:] = new
        elif (isinstance(old, dict) and isinstance(new, dict)) or (
            isinstance(old, set) and isinstance(new, set)
        ):
            old.clear()
            old.update(new)
        elif isinstance(old, deque) and isinstance(new, deque):
            old.clear()
            old.extend(new)
        elif _is_same_array(old, new):
            old[...] = new
        elif isinstance(owner, list):
            owner[int(name)] = new
        elif isinstance(owner, dict):
            owner[next(key for key in owner if str(key) == name)] = new
        elif isinstance(owner, tuple) or (is_record(owner) and not _is_mutable_record(owner)):
            return  # the fields of a frozen record are those that it was built with
        else:
            setattr(owner, name, new)


def _is_same_array(old: Any, new: Any) -> bool:
    return (
        isinstance(old, np.ndarray)
        and isinstance(new, np.ndarray)
        and (old.shape, old.dtype) == (new.shape, new.dtype)
        and bool(old.flags.writeable)
    )


# The tables of the engine, and whether they can be stored.
#
# They hold addresses of words that workers send and receive. When no stream and no schedule is open, only
# flows that are delivered and not yet acknowledged are left: their words are never read or written again.
# Packets that carry words of a stream must not be on their way.


_REBUILT_TABLES = frozenset(
    {"nodes", "choice", "sets", "ports", "groups", "first_entry", "entries_of_groups"}
)
_OF_THIS_PROCESS = ("at", "rare", "atp", "schedules")  # addresses in the clock


def require_quiet_tables(engine: Engine) -> None:
    """Require that nothing in the tables refers to words that are still needed.

    Raises
    ------
    UnstorableError
        What is still under way.
    """
    world, clock = engine.world, engine.world.clock[0]
    if world.streams["is_open"].any():
        raise UnstorableError("a stream is open")
    if world.schedules["is_open"].any() or clock.attention or clock.done_count:
        raise UnstorableError("a message between hosts is under way")
    flows = world.flows
    if ((flows["is_open"] != 0) & (flows["is_delivered"] == 0)).any():
        raise UnstorableError("a message between hosts is not delivered")
    others = packets_of_streams(world).size
    if others:
        raise UnstorableError(f"{others} packets of earlier streams are on their way")


def write_tables(engine: Engine, writer: Writer) -> Any:
    return {name: writer.write(_plain(table)) for name, table in _tables(engine.world).items()}


def read_tables(engine: Engine, stored: Any, reader: Reader) -> None:
    """Put stored tables into an engine of the same network and jobs.

    Raises
    ------
    DamagedError
        They are of another engine.
    """
    fresh = _tables(engine.world)
    if not isinstance(stored, dict) or set(stored) != set(fresh):
        raise DamagedError("the tables of the engine are not complete")
    found: dict[str, Any] = {}
    for name, table in fresh.items():
        content = reader.read(stored[name])
        if not isinstance(content, np.ndarray):
            raise DamagedError(f"the engine's table {name} is not a table")
        found[name] = _typed(name, table, content)
    clock, kept = found["clock"], engine.world.clock
    for name in _OF_THIS_PROCESS:
        clock[name] = kept[name]
    changed: dict[str, Any] = {}
    for name, part in engine.world._asdict().items():
        if name in _REBUILT_TABLES:
            continue
        if isinstance(part, tuple):
            changed[name] = part._replace(**{one: found[f"{name}.{one}"] for one in part._fields})  # type: ignore[attr-defined]
        else:
            changed[name] = found[name]
    engine.world = engine.world._replace(**changed)


def _tables(world: World) -> dict[str, Any]:
    """All tables that change, by name."""
    found: dict[str, Any] = {}
    for name, part in world._asdict().items():
        if name in _REBUILT_TABLES:
            continue
        if isinstance(part, tuple):
            found |= {f"{name}.{one}": getattr(part, one) for one in part._fields}  # type: ignore[attr-defined]
        else:
            found[name] = part
    return found


def _plain(table: Any) -> Any:
    """A table as (…, bytes of a row)."""
    array = np.ascontiguousarray(table).view(np.ndarray)
    if array.dtype.names is None:
        return array
    if not array.size:
        return np.zeros((*array.shape, array.dtype.itemsize), np.uint8)
    return array.view(np.uint8).reshape(*array.shape, array.dtype.itemsize)


def _typed(name: str, fresh: Any, content: Any) -> Any:
    """Stored bytes as a table of the same rows as a fresh one."""
    if fresh.dtype.names is None:
        if content.dtype != fresh.dtype or content.ndim != fresh.ndim:
            raise DamagedError(f"the engine's table {name} has other rows")
        return content
    if (
        content.dtype != np.uint8
        or content.ndim != fresh.ndim + 1
        or content.shape[-1] != fresh.dtype.itemsize
    ):
        raise DamagedError(f"the engine's table {name} has other rows")
    table = records(content.shape[:-1], fresh.dtype)
    if content.size:
        table.view(np.ndarray)[...] = np.ascontiguousarray(content).view(fresh.dtype)[..., 0]
    return table


# Takes checkpoints of a run, and puts them back.


T = TypeVar("T")
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class VariantParts:
    """What a variant's state is in: everything that survives between two steps."""

    engine: Engine
    live: Mapping[str, Any]  # objects by name
    workloads: tuple[Workload, ...]
    """The workload of each job."""


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


class VariantState:
    """The stored state of a variant that was under way."""

    def __init__(self, store: CheckpointStore, stored: Stored) -> None:
        self._store, self._stored = store, stored
        try:
            tree = stored.tree
            self.variant, self.now_ps = int(tree["variant"]), int(tree["now_ps"])
            self.steps = [int(steps) for steps in tree["steps"]]  # done, of each job
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise store.damaged(None, str(error)) from error

    def put_into(self, parts: VariantParts) -> None:
        """Put the state into a variant that is built and has not begun.

        Raises
        ------
        DataError
            It is not of such a variant.
        """
        tree, reader = self._stored
        try:
            live = LiveReader(reader)
            for name, one in parts.live.items():
                live.read(one, tree["live"][name], name)
            read_tables(parts.engine, tree["tables"], reader)
            for workload, stored in zip(parts.workloads, tree["workloads"], strict=True):
                workload.restore(reader.read(stored))
        except (DamagedError, ValueError, KeyError, TypeError, OverflowError) as error:
            raise self._store.damaged(None, str(error)) from error


class Keeper:
    """The checkpoints of one run: a state after every so many steps, and the result of each variant.

    Parameters
    ----------
    store
        Where they are.
    every
        After how many steps of a job the next state is due; 0: only results are kept.
    resumes
        Whether to go on from what is there.
    """

    def __init__(self, store: CheckpointStore, every: int, resumes: bool = False) -> None:
        self._store, self._every, self._resumes = store, every, resumes
        self._steps = 0  # since the latest state
        self._variant = 0
        self._refused: set[str] = set()  # reasons that were told

    def begin_variant(self, number: int) -> None:
        """The variant with this number begins."""
        self._variant, self._steps = number, 0
        self._refused.clear()

    def result(self, number: int, kind: type[T]) -> T | None:
        """The result of a variant that is finished already."""
        stored = self._store.result(number) if self._resumes else None
        if stored is None:
            return None
        try:
            found = stored.reader.read(stored.tree)
        except DamagedError as error:
            raise self._store.damaged(number, str(error)) from error
        if not isinstance(found, kind):
            raise self._store.damaged(number, f"it holds no {kind.__name__}")
        return found

    def put_result(self, number: int, result: object) -> None:
        """Keep the result of a variant that has ended."""
        writer = Writer()
        try:
            tree = writer.write(result)
        except UnstorableError as error:
            raise InvariantError(f"a variant's result holds {error}") from error
        self._store.put_result(number, tree, writer)

    def state(self) -> VariantState | None:
        """The state from which the variant goes on that begins now; None: it begins at its start."""
        stored = self._store.state() if self._resumes else None
        if stored is None:
            return None
        state = VariantState(self._store, stored)
        return state if state.variant == self._variant else None

    def is_due(self) -> bool:
        """Whether a state is due after the step that has just ended."""
        self._steps += 1
        return bool(self._every) and self._steps >= self._every

    def put_state(self, parts: VariantParts, now_ps: int, steps: list[int]) -> None:
        """Keep the state of a variant between two steps.

        Raises
        ------
        UnstorableError
            This instant is not quiet; the next one may be.
        """
        writer = Writer()
        live = LiveWriter(writer)
        tree = {
            "variant": self._variant,
            "now_ps": now_ps,
            "steps": steps,
            "live": {name: live.write(one, name) for name, one in parts.live.items()},
            "tables": write_tables(parts.engine, writer),
            "workloads": [writer.write(dict(one.state())) for one in parts.workloads],
        }
        size = self._store.put_state(tree, writer)
        self._steps = 0
        _LOGGER.debug("checkpoint of %.1f MB", size / 1e6)

    def refuse(self, what: str, error: UnstorableError) -> None:
        """Say, once for each reason, why a state that is due cannot be stored now."""
        if str(error) not in self._refused:
            self._refused.add(str(error))
            _LOGGER.warning("%s: no checkpoint now: %s; it is taken after a later step", what, error)

    def refuse_all(self, what: str, reason: str) -> None:
        """Say why no state of a variant can be stored; its result can."""
        if self._every:
            _LOGGER.warning("%s: no checkpoint before its end: %s", what, reason)

    @property
    def unfinished(self) -> str:
        # Name of the folder that has the finished variants; "": there is none.
        return self._store.unfinished

    def note_unfinished(self, name: str) -> None:
        # A run that goes on removes that folder at its end.
        self._store.note_unfinished(name)

    def finish(self) -> None:
        # The run has its folder: checkpoints are needed no more.
        self._store.remove()


# Whether an instant is quiet: no process of SimPy is under way but those that a resumed run starts again.


def require_quiet(
    environment: simpy.Environment, at_once: Collection[simpy.Process], later: Collection[simpy.Process]
) -> None:
    # `at_once` are processes that a resumed run starts at this instant; `later` those that wait for a time,
    # which must be later than now.
    now = environment.now
    for time, _, _, event in environment._queue:
        for callback in event.callbacks or ():
            process = getattr(callback, "__self__", None)
            if isinstance(process, simpy.Process):
                if process in at_once and time == now:
                    continue
                if process in later and time > now:
                    continue
            raise UnstorableError("something else is under way at this instant")
