"""How long each job takes on the idle network, for its slowdown."""

from __future__ import annotations

from dataclasses import replace

import simpy

from netfold.sim.engine.engine import Engine
from netfold.sim.network.fabric import Fabric
from netfold.sim.network.stall import StuckError
from netfold.sim.plan.plan import JobPlan
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.simulation import Simulation
from netfold.sim.workload.workload_keys import Workloads


def alone_times(simulation: Simulation) -> dict[int, int | None]:
    """The completion time of each job on the idle network, by its place in the scenario's list.

    Jobs of one template are alike: one of them is run. None: it does not come to its end.
    """
    variant, found = simulation.variant, dict[int, int | None]()
    for place, job in zip(variant.sections, variant.jobs, strict=True):
        if place not in found:
            simulation.reporter.report(f"{job.label} runs alone")
            found[place] = _alone_ps(simulation, job)
    return found


def _alone_ps(simulation: Simulation, job: JobPlan) -> int | None:
    """Completion time of a job without others, with the variant's faults on packets."""
    variant, seed = simulation.variant, simulation.seed
    rules = variant.faults.rules
    on_packets = tuple(one for one in variant.faults.faults if one.effect in rules)
    alone = replace(
        variant,
        jobs=(replace(job, start_ps=0),),
        faults=replace(variant.faults, faults=on_packets),
        sections=(),
        admission=None,
    )
    environment = simpy.Environment()
    fabric = Fabric(environment, Engine(variant.network, seed, rules), alone.timeout_max_ps)
    running = Simulation(environment, fabric, alone, seed, ProgressReporter(), Workloads([], seed)).start(0)
    try:
        fabric.run_until(running.process)
        return None if running.training.failure is not None else int(environment.now)
    except StuckError:
        return None
    finally:
        environment.__dict__.clear()  # as in `run_variant`
