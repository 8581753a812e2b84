"""The state of objects that a run builds anew: all of it is stored, or the reason why it cannot be.

A run that goes on builds its network and jobs as at time 0, and then puts the stored state into the same
places. What an object's attributes hold is one of these:

* data: stored, and put back, into the same list, dictionary or array, because others may refer to it;
* state with a method of its own (`Encoder` and `Server` of codecs: `state` and `restore`);
* another object of netfold: its attributes in turn, each object once;
* what is built anew and does not change: plans, devices, networks, functions. A dictionary of such objects
  is a cache.

Anything else, such as an open process, cannot be stored.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import simpy

from netfold.homomorphic.codec import Carrier, Codec, Encoder, Server
from netfold.sim.checkpoint.values import OWN, DamagedError, Reader, UnstorableError, Writer, is_record

_BUILT_ANEW = (
    "netfold.sim.workload.",
    "netfold.sim.plan.plan.",
    "netfold.sim.resolve.",
    "netfold.sim.engine.interface",
    "netfold.sim.engine.schedule",
    "netfold.sim.engine.setup.keep_alive",
    "netfold.sim.engine.tables.world",  # the tables have a file of their own
    "netfold.sim.collectives.building.",
    "netfold.sim.run.progress",
    "netfold.topologies.",
    "netfold.switch.program",
)
_DATA_TOO = ("netfold.sim.plan.plan.plan",)  # changes in force
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, type)


def is_built_anew(value: object) -> bool:
    """Whether a value is made when a variant is built, and does not change after that.

    Events of SimPy are, too: what they resume is known (`quiet.py`).

    Raises
    ------
    UnstorableError
        It is a resource in use.
    """
    if isinstance(value, simpy.Resource):
        if value.users or value.queue:
            raise UnstorableError("a resource in use")
        return True
    if isinstance(value, (simpy.Environment, simpy.Event, Codec, Carrier, *_FUNCTIONS)):
        return True
    module = type(value).__module__
    return module.startswith(_BUILT_ANEW) and not module.startswith(_DATA_TOO)


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
        self._seen: dict[int, object] = {}  # by identity; kept alive

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
