"""The best possible time of an all-reduce on an idle network, for each collective, in closed form.

A collective gives its own as `CollectiveSpec.best`: a function of the network, the node of each worker, and
the bytes that every worker contributes. No slot, window or timer limits it, and no packet is lost; frames
have their default format, so headers count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from netfold.sim.errors import NetfoldError
from netfold.sim.plan.idle_network import Pace
from netfold.sim.units import PS_PER_S
from netfold.topologies.routing import Network

ELEMENT_BYTES = 4
SEED, JOB = 1, 0  # of the keys that choose between equal paths


class Best(NamedTuple):
    """The time of a collective, and the link that takes the longest."""

    seconds: float
    link: str  # "h0->s0"
    choice: str = ""  # what the collective was free to choose


BestOf = Callable[[Network, Sequence[int], int], Best]


class ImpossibleError(NetfoldError):
    """A collective that this network cannot carry; the message says why."""


def best_of_pace(network: Network, pace: Pace, size_bytes: int, choice: str = "") -> Best:
    """The time of one operation of a pace."""
    seconds = pace.time_ps(size_bytes / ELEMENT_BYTES) / PS_PER_S
    return Best(seconds, network.link_names[pace.busiest.link], choice)
