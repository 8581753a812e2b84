"""How long packets occupy links: the wire for their bytes, a host for its work on them."""

from __future__ import annotations

from netfold.sim.units import PS_PER_S, transmit_time_ps
from netfold.topologies.routing import Network


def link_time_ps(network: Network, link: int, size_bytes: int, *, starts_message: bool = True) -> int:
    """Time of one packet on an idle link; inside a host that sends, of the first packet of a message."""
    work_ps = network.work_ps(link, starts_message=starts_message)
    return transmit_time_ps(size_bytes, int(network.rate_bps[link])) + work_ps


def packet_rate_bps(network: Network, link: int, size_bytes: int, message_packets: int = 0) -> int:
    """Bits of such packets that a link passes in a second: its rate, or less inside a host.

    `message_packets` are those of one message; 0 leaves out what messages take.
    """
    rate_bps = int(network.rate_bps[link])
    work_ps: float = network.work_ps(link)
    if message_packets:
        work_ps += (network.work_ps(link, starts_message=True) - work_ps) / message_packets
    if not work_ps:
        return rate_bps
    return max(1, int(8 * size_bytes * PS_PER_S / (transmit_time_ps(size_bytes, rate_bps) + work_ps)))
