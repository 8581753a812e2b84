"""The results of a run, before they are written to a folder."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from netfold.sim.checks.checks import Journal
from netfold.sim.engine.engine import Engine
from netfold.sim.plan.plan import VariantPlan
from netfold.sim.processor import instructions
from netfold.sim.results.records import (
    CheckRecord,
    FaultRecord,
    LinkRecord,
    NodeRecord,
    PhaseRecord,
    Records,
    RoundRecord,
    StepRecord,
)
from netfold.sim.results.summary import VariantFacts, summarize


@dataclass(frozen=True)
class Outcome:
    """A finished run, or the finished variants of a run that was stopped."""

    scenario: str
    seed: int
    run_dir: Path | None  # None: nothing could be written
    summary: dict[str, Any]
    engine: dict[str, Any]
    stopped: BaseException | None = None  # why some variants are not done, or not written
    unwritten: tuple[str, ...] = ()  # finished variants that are not in `run_dir`
    approximations: tuple[str, ...] = ()  # what was not modelled, where that is not the usual

    def as_dict(self) -> dict[str, Any]:
        """The object that `netfold run --json` prints."""
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "verdict": self.summary["verdict"],
            "run_dir": None if self.run_dir is None else str(self.run_dir),
            "baseline": self.summary["baseline"],
            "variants": self.summary["variants"],
            **({"jobs": self.summary["jobs"]} if "jobs" in self.summary else {}),
            "warnings": self.summary["warnings"],
            "injected": self.summary["injected"],
            "engine": self.engine,
            **instructions()._asdict(),
            **({} if self.stopped is None else self._missing()),
        }

    def place(self) -> list[str]:
        """Lines that say where the results of a run that was stopped are, and which are missing."""
        unfinished = ", ".join(self._missing()["unfinished"])
        if unfinished:
            state = f"{unfinished} did not run to the end."
        else:
            state = "all variants are done, the run folder was not written."
        if self.run_dir is None:
            return [f"Unfinished: {state}", "Nothing was written."]
        unwritten = f", without {', '.join(self.unwritten)}" if self.unwritten else ""
        return [
            f"Unfinished: {state}",
            f"Finished variants are in {self.run_dir}{unwritten}",
            f"To write a report: netfold report {shlex.quote(str(self.run_dir))}",
        ]

    def _missing(self) -> dict[str, Any]:
        return {"unfinished": self.summary.get("unfinished", []), "unwritten": list(self.unwritten)}


@dataclass(frozen=True)
class JobResult:
    """The results of one job."""

    label: str
    journal: Journal
    checks: list[CheckRecord]
    facts: VariantFacts


@dataclass(frozen=True)
class VariantResult:
    """The results of one variant."""

    jobs: tuple[JobResult, ...]
    links: list[LinkRecord]
    faults: list[FaultRecord]
    nodes: list[NodeRecord]
    packet_hops: int
    wall_s: float  # of the engine alone

    @property
    def facts(self) -> dict[str, VariantFacts]:
        """Facts for the summary, by label of the job."""
        return {job.label: job.facts for job in self.jobs}

    @property
    def steps(self) -> list[StepRecord]:
        """Steps of all jobs."""
        return [record for job in self.jobs for record in job.journal.steps]

    @property
    def rounds(self) -> list[RoundRecord]:
        """Rounds of all jobs."""
        return [record for job in self.jobs for record in job.journal.rounds]

    @property
    def phases(self) -> list[PhaseRecord]:
        """Phases of all jobs."""
        return [record for job in self.jobs for record in job.journal.phases]

    @property
    def checks(self) -> list[CheckRecord]:
        """Checks of all jobs."""
        return [record for job in self.jobs for record in job.checks]

    @property
    def records(self) -> Records:
        """All records of the variant."""
        notes = [record for job in self.jobs for record in job.journal.notes]
        return Records(
            self.steps, self.rounds, notes, self.phases, self.links, self.faults, self.checks, self.nodes
        )


def link_records(variant: VariantPlan, engine: Engine) -> list[LinkRecord]:
    """Traffic of every link so far."""
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
                backlog_bytes_max=counters["backlog_bytes_max"],
            )
        )
    return records


def node_records(variant: VariantPlan) -> list[NodeRecord]:
    """All nodes of a variant's topology, in the graph's order."""
    return [
        NodeRecord(
            variant=variant.name,
            node=name,
            kind=data["kind"],
            tier=data["tier"],
            profile=data["profile"],
            can_aggregate=data["profile"] in variant.can_aggregate,
            coordinates=",".join(map(str, data["coordinates"])) if "coordinates" in data else None,
            group=data.get("group"),
            rail=data.get("rail"),
            island=data.get("island"),
        )
        for name, data in variant.graph.nodes(data=True)
    ]


def records_of(results: list[VariantResult]) -> Records:
    """The records of all variants."""
    each = [result.records for result in results]
    return Records(
        **{one.name: [record for own in each for record in getattr(own, one.name)] for one in fields(Records)}
    )


def summary_of(results: list[VariantResult]) -> dict[str, Any]:
    """Verdict, metrics and checks of all variants."""
    facts = {label: own for result in results for label, own in result.facts.items()}
    return summarize(facts, records_of(results))


def engine_of(results: list[VariantResult]) -> dict[str, Any]:
    """Packet hops and speed of the engine."""
    hops, wall_s = sum(result.packet_hops for result in results), sum(result.wall_s for result in results)
    return {"packet_hops": hops, "wall_s": wall_s, "packet_hops_per_s": hops / wall_s if wall_s else 0.0}
