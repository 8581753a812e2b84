"""Whether an instant is quiet: no process of SimPy is under way but those that a resumed run starts again."""

from __future__ import annotations

from collections.abc import Collection

import simpy

from netfold.sim.checkpoint.values import UnstorableError


def require_quiet(
    environment: simpy.Environment, at_once: Collection[simpy.Process], later: Collection[simpy.Process]
) -> None:
    """Require that of all events to come only some resume a process.

    `at_once` are processes that a resumed run starts at this instant; `later` those that wait for a time,
    which must be later than now.

    Raises
    ------
    UnstorableError
        Another process is under way.
    """
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
