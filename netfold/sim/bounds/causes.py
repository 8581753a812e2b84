"""What can bound a job."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """What the critical resource did; `sim/bounds` says how it is found."""

    LINK = "link"
    LOOPBACK = "loopback"
    HOST = "host"
    WINDOW = "window"
    TIMER = "timer"
    LATENCY = "latency"
    DEVICE = "device"
    STRAGGLER = "straggler"
    MERGING = "merging"
    UNEXPLAINED = "unexplained"


CAUSES = tuple(cause.value for cause in Cause)
