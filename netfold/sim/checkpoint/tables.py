"""The tables of the engine, and whether they can be stored.

They hold addresses of words that workers send and receive. When no stream and no schedule is open, only flows
that are delivered and not yet acknowledged are left: their words are never read or written again. Packets
that carry words of a stream must not be on their way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from netfold.sim.checkpoint.values import DamagedError, Reader, UnstorableError, Writer
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.tables.world import World, records
from netfold.sim.network.fabric import packets_of_streams

_BUILT_ANEW = frozenset({"nodes", "choice", "sets", "ports", "groups", "first_entry", "entries_of_groups"})
_OF_THIS_PROCESS = ("at", "rare", "atp", "schedules")  # addresses in the clock


def require_quiet(engine: Engine) -> None:
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
    """The JSON of all tables that change."""
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
        if name in _BUILT_ANEW:
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
        if name in _BUILT_ANEW:
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
