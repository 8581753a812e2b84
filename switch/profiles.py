"""What a switch can do: hardware limits as data, each with the source of its number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """One kind of switch.

    A packet takes `pass_latency_ps` through the pipeline once; what needs further passes goes through a
    loopback port of `loopback_rate_bps` (0: the switch needs none).
    """

    name: str
    is_programmable: bool
    pass_latency_ps: int
    port_rate_bps: int  # fastest port; 0: any
    loopback_rate_bps: int
    register_entries: (
        int  # longest array of 64-bit register pairs when all stateful ALUs of a stage are used; 0: no limit
    )
    source: str


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("plain", False, 0, 0, 0, 0, "an ideal store-and-forward switch: forwards only"),
        Profile(
            "ideal",
            True,
            0,
            0,
            0,
            0,
            "aggregates without latency, extra passes or limits: for bounds and comparisons",
        ),
        Profile(
            "tofino1",
            True,
            600_000,
            100 * 10**9,
            100 * 10**9,
            22_528,
            "p4lang/p4c backends/tofino (48 map RAMs a stage, 4 stateful ALUs: 11 blocks of 2048 pairs); "
            "pass latency 0.4–0.8 us port to port, unpublished: the middle is assumed",
        ),
    )
}


class UnknownProfileError(ValueError):
    """A profile name that is not in the table."""


def profile(name: str) -> Profile:
    """Profile by name.

    Raises
    ------
    UnknownProfileError
        Names the profiles there are.
    """
    if name not in PROFILES:
        raise UnknownProfileError(f"there is no switch profile {name!r}")
    return PROFILES[name]
