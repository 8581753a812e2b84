"""Cores that poll the card (DPDK), and copy each packet, as the UDP client of SwitchML does.

Such a core receives a packet, and sends the next one in its place. Sending and receiving are two servers
here, so each of them is charged the time of both. That is right where every packet has its answer, as in
aggregation in switches; a host that only sends, or only receives, would be up to twice as fast.
"""

from netfold.sim.hosts.profile import HostProfile, register

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
        name="dpdk",
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
