"""What a scenario's `collective` says of programs: which has which keys, and what keys mean for each."""

from __future__ import annotations

from collections.abc import Callable

from netfold.sim.keys.section import described
from netfold.sim.units import TIME
from netfold.switch.program import Option, ProgramSpec
from netfold.switch.programs import default_program, names_of, runnable

_FEATURES: dict[str, Callable[[ProgramSpec], bool]] = {  # of keys that not every program has
    "aggregators": lambda spec: spec.may_be_tree,
    "message_packets": lambda spec: spec.message_packets > 1,
    "timeout": lambda spec: spec.timeouts is not None,
    "first_timeout": lambda spec: spec.timeouts is not None,
    "timeout_max": lambda spec: spec.timeouts is not None and spec.timeouts.doubles,
}


def owners(key: str) -> list[str]:
    """Programs that have a key; none if all have it."""
    if feature := _FEATURES.get(key):
        return names_of(feature)
    return names_of(lambda spec: any(option.name == key for option in spec.options))


def options() -> dict[str, Option]:
    """Keys that programs have for themselves, by name."""
    return {option.name: option for spec in runnable().values() for option in spec.options}


def _differing(usual: object, value_of: Callable[[ProgramSpec], object]) -> str:
    """ ", 16 for tree, 100 for atp": programs that have another value than the usual one."""
    values = {name: value_of(spec) for name, spec in runnable().items()}
    return "".join(f", {value} for {name}" for name, value in values.items() if value not in (usual, None))


def listed(names: list[str]) -> str:
    """ "a, b and c"."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def describe_programs() -> str:
    """What the programs are."""
    told = "; ".join(f"{name}: {spec.summary}" for name, spec in runnable().items())
    return described(f"What switches run. {told}.")


def _default_frames() -> str:
    """The default frame of every program: those of several that have the same one together."""
    by_frame: dict[str, list[str]] = {}
    for name, spec in runnable().items():
        by_frame.setdefault(spec.frame, []).append(name)
    return listed([f"{frame} for {listed(names)}" for frame, names in by_frame.items()])


def _default_overflows() -> str:
    told = []
    for name, spec in runnable().items():
        if spec.overflow is not None:
            only = " (which can nothing else)" if spec.only_overflow else ""
            told.append(f"{spec.overflow} for {name}{only}")
    return ", ".join(told)


def _usual(spec: ProgramSpec) -> str | None:
    return TIME.format(spec.timeouts.usual_ps) if spec.timeouts else None


def _first(spec: ProgramSpec) -> str | None:
    return TIME.format(spec.timeouts.first_ps) if spec.timeouts and spec.timeouts.first_ps else None


def meaning(key: str) -> str:
    """Description of a key, after the names of the programs that have it where not all do."""
    default, own = default_program(), owners(key)
    with_server = listed(names_of(lambda spec: spec.has_server))
    texts = {
        "frame": "Packet format: protocol and payload bytes, or one of your own: {words: 256, overhead: "
        f"82B}}; by default {_default_frames()}.",
        "slots": "Packets a worker may have outstanding, one accumulator of the switch each (with "
        f"{with_server}, its window); by default {default.slots}"
        f"{_differing(default.slots, lambda spec: spec.slots)}.",
        "message_packets": f"packets per RDMA message: by default {default.message_packets} with RoCE; 1 "
        "with UDP, which has no messages, and with a frame of your own.",
        "aggregators": "which switches add up. one: the switch above; tree: also every switch where workers' "
        "ways to it meet, if its profile can; auto: tree where that is faster by the links' rates, else one.",
        "overflow": f"What becomes of a sum that leaves int32; auto is {_default_overflows()}, and the first "
        "that the switch can for others.",
        "timeout": "wait for a result before a message is sent again; by default "
        f"{_usual(default)}{_differing(_usual(default), _usual)}, or twice the round trip of a full window "
        "where that is longer.",
        "first_timeout": "wait for the results of the first window of every exchange; by default the same"
        f"{_differing(None, _first)}.",
        "timeout_max": "the timeout doubles after every 100 timeouts of a worker, up to this.",
    }
    text = texts[key] if key in texts else options()[key].meaning
    return described(f"{', '.join(own)}: {text}" if own else text)
