"""Scenarios and networks small enough to work out on paper, and ways to run them."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import simpy

from netfold.errors import ScenarioError
from netfold.homomorphic.merge import Merged
from netfold.homomorphic.message import Message
from netfold.sim.collectives.collective import Collective, OperationId
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import Job, Rule, losses
from netfold.sim.network.fabric import Fabric
from netfold.sim.plan.plan import JobPlan, VariantPlan
from netfold.sim.results.summary import summarize
from netfold.sim.run.run import run_scenario, run_variant
from netfold.sim.run.variant import Outcome, VariantResult
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.run_limits import Plan
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star
from netfold.topologies.network import Network, compile_network

TINY = """\
name: tiny
seed: 7
topology: {kind: star, hosts: 4, rate: 100Gbps, delay: 1us, switch: tofino1}
workers: 3
workload:
  kind: synthetic
  elements: 1000
codec: {kind: fixed_point}
collective:
  kind: in_network
  frame: udp-256
"""
RING = "collective={kind: ring}"
DENSE = "codec={kind: none}"
LINK = LinkSpec(rate_bps=100 * 10**9, delay_ps=1_000_000, buffer_bytes=1 << 24)
BYTE_PS = 80  # at 100 Gbps

Started = Callable[[simpy.Environment, Fabric], Collective]


def write(folder: Path, text: str = TINY) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def plan(folder: Path, *sets: str, text: str = TINY) -> Plan:
    return resolve(load(write(folder, text), sets))


def refused(folder: Path, *sets: str, text: str = TINY) -> str:
    """The error's text, without the folder of the file."""
    with pytest.raises(ScenarioError) as caught:
        plan(folder, *sets, text=text)
    return str(caught.value).removeprefix(f"{folder}/")


def only(folder: Path, *sets: str, text: str = TINY) -> VariantPlan:
    (variant,) = plan(folder, *sets, text=text).variants
    return variant


def job_plan(variant: VariantPlan) -> JobPlan:
    """The plan of its only job."""
    (job,) = variant.jobs
    return job


def job_of(variant: VariantPlan) -> Job:
    job = job_plan(variant).collective.aggregation
    assert job is not None
    return job


def simulate(folder: Path, *sets: str, text: str = TINY) -> VariantResult:
    """Run the only variant, without writing anything down."""
    return result_of(plan(folder, *sets, text=text))


def simulated(settings: Mapping[str, Any]) -> VariantResult:
    """The same of a scenario that names no file."""
    return result_of(resolve(load(ScenarioText(json.dumps(settings), "scenario.yaml"))))


def result_of(resolved: Plan) -> VariantResult:
    """Run the only variant of a plan."""
    (variant,) = resolved.variants
    return run_variant(resolved, variant)


def run(folder: Path, *sets: str, text: str = TINY, seed: int | None = None) -> Outcome:
    """Run and write the run folder below `folder`."""
    return run_scenario(write(folder, text), sets, seed, folder / "runs", lambda *_: None)


def entry_of(result: VariantResult) -> dict[str, Any]:
    """What the summary of a run says of its first job."""
    entry: dict[str, Any] = summarize(result.facts, result.records)["variants"][0]
    return entry


def verdict_of(result: VariantResult) -> str:
    """That of its first job."""
    return str(entry_of(result)["verdict"])


def metrics_of(result: VariantResult) -> dict[str, Any]:
    """Metrics of its first job."""
    metrics: dict[str, Any] = entry_of(result)["metrics"]
    return metrics


def measure(folder: Path, *sets: str, text: str = TINY) -> dict[str, Any]:
    """Metrics of the only variant, without writing anything down."""
    return metrics_of(simulate(folder, *sets, text=text))


def small_star(hosts: int) -> Network:
    """Hosts 0 … n − 1 on the switch n, without pass latency."""
    return compile_network(star(hosts, LINK))


class Exchanged:
    """What every worker got, `received[worker][operation]`, and when the last one had it."""

    def __init__(
        self,
        network: Network,
        start: Started,
        loss: float = 0.0,
        seed: int = 1,
        rules: Sequence[Rule] | None = None,
    ) -> None:
        self.environment = simpy.Environment()
        lossy = losses([loss] * len(network.link_names))
        self.engine = Engine(network, seed, lossy if rules is None else rules)
        self.collective = start(self.environment, Fabric(self.environment, self.engine))
        self.received: list[list[tuple[Merged, ...]]] = []

    def run(
        self, sent: Sequence[Sequence[tuple[Message, ...]]], pauses_ps: Sequence[Sequence[int]] | None = None
    ) -> Exchanged:
        """Carry `sent[worker][operation]`; a worker waits `pauses_ps[worker][operation]` before each."""
        self.received = [[] for _ in sent]
        pauses = pauses_ps or [[0] * len(operations) for operations in sent]
        workers = [
            self.environment.process(self._work(worker, operations, pauses[worker]))
            for worker, operations in enumerate(sent)
        ]
        self.environment.run(self.environment.all_of(workers))
        return self

    @property
    def end_ps(self) -> int:
        return int(self.environment.now)

    def _work(
        self, worker: int, operations: Sequence[tuple[Message, ...]], pauses_ps: Sequence[int]
    ) -> Generator[simpy.Event, Any, None]:
        for number, (messages, pause_ps) in enumerate(zip(operations, pauses_ps, strict=True)):
            yield self.environment.timeout(pause_ps)
            exchange = self.collective.exchange(worker, messages, OperationId(0, 0, number))
            self.received[worker].append((yield from exchange))
