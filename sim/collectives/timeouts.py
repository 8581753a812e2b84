"""A timer that expires while all is well floods the network with copies."""

from __future__ import annotations

from netfold.sim.keys.location import Location
from netfold.sim.units import TIME


def check_timeout(
    location: Location, key: str, timeout_ps: int, trip_ps: int, window_key: str = "slots"
) -> None:
    """Check a timeout of a job's collective against the round trip of a full window, the value of a key.

    Raises
    ------
    ScenarioError
        It is not longer.
    """
    if timeout_ps <= trip_ps:
        raise location.job_error(
            f"collective.{key}",
            f"{TIME.format(timeout_ps)} is too short: a full window's round trip takes "
            f"{TIME.rough(trip_ps)} on the idle network, so packets would be sent again without need",
            f"use more than {TIME.rough(trip_ps)}, or a smaller window (collective.{window_key})",
        )
