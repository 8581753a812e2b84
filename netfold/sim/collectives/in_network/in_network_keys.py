"""Keys of programs in a scenario's `collective`: which program has which keys, and their meanings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, create_model, field_validator

from netfold.errors import names_hint, shown
from netfold.sim.collectives.collective import CollectiveSection
from netfold.sim.collectives.schedule_costs import AUTO_MEANING
from netfold.sim.keys import (
    Count,
    CustomFrame,
    OneOf,
    ReleasedTime,
    Size,
    SwitchFrame,
    Time,
    described,
    named_or_count,
)
from netfold.switch.program import (
    ProgramOption,
    ProgramSpec,
    default_program,
    formats,
    names_of,
    programs,
    runnable,
)
from netfold.units import SIZE, TIME

_FEATURES: dict[str, Callable[[ProgramSpec], bool]] = {  # keys that not every program has
    "aggregators": lambda spec: spec.may_be_tree,
    "tree": lambda spec: spec.may_be_tree,
    "trees": lambda spec: spec.may_be_tree,
    "multicast": lambda spec: not spec.has_server,
    "message_packets": lambda spec: spec.message_packets > 1,
    "timeout": lambda spec: spec.timeouts is not None,
    "first_timeout": lambda spec: spec.timeouts is not None,
    "timeout_max": lambda spec: spec.timeouts is not None and spec.timeouts.doubles,
}


def owners(key: str) -> list[str]:
    """Programs that have a key; an empty list if all have it."""
    if feature := _FEATURES.get(key):
        return names_of(feature)
    return names_of(lambda spec: any(option.name == key for option in spec.options))


def options() -> dict[str, ProgramOption]:
    """Keys that programs define, by name."""
    return {option.name: option for spec in runnable().values() for option in spec.options}


def _differing(usual: object, value_of: Callable[[ProgramSpec], object]) -> str:
    """ ", 16 for tree, 100 for atp": programs whose value differs from the usual one."""
    values = {name: value_of(spec) for name, spec in runnable().items()}
    return "".join(f", {value} for {name}" for name, value in values.items() if value not in (usual, None))


def program_choices() -> dict[str, dict[str, str]]:
    """Keys of a collective for every program, by the program's name, with those that it requires."""
    return {
        name: {"program": name, **{option.name: option.example for option in spec.options if option.missing}}
        for name, spec in runnable().items()
    }


def list_names(names: list[str]) -> str:
    """ "a, b and c"."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def describe_programs() -> str:
    """The description of `program`: all programs and their summaries."""
    summaries = "; ".join(f"{name}: {spec.summary}" for name, spec in runnable().items())
    return described(f"The program that switches run. {summaries}.")


def _default_frames() -> str:
    """The default frame of every program, grouped by frame."""
    by_frame: dict[str, list[str]] = {}
    for name, spec in runnable().items():
        by_frame.setdefault(spec.frame, []).append(name)
    return list_names([f"{frame} for {list_names(names)}" for frame, names in by_frame.items()])


def _default_overflows() -> str:
    """The default overflow of the programs that have one."""
    defaults = []
    for name, spec in runnable().items():
        if spec.overflow is not None:
            only = " (the only one it supports)" if spec.only_overflow else ""
            defaults.append(f"{spec.overflow} for {name}{only}")
    return ", ".join(defaults)


def _usual(spec: ProgramSpec) -> str | None:
    return TIME.format(spec.timeouts.usual_ps) if spec.timeouts else None


def _first(spec: ProgramSpec) -> str | None:
    return TIME.format(spec.timeouts.first_ps) if spec.timeouts and spec.timeouts.first_ps else None


def meaning(key: str) -> str:
    """Description of a key; it begins with the programs that have the key, unless all have it."""
    default, programs = default_program(), owners(key)
    with_server = list_names(names_of(lambda spec: spec.has_server))
    texts = {
        "frame": "Packet format: protocol and payload bytes, or a custom one such as {words: 256, overhead: "
        f"82B}}; by default {_default_frames()}.",
        "slots": "Packets a worker may have outstanding, each with one accumulator of the switch (for "
        f"{with_server}: the window); auto is what keeps the job's busiest link busy on the idle network, "
        "its rate times the round trip of a message and one message more, if the switches hold so many.",
        "message_packets": f"packets per RDMA message: by default {default.message_packets} with RoCE; 1 "
        "with UDP, which has no messages, and with a custom frame.",
        "aggregators": "which switches aggregate. one: only `switch`; tree: also every switch where workers' "
        "paths to it meet, if its profile supports it; auto: tree if link rates make it faster, else one; "
        "tor: only switches next to workers, one of them the root; core: only switches of the highest tier; "
        "a number: so many of those of tree at most, the fastest, then those with the least traffic.",
        "tree": "what a tree minimises. depth: every worker's path to the root is a shortest one; traffic: "
        "the links that packets pass, of all workers together.",
        "trees": "trees in parallel, each with a share of every message's words and of the slots; their "
        "roots and paths are spread over equal switches. Of equally near roots a job takes those with the "
        "fewest trees of other jobs.",
        "multicast": "copies of results. off: one per worker or switch below, from the switch that sends "
        "them; auto: one per link, split at the last common switch whose profile can; on: the same, and "
        "refused where that switch cannot.",
        "overflow": f"What happens to a sum that overflows int32; auto is {_default_overflows()}, and for "
        "other programs the first that the switch supports.",
        "timeout": f"retransmission timeout. auto: {AUTO_MEANING}; released: as the protocol's own client, "
        f"{_usual(default)}{_differing(_usual(default), _usual)}, or twice the round trip of a full window "
        "if that is longer.",
        "first_timeout": "retransmission timeout of the first window of every exchange; by default the same"
        f"{_differing(None, _first)} unless that is auto.",
        "timeout_max": "the timeout doubles after every 100 timeouts of a worker, with timeout: auto after "
        "every copy of a packet, up to this value; with auto by default 64 times the timeout.",
    }
    text = texts[key] if key in texts else options()[key].meaning
    return described(f"{', '.join(programs)}: {text}" if programs else text)


# Aggregation in switches: its keys in a scenario file, including those that only some programs have.


def _spec(read: dict[str, Any]) -> ProgramSpec:
    return programs().get(str(read.get("program")), default_program())


def _message_packets(read: dict[str, Any]) -> int:
    """The default: more than one only for frames that have messages."""
    frame = formats().get(str(read.get("frame")))
    return _spec(read).message_packets if frame is not None and frame.has_messages else 1


TREES_MAX = 64
"""As many trees as a SHARP switch can be part of."""
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
        allowed = [allowed_frame.name for allowed_frame in programs()[program].frames]
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
            owned_by = f"program{'s' if len(names) > 1 else ''} {list_names(names)}"
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


def _field(option: ProgramOption) -> tuple[Any, Any]:
    """The pydantic field of a key that a program defines."""
    quantity = {"time": TIME, "size": SIZE}.get(option.kind)
    default = quantity.parse(option.default) if quantity and option.default is not None else option.default
    value_type = _TYPES[option.kind] if default is not None else _TYPES[option.kind] | None
    checked: dict[str, Any] = {"validate_default": True} if option.missing else {}
    return value_type, Field(default, description=meaning(option.name), **checked)


if TYPE_CHECKING:
    InNetworkSection = SwitchKeys
else:
    InNetworkSection = create_model(
        "InNetworkSection",
        __base__=SwitchKeys,
        __doc__=SwitchKeys.__doc__,
        **{name: _field(option) for name, option in options().items()},
    )
