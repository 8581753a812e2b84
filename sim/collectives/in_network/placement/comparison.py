"""Compares a job on switches with a ring between the hosts, by closed forms of the idle network."""

from __future__ import annotations

from collections.abc import Sequence

from netfold.sim.plan.idle_network import Pace
from netfold.sim.units import TIME

RING_MARGIN = 0.98  # accuracy of the closed forms


def is_ring_faster(own: Pace, ring: Pace, elements: int) -> bool:
    """Whether a ring between the hosts sums this number of dense elements sooner."""
    return RING_MARGIN * own.time_ps(elements) > ring.time_ps(elements)


def slower_than_ring(own: Pace, ring: Pace, names: Sequence[str], remedy: str) -> str:
    """The warning that a ring is faster; `names` are those of links, `remedy` is what to change."""
    if own.is_windowed:
        why = f"its slots are too few for a round trip of {TIME.rough(own.latency_ps)}"
    else:
        why = f"{own.busiest.streams} streams share {names[own.busiest.link]}"
    rates = f"{ring.elements_per_s / 1e9:.3g} G against {own.elements_per_s / 1e9:.3g} G dense elements/s"
    return f"a ring would be faster here, with about {rates}: {why}; {remedy}"
