"""What the engine derives from a schedule alone: who waits for whom. It is kept as long as the schedule."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine.schedule import NONE, Schedule
from netfold.sim.engine.tables import schedule_rows as rows
from netfold.sim.engine.tables.world import Table, records


class Derived(NamedTuple):
    """Tables of a schedule that operations share."""

    planned: Table  # (T + 1,)
    waiters: NDArray[np.int32]
    roots: NDArray[np.int32]  # transfers that wait for none, by worker
    first_root: NDArray[np.int64]  # (workers + 1,)
    waits: NDArray[np.int32]  # (T,) how many transfers each waits for
    received: NDArray[np.int64]  # (workers,) transfers to each
    lanes: int


_KEPT: WeakKeyDictionary[Schedule, Derived] = WeakKeyDictionary()


def derived(schedule: Schedule) -> Derived:
    """The tables of a schedule, made once."""
    if schedule not in _KEPT:
        _KEPT[schedule] = _derive(schedule)
    return _KEPT[schedule]


def _derive(schedule: Schedule) -> Derived:
    count = schedule.transfers
    planned = records(count + 1, rows.PLANNED)
    for name in ("source", "target", "first", "count", "step", "merges", "lane", "follows"):
        planned[name][:count] = getattr(schedule, name)
    planned["channel"][:count] = 0 if schedule.channel is None else schedule.channel
    waits = np.diff(schedule.waits_first).astype(np.int32)
    numbers = np.repeat(np.arange(count, dtype=np.int32), waits)
    order = np.argsort(schedule.waits_for, kind="stable")
    planned["first_waiter"] = _begins(schedule.waits_for, count)
    _link_followers(planned[:count], schedule.follows)
    roots = np.flatnonzero(waits == 0)
    sources = schedule.source[roots]
    by_source = np.argsort(sources, kind="stable")
    return Derived(
        planned,
        np.ascontiguousarray(numbers[order]),
        roots[by_source].astype(np.int32),
        _begins(sources, schedule.workers),
        waits,
        np.bincount(schedule.target, minlength=schedule.workers),
        int(schedule.lane.max(initial=NONE)) + 1,
    )


def _begins(values: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """(count + 1,) where each of the numbers 0 … count − 1 begins among sorted values."""
    begins = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(values, minlength=count), out=begins[1:])
    return begins


def _link_followers(planned: Table, follows: NDArray[np.int32]) -> None:
    """Link the transfers that follow the same one, in the order of their numbers."""
    planned["first_follower"], planned["next_follower"] = NONE, NONE
    followers = np.flatnonzero(follows != NONE)
    followers = followers[np.argsort(follows[followers], kind="stable")]
    leaders = follows[followers]
    is_first = np.append(True, leaders[1:] != leaders[:-1])[: leaders.size]
    planned["first_follower"][leaders[is_first]] = followers[is_first]
    planned["next_follower"][followers[:-1][~is_first[1:]]] = followers[1:][~is_first[1:]]
