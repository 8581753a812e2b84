"""Packet formats for the engine: all sizes are sizes on the wire."""

from __future__ import annotations

from netfold.sim.engine.interface import Frame
from netfold.sim.keys.frame import CustomFrame
from netfold.switch.formats import WIRE_BYTES
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


def custom_header_bytes(chosen: str | CustomFrame) -> int | None:
    """Header bytes of a custom packet format; None for known formats, whose programs define them."""
    if isinstance(chosen, str):
        return None
    return max(0, chosen.overhead + chosen.first + chosen.last - WIRE_BYTES)
