"""A profile of hosts: what sending and receiving a packet takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from netfold.topologies.graph import LINK_RANGES
from netfold.topologies.network import Work
from netfold.units import PS_PER_S

_RATE_MAX_BPS = LINK_RANGES["rate_bps"][1]


@dataclass(frozen=True)
class HostProfile:
    """Times of a host, in int picoseconds; each is 0 unless it is given, and has its source.

    With n cores the host does n packets in the time of one, and a packet of B bytes on the wire occupies it
    for (per_packet + B · per_byte) / n. The first packet of a message takes message / n more where it is
    sent. A packet that finds the host idle leaves after the whole of per_packet, however many cores there
    are, and after the latency. Packets wait first in, first out; acknowledgements go first.
    """

    name: str
    summary: str
    part: str = "CPU"  # what does the work, in the names of links
    per_packet_send_ps: int = 0
    per_packet_receive_ps: int = 0
    per_byte_send_ps: int = 0
    per_byte_receive_ps: int = 0
    message_ps: int = 0
    latency_send_ps: int = 0
    latency_receive_ps: int = 0
    cores: int = 1
    is_offloaded: bool = False  # the card does packets and bytes: cores divide the time of a message alone
    sources: Mapping[str, str] = field(default_factory=dict)  # by field

    @property
    def takes_time(self) -> bool:
        """Whether anything takes time at such a host."""
        return any(value for name, value in vars(self).items() if name.endswith("_ps"))

    def works(self, host: str) -> tuple[Work, Work]:
        """What sending and what receiving takes at a host of this name; times are rounded up."""
        return (
            self._work(
                f"{host} {self.part}, sending",
                (self.per_packet_send_ps, self.per_byte_send_ps, self.latency_send_ps),
                -(-self.message_ps // self.cores),
            ),
            self._work(
                f"{host} {self.part}, receiving",
                (self.per_packet_receive_ps, self.per_byte_receive_ps, self.latency_receive_ps),
                0,
            ),
        )

    def _work(self, name: str, times_ps: tuple[int, int, int], message_ps: int) -> Work:
        whole_ps, byte_ps, latency_ps = times_ps
        cores = 1 if self.is_offloaded else self.cores
        packet_ps = -(-whole_ps // cores)
        rate_bps = min(_RATE_MAX_BPS, 8 * PS_PER_S * cores // byte_ps) if byte_ps else _RATE_MAX_BPS
        return Work(name, max(1, rate_bps), packet_ps, message_ps, latency_ps + whole_ps - packet_ps)


NONE = HostProfile("none", "packets take no time in hosts")
_registry: dict[str, HostProfile] = {NONE.name: NONE}


def register(profile: HostProfile) -> HostProfile:
    """Make a profile known under its name, and return it.

    Raises
    ------
    ValueError
        There is one of this name, or a time or number of cores without a source.
    """
    if profile.name in _registry:
        raise ValueError(f"there already is a profile of hosts {profile.name!r}")
    given = {name for name, value in vars(profile).items() if name.endswith("_ps") and value} | {"cores"}
    if missing := sorted(given - set(profile.sources)):
        raise ValueError(f"profile {profile.name!r} has no source for {', '.join(missing)}")
    _registry[profile.name] = profile
    return profile


def host_profiles() -> dict[str, HostProfile]:
    """All profiles by name, `none` first."""
    return dict(_registry)
