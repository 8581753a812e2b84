"""Checks timeouts: a timer that expires without loss floods the network with copies."""

from __future__ import annotations

from netfold.sim.keys.location import Location
from netfold.sim.units import TIME


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
