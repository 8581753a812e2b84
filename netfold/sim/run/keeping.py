"""A variant's part in checkpoints: at which instants its state can be stored, and going on from one.

A state is stored between two steps of a job, when all other jobs have ended or have not begun, and nothing
is under way but late acknowledgements. Where that is not so, the next step's end is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import simpy

from netfold.sim.checkpoint import tables
from netfold.sim.checkpoint.keeper import Keeper, Parts, State
from netfold.sim.checkpoint.quiet import require_quiet
from netfold.sim.checkpoint.values import UnstorableError
from netfold.sim.network.fabric import Fabric, Sampler
from netfold.sim.plan.plan import Change, VariantPlan
from netfold.sim.run.fault_driver import FaultDriver
from netfold.sim.run.simulation import Running
from netfold.sim.workload import Workload


@dataclass(frozen=True)
class Built:
    """What a variant runs on, before its jobs start."""

    environment: simpy.Environment
    fabric: Fabric
    sampler: Sampler
    driver: FaultDriver


class Keeping:
    """Stores the state of one variant between its steps."""

    def __init__(self, keeper: Keeper | None, variant: VariantPlan, built: Built) -> None:
        self._keeper, self._variant, self._built = keeper, variant, built
        self._running: Sequence[Running] = ()
        self._workloads: tuple[Workload, ...] = ()

    def begin(self, running: Sequence[Running], state: State | None = None) -> None:
        """All jobs are started, and nothing has happened yet; a run that goes on has a state.

        Jobs that are admitted while the variant runs have not started: no state of theirs is stored.

        Raises
        ------
        DataError
            The state is not of this variant.
        """
        if self._keeper is not None and len(running) < len(self._variant.jobs):
            self._keeper.refuse_all(self._variant.name, "its jobs are admitted while it runs")
            self._keeper = None
        self._running, self._workloads = running, tuple(one.training.workload for one in running)
        if state is None:
            return
        for one, steps in zip(running, state.steps, strict=True):
            one.training.make_ready(steps)
        state.put_into(self._parts())

    def after_step(self) -> None:
        """A step of a job has ended and the next has not begun: store a state if one is due and can be."""
        keeper = self._keeper
        if keeper is None or not keeper.is_due():
            return
        steps = [one.training.steps_done for one in self._running]
        jobs = self._variant.jobs
        if all(done == job.steps for done, job in zip(steps, jobs, strict=True)):
            return  # the variant's result is next
        try:
            self._require_quiet(steps)
            keeper.put_state(self._parts(), int(self._built.environment.now), steps)
        except UnstorableError as error:
            keeper.refuse(self._variant.name, error)

    def _require_quiet(self, steps: Sequence[int]) -> None:
        """Require that nothing is under way but what a run that goes on starts again."""
        built, now = self._built, int(self._built.environment.now)
        if not all(one.training.is_between_steps for one in self._running):
            raise UnstorableError("another job is within a step")
        tables.require_quiet(built.fabric.engine)
        jobs = self._variant.jobs
        waiting = [one for one, done in zip(self._running, steps, strict=True) if not done]
        starts = {job.start_ps for job, done in zip(jobs, steps, strict=True) if not done}
        changes = [fault.effect for fault in self._variant.faults.faults]
        times = {
            time
            for effect in changes
            if isinstance(effect, Change)
            for time in (effect.from_ps, effect.until_ps)
            if time >= now
        }
        if now in times or starts & times:
            raise UnstorableError("a fault begins or ends when a step ends or a job begins")
        later = [built.driver.process, *(one.process for one in waiting)]
        require_quiet(built.environment, [built.fabric.process], later)

    def _parts(self) -> Parts:
        built = self._built
        live: dict[str, object] = {
            "engine": built.fabric.engine,
            "fabric": built.fabric,
            "sampler": built.sampler,
            "faults": built.driver,
        }
        for number, one in enumerate(self._running):
            live[f"collective {number}"] = one.collective
            live[f"job {number}"] = one.training
        return Parts(built.fabric.engine, live, self._workloads)
