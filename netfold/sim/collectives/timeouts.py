"""Timeouts from the round trip: a timer that expires without loss floods the network with copies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from netfold.sim.keys.location import Location
from netfold.sim.plan.idle_network import Traffic, Window, full_window_trip_ps
from netfold.topologies.network import Network
from netfold.units import TIME

AUTO = "auto"
AUTO_LEAST_PS = TIME.parse("20us")
AUTO_TRIPS = 4  # a full window, twice as long because of another such job, and twice that to be sure
AUTO_MEANING = (
    f"{AUTO_TRIPS} round trips of a full window on the idle network and at least "
    f"{TIME.format(AUTO_LEAST_PS)}, and nothing is sent again while nothing was lost, whoever is late"
)


def auto_timeout_ps(trip_ps: int) -> int:
    """The timeout for a full window's round trip on the idle network."""
    return max(AUTO_LEAST_PS, AUTO_TRIPS * trip_ps)


def all_windows_trip_ps(network: Network, stages: Sequence[tuple[Traffic, int]], window: Window) -> int:
    """The round trip of a collective between hosts, of whose stages each pair has so many windows under way.

    A host goes on to its next partner before what it has sent is acknowledged. So the windows of all pairs
    whose paths share a link, in whatever stage, may wait there one behind the other.
    """
    load = defaultdict[int, float](float)
    for traffic, windows in stages:
        for link, count in traffic.load.items():
            load[link] += windows * count
    paths = tuple(path for traffic, _ in stages for path in traffic.paths)
    return full_window_trip_ps(network, Traffic(paths, load), window)


def check_timeout(
    location: Location, key: str, timeout_ps: int, trip_ps: int, window_key: str = "slots"
) -> None:
    """Reject timeouts that are not longer than a full window's round trip; `key` is the timeout's key.

    Raises
    ------
    ScenarioError
        The timeout is too short.
    """
    if timeout_ps <= trip_ps:
        raise location.job_error(
            f"collective.{key}",
            f"{TIME.format(timeout_ps)} is too short: a full window's round trip takes "
            f"{TIME.rough(trip_ps)} on the idle network, so packets would be sent again without need",
            f"use more than {TIME.rough(trip_ps)}, or a smaller window (collective.{window_key})",
        )
