"""Packet formats: the words of a packet, and the headers and trailers around them.

SwitchML's formats are those of the released program (p4lang/p4app-switchML, `headers.p4`, `parsers.p4`,
`rdma_sender.p4`):

    UDP       Ethernet 14, IPv4 20, UDP 8, SwitchML 8, payload, exponents 2
    RoCEv2    Ethernet 14, IPv4 20, UDP 8, BTH 12, payload, ICRC 4;
              RETH 16 on a message's first packet, immediate 4 on its last

The released parser takes UDP payloads of 256 bytes only (two halves of 128, then the exponents): `udp-1024`
is netfold's own, the same headers around 1024 bytes. Sizes count the exponents among the headers.

A job whose workers may have nothing to contribute (absence is netfold's own extension) has four more bytes
in every packet: a bitmap of the workers whose words it holds, bit r for worker r, for jobs of 32 workers at
most; for larger ones, their number. The packet of an absent worker ends after its headers.

Acknowledgements: RoCE Ethernet 14, IPv4 20, UDP 8, BTH 12, AETH 4, ICRC 4; UDP fills a minimal frame.
"""

from __future__ import annotations

from dataclasses import dataclass

WIRE_BYTES = 4 + 20  # frame check sequence, preamble and inter-packet gap
MEMBERS_BYTES = 4  # who contributed: in every packet of jobs whose workers may be absent
MINIMAL_BYTES = 60 + WIRE_BYTES  # of a frame on the wire


@dataclass(frozen=True)
class Format:
    """One packet format; sizes do not include Ethernet's frame check sequence, preamble and gap."""

    name: str
    words: int  # 32-bit, of a full packet
    header_bytes: int  # of every packet
    first_bytes: int = 0  # more on the first packet of a message
    last_bytes: int = 0  # more on the last
    check_bytes: int = 0  # after the words
    ack_bytes: int = MINIMAL_BYTES  # of an acknowledgement, on the wire
    has_messages: bool = False  # of more than one packet

    @property
    def overhead_bytes(self) -> int:
        """Bytes on the wire that are not words, of a packet in the middle of a message."""
        return self.header_bytes + self.check_bytes + WIRE_BYTES

    @property
    def parsed_bytes(self) -> int:
        """Bytes of headers, in the packet with the most."""
        return self.header_bytes + self.first_bytes + self.last_bytes


def _udp(name: str, words: int) -> Format:
    return Format(name, words, 14 + 20 + 8 + 8 + 2)


def _roce(name: str, words: int) -> Format:
    header_bytes, check_bytes, extended_bytes = 14 + 20 + 8 + 12, 4, 4
    ack_bytes = header_bytes + extended_bytes + check_bytes + WIRE_BYTES
    return Format(name, words, header_bytes, 16, 4, check_bytes, ack_bytes, has_messages=True)


UDP_256, UDP_1024 = _udp("udp-256", 64), _udp("udp-1024", 256)
ROCE_1024, ROCE_2048 = _roce("roce-1024", 256), _roce("roce-2048", 512)
FORMATS = (UDP_256, UDP_1024, ROCE_1024, ROCE_2048)  # that are not specific to one program
