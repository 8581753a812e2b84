"""What a throughput is shown beside."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """A throughput to show beside ours, never mixed into it: a published figure or a bound of the wire."""

    label: str
    elements_per_s: float
    source: str  # where the number comes from: a paper and its figure, or the formula
