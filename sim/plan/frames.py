"""Packet formats: how many words a packet carries and what it weighs on the wire.

Every wire size includes the frame check sequence (4 B) and preamble and inter-packet gap (20 B). SwitchML's
formats are those of the released program (p4lang/p4app-switchML, `headers.p4`, `parsers.p4`,
`rdma_sender.p4`):

    UDP       Ethernet 14, IPv4 20, UDP 8, SwitchML 8, exponents 2, payload
    RoCEv2    Ethernet 14, IPv4 20, UDP 8, BTH 12, payload, ICRC 4;
              RETH 16 on a message's first packet, immediate 4 on its last

SHARP's packets are unpublished: its trees are given RoCE's headers, and the 2048 B of an outstanding
operation of the Quantum generation. ATP's (in-ATP/ATP, `headers.p4`): Ethernet 14, IPv4 20, header 14, 62
words, trailer 12.

Acknowledgements: RoCE Ethernet 14, IPv4 20, UDP 8, BTH 12, AETH 4, ICRC 4; UDP fills a minimal frame.
"""

from __future__ import annotations

from netfold.sim.engine.interface import Frame
from netfold.sim.keys.frame import OwnFrame

_WIRE_BYTES = 4 + 20  # FCS, preamble and gap
_UDP_BYTES = 14 + 20 + 8 + 8 + 2 + _WIRE_BYTES
_ROCE_BYTES = 14 + 20 + 8 + 12 + 4 + _WIRE_BYTES
_ATP_BYTES = 14 + 20 + 14 + 12 + _WIRE_BYTES

FRAMES = {
    frame.name: frame
    for frame in (
        Frame("udp-256", 64, _UDP_BYTES, ack_bytes=60 + _WIRE_BYTES),
        Frame("udp-1024", 256, _UDP_BYTES, ack_bytes=60 + _WIRE_BYTES),
        Frame("roce-1024", 256, _ROCE_BYTES, first_bytes=16, last_bytes=4, ack_bytes=_ROCE_BYTES + 4),
        Frame("roce-2048", 512, _ROCE_BYTES, first_bytes=16, last_bytes=4, ack_bytes=_ROCE_BYTES + 4),
        Frame("atp", 62, _ATP_BYTES),
    )
}


def frame_of(chosen: str | OwnFrame) -> Frame:
    """The packet format that a scenario names or writes out."""
    if isinstance(chosen, str):
        return FRAMES[chosen]
    return Frame("own", chosen.words, chosen.overhead, chosen.first, chosen.last, chosen.ack)


def own_header_bytes(chosen: str | OwnFrame) -> int | None:
    """Bytes of headers of a packet format of one's own; None for those that programs are known to have."""
    if isinstance(chosen, str):
        return None
    return max(0, chosen.overhead + chosen.first + chosen.last - _WIRE_BYTES)
