"""From a scenario file to a run folder: every variant is simulated, checked and written down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from homomorphic.codec import DecodeError, EncodeError
from sim.checks import Ending, Switches, check_variant
from sim.collectives.collective import Collective
from sim.collectives.in_network import InNetwork
from sim.collectives.ring import Ring, RingOptions
from sim.engine.engine import Engine
from sim.engine.model import Job
from sim.errors import DataError, RunError, StuckError
from sim.fabric import Fabric
from sim.job import JobParts, Journal, TrainingJob
from sim.plan import Plan, VariantPlan
from sim.record import CheckRecord, LinkRecord
from sim.resolve import resolve
from sim.results import RunData, write_run
from sim.results.summary import VariantFacts, summarize
from sim.scenario import load
from sim.scenario.models import TopologyFile
from sim.workload import SyntheticSpec, Workload, synthetic_workload, training_workload

Progress = Callable[[str, int, int], None]  # what is going on, steps done, steps in all

APPROXIMATIONS = (
    "Hosts take no time per packet; a worker sends its buckets one at a time, in gradient-ready order.",
    "Queues are FIFO and drop-tail; only acknowledgements have priority. No pause frames, no ECN.",
    "A switch's extra passes are one loopback port with its rate and delay; results are copied per receiver.",
    "Backward is taken to produce gradient bytes at an even rate; a bucket is ready when its last byte is.",
    "Compute takes what the device model says; encoding and decoding are charged memory traffic alone.",
    "Retransmission timers expire exactly, those of copies up to a quarter later; real clients poll them.",
)


@dataclass(frozen=True)
class Outcome:
    """A finished run."""

    scenario: str
    seed: int
    run_dir: Path
    summary: dict[str, Any]
    engine: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The object that `netfold run --json` prints."""
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "verdict": self.summary["verdict"],
            "run_dir": str(self.run_dir),
            "variants": self.summary["variants"],
            "engine": self.engine,
        }


@dataclass(frozen=True)
class VariantResult:
    """What one variant left."""

    journal: Journal
    links: list[LinkRecord]
    checks: list[CheckRecord]
    facts: VariantFacts
    packet_hops: int
    wall_s: float  # of the engine alone


def run_scenario(
    path: str | Path, sets: tuple[str, ...], seed: int | None, out_dir: Path, progress: Progress
) -> Outcome:
    """Run all variants of a scenario file and write the run folder.

    Raises
    ------
    ScenarioError, DataError
        Nothing was run.
    RunError
        Memory does not suffice; nothing was written. (Traffic that makes no progress and gradients that a
        codec cannot carry end their variant alone: see `sim.checks`.)
    InvariantError
        netfold contradicts itself.
    """
    started_at, started = datetime.now(UTC), time.perf_counter()
    plan = resolve(load(path, sets, seed))
    _require_writable(out_dir)
    results = []
    done, total = 0, sum(variant.steps for variant in plan.variants)
    for variant in plan.variants:
        tell = _Teller(progress, variant.name, done, total)
        results.append(run_variant(plan, variant, tell))
        done += variant.steps
    progress("writing the report", done, total)
    summary, engine = _summary(plan, results), _engine(results)
    scenario = plan.scenario
    run_dir = write_run(
        out_dir,
        RunData(
            scenario_name=scenario.name,
            scenario_text=scenario.source_text,
            seed=scenario.seed,
            started_at=started_at,
            wall_s=time.perf_counter() - started,
            approximations=APPROXIMATIONS,
            steps=[record for result in results for record in result.journal.steps],
            rounds=[record for result in results for record in result.journal.rounds],
            phases=[record for result in results for record in result.journal.phases],
            links=[record for result in results for record in result.links],
            checks=[record for result in results for record in result.checks],
            summary=summary,
            engine=engine,
            sets=sets,
            extra_files=_topology_files(plan),
        ),
    )
    return Outcome(scenario.name, scenario.seed, run_dir, summary, engine)


def _topology_files(plan: Plan) -> dict[str, bytes]:
    """Graph files beside or below the scenario, by the path it gives them: the run folder keeps a copy."""
    folder = Path(plan.scenario.file).parent
    paths = {v.topology.path for v in plan.scenario.variants if isinstance(v.topology, TopologyFile)}
    kept = [path for path in paths if not Path(path).is_absolute() and ".." not in Path(path).parts]
    return {path: (folder / path).read_bytes() for path in sorted(kept)}


