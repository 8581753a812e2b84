"""Streams of the Linux kernel (TCP), with segmentation by the card and merged packets (TSO, GRO).

The stack sees some ten thousand bytes at a time, so that bytes cost more than packets do.
"""

from netfold.sim.hosts.profile import HostProfile, register

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
        name="kernel_tcp",
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
