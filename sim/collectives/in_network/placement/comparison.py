"""Compares a job on switches with a ring between the hosts, by closed forms of the idle network."""

from __future__ import annotations

from netfold.sim.plan.idle_network import Pace
from netfold.sim.units import TIME
from netfold.topologies.routing import Network

RING_MARGIN = 0.98  # accuracy of the closed forms


def is_ring_faster(own: Pace, ring: Pace, elements: int) -> bool:
    """Whether a ring between the hosts sums this number of dense elements sooner."""
    return RING_MARGIN * own.time_ps(elements) > ring.time_ps(elements)


def slower_than_ring(own: Pace, ring: Pace, network: Network, remedy: str) -> str:
    """The warning that a ring is faster; `remedy` is what to change."""
    name = network.link_names[own.busiest.link]
    if own.is_windowed:
        why = f"its slots are too few for a round trip of {TIME.rough(own.latency_ps)}"
    elif network.is_inside(own.busiest.link):
        why = f"host {name} takes longest, for packets of this size"
    else:
        why = f"{own.busiest.streams} streams share {name}"
    rates = f"{ring.elements_per_s / 1e9:.3g} G against {own.elements_per_s / 1e9:.3g} G dense elements/s"
    return f"a ring would be faster here, with about {rates}: {why}; {remedy}"
