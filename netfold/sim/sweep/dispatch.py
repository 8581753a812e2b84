"""Runs jobs on any `concurrent.futures.Executor`, as many at a time as fit the memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Any

from netfold.errors import RunError
from netfold.sim.sweep.pool import WorkerDiedError

DEATHS_MAX = 2  # of the process of one job, after which it is given up


@dataclass(frozen=True)
class Job:
    """A call of one argument."""

    argument: Any
    bytes: int = 0  # memory that it takes
    weight: float = 0.0  # the heaviest begin first, so that none is left alone at the end


@dataclass(frozen=True)
class Limits:
    """How much an executor may run at a time, and how it says that a process died."""

    jobs: int
    bytes: float
    deaths: tuple[type[Exception], ...] = (WorkerDiedError,)  # errors that say that the process died


class FailedError(Exception):
    """A job that has no result; `str()` says why."""


def dispatch(
    executor: Executor,
    function: Callable[[Any], Any],
    jobs: Sequence[Job],
    limits: Limits,
    ended: Callable[[int, Any], None],
) -> None:
    """Run all jobs; `ended` gets the index of each and its result or a `FailedError`, as they end.

    A job whose process dies is sent again, once. One that needs more memory than the limit runs alone.

    Raises
    ------
    RunError
        The executor can run nothing.
    """
    waiting = sorted(range(len(jobs)), key=lambda index: -jobs[index].weight)
    running: dict[Future[Any], int] = {}
    deaths: Counter[int] = Counter()
    while waiting or running:
        for index in list(waiting):
            used = sum(jobs[one].bytes for one in running.values())
            if len(running) < limits.jobs and (not running or used + jobs[index].bytes <= limits.bytes):
                waiting.remove(index)
                running[executor.submit(function, jobs[index].argument)] = index
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            index = running.pop(future)
            try:
                result = future.result()
            except RunError:
                raise
            except limits.deaths as error:
                deaths[index] += 1
                if deaths[index] < DEATHS_MAX:
                    waiting.insert(0, index)
                    continue
                result = FailedError(f"{error}, {DEATHS_MAX} times")
            except Exception as error:
                result = FailedError(str(error) or type(error).__name__)
            ended(index, result)
