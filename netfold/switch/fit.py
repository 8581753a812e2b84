"""Whether a program fits a switch: the resources it takes, or the reason and the largest setting that fits.

The checks of a pipeline are those of its compiler: stateful ALUs, their order in stages, SRAM blocks and map
RAMs (`place`), packet header vector, parser, loopback ports. Other switches have few limits:
memory, or the resources that are reserved for a group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from netfold.homomorphic.merge import MERGEABLE, Merge
from netfold.switch.profiles import FIXED, FORWARDING, MEMORY, PIPELINE, PROFILES, SUMS, Profile
from netfold.switch.program import (
    BITMAP_BITS,
    Demand,
    Program,
    ProgramSpec,
    Register,
    binary_size,
    declare,
    names_of,
    programs,
)

# Placement of register arrays in the stages of a pipeline.
#
# Rules of Tofino's compiler (p4lang/p4c, backends/tofino/bf-p4c/mau): an array lies in one stage, with its
# own stateful ALU; it takes whole SRAM blocks and one spare, and as many map RAMs; registers that decide
# about it must have been read in an earlier stage.


class PlacedArrays(NamedTuple):
    """The arrays of one register that lie in one stage."""

    name: str
    arrays: int


@dataclass(frozen=True)
class PipelineStage:
    """The contents of one stage; a register array takes as many map RAMs as SRAM blocks."""

    parts: tuple[PlacedArrays, ...]
    blocks: int

    @property
    def salus(self) -> int:
        return sum(part.arrays for part in self.parts)


@dataclass(frozen=True)
class Placement:
    """Stages in order, and the number of arrays of each register that did not fit."""

    stages: tuple[PipelineStage, ...]
    left: Mapping[str, int]


def blocks_of(register: Register, profile: Profile) -> int:
    """SRAM blocks of one array: rows of 128 bits hold whole entries, and every array has spare blocks."""
    entries_per_row = profile.block_row_bits // register.bits
    return -(-register.entries // (profile.block_rows * entries_per_row)) + profile.spare_blocks


def place(program: Program, profile: Profile) -> Placement:
    """Fill stage after stage with the arrays that may come next, in the order of declaration."""
    counts_left = {register.name: register.count for register in program.registers}
    stages = []
    for _ in range(profile.stages):
        done = {name for name, count in counts_left.items() if count == 0}
        ready = [register for register in program.registers if done.issuperset(register.after)]
        stages.append(_fill(ready, counts_left, profile))
    while stages and not stages[-1].parts:
        stages.pop()
    return Placement(tuple(stages), {name: count for name, count in counts_left.items() if count})


def _fill(ready: list[Register], counts_left: dict[str, int], profile: Profile) -> PipelineStage:
    """Fill one stage; removes the placed arrays from `left`."""
    salus = profile.salus_per_stage
    free_blocks = min(profile.sram_blocks_per_stage, profile.map_rams_per_stage)
    parts, taken = [], 0
    for register in ready:
        blocks = blocks_of(register, profile)
        count = min(counts_left[register.name], salus, (free_blocks - taken) // blocks)
        if count:
            parts.append(PlacedArrays(register.name, count))
            counts_left[register.name] -= count
            salus -= count
            taken += count * blocks
    return PipelineStage(tuple(parts), taken)


# Reasons why a program does not fit a switch: one check per limit; the first that fails is the reason.


FOLDED_WORKERS_MAX = 16  # SwitchML's rules for packets that go through several pipelines name ids 0 to 15


class Misfit(NamedTuple):
    """One reason why a program does not fit a switch (see `switch.fit.FitError`)."""

    about: str
    message: str


_Check = Callable[[Profile, Program], Misfit | None]


def declare_on(profile: Profile, name: str, demand: Demand) -> Program:
    # Switches without stages add all words in one pass.
    return declare(name, demand, in_one_pass=profile.kind != PIPELINE)


def why_misfit(profile: Profile, program: Program) -> Misfit | None:
    """The first reason why a program does not fit; None if it fits."""
    general = (why_unsupported, why_lossy, why_no_table, why_no_lanes)
    checks = (*general, _why_too_many_to_fold, _why_bitmap_too_narrow, *_CHECKS.get(profile.kind, ()))
    return next((misfit for check in checks if (misfit := check(profile, program))), None)


def why_unsupported(profile: Profile, program: Program) -> Misfit | None:
    """Why a switch does not support a program at any size; None if it does."""
    if profile.kind == FORWARDING:
        return Misfit("profile", f"switch profile {profile.name!r} only forwards")
    if profile.kind == FIXED and not program.spec.fits_fixed:
        alone = " and ".join(names_of(lambda spec: spec.fits_fixed))
        return Misfit("program", f"{profile.name} runs program {alone} alone, found {program.name}")
    if program.spec.has_timers and not profile.has_timers:
        return Misfit("profile", f"{program.title} needs timers, {profile.name} has none")
    able = MERGEABLE if program.spec.merges is None else program.spec.merges
    if not profile.merges & able:
        needed = ", ".join(sorted(merge.value for merge in able))
        offered = ", ".join(sorted(merge.value for merge in profile.merges)) or "none"
        return Misfit(
            "profile", f"{program.title} needs one of the merges {needed}; {profile.name} has {offered}"
        )
    overflow = program.spec.overflow
    if program.spec.only_overflow and overflow is not None and overflow not in profile.overflows:
        needed, offered = SUMS[overflow], ", ".join(profile.overflows)
        return Misfit(
            "profile", f"{program.title} needs sums that {needed}; {profile.name} supports: {offered}"
        )
    return None


def why_lossy(profile: Profile, program: Program) -> Misfit | None:
    """Why a program that needs a lossless network does not run with a switch; None if it does."""
    if not program.spec.needs_lossless or profile.is_lossless:
        return None
    return Misfit(
        "profile",
        f"program {program.name} does not recover from lost packets, "
        f"and networks of {profile.name} drop some",
    )


def why_no_table(profile: Profile, program: Program) -> Misfit | None:
    """Why a switch cannot lift a packet's codes; None if it can, or there are none."""
    if not program.demand.is_lifted or Merge.TABLE_ADD in profile.merges:
        return None
    return Misfit("merges", no_merges(profile, [Merge.TABLE_ADD]))


