"""What hosts take for packets: profiles of processors and network cards, and the scenario's key `hosts`.

A host works on packets one after the other, in front of its wire on the way out and behind it on the way in:
a link inside the host for each direction (`topologies/network.py`). Profiles are registered
below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from netfold.kinds import family, register, registered
from netfold.sim.keys import NO_KEY, Count, OneOf, Option, Time, described, key_fields
from netfold.topologies.graph import LINK_RANGES
from netfold.topologies.network import HostWork, Network, with_host_links
from netfold.units import PS_PER_S

# A profile of hosts: what sending and receiving a packet takes.


_RATE_MAX_BPS = LINK_RANGES["rate_bps"][1]


def host_profiles() -> dict[str, HostProfile]:
    return registered(HostProfile)


def _described() -> str:
    known = " ".join(f"{profile.kind}: {profile.summary}." for profile in host_profiles().values())
    return described(f"Profile that all other keys have their values from. {known}")


@family("host_profiles")
@dataclass(frozen=True)
class HostProfile(Option):
    """What hosts take for packets; a name alone is the `kind`. With n cores, a packet of B bytes on the wire
    occupies its host for (per_packet + B · per_byte) / n on its way out, and again on its way in; packets
    wait for each other. Where a network card does that (`rdma`), cores share `message` alone. Hosts without a
    worker, such as a job's servers, have what the variant says, with several jobs what the first one does.
    """

    # A packet that finds the host idle leaves after the whole of per_packet, however many cores there are,
    # and after the latency. Packets wait first in, first out; acknowledgements go first.

    kind: Annotated[str, OneOf(host_profiles, _described)] = "none"
    summary: str = field(default="", metadata=NO_KEY)
    part: str = field(default="CPU", metadata=NO_KEY)  # what does the work, in the names of links
    per_packet_send_ps: Time | None = None
    """Time of one core, or of the card, for a packet that is sent."""
    per_packet_receive_ps: Time | None = None
    """Time of one core, or of the card, for a packet that is received."""
    per_byte_send_ps: Time | None = None
    """More for each byte of it on the wire."""
    per_byte_receive_ps: Time | None = None
    """More for each byte of it on the wire."""
    message_ps: Time | None = None
    """More for the first packet of a message that is sent: a unit for a switch, or a message to a host."""
    latency_send_ps: Time | None = None
    """How long a packet takes to leave besides, without occupying its host."""
    latency_receive_ps: Time | None = None
    """How long a packet takes to come in besides, without occupying its host."""
    cores: Count | None = None
    """Processor cores that work on packets."""
    is_offloaded: bool = field(default=False, metadata=NO_KEY)
    """The card does packets and bytes: cores divide the time of a message alone."""
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, metadata=NO_KEY)
    """Where each number is from, by field."""

    def check_registered(self) -> None:
        """Raise ValueError if a time has no source, or what takes time has none for its cores."""
        time_fields = {name for name, value in vars(self).items() if name.endswith("_ps") and value}
        if missing := sorted((time_fields | {"cores"} if time_fields else time_fields) - set(self.sources)):
            raise ValueError(f"profile {self.kind!r} has no source for {', '.join(missing)}")

    def whole(self) -> HostProfile:
        """The profile of its kind, with what differs here."""
        changes = {key.name: getattr(self, key.name) for key in key_fields(HostProfile)}
        return replace(
            host_profiles()[self.kind],
            **{name: value for name, value in changes.items() if value is not None},
        )

    @property
    def takes_time(self) -> bool:
        return any(value for name, value in vars(self).items() if name.endswith("_ps"))

    def works(self, host: str) -> tuple[HostWork, HostWork]:
        """What sending and what receiving takes at a host of this name; times are rounded up."""
        return (
            self._work(
                f"{host} {self.part}, sending",
                (self.per_packet_send_ps, self.per_byte_send_ps, self.latency_send_ps),
                -(-(self.message_ps or 0) // (self.cores or 1)),
            ),
            self._work(
                f"{host} {self.part}, receiving",
                (self.per_packet_receive_ps, self.per_byte_receive_ps, self.latency_receive_ps),
                0,
            ),
        )

    def _work(self, name: str, times_ps: tuple[int | None, ...], message_ps: int) -> HostWork:
        whole_ps, byte_ps, latency_ps = (time_ps or 0 for time_ps in times_ps)
        cores = 1 if self.is_offloaded else self.cores or 1
        packet_ps = -(-whole_ps // cores)
        rate_bps = min(_RATE_MAX_BPS, 8 * PS_PER_S * cores // byte_ps) if byte_ps else _RATE_MAX_BPS
        return HostWork(name, max(1, rate_bps), packet_ps, message_ps, latency_ps + whole_ps - packet_ps)


NONE = register(HostProfile("none", "packets take no time in hosts"))


# Cores that poll the card (DPDK), and copy each packet, as the UDP client of SwitchML does.
#
# Such a core receives a packet, and sends the next one in its place. Sending and receiving are two servers
# here, so each of them is charged the time of both. That is right where every packet has its answer, as in
# aggregation in switches; a host that only sends, or only receives, would be up to twice as fast.


_ERPC = "Kalia et al., Datacenter RPCs can be General and Fast, NSDI 2019"
_SMALL = (
    f"{_ERPC}, abstract: one core handles 10 million small RPCs a second, a packet out and one in for each"
)
_LARGE = f"{_ERPC}, abstract: one core sends large messages at 75 Gbps: 107 ps a byte, twice for out and in"
_PCIE = (
    "Assumption, after Neugebauer et al., Understanding PCIe performance, SIGCOMM 2018: a small packet takes "
    "about 1 us to leave through a card and come back, most of it on PCIe; half of that each way"
)

DPDK = register(
    HostProfile(
        kind="dpdk",
        summary="cores that poll the card and copy packets, as SwitchML's UDP client",
        per_packet_send_ps=100_000,
        per_packet_receive_ps=100_000,
        per_byte_send_ps=213,
        per_byte_receive_ps=213,
        latency_send_ps=500_000,
        latency_receive_ps=500_000,
        cores=4,
        sources={
            "per_packet_send_ps": _SMALL,
            "per_packet_receive_ps": _SMALL,
            "per_byte_send_ps": _LARGE,
            "per_byte_receive_ps": _LARGE,
            "latency_send_ps": _PCIE,
            "latency_receive_ps": _PCIE,
            "cores": "p4lang/p4app-switchML, client_lib/src/configs: num_worker_threads = 4",
        },
    )
)


# Streams of the Linux kernel (TCP), with segmentation by the card and merged packets (TSO, GRO).
#
# The stack sees some ten thousand bytes at a time, so that bytes cost more than packets do.


_CAI = "Cai et al., Understanding Host Network Stack Overheads, SIGCOMM 2021"
_RECEIVE = f"{_CAI}: a core receives 42 Gbps of one stream with all optimisations, and is the bottleneck"
_SEND = f"{_CAI}: the receiver is the bottleneck; assumption: sending costs a copy alone, about half of it"
_PACKET = "Assumption: what the card's driver and the merging of packets take for each"
_TRIP = (
    "Assumption, as UDP's: M. Majkowski, How to achieve low latency with 10Gbps Ethernet, Cloudflare 2015, "
    "about 30 us there and back, in which packets pass a host four times"
)

KERNEL_TCP = register(
    HostProfile(
        kind="kernel_tcp",
        summary="streams of the kernel, with segmentation and merging of packets",
        per_packet_send_ps=50_000,
        per_packet_receive_ps=100_000,
        per_byte_send_ps=93,
        per_byte_receive_ps=190,
        latency_send_ps=7_500_000,
        latency_receive_ps=7_500_000,
        cores=1,
        sources={
            "per_packet_send_ps": _PACKET,
            "per_packet_receive_ps": _PACKET,
            "per_byte_send_ps": _SEND,
            "per_byte_receive_ps": _RECEIVE,
            "latency_send_ps": _TRIP,
            "latency_receive_ps": _TRIP,
            "cores": "One stream is served by one core",
        },
    )
)


# Sockets of the Linux kernel, one datagram after the other (UDP): each packet passes the whole stack.


_UDP_RECEIVE = (
    "M. Majkowski, How to receive a million packets per second, Cloudflare 2015: one thread on one receive "
    "queue takes 350,000 small datagrams a second at most"
)
_COPY = (
    "Cai et al., Understanding Host Network Stack Overheads, SIGCOMM 2021: a receiving core does 42 Gbps, "
    "and copies for about half of its time: 93 ps a byte"
)
_UDP_TRIP = (
    "M. Majkowski, How to achieve low latency with 10Gbps Ethernet, Cloudflare 2015: about 30 us there and "
    "back, in which packets pass a host four times; 7.5 us each, 2.9 us of them the packet's own time"
)

KERNEL_UDP = register(
    HostProfile(
        kind="kernel_udp",
        summary="sockets of the kernel, one datagram after the other",
        per_packet_send_ps=2_860_000,
        per_packet_receive_ps=2_860_000,
        per_byte_send_ps=93,
        per_byte_receive_ps=93,
        latency_send_ps=4_600_000,
        latency_receive_ps=4_600_000,
        cores=1,
        sources={
            "per_packet_send_ps": "Assumption: as long as receiving",
            "per_packet_receive_ps": _UDP_RECEIVE,
            "per_byte_send_ps": "Assumption: as long as receiving",
            "per_byte_receive_ps": _COPY,
            "latency_send_ps": _UDP_TRIP,
            "latency_receive_ps": _UDP_TRIP,
            "cores": "One socket is served by one core",
        },
    )
)


# A card that does the transport (RoCE): cores only post messages and see that they are done.


_CARD = "Assumption: 200 million packets a second each way, the message rate that vendors give for ConnectX-5"
_RDMA_PCIE = (
    "PCIe 3.0 x16: 16 lanes of 8 GT/s with 128b/130b coding are 126 Gbps; packets of 256 B with 26 B of "
    "headers leave 114 Gbps: 70 ps a byte"
)
_POST = (
    "Kalia et al., Datacenter RPCs can be General and Fast, NSDI 2019, abstract: one core handles 10 million "
    "small RPCs a second, for each of which it posts one work request and takes one completion"
)
_WAY = (
    "Assumption, after Neugebauer et al., Understanding PCIe performance, SIGCOMM 2018: a small packet takes "
    "about 1 us to leave through a card and come back, most of it on PCIe; half of that each way"
)

RDMA = register(
    HostProfile(
        kind="rdma",
        summary="a card that does the transport; cores post messages",
        part="NIC",
        per_packet_send_ps=5_000,
        per_packet_receive_ps=5_000,
        per_byte_send_ps=70,
        per_byte_receive_ps=70,
        message_ps=100_000,
        latency_send_ps=500_000,
        latency_receive_ps=500_000,
        cores=4,
        is_offloaded=True,
        sources={
            "per_packet_send_ps": _CARD,
            "per_packet_receive_ps": _CARD,
            "per_byte_send_ps": _RDMA_PCIE,
            "per_byte_receive_ps": _RDMA_PCIE,
            "message_ps": _POST,
            "latency_send_ps": _WAY,
            "latency_receive_ps": _WAY,
            "cores": "p4lang/p4app-switchML, client_lib/src/configs: num_worker_threads = 4",
        },
    )
)


# A network whose hosts take time for packets.


def with_work(network: Network, profiles: Mapping[int, HostProfile]) -> Network:
    """The network with links inside hosts, by node, whose profiles take time."""
    return with_host_links(
        network,
        {
            node: profile.works(network.nodes[node])
            for node, profile in profiles.items()
            if profile.takes_time
        },
    )
