"""Compares a job on switches with a ring between the hosts, by closed forms of the idle network."""

from __future__ import annotations

from netfold.sim.plan.idle_network import Pace
from netfold.topologies.network import Network
from netfold.units import TIME

RING_MARGIN = 0.98  # accuracy of the closed forms


def is_ring_faster(own: Pace, ring: Pace, elements: int) -> bool:
    """Whether a ring between the hosts sums this number of dense elements sooner."""
    return RING_MARGIN * own.time_ps(elements) > ring.time_ps(elements)


def slower_than_ring(own: Pace, ring: Pace, network: Network, elements: int, remedy: str) -> str:
    """The warning that a ring is faster; `remedy` is what to change."""
    name = network.link_names[own.busiest.link]
    compared = f"{ring.elements_per_s / 1e9:.3g} G against {own.elements_per_s / 1e9:.3g} G dense elements/s"
    if RING_MARGIN * ring.elements_per_s <= own.elements_per_s:
        times = (TIME.rough(round(pace.time_ps(elements))) for pace in (ring, own))
        compared = " against ".join(times) + f" for {elements:,} elements"
        why = f"a message takes {TIME.rough(own.latency_ps)} to the switch and back"
    elif own.is_windowed:
        why = f"its slots are too few for a round trip of {TIME.rough(own.latency_ps)}"
    elif network.is_inside(own.busiest.link):
        why = f"host {name} takes longest, for packets of this size"
    elif own.busiest.streams == 1:
        why = "its packets carry fewer words per byte"
    else:
        why = f"{own.busiest.streams} streams share {name}"
    return f"a ring would be faster here, with about {compared}: {why}; {remedy}"