def no_merges(profile: Profile, refused: Collection[Merge]) -> str:
    """That a switch does not support these merges."""
    names = ", ".join(sorted(merge.value for merge in refused))
    able = ", ".join(sorted(merge.value for merge in profile.merges)) or "nothing"
    return f"switch profile {profile.name!r} cannot merge words by {names} (it can: {able})"


def why_no_lanes(profile: Profile, program: Program) -> Misfit | None:
    """Why a program or a switch cannot add lanes of this width; None if both can."""
    bits = program.demand.adder_bits
    for able, who in (
        (program.spec.adder_bits, program.title),
        (profile.adder_bits, f"switch profile {profile.name!r}"),
    ):
        if bits not in able:
            widths = ", ".join(map(str, able)) or "none"
            return Misfit("lanes", f"{who} cannot add lanes of {bits} bits (its adders have: {widths})")
    return None


def _why_bitmap_too_narrow(profile: Profile, program: Program) -> Misfit | None:
    workers = program.demand.workers
    bits = children_max(profile, program.spec)
    if workers > bits:
        width = f"one {bits}-bit word" if bits <= BITMAP_BITS else f"{bits} bits wide"
        return Misfit(
            "workers",
            f"{program.title} cannot tell {workers} workers apart: its bitmap is {width}",
        )
    return None


def children_max(profile: Profile, spec: ProgramSpec) -> int:
    # Children are workers, or switches below; a profile with 0 bits sets no limit.
    return min(spec.children_max, profile.bitmap_bits or spec.children_max)


def _why_too_few_pipes(profile: Profile, program: Program) -> Misfit | None:
    words = program.demand.words
    if program.pipes > profile.pipes:
        return Misfit(
            _words_key(program),
            f"{program.title} needs {program.pipes} pipelines in a row for {words} words, "
            f"{program.words_per_pass} in each, {profile.name} has {profile.pipes}",
        )
    return None


def _why_too_many_to_fold(profile: Profile, program: Program) -> Misfit | None:
    words, workers = program.demand.words, program.demand.workers
    if 1 < program.pipes <= profile.pipes and workers > FOLDED_WORKERS_MAX:
        return Misfit(
            "workers",
            f"{program.title} cannot fold packets of {words} words over {program.pipes} pipelines "
            f"for {workers} workers",
        )
    return None


def _why_entries_too_wide(profile: Profile, program: Program) -> Misfit | None:
    for register in program.registers:
        bits = 32 * profile.salu_lanes
        if register.bits > bits:
            return Misfit(
                "profile",
                f"{program.title} keeps entries of {register.bits} bits in {register.name!r}, "
                f"a stateful ALU of {profile.name} takes {bits}",
            )
    return None


