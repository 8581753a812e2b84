"""Throughputs to compare with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """A throughput shown beside the simulated one: a published figure or the wire bound."""

    label: str
    elements_per_s: float
    source: str  # where the number comes from: a paper and its figure, or the formula
