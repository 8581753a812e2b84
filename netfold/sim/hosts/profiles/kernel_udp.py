"""Sockets of the Linux kernel, one datagram after the other (UDP): each packet passes the whole stack."""

from netfold.sim.hosts.profile import HostProfile, register

_RECEIVE = (
    "M. Majkowski, How to receive a million packets per second, Cloudflare 2015: one thread on one receive "
    "queue takes 350,000 small datagrams a second at most"
)
_COPY = (
    "Cai et al., Understanding Host Network Stack Overheads, SIGCOMM 2021: a receiving core does 42 Gbps, "
    "and copies for about half of its time: 93 ps a byte"
)
_TRIP = (
    "M. Majkowski, How to achieve low latency with 10Gbps Ethernet, Cloudflare 2015: about 30 us there and "
    "back, in which packets pass a host four times; 7.5 us each, 2.9 us of them the packet's own time"
)

KERNEL_UDP = register(
    HostProfile(
        name="kernel_udp",
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
            "per_packet_receive_ps": _RECEIVE,
            "per_byte_send_ps": "Assumption: as long as receiving",
            "per_byte_receive_ps": _COPY,
            "latency_send_ps": _TRIP,
            "latency_receive_ps": _TRIP,
            "cores": "One socket is served by one core",
        },
    )
)