def _why_too_few_salus(profile: Profile, program: Program) -> Misfit | None:
    if program.salus <= profile.salus:
        return None
    return Misfit(
        _words_key(program),
        f"{_with_words(program)} needs {program.salus} stateful ALUs "
        f"({program.values.count} for values), {profile.name} has {profile.salus}",
    )


def _why_too_few_stages(profile: Profile, program: Program) -> Misfit | None:
    counts_left = place(program, profile).left
    if not counts_left:
        return None
    name, missing = next(iter(counts_left.items()))
    register = next(array for array in program.registers if array.name == name)
    room = register.count - missing
    small = declare(program.name, replace(program.demand, slots=1))
    if place(small, profile).left:
        return Misfit(
            _words_key(program),
            f"{_with_words(program)} needs {program.salus} stateful ALUs in stages that wait for each other, "
            f"the {profile.stages} stages of {profile.name} have room for {room} of its {register.count} "
            f"arrays {name!r}",
        )
    map_rams, blocks = profile.map_rams_per_stage, profile.sram_blocks_per_stage
    scarce, there_are = ("map RAMs", map_rams) if map_rams < blocks else ("SRAM blocks", blocks)
    return Misfit(
        "slots",
        f"{program.demand.slots} slots need {register.count} register arrays of {register.entries} entries "
        f"({blocks_of(register, profile)} {scarce} each), {profile.name} with {there_are} {scarce} a stage "
        f"has room for {room}",
    )


def _why_headers_too_long(profile: Profile, program: Program) -> Misfit | None:
    if program.header_vector_bits > profile.phv_bits:
        return Misfit(
            _words_key(program),
            f"{_with_words(program)} needs {program.header_vector_bits} bits of packet header vector, "
            f"{profile.name} has {profile.phv_bits}",
        )
    if 0 < profile.parser_limit_bytes < program.header_bytes:
        return Misfit(
            "profile" if program.demand.header_bytes is None else "words",
            f"{program.title} has headers of {program.header_bytes} B, {profile.name} parses "
            f"{profile.parser_limit_bytes} B",
        )
    return None


def _why_too_few_loopback_ports(profile: Profile, program: Program) -> Misfit | None:
    needed_bps = loopback_bps(profile, program)
    available_bps = profile.loopback_ports * profile.loopback_rate_bps
    if needed_bps is None:  # any rate: it is only known whether there are ports at all
        is_enough = available_bps > 0 or loopback_streams(profile, program) == 0
    else:
        is_enough = needed_bps <= available_bps
    if is_enough:
        return None
    sent = "packets" if needed_bps is None else _gbps(needed_bps)
    ports = f"{profile.loopback_ports} of {_gbps(profile.loopback_rate_bps)}"
    others = " and those of other jobs" if program.demand.others_bps else ""
    return Misfit(
        "workers",
        f"{program.demand.workers} workers{others} send {sent} through loopback ports with "
        f"{program.title}, {profile.name} has {ports}",
    )


def _why_too_little_memory(profile: Profile, program: Program) -> Misfit | None:
    if profile.memory_bytes == 0 or program.state_bytes <= profile.memory_bytes:
        return None
    demand = program.demand
    return Misfit(
        "slots",
        f"{demand.slots} slots of {demand.words} words take {binary_size(program.state_bytes)}, "
        f"{profile.name} has {binary_size(profile.memory_bytes)}",
    )


def _why_beyond_reservation(profile: Profile, program: Program) -> Misfit | None:
    demand = program.demand
    if 0 < profile.groups < demand.jobs:
        return Misfit("jobs", f"{demand.jobs} jobs need a group each, {profile.name} has {profile.groups}")
    if 0 < profile.operations < demand.slots:
        return Misfit(
            "slots",
            f"{demand.slots} slots need as many outstanding operations, "
            f"{profile.name} has {profile.operations}",
        )
    if 0 < profile.operation_payload_bytes < 4 * demand.words:
        return Misfit(
            "words",
            f"an operation of {profile.name} holds {profile.operation_payload_bytes} B, "
            f"{demand.words} words a packet are {4 * demand.words} B",
        )
    return None


_CHECKS: dict[str, tuple[_Check, ...]] = {
    PIPELINE: (
        _why_too_few_pipes,
        _why_entries_too_wide,
        _why_too_few_salus,
        _why_headers_too_long,
        _why_too_few_stages,
        _why_too_few_loopback_ports,
    ),
    MEMORY: (_why_too_little_memory,),
    FIXED: (_why_beyond_reservation,),
}


