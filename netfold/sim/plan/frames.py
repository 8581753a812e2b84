"""Packet formats for the engine: all sizes are sizes on the wire."""

from __future__ import annotations

from dataclasses import replace

from netfold.sim.engine.interface import Frame
from netfold.sim.keys.frame import CustomFrame
from netfold.switch.program import MEMBERS_BYTES, WIRE_BYTES
from netfold.switch.programs import formats


def frames() -> dict[str, Frame]:
    """All packet formats that a scenario can name."""
    return {
        name: Frame(name, one.words, one.overhead_bytes, one.first_bytes, one.last_bytes, one.ack_bytes)
        for name, one in formats().items()
    }


def frame_of(chosen: str | CustomFrame) -> Frame:
    """The packet format that a scenario names or defines."""
    if isinstance(chosen, str):
        return frames()[chosen]
    return Frame("own", chosen.words, chosen.overhead, chosen.first, chosen.last, chosen.ack)


def with_members(frame: Frame, workers: int = 1, *, per_packet: bool = True) -> Frame:
    """The format with a field that says who contributed: for jobs whose workers may be absent.

    Switches need it in every packet: a bitmap of up to 32 workers, or a count of more. Between hosts, the
    first packet of a message has a bitmap of all workers, in words of 32 bits.
    """
    if per_packet:
        return replace(frame, overhead_bytes=frame.overhead_bytes + MEMBERS_BYTES)
    return replace(frame, first_bytes=frame.first_bytes + MEMBERS_BYTES * -(-workers // 32))


def custom_header_bytes(chosen: str | CustomFrame) -> int | None:
    """Header bytes of a custom packet format; None for known formats, whose programs define them."""
    if isinstance(chosen, str):
        return None
    return max(0, chosen.overhead + chosen.first + chosen.last - WIRE_BYTES)