def _require_writable(out_dir: Path) -> None:
    """Complain before the work and not after it."""
    existing = next(folder for folder in (out_dir.absolute(), *out_dir.absolute().parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        reason = "cannot be written" if existing.is_dir() else "is no folder"
        raise DataError(f"no run folder can be made in {out_dir}: {existing} {reason}", "use --out DIR")


@dataclass
class _Teller:
    """Tells how far the steps of one variant are."""

    progress: Progress
    variant: str
    done: int
    total: int

    def __call__(self) -> None:
        """One more step begins."""
        self.progress(self.variant, self.done, self.total)
        self.done += 1


def run_variant(
    plan: Plan, variant: VariantPlan, step_begins: Callable[[], None] = lambda: None
) -> VariantResult:
    """Simulate one variant from time 0."""
    seed = plan.scenario.seed
    environment = simpy.Environment()
    engine = Engine(variant.network, variant.loss, seed)
    fabric = Fabric(environment, engine, variant.timeout_max_ps)
    workload = _workload(variant, seed)
    collective = _collective(environment, fabric, variant, seed)
    job = TrainingJob(
        environment,
        engine,
        JobParts(
            variant=variant.name,
            seed=seed,
            workload=workload,
            codec=variant.codec,
            collective=collective,
            device=variant.device,
            host_links=_host_links(variant),
            step_begins=step_begins,
            tell=lambda worker, what, until_ps: fabric.tell(0, worker, what, until_ps),
        ),
    )
    try:
        ending = _finish(fabric, environment.process(job.steps(variant.steps)), variant.steps)
    except MemoryError as error:
        hint = "use fewer elements, samples or workers"
        raise RunError(f"{plan.scenario.file}: {variant.name}: not enough memory: {error}", hint) from None
    links = _link_records(variant, engine)
    switches = Switches(collective.switch_counters(), collective.leaks() if ending.verdict == "pass" else ())
    return VariantResult(
        journal=job.journal,
        links=links,
        checks=check_variant(variant, job.journal, links, switches, ending),
        facts=VariantFacts(
            workers=len(variant.hosts),
            packets_sent=sum(links[up].packets for up, _ in _host_links(variant)),
            packets_retransmitted=collective.retransmitted_packets(),
            references=variant.references,
            diagnosis=ending.diagnosis,
        ),
        packet_hops=engine.packet_hops,
        wall_s=fabric.wall_s,
    )


def _finish(fabric: Fabric, steps: simpy.Event, steps_count: int) -> Ending:
    """Simulate all steps, and what is under way after them; a variant that cannot go on ends where it is."""
    try:
        fabric.run_until(steps)
    except StuckError as error:
        return Ending("stuck", error.message, error.diagnosis.as_dict())
    except (EncodeError, DecodeError) as error:
        return Ending("fail", str(error))
    fabric.drain()
    return Ending("pass", f"all {steps_count} steps are done")


def _workload(variant: VariantPlan, seed: int) -> Workload:
    workers = len(variant.hosts)
    if isinstance(variant.workload, SyntheticSpec):
        return synthetic_workload(variant.workload, workers, seed)
    return training_workload(variant.workload, workers, seed)


def _collective(
    environment: simpy.Environment, fabric: Fabric, variant: VariantPlan, seed: int
) -> Collective:
    plan = variant.collective
    if isinstance(plan, Job):
        return InNetwork(fabric, plan)
    options = RingOptions(variant.hosts, plan.frame, plan.window, plan.timeout_ps, plan.ack_every, seed)
    return Ring(environment, fabric, options, variant.device)


def _host_links(variant: VariantPlan) -> list[tuple[int, int]]:
    """Link rows out of and into each worker's host, which has one link."""
    network = variant.network
    return [
        (
            int(np.flatnonzero(network.link_source == host)[0]),
            int(np.flatnonzero(network.link_target == host)[0]),
        )
        for host in variant.hosts
    ]


def _link_records(variant: VariantPlan, engine: Engine) -> list[LinkRecord]:
    network = variant.network
    records = []
    for row, counters in enumerate(engine.link_counters()):
        rate_bps = int(network.rate_bps[row])
        records.append(
            LinkRecord(
                variant=variant.name,
                link=network.link_names[row],
                source=network.nodes[network.link_source[row]],
                target=network.nodes[network.link_target[row]],
                rate_bps=rate_bps,
                packets=counters["sent_packets"],
                bytes=counters["sent_bytes"],
                **{
                    f"{what}_{unit}": counters[f"{what}_{unit}"]
                    for what in ("delivered", "lost", "dropped", "in_flight")
                    for unit in ("packets", "bytes")
                },
                busy_ps=counters["busy_ps"],
                backlog_bytes_max=counters["backlog_ps_max"] * rate_bps // (8 * 10**12),
            )
        )
    return records


def _summary(plan: Plan, results: list[VariantResult]) -> dict[str, Any]:
    return summarize(
        {variant.name: result.facts for variant, result in zip(plan.variants, results, strict=True)},
        [record for result in results for record in result.journal.steps],
        [record for result in results for record in result.journal.rounds],
        [record for result in results for record in result.links],
        [record for result in results for record in result.checks],
    )


def _engine(results: list[VariantResult]) -> dict[str, Any]:
    hops, wall_s = sum(result.packet_hops for result in results), sum(result.wall_s for result in results)
    return {"packet_hops": hops, "wall_s": wall_s, "packet_hops_per_s": hops / wall_s if wall_s else 0.0}
