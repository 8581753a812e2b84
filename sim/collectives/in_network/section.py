"""The keys of aggregation in switches: every key, its meaning, its default and its range."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator

from netfold.sim.collectives.spec import CollectiveSection
from netfold.sim.errors import shown
from netfold.sim.keys.fields import Count, Size, Time
from netfold.sim.keys.frame import Frame, OwnFrame, own_or_named
from netfold.sim.units import SIZE, TIME
from netfold.spelling import names_hint

AnyFrame = Literal[Frame, "atp"]
SwitchFrame = Annotated[AnyFrame | OwnFrame, own_or_named((*get_args(Frame), "atp"))]

FRAMES_OF = {
    "switchml": ("udp-256", "udp-1024", "roce-1024"),
    "tree": ("roce-1024", "roce-2048"),
    "timed": ("udp-256", "udp-1024"),
    "atp": ("atp",),
}
_FRAME: dict[str, AnyFrame] = {
    "switchml": "roce-1024",
    "tree": "roce-2048",
    "timed": "udp-1024",
    "atp": "atp",
}  # by default
_SLOTS = {"switchml": 512, "tree": 16, "timed": 512, "atp": 100}
_PROGRAMS_OF = {  # of each option that not every program has
    "aggregators": ("switchml", "tree"),
    "message_packets": ("switchml",),
    "timeout": ("switchml", "timed", "atp"),
    "first_timeout": ("switchml", "timed", "atp"),
    "timeout_max": ("switchml", "timed"),
    "slot_timer": ("timed",),
    "server": ("atp",),
    "entries": ("atp",),
    "ecn_threshold": ("atp",),
    "adaptive": ("atp",),
}


class InNetwork(CollectiveSection):
    """Aggregation in switches, by the program they run."""

    told_always: ClassVar = ("program", "frame")

    kind: Literal["in_network"]
    program: Literal["switchml", "tree", "timed", "atp"] = "switchml"
    """What switches run. switchml: slots in two versions, workers that send again; tree: one version, a
    network that loses nothing (SHARP); timed: slots that answer with what they have when a timer expires
    (Trio-ML); atp: hashed entries, and a server for what collides."""
    frame: SwitchFrame = Field(default_factory=lambda read: _FRAME[read.get("program", "switchml")])
    """Packet format: protocol and payload bytes, or one of your own: {words: 256, overhead: 82B}; by default
    roce-1024 for switchml, roce-2048 for tree, udp-1024 for timed and atp for atp."""
    slots: Count = Field(default_factory=lambda read: _SLOTS[read.get("program", "switchml")])
    """Packets a worker may have outstanding, one accumulator of the switch each (with atp, its window); by
    default 512, 16 for tree, 100 for atp."""
    message_packets: Count = Field(
        default_factory=lambda read: 4 if _has_messages(read.get("program"), read.get("frame")) else 1
    )
    """switchml: packets per RDMA message: by default 4 with RoCE; 1 with UDP, which has no messages, and with
    a frame of your own."""
    switch: str = "auto"
    """Name of the switch; auto takes the one that adds up fastest by the links' rates, of several the
    nearest to all workers, among those that can run the program and have room for it."""
    aggregators: Literal["auto", "one", "tree"] = "auto"
    """switchml, tree: which switches add up. one: the switch above; tree: also every switch where workers'
    ways to it meet, if its profile can; auto: tree where that is faster by the links' rates, else one."""
    overflow: Literal["auto", "wrap", "saturate", "sticky"] = "auto"
    """What becomes of a sum that leaves int32; auto is wrap for switchml, sticky for atp (which can nothing
    else), and the first that the switch can for others."""
    timeout: Time | None = None
    """switchml, timed, atp: wait for a result before a message is sent again; by default 10ms, 200us for atp,
    or twice the round trip of a full window where that is longer."""
    first_timeout: Time | None = None
    """switchml, timed, atp: wait for the results of the first window of every exchange; by default the same,
    50ms for atp."""
    timeout_max: Time = TIME.parse("100ms")
    """switchml, timed: the timeout doubles after every 100 timeouts of a worker, up to this."""
    slot_timer: Time | None = Field(default=None, validate_default=True)
    """timed: longest that a slot waits for workers before it answers with those it has; required."""
    server: str = "auto"
    """atp: host of the parameter server; auto takes the first without a worker."""
    entries: Count = 20_000
    """atp: aggregators of the switch, shared by all jobs on it."""
    ecn_threshold: Size = SIZE.parse("80KB")
    """atp: a packet that finds this much waiting at a switch port is marked."""
    adaptive: bool = True
    """atp: whether marked packets shrink the window."""

    @field_validator("frame", mode="before")
    @classmethod
    def _frame_of_program(cls, frame: object, info: ValidationInfo) -> object:
        program = info.data.get("program")
        if program is None or isinstance(frame, dict | OwnFrame):  # None: a mistake of its own
            return frame
        if frame not in FRAMES_OF[program]:
            hint = names_hint(str(frame), FRAMES_OF[program], "allowed")
            raise ValueError(f"cannot use {shown(frame)} with program {program}\n{hint}")
        return frame

    @field_validator(*_PROGRAMS_OF)
    @classmethod
    def _belongs_to_program(cls, value: object, info: ValidationInfo) -> object:
        key, program = str(info.field_name), info.data.get("program")
        if program is None:  # a mistake of its own
            return value
        if key == "slot_timer" and value is None:  # left out
            if program == "timed":
                raise ValueError("program timed needs a slot timer\nfor example slot_timer: 1ms")
            return value
        if key == "slot_timer" and value == 0:
            raise ValueError("must be more than 0\na slot that waits no time adds up nothing")
        programs = _PROGRAMS_OF[key]
        if program not in programs:
            plural = "s" if len(programs) > 1 else ""
            several = f"{', '.join(programs[:-1])} and " if plural else ""
            owners = f"program{plural} {several}{programs[-1]}"
            raise ValueError(f"{key} belongs to {owners}, found program {program}\nremove it")
        return value

    @field_validator("overflow")
    @classmethod
    def _atp_is_sticky(cls, overflow: str, info: ValidationInfo) -> str:
        if info.data.get("program") == "atp" and overflow not in ("auto", "sticky"):
            raise ValueError(
                f"program atp keeps words at the limit, where its server sees them; found {shown(overflow)}\n"
                "use sticky, or leave it out"
            )
        return overflow

    @field_validator("message_packets")
    @classmethod
    def _udp_has_no_messages(cls, message_packets: int, info: ValidationInfo) -> int:
        frame = str(info.data.get("frame"))
        if frame.startswith("udp") and message_packets != 1 and "program" in info.data:
            raise ValueError(
                f"must be 1 with frame {frame}, found {message_packets}\nonly RoCE has longer messages"
            )
        return message_packets


def _has_messages(program: object, frame: object) -> bool:
    return program == "switchml" and str(frame).startswith("roce")
