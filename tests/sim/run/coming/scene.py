"""Variants whose jobs come and go, and an admission queue in plain Python to compare them with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from netfold.sim.run.run import summary_of_scenario
from netfold.sim.scenario.source import ScenarioText

BASE = """\
name: coming
seed: {seed}
topology: {{kind: star, hosts: {hosts}, rate: 100Gbps, delay: 1us, switch: {switch}}}
workers: 2
workload: {{kind: synthetic, elements: {elements}}}
codec: {{kind: fixed_point}}
collective: {{kind: in_network, program: switchml, frame: udp-256, slots: 64}}
admission: fifo
"""


class Asked(NamedTuple):
    """A job in the oracle: what it asks for, and how long it ran in the simulation."""

    arrival_us: float
    workers: int
    slots: int
    running_us: float


class Held(NamedTuple):
    """What a running job holds in the oracle."""

    end_us: float
    workers: int
    first: int
    end: int


def summary(text: str, **more: Any) -> dict[str, Any]:
    """The summary of one variant; `text` goes on after `BASE`."""
    given = {"seed": 1, "hosts": 4, "switch": "tofino1", "elements": 2000} | more
    return summary_of_scenario(ScenarioText(BASE.format(**given) + text, "coming.yaml"))


def written(folder: Path, text: str, **more: Any) -> Path:
    """The same scenario as a file."""
    given = {"seed": 1, "hosts": 4, "switch": "tofino1", "elements": 2000} | more
    path = folder / "coming.yaml"
    path.write_text(BASE.format(**given) + text)
    return path


def running_us(job: dict[str, Any]) -> float:
    """How long a job of a summary ran."""
    return float(job["stay"]["end_us"] - job["stay"]["admitted_us"])


def admissions_us(jobs: list[Asked], hosts: int, slots: int) -> list[float]:
    """When each job is admitted: first in, first out, by free hosts and by the lowest free range of slots.

    Written from that sentence alone: whenever a job arrives or ends, the head of the queue is admitted
    while it fits.
    """
    order = sorted(range(len(jobs)), key=lambda index: (jobs[index].arrival_us, index))
    instants = sorted(job.arrival_us for job in jobs)
    running: list[Held] = []
    found = [-1.0] * len(jobs)
    while order:
        now_us = instants.pop(0)
        running = [one for one in running if one.end_us > now_us]
        while order and jobs[order[0]].arrival_us <= now_us:
            job = jobs[order[0]]
            if sum(one.workers for one in running) + job.workers > hosts:
                break
            starts = [0, *sorted(one.end for one in running)]
            fitting = [
                first
                for first in starts
                if first + job.slots <= slots
                and all(first + job.slots <= one.first or first >= one.end for one in running)
            ]
            if not fitting:
                break
            end_us = now_us + job.running_us
            running.append(Held(end_us, job.workers, fitting[0], fitting[0] + job.slots))
            instants = sorted([*instants, end_us])
            found[order.pop(0)] = now_us
    return found
