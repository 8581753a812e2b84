"""A collective of one's own is one file: this one, which a scenario names as soon as it is registered.

As a program (`python -m tests.sim.collectives.test_toy_collective`) it is netfold with that collective.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

import pytest
import simpy

from netfold.homomorphic.message import Merge, Merged
from netfold.sim.collectives.between_hosts import HostPlan, HostSection, Schedule, Steps
from netfold.sim.collectives.collective import Collective, OperationPlace, RunContext
from netfold.sim.collectives.host_messages import HostCollective, MessageExchange
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.collectives.spec import CollectiveSpec

SCENARIO = """\
name: toy
seed: 7
topology: {kind: star, hosts: 5, rate: 100Gbps, delay: 1us, switch: plain}
workers: 4
workload: {kind: synthetic, elements: 100000}
codec: {kind: fixed_point}
collective: {kind: gather, window: 64}
faults: [{kind: loss, rate: 1%}]
variants:
  - name: gather
  - name: ring
    collective: {kind: ring}
"""
PROGRAM = [sys.executable, "-m", "tests.sim.collectives.test_toy_collective"]


class Gather(HostSection):
    """All words to worker 0, who sends the sums back."""

    kind: Literal["gather"]


def steps(workers: int) -> Steps:
    pairs = [(worker, 0) for worker in range(1, workers)]
    return Steps(pairs, hops=2, chunks=1, merges=workers - 1)


class GatherRun(HostCollective):
    """One job's way to worker 0 and back."""

    @property
    def chunks_count(self) -> int:
        """One to worker 0, one back."""
        return 2 * (self.workers - 1)

    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Worker r sends in step r and receives in step n + r."""
        message, others = operation.message, range(1, self.workers)
        own = operation.own(worker, self.workers, message.words)
        if worker:
            self.send(worker, 0, operation, worker, own)
            total = yield from self.receive(worker, operation, self.workers + worker)
        else:
            total = own
            for sender in others:
                arriving = yield from self.receive(0, operation, sender)
                total = yield from self.merge(0, operation, sender, arriving, total)
            for receiver in others:
                self.send(0, receiver, operation, self.workers + receiver, total)
        total = operation.whole(total, message.size)
        return operation.finished.joined({0: operation.finished.stored(0, total)})

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """At worker 0."""
        return f"message {part} of operation {place.operation} at worker 0"


def start(plan: HostPlan, context: RunContext) -> Collective:
    return GatherRun(plan, context)


SCHEDULE = Schedule("gather", steps)
MERGES = frozenset({Merge.ADD, Merge.MAX, Merge.OR})
SPEC = CollectiveSpec("gather", MERGES, Gather, SCHEDULE.resolve, start)


def netfold(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "toy.yaml").write_text(SCENARIO, encoding="utf-8")
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=300)


def test_a_collective_of_ones_own_runs_beside_a_ring(tmp_path: Path) -> None:
    done = netfold(tmp_path, "run", f"{tmp_path}/toy.yaml", "--out", f"{tmp_path}/runs", "--json")

    told = json.loads(done.stdout)
    verdicts = {variant["name"]: variant["verdict"] for variant in told["variants"]}
    assert verdicts == {"gather": "pass", "ring": "pass"}
    summary = json.loads((tmp_path / "runs" / "latest" / "summary.json").read_text(encoding="utf-8"))
    gather = summary["variants"][0]
    assert gather["metrics"]["packets_retransmitted"] > 0
    assert gather["setup"]["collective"] == {
        "kind": "gather",
        "frame": "roce-1024",
        "window": 64,
        "timeout": "1ms",
    }


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            "codec={kind: none}",
            "--set: variants.gather.codec: codec 'none' needs float_add, which collective gather "
            "cannot carry\n  use collective.kind: ring, torus_2d, all_gather or parameter_server",
        ),
        (
            "collective.windw=5",
            "--set: variants.gather.collective.windw: unknown key 'windw'\n"
            "  did you mean 'window'? allowed: kind, frame, window, timeout, ack_every",
        ),
    ],
)
def test_its_mistakes_are_told_like_others(tmp_path: Path, change: str, told: str) -> None:
    done = netfold(tmp_path, "validate", f"{tmp_path}/toy.yaml", "--set", f"variants.gather.{change}")

    assert done.returncode == 2
    assert told in done.stderr


if __name__ == "__main__":
    COLLECTIVES[SPEC.kind] = SPEC
    from netfold.sim.__main__ import main

    main()
