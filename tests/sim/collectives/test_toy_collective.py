"""A collective of one's own is one file: this one, which a scenario names as soon as it is registered.

As a program (`python -m tests.sim.collectives.test_toy_collective`) it is netfold with that collective.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.between_hosts import HostPlan, HostSection, Steps
from netfold.sim.collectives.between_hosts import Schedule as Traffic
from netfold.sim.collectives.collective import Collective, OperationPlace, RunContext
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.collectives.scheduled import ScheduledCollective
from netfold.sim.collectives.spec import CollectiveSpec
from netfold.sim.engine.schedule import NONE, Schedule
from netfold.sim.units import TIME
from tests import ROOT
from tests.sim.engine.checked_schedule import check_schedule

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


class Gather(HostSection):
    """All words to worker 0, who sends the sums back."""

    kind: Literal["gather"]


def steps(workers: int) -> Steps:
    pairs = [(worker, 0) for worker in range(1, workers)]
    return Steps(pairs, hops=2, chunks=1, merges=workers - 1)


@lru_cache
def gather_schedule(workers: int) -> Schedule:
    """Worker r sends in step r; worker 0 merges by rank, and sends the sums back in step n + r."""
    count = workers - 1
    others, zeros = np.arange(1, workers), np.zeros(count, np.int64)
    follows = np.append(np.arange(count) - 1, np.full(count, NONE))
    waits_first = np.append(zeros, count * np.arange(count + 1))
    waits_for = np.tile(np.arange(count), count)
    return Schedule(
        workers,
        1,
        np.append(others, zeros).astype(np.int32),
        np.append(zeros, others).astype(np.int32),
        np.zeros(2 * count, np.int32),
        np.ones(2 * count, np.int32),
        np.arange(2 * count) < count,
        np.append(others, workers + others).astype(np.int64),
        follows.astype(np.int32),
        np.full(2 * count, NONE, np.int32),
        waits_first.astype(np.int64),
        waits_for.astype(np.int32),
    )


class GatherRun(ScheduledCollective):
    """One job's way to worker 0 and back."""

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """The same for all messages."""
        return gather_schedule(self.workers)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """At worker 0."""
        return f"message {part} of operation {place.operation} at worker 0"


def start(plan: HostPlan, context: RunContext) -> Collective:
    return GatherRun(plan, context)


SCHEDULE = Traffic("gather", steps)
MERGES = frozenset({Merge.ADD, Merge.MAX, Merge.OR})
SPEC = CollectiveSpec("gather", MERGES, Gather, SCHEDULE.resolve, start)


def register() -> None:
    """Add it to the collectives; before scenarios are first read."""
    COLLECTIVES[SPEC.kind] = SPEC


SEVERAL = """
import json, shlex, sys
from tests.sim.collectives import test_toy_collective
test_toy_collective.register()
from typer.testing import CliRunner
from netfold.sim.commands.main import app
results = [CliRunner().invoke(app, shlex.split(command)) for command in sys.argv[1:]]
print(json.dumps([(result.exit_code, result.stdout, result.stderr) for result in results]))
"""


def told(*commands: str) -> list[tuple[int, str, str]]:
    """Exit status, standard output and errors of each command, in one process that knows this collective."""
    process = [sys.executable, "-c", SEVERAL, *commands]
    done = subprocess.run(process, capture_output=True, text=True, check=True, timeout=300, cwd=ROOT)
    found: list[tuple[int, str, str]] = json.loads(done.stdout)
    return found


NO_FLOATS = (
    "--set: variants.gather.codec: codec 'none' needs float_add, which collective gather "
    "cannot carry\n  use collective.kind: ring, halving_doubling, tree, torus_2d, all_gather, "
    "parameter_server or hierarchical"
)
UNKNOWN_KEY = (
    "--set: variants.gather.collective.windw: unknown key 'windw'\n"
    "  did you mean 'window'? allowed: kind, frame, window, timeout, ack_every"
)


@pytest.mark.slow
@pytest.mark.processes
def test_a_collective_of_ones_own_runs_beside_a_ring_and_its_mistakes_are_told(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text(SCENARIO, encoding="utf-8")
    done, no_floats, unknown_key = told(
        f"run {file} --out {tmp_path}/runs --no-report --json",
        f"validate {file} --set 'variants.gather.codec={{kind: none}}'",
        f"validate {file} --set variants.gather.collective.windw=5",
    )

    verdicts = {variant["name"]: variant["verdict"] for variant in json.loads(done[1])["variants"]}
    assert verdicts == {"gather": "pass", "ring": "pass"}
    summary = json.loads((tmp_path / "runs" / "latest" / "summary.json").read_text(encoding="utf-8"))
    gather = summary["variants"][0]
    assert gather["metrics"]["packets_retransmitted"] > 0
    collective = gather["setup"]["collective"]
    assert TIME.parse(collective.pop("timeout")) > TIME.parse("20us")  # four round trips of its windows
    assert collective == {"kind": "gather", "frame": "roce-1024", "window": 64}
    assert (no_floats[0], unknown_key[0]) == (2, 2)
    assert NO_FLOATS in no_floats[2]
    assert UNKNOWN_KEY in unknown_key[2]


def test_its_schedule_keeps_the_rules() -> None:
    for workers in range(2, 6):
        check_schedule(gather_schedule(workers))


if __name__ == "__main__":
    register()
    from netfold.sim.__main__ import main

    main()
