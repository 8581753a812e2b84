"""Aggregation in switches: its keys in a scenario file, including those that only some programs have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, create_model, field_validator

from netfold.errors import shown
from netfold.sim.collectives.collective import CollectiveSection
from netfold.sim.collectives.in_network.program_keys import (
    describe_programs,
    listed,
    meaning,
    options,
    owners,
)
from netfold.sim.keys.fields import Count, OneOf, ReleasedTime, Size, Time, named_or_count
from netfold.sim.keys.frame import CustomFrame, SwitchFrame
from netfold.spelling import names_hint
from netfold.switch.program import Option, ProgramSpec
from netfold.switch.programs import default_program, formats, programs, runnable
from netfold.units import SIZE, TIME


def _spec(read: dict[str, Any]) -> ProgramSpec:
    """The program that the keys name; the default program if the name is wrong."""
    return programs().get(str(read.get("program")), default_program())


def _message_packets(read: dict[str, Any]) -> int:
    """The default: more than one only for frames that have messages."""
    frame = formats().get(str(read.get("frame")))
    return _spec(read).message_packets if frame is not None and frame.has_messages else 1


TREES_MAX = 64  # as many as a SHARP switch can be part of
Aggregators = Annotated[
    Literal["auto", "one", "tree", "tor", "core"] | Count,
    named_or_count(("auto", "one", "tree", "tor", "core"), "switches"),
]
Slots = Annotated[Literal["auto"] | Count, named_or_count(("auto",), "packets")]


class SwitchKeys(CollectiveSection):
    """Aggregation in switches by a switch program."""

    recorded_always: ClassVar = ("program", "frame")

    kind: Literal["in_network"]
    program: Annotated[str, OneOf(runnable, describe_programs)] = default_program().name
    frame: SwitchFrame = Field(default_factory=lambda read: _spec(read).frame, description=meaning("frame"))
    slots: Slots = Field("auto", description=meaning("slots"))
    message_packets: Count = Field(default_factory=_message_packets, description=meaning("message_packets"))
    switch: str = "auto"
    """Name of the switch; auto selects, among those that can run the program and have room for it, the one
    with the highest rate by the links, and of equal ones the nearest to all workers."""
    aggregators: Aggregators = Field("auto", description=meaning("aggregators"))
    tree: Literal["depth", "traffic"] = Field("depth", description=meaning("tree"))
    trees: Annotated[int, Field(ge=1, le=TREES_MAX)] = Field(1, description=meaning("trees"))
    multicast: Literal["off", "auto", "on"] = Field("off", description=meaning("multicast"))
    overflow: Literal["auto", "wrap", "saturate", "sticky"] = Field("auto", description=meaning("overflow"))
    timeout: ReleasedTime = Field("auto", description=meaning("timeout"))
    first_timeout: Time | None = Field(None, description=meaning("first_timeout"))
    timeout_max: Time = Field(TIME.parse("100ms"), description=meaning("timeout_max"))

    @property
    def spec(self) -> ProgramSpec:
        """Specification of its program."""
        return programs()[self.program]

    def option(self, name: str) -> Any:
        """The value of a key that only some programs have."""
        return getattr(self, name)

    @field_validator("frame", mode="before")
    @classmethod
    def _frame_of_program(cls, frame: object, info: ValidationInfo) -> object:
        program = info.data.get("program")
        if program is None or isinstance(frame, dict | CustomFrame):  # None: a mistake of its own
            return frame
        allowed = [one.name for one in programs()[program].frames]
        if frame not in allowed:
            hint = names_hint(str(frame), allowed, "allowed")
            raise ValueError(f"cannot use {shown(frame)} with program {program}\n{hint}")
        return frame

    @field_validator("*")
    @classmethod
    def _belongs_to_program(cls, value: object, info: ValidationInfo) -> object:
        key, program = str(info.field_name), info.data.get("program")
        if program is None:  # a mistake of its own
            return value
        option, names = options().get(key), owners(key)
        if option and option.missing and value is None:  # left out
            if program in names:
                example = f"for example {option.name}: {option.example}"
                raise ValueError(f"program {program} {option.missing}\n{example}")
            return value
        if option and option.zero and value == 0:
            raise ValueError(option.zero)
        if names and program not in names:
            owned_by = f"program{'s' if len(names) > 1 else ''} {listed(names)}"
            raise ValueError(f"{key} belongs to {owned_by}, found program {program}\nremove it")
        return value

    @field_validator("overflow")
    @classmethod
    def _may_overflow_so(cls, overflow: str, info: ValidationInfo) -> str:
        spec = _spec(info.data)
        if spec.only_overflow and overflow not in ("auto", spec.overflow):
            raise ValueError(
                f"program {spec.name} {spec.only_overflow}; found {shown(overflow)}\n"
                f"use {spec.overflow}, or leave it out"
            )
        return overflow

    @field_validator("message_packets")
    @classmethod
    def _frame_has_messages(cls, message_packets: int, info: ValidationInfo) -> int:
        frame = formats().get(str(info.data.get("frame")))
        if frame is not None and not frame.has_messages and message_packets != 1 and "program" in info.data:
            raise ValueError(
                f"must be 1 with frame {frame.name}, found {message_packets}\nonly RoCE has longer messages"
            )
        return message_packets


_TYPES: dict[str, Any] = {"time": Time, "size": Size, "count": Count, "flag": bool, "text": str}


def _field(option: Option) -> tuple[Any, Any]:
    """The pydantic field of a key that a program defines."""
    quantity = {"time": TIME, "size": SIZE}.get(option.kind)
    default = quantity.parse(option.default) if quantity and option.default is not None else option.default
    kind = _TYPES[option.kind] if default is not None else _TYPES[option.kind] | None
    checked: dict[str, Any] = {"validate_default": True} if option.missing else {}
    return kind, Field(default, description=meaning(option.name), **checked)


if TYPE_CHECKING:
    InNetworkSection = SwitchKeys
else:
    InNetworkSection = create_model(
        "InNetworkSection",
        __base__=SwitchKeys,
        __doc__=SwitchKeys.__doc__,
        **{name: _field(option) for name, option in options().items()},
    )
