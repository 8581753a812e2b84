"""Why a program does not fit a switch: one check for every limit, the first that fails is the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from netfold.homomorphic.codec import MERGEABLE
from netfold.switch.limits import FIXED, FORWARDING, MEMORY, PIPELINE, SUMS, Profile
from netfold.switch.placement import blocks_of, place
from netfold.switch.program import Demand, Program
from netfold.switch.programs import declare, names_of
from netfold.switch.registers import CHILDREN_MAX
from netfold.switch.sizes import binary_size

FOLDED_WORKERS_MAX = 16  # SwitchML's rules for packets that go through several pipelines name ids 0 to 15


class Refusal(NamedTuple):
    """What does not fit (see `switch.fit.FitError`), in words."""

    about: str
    message: str


_Check = Callable[[Profile, Program], Refusal | None]


def declare_on(profile: Profile, name: str, demand: Demand) -> Program:
    """Declaration of a program as a switch would run it: in one pass where there are no stages."""
    return declare(name, demand, in_one_pass=profile.kind != PIPELINE)


def refusal(profile: Profile, program: Program) -> Refusal | None:
    """The first reason why a program does not fit."""
    checks = (runs, loses, _tells_apart, *_CHECKS.get(profile.kind, ()))
    return next((found for check in checks if (found := check(profile, program))), None)


def runs(profile: Profile, program: Program) -> Refusal | None:
    """Why a switch does not run a program, whatever its size."""
    if profile.kind == FORWARDING:
        return Refusal("profile", f"switch profile {profile.name!r} only forwards")
    if profile.kind == FIXED and not program.spec.fits_fixed:
        alone = " and ".join(names_of(lambda spec: spec.fits_fixed))
        return Refusal("program", f"{profile.name} runs program {alone} alone, found {program.name}")
    if program.spec.has_timers and not profile.has_timers:
        return Refusal("profile", f"{program.title} needs timers, {profile.name} has none")
    able = MERGEABLE if program.spec.merges is None else program.spec.merges
    if not profile.merges & able:
        needed = ", ".join(sorted(merge.value for merge in able))
        found = ", ".join(sorted(merge.value for merge in profile.merges)) or "none"
        return Refusal(
            "profile", f"{program.title} needs one of the merges {needed}; {profile.name} has {found}"
        )
    overflow = program.spec.overflow
    if program.spec.only_overflow and overflow is not None and overflow not in profile.overflows:
        needed, found = SUMS[overflow], ", ".join(profile.overflows)
        return Refusal(
            "profile", f"{program.title} needs sums that {needed}; those of {profile.name} can: {found}"
        )
    return None


def loses(profile: Profile, program: Program) -> Refusal | None:
    """Why a program that cannot lose packets does not run on a switch whose network drops some."""
    if not program.spec.needs_lossless or profile.is_lossless:
        return None
    return Refusal(
        "profile",
        f"program {program.name} has no answer to lost packets, and networks of {profile.name} lose some",
    )


def _tells_apart(profile: Profile, program: Program) -> Refusal | None:
    workers = program.demand.workers
    bits = min(CHILDREN_MAX, profile.bitmap_bits or CHILDREN_MAX)
    if workers > bits:
        return Refusal(
            "workers",
            f"{program.title} cannot tell {workers} workers apart: its bitmap is one {bits}-bit word",
        )
    return None


def _pipes(profile: Profile, program: Program) -> Refusal | None:
    words, workers = program.demand.words, program.demand.workers
    if program.pipes > profile.pipes:
        return Refusal(
            _words_key(program),
            f"{program.title} needs {program.pipes} pipelines in a row for {words} words, "
            f"{program.words_per_pass} in each, {profile.name} has {profile.pipes}",
        )
    if program.pipes > 1 and workers > FOLDED_WORKERS_MAX:
        return Refusal(
            "workers",
            f"{program.title} cannot fold packets of {words} words over {program.pipes} pipelines "
            f"for {workers} workers",
        )
    return None


def _entries(profile: Profile, program: Program) -> Refusal | None:
    for register in program.registers:
        bits = 32 * profile.salu_lanes
        if register.bits > bits:
            return Refusal(
                "profile",
                f"{program.title} keeps entries of {register.bits} bits in {register.name!r}, "
                f"a stateful ALU of {profile.name} takes {bits}",
            )
    return None


def _salus(profile: Profile, program: Program) -> Refusal | None:
    if program.salus <= profile.salus:
        return None
    return Refusal(
        _words_key(program),
        f"{_with_words(program)} needs {program.salus} stateful ALUs "
        f"({program.values.count} for values), {profile.name} has {profile.salus}",
    )


def _stages(profile: Profile, program: Program) -> Refusal | None:
    left = place(program, profile).left
    if not left:
        return None
    name, missing = next(iter(left.items()))
    register = next(one for one in program.registers if one.name == name)
    room = register.count - missing
    small = declare(program.name, replace(program.demand, slots=1))
    if place(small, profile).left:
        return Refusal(
            _words_key(program),
            f"{_with_words(program)} needs {program.salus} stateful ALUs in stages that wait for each other, "
            f"the {profile.stages} stages of {profile.name} have room for {room} of its {register.count} "
            f"arrays {name!r}",
        )
    map_rams, blocks = profile.map_rams_per_stage, profile.sram_blocks_per_stage
    scarce, there_are = ("map RAMs", map_rams) if map_rams < blocks else ("SRAM blocks", blocks)
    return Refusal(
        "slots",
        f"{program.demand.slots} slots need {register.count} register arrays of {register.entries} entries "
        f"({blocks_of(register, profile)} {scarce} each), {profile.name} with {there_are} {scarce} a stage "
        f"has room for {room}",
    )


def _headers(profile: Profile, program: Program) -> Refusal | None:
    if program.header_vector_bits > profile.phv_bits:
        return Refusal(
            _words_key(program),
            f"{_with_words(program)} needs {program.header_vector_bits} bits of packet header vector, "
            f"{profile.name} has {profile.phv_bits}",
        )
    if 0 < profile.parser_limit_bytes < program.header_bytes:
        return Refusal(
            "profile" if program.demand.header_bytes is None else "words",
            f"{program.title} has headers of {program.header_bytes} B, {profile.name} parses "
            f"{profile.parser_limit_bytes} B",
        )
    return None


def _loopback(profile: Profile, program: Program) -> Refusal | None:
    needed_bps = loopback_bps(profile, program)
    there_are_bps = profile.loopback_ports * profile.loopback_rate_bps
    if needed_bps is None:  # at any rate: enough ports cannot be told from too few, but none can
        is_enough = there_are_bps > 0 or loopback_streams(profile, program) == 0
    else:
        is_enough = needed_bps <= there_are_bps
    if is_enough:
        return None
    sent = "packets" if needed_bps is None else _gbps(needed_bps)
    ports = f"{profile.loopback_ports} of {_gbps(profile.loopback_rate_bps)}"
    others = " and those of other jobs" if program.demand.others_bps else ""
    return Refusal(
        "workers",
        f"{program.demand.workers} workers{others} send {sent} through loopback ports with "
        f"{program.title}, {profile.name} has {ports}",
    )


def _memory(profile: Profile, program: Program) -> Refusal | None:
    if profile.memory_bytes == 0 or program.state_bytes <= profile.memory_bytes:
        return None
    demand = program.demand
    return Refusal(
        "slots",
        f"{demand.slots} slots of {demand.words} words take {binary_size(program.state_bytes)}, "
        f"{profile.name} has {binary_size(profile.memory_bytes)}",
    )


def _reserved(profile: Profile, program: Program) -> Refusal | None:
    demand = program.demand
    if 0 < profile.groups < demand.jobs:
        return Refusal("jobs", f"{demand.jobs} jobs need a group each, {profile.name} has {profile.groups}")
    if 0 < profile.operations < demand.slots:
        return Refusal(
            "slots",
            f"{demand.slots} slots need as many outstanding operations, "
            f"{profile.name} has {profile.operations}",
        )
    if 0 < profile.operation_payload_bytes < 4 * demand.words:
        return Refusal(
            "words",
            f"an operation of {profile.name} holds {profile.operation_payload_bytes} B, "
            f"{demand.words} words a packet are {4 * demand.words} B",
        )
    return None


_CHECKS: dict[str, tuple[_Check, ...]] = {
    PIPELINE: (_pipes, _entries, _salus, _headers, _stages, _loopback),
    MEMORY: (_memory,),
    FIXED: (_reserved,),
}


def _gbps(rate_bps: int) -> str:
    return f"{rate_bps / 1e9:.6g} Gbps"


def _with_words(program: Program) -> str:
    return f"{program.title} with {program.words_per_pass} words a pass"


def _words_key(program: Program) -> str:
    return "words" if program.demand.words_per_pass is None else "words_per_pass"


def read_passes(profile: Profile, program: Program) -> int:
    """Passes to read out what the last pass of a complete slot could not: an ALU returns few of its words."""
    per_pass = program.values.count * min(program.values.lanes, profile.words_out)
    return program.repeats * (-(-program.words_per_pass * program.pipes // per_pass) - 1)


def loopback_streams(profile: Profile, program: Program) -> int:
    """How many workers' streams go through loopback ports when all of them send."""
    workers = program.demand.workers
    repeating = 1 if program.resubmits else workers
    return workers * (program.pipes - 1) + repeating * (program.repeats - 1) + read_passes(profile, program)


def loopback_bps(profile: Profile, program: Program) -> int | None:
    """What all workers sending at their rate bring to loopback ports; None for links of any rate.

    With n workers and nothing lost, a slot's packets take n · (pipes − 1) further passes to be added up, and
    its result `read_passes` more: each is a stream as fast as one worker's, as no worker is ahead of another
    by more than a window.
    """
    demand = program.demand
    rate_bps = profile.port_rate_bps if demand.rate_bps is None else demand.rate_bps
    if rate_bps == 0 and demand.rate_bps is None:
        return None
    return loopback_streams(profile, program) * rate_bps + demand.others_bps
