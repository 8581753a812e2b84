"""A card that does the transport (RoCE): cores only post messages and see that they are done."""

from netfold.sim.hosts.profile import HostProfile, register

_CARD = "Assumption: 200 million packets a second each way, the message rate that vendors give for ConnectX-5"
_PCIE = (
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
        name="rdma",
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
            "per_byte_send_ps": _PCIE,
            "per_byte_receive_ps": _PCIE,
            "message_ps": _POST,
            "latency_send_ps": _WAY,
            "latency_receive_ps": _WAY,
            "cores": "p4lang/p4app-switchML, client_lib/src/configs: num_worker_threads = 4",
        },
    )
)
