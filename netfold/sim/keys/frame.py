"""Packet formats in a scenario file: the name of a known format, or a custom one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from netfold.sim.keys.fields import Count, OneOf, refuse_unknown
from netfold.sim.keys.section import Section
from netfold.switch.program import FORMATS
from netfold.switch.programs import formats
from netfold.units import SIZE

# On the wire: Ethernet's minimum, and the engine's maximum.
PACKET_MIN_BYTES, PACKET_MAX_BYTES = 84, 1 << 16
Bytes = Annotated[
    int,
    BeforeValidator(SIZE.parse),
    Field(ge=0),
    PlainSerializer(SIZE.format, return_type=str),
    WithJsonSchema({"type": "string", "pattern": SIZE.pattern, "examples": ["82B"]}),
]


class CustomFrame(Section):
    """A custom packet format. All sizes are sizes on the wire: they include the frame check sequence (4 B),
    preamble and inter-frame gap (20 B)."""

    words: Annotated[Count, Field(le=PACKET_MAX_BYTES // 4)]
    """32-bit words of a full packet."""
    overhead: Bytes
    """Bytes of a packet besides words: headers, frame check sequence, preamble and gap. RoCEv2 has 82B."""
    first: Bytes = 0
    """Extra bytes of the first packet of a message, such as 16B for the RETH of RoCEv2."""
    last: Bytes = 0
    """Extra bytes of the last packet of a message, such as 4B for immediate data."""
    ack: Bytes = PACKET_MIN_BYTES
    """Size of an acknowledgement between hosts."""

    @model_validator(mode="after")
    def _fits_ethernet_and_clock(self) -> CustomFrame:
        least, most = 4 * self.words + self.overhead, PACKET_MAX_BYTES
        full = least + self.first + self.last
        for name, size_bytes in (("a full packet", full), ("an acknowledgement", self.ack)):
            if size_bytes > PACKET_MAX_BYTES:
                raise ValueError(f"{name} of {size_bytes}B is too long\nuse {most}B on the wire at most")
        for name, size_bytes in (("a full packet", least), ("an acknowledgement", self.ack)):
            if size_bytes < PACKET_MIN_BYTES:
                raise ValueError(
                    f"{name} of {size_bytes}B is shorter than Ethernet's minimum\n"
                    f"use {PACKET_MIN_BYTES}B or more: 64B, and 20B of preamble and gap"
                )
        return self


def _custom_or_named(names: Callable[[], Iterable[str]]) -> BeforeValidator:
    """Accept a mapping as a custom format, and anything else only if it is one of these names."""

    def check(value: object) -> object:
        if isinstance(value, dict):
            return CustomFrame.model_validate(value)
        return value if isinstance(value, CustomFrame) else refuse_unknown(value, names())

    return BeforeValidator(check)


def _of_hosts() -> Iterable[str]:
    return [frame.name for frame in FORMATS]


HostFrame = Annotated[Annotated[str, OneOf(_of_hosts)] | CustomFrame, _custom_or_named(_of_hosts)]
SwitchFrame = Annotated[Annotated[str, OneOf(formats)] | CustomFrame, _custom_or_named(formats)]
