"""Cases whose bound follows from how they are built, and what the records say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tests.sim.scenes import simulate

PACKET_BYTES = 332  # of udp-256: 64 words and 76 B of headers, FCS, preamble and gap
CASE = """\
name: known
seed: 7
topology: {kind: star, hosts: 4, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 4
workload: {kind: synthetic, elements: 100000}
codec: {kind: fixed_point, factor: 1.0e+6}
collective: {kind: in_network, frame: udp-256, slots: 512}
"""
RACKS = "topology={kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 2, switch: ideal, delay: 1us, "


class Found(NamedTuple):
    """The bounds of a job, and its mean aggregation time of a step in microseconds."""

    parts: tuple[dict[str, Any], ...]
    time_us: float

    @property
    def first(self) -> dict[str, Any]:
        return self.parts[0]

    def share(self, cause: str, where: str | None = None) -> float:
        return sum(
            part["share"]
            for part in self.parts
            if part["cause"] == cause and (where is None or part["where"] == where)
        )


def bounds_of(folder: Path, *sets: str, job: int = 0) -> Found:
    """The bounds of a job of the case with changed values."""
    result = simulate(folder, *sets, text=CASE).jobs[job]
    steps = result.journal.steps
    assert all(check.verdict == "pass" for check in result.checks)
    found = Found(
        tuple(dict(part) for part in result.facts.bounds),
        sum(step.aggregation_ps for step in steps) / len(steps) / 1e6,
    )
    assert abs(sum(part["share"] for part in found.parts) - 1) < 1e-9
    assert abs(sum(part["time_us"] for part in found.parts) - found.time_us) < 1e-6 * found.time_us
    assert list(found.parts) == sorted(found.parts, key=lambda part: -part["share"])
    return found