def _gbps(rate_bps: int) -> str:
    return f"{rate_bps / 1e9:.6g} Gbps"


def _with_words(program: Program) -> str:
    demand = program.demand
    words = f"{program.words_per_pass} words a pass"
    if demand.is_lifted or demand.values_per_word > 1:
        words += f", {program.values_per_pass} values of {demand.adder_bits} bits,"
    return f"{program.title} with {words}"


def _words_key(program: Program) -> str:
    return "words" if program.demand.words_per_pass is None else "words_per_pass"


def read_passes(profile: Profile, program: Program) -> int:
    """Extra passes to read out a complete slot: an ALU returns only some of its words per pass."""
    per_pass = program.values.count * min(program.values.lanes, profile.words_out)
    return program.repeats * (-(-program.values_per_pass * program.pipes // per_pass) - 1)


def loopback_streams(profile: Profile, program: Program) -> int:
    """Number of workers' streams through loopback ports when all workers send."""
    workers = program.demand.workers
    repeating = 1 if program.resubmits else workers
    return workers * (program.pipes - 1) + repeating * (program.repeats - 1) + read_passes(profile, program)


def loopback_bps(profile: Profile, program: Program) -> int | None:
    demand = program.demand
    rate_bps = profile.port_rate_bps if demand.rate_bps is None else demand.rate_bps
    if rate_bps == 0 and demand.rate_bps is None:  # links of any rate
        return None
    # All workers send at link rate. Each stream is as fast as one worker's, because no worker is ahead of
    # another by more than a window.
    return loopback_streams(profile, program) * rate_bps + demand.others_bps


_PER_PASS_MAX = 1024  # words a pass that are tried; no pipeline has as many
_UNITS = {
    "workers": "workers",
    "slots": "slots",
    "jobs": "jobs",
    "words": "words a packet",
    "words_per_pass": "words a pass",
}


class FitError(ValueError):
    """A program that does not fit: what it needs, what the switch has, and what would fit.

    `about` is what to change: "profile", "program", "workers", "slots", "words", "words_per_pass", "jobs",
    "merges", "lanes" or "overflow".
    """

    def __init__(self, about: str, message: str, hint: str) -> None:
        super().__init__(about, message, hint)
        self.about = about
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}"


@dataclass(frozen=True)
class Fit:
    """The resources that a program takes on a switch."""

    profile: Profile
    program: Program
    stages: tuple[PipelineStage, ...]
    """Stages of one pipeline; empty for switches of other kinds."""
    packet_passes: int
    """Passes that every packet takes."""
    read_passes: int
    """Extra passes to read out a complete slot."""

    @property
    def extra_passes(self) -> int:
        # What the packet that completes a slot takes beyond its first pass.
        return self.packet_passes - 1 + self.read_passes

    @property
    def result_latency_ps(self) -> int:
        return (1 + self.extra_passes) * self.profile.pass_latency_ps

    @property
    def reply_passes(self) -> int:
        """Passes of a server's reply that frees the slot."""
        return (
            self.program.reply_passes if self.profile.kind == PIPELINE else min(1, self.program.reply_passes)
        )

    def round_passes(self, workers: int) -> int:
        return workers * self.packet_passes + self.read_passes + self.reply_passes

    @property
    def loopback_ports(self) -> int | None:
        """Loopback ports that are busy when all workers send at link rate; None for links of any rate."""
        if self.profile.kind != PIPELINE:
            return 0
        rate_bps, sent_bps = self.profile.loopback_rate_bps, loopback_bps(self.profile, self.program)
        if sent_bps is None:
            return None
        return -(-sent_bps // rate_bps) if rate_bps else 0


def fit(profile: Profile, program_name: str, demand: Demand, *, any_words: bool = True) -> Fit:
    """Place a program on a switch.

    With `any_words` false, hints name only the sizes of the program's packet formats.

    Raises
    ------
    FitError
        The switch cannot run it, or it needs more than there is.
    ValueError
        There is no such program.
    """
    program = declare_on(profile, program_name, demand)
    refused = why_misfit(profile, program)
    if refused is not None:
        raise FitError(refused.about, refused.message, _hint(refused, profile, program, any_words))
    if profile.kind != PIPELINE:
        return Fit(profile, program, (), packet_passes=1, read_passes=0)
    return Fit(
        profile,
        program,
        place(program, profile).stages,
        packet_passes=program.pipes * program.repeats,
        read_passes=read_passes(profile, program),
    )


def can_run(profile: Profile, program_name: str) -> bool:
    # Size does not matter here, so the released demand will do.
    return why_unsupported(profile, _released(program_name)) is None


def suits(profile: Profile, program_name: str) -> bool:
    """Whether a switch supports a program and, if the program needs it, its network is lossless."""
    program = _released(program_name)
    return why_unsupported(profile, program) is None and why_lossy(profile, program) is None


def _released(program_name: str) -> Program:
    return declare(program_name, programs()[program_name].released)


def check_merges(profile: Profile, merges: Collection[Merge]) -> None:
    """Check that a switch supports these merges.

    Raises
    ------
    FitError
        About "merges": which are not supported, which are, and which switches support all.
    """
    refused = [merge for merge in merges if merge not in profile.merges]
    if not refused:
        return
    able = [switch.name for switch in PROFILES.values() if switch.merges.issuperset(merges)]
    switches = f"a switch that can ({', '.join(able)})" if able else "a collective between hosts"
    raise FitError(
        "merges",
        no_merges(profile, refused),
        f"use {switches}, or a codec that needs no more than it can",
    )


def check_overflow(profile: Profile, policy: str) -> None:
    """Check that a switch supports an overflow policy: sums wrap, saturate or stick.

    Raises
    ------
    FitError
        About "overflow": the policies that it supports, and the switches that support this one.
    """
    if policy in profile.overflows:
        return
    able = ", ".join(profile.overflows) or "nothing"
    able_profiles = [switch.name for switch in PROFILES.values() if policy in switch.overflows]
    hint = f"use {profile.overflows[0]}, or " if profile.overflows else "use "
    raise FitError(
        "overflow",
        f"switch profile {profile.name!r}: its ALUs cannot make sums {SUMS[policy]} (they can: {able})",
        f"{hint}a switch that can: {', '.join(able_profiles) or 'there is none'}",
    )


def _hint(refused: Misfit, profile: Profile, program: Program, any_words: bool) -> str:
    """A hint with the largest setting that fits, found by trying."""
    about, demand, name = refused.about, program.demand, program.name

    def fits(**changes: Any) -> bool:
        return why_misfit(profile, declare_on(profile, name, replace(demand, **changes))) is None

    sizes = _sizes([words for words in program.spec.words if fits(words=words)])
    if about == "program":
        fixed = " or ".join(names_of(lambda spec: spec.fits_fixed))
        return f"use program {fixed}, or a programmable switch: {', '.join(_able(program))}"
    if about == "lanes" and demand.adder_bits not in program.spec.adder_bits:
        others = " or ".join(names_of(lambda spec: demand.adder_bits in spec.adder_bits))
        return f"use program {others}, or a codec whose sums have lanes of 32 bits"
    if about == "words" and sizes:
        return f"use {sizes} a packet"
    has_own_size = demand.values_per_word > 1  # no packet format is made for so many values
    may_name_most = about in _UNITS and (any_words or about != "words" or has_own_size)
    if may_name_most and (most := _most(about, getattr(demand, about), fits)):
        alternative = f", or {sizes} a packet" if about == "workers" and sizes else ""
        return f"use {most} {_UNITS[about]} at most{alternative}"
    other = ""
    if refused == why_lossy(profile, program):
        other = f"program {names_of(lambda spec: not spec.needs_lossless)[0]}, or "
    return f"use {other}a switch that can: " + ", ".join(_able(program))


def _sizes(words: list[int]) -> str:
    """Payloads in words and bytes: "64 (256 B) or 256 words (1024 B)"; "" for none."""
    *others, last = [f"{count} ({4 * count} B)" for count in words] or [""]
    last = last.replace(" ", " words ", 1)
    return f"{', '.join(others)} or {last}" if others else last


def _able(program: Program) -> list[str]:
    """Profiles that can run a program with its demand."""
    name, demand = program.name, program.demand
    able = [
        profile.name
        for profile in PROFILES.values()
        if why_misfit(profile, declare_on(profile, name, demand)) is None
    ]
    return able or ["there is none"]


def _most(about: str, refused: int, fits: Callable[..., bool]) -> int:
    """Largest value of a setting that fits, below one that does not; 0 if there is none."""
    if about == "words_per_pass":  # fewer words a pass need more pipelines, so less does not always fit
        return next(
            (value for value in range(min(refused, _PER_PASS_MAX), 0, -1) if fits(words_per_pass=value)), 0
        )
    low, high = 0, refused
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(**{about: middle}) else (low, middle)
    return low
