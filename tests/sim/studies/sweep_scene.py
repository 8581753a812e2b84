"""A small scenario to sweep, and an executor that runs tasks in this process, in any order."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netfold.sim.scenario.load import Scenario
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.sim.studies import sweep as make
from netfold.sim.studies.sweep import sweep_of
from netfold.sim.studies.sweep_points import Point, points_of
from netfold.sim.studies.sweep_workers import Limits, Versions, WorkerDiedError

VERSIONS = Versions("3.11", "1.0", "abc", {"numpy": "2.0"})
BASE = """\
name: small
seed: 7
topology: {kind: star, hosts: 8, rate: 100Gbps, delay: 1us}
workers: 4
workload: {kind: synthetic, elements: 2000, density: 10%}
variants:
  - {name: ring, codec: {kind: none}, collective: {kind: ring}}
  - name: switch
    codec: {kind: fixed_point}
    collective: {kind: in_network, frame: udp-256, slots: 16}
"""
GRID = "sweep: {workers: [2, 4], workload.density: [1%, 10%], seeds: 2}\n"


def scenario(sweep: str = GRID, sets: Sequence[str] = (), base: str = BASE) -> Scenario:
    return sweep_of(ScenarioText(base + sweep, "small.yaml"), sets)


def points(sweep: str = GRID, sets: Sequence[str] = (), base: str = BASE) -> tuple[Point, ...]:
    return points_of(scenario(sweep, sets, base), VERSIONS)


def write(folder: Path, sweep: str = GRID, base: str = BASE) -> Path:
    file = folder / "small.yaml"
    file.write_text(base + sweep)
    return file


class Inline(Executor):
    """Runs a task when its future is asked for by `finish`: any order, in this process.

    Parameters
    ----------
    dies
        Called with a task; whether the process that runs it dies.
    """

    def __init__(self, seed: int = 0, dies: Callable[[Any], bool] = lambda task: False) -> None:
        self._draw, self._dies = random.Random(seed), dies
        self.waiting: list[tuple[Future[Any], Callable[..., Any], Any]] = []
        self.most_at_once = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, fn, args[0]))
        self.most_at_once = max(self.most_at_once, len(self.waiting))
        return future

    def finish(self) -> None:
        """End one of the running tasks."""
        future, fn, task = self.waiting.pop(self._draw.randrange(len(self.waiting)))
        if self._dies(task):
            future.set_exception(WorkerDiedError(-signal.SIGKILL))
            return
        try:
            future.set_result(fn(task))
        except Exception as error:
            future.set_exception(error)


def wait_inline(executor: Inline) -> Callable[..., Any]:
    """Stands for `concurrent.futures.wait`: one task ends whenever the dispatcher waits."""

    def wait(futures: Any, return_when: str = "") -> tuple[set[Future[Any]], set[Future[Any]]]:
        executor.finish()
        done = {future for future in futures if future.done()}
        return done, set(futures) - done

    return wait


def use_inline(monkeypatch: Any, executor: Inline, jobs: int = 2) -> None:
    """Let sweeps run on this executor."""

    @contextmanager
    def here(settings: Any, wanted: int) -> Iterator[tuple[Any, Limits, int]]:
        yield executor, Limits(jobs, float("inf")), jobs

    monkeypatch.setattr(make, "_executor", here)
    monkeypatch.setattr("netfold.sim.studies.sweep_workers.wait_for_futures", wait_inline(executor))
