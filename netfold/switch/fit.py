"""Whether a program fits a switch: the resources it takes, or the reason and the largest setting that fits.

The checks of a pipeline are those of its compiler: stateful ALUs, their order in stages, SRAM blocks and map
RAMs (`switch.placement`), packet header vector, parser, loopback ports. Other switches have few limits:
memory, or the resources that are reserved for a group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from netfold.homomorphic.message import Merge
from netfold.switch.limits import PIPELINE, SUMS, Profile
from netfold.switch.placement import PipelineStage, place
from netfold.switch.profiles import PROFILES
from netfold.switch.program import Demand, Program
from netfold.switch.programs import declare, names_of, programs
from netfold.switch.refusals import (
    Misfit,
    declare_on,
    loopback_bps,
    no_merges,
    read_passes,
    why_lossy,
    why_misfit,
    why_unsupported,
)

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
    stages: tuple[PipelineStage, ...]  # of one pipeline; empty for other switches
    packet_passes: int  # of every packet
    read_passes: int  # extra, to read out a complete slot

    @property
    def extra_passes(self) -> int:
        """Passes beyond the first of the packet that completes a slot."""
        return self.packet_passes - 1 + self.read_passes

    @property
    def register_bytes(self) -> int:
        """Bytes of the values of all slots, in all versions."""
        return self.program.values_bytes

    @property
    def result_latency_ps(self) -> int:
        """Time that the packet that completes a slot spends in the switch."""
        return (1 + self.extra_passes) * self.profile.pass_latency_ps

    @property
    def reply_passes(self) -> int:
        """Passes of a server's reply that frees the slot."""
        return (
            self.program.reply_passes if self.profile.kind == PIPELINE else min(1, self.program.reply_passes)
        )

    def round_passes(self, workers: int) -> int:
        """Passes of one slot round: every worker's packet, the read-out, and a server's reply."""
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
    switch.program.UnknownProgramError
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
    """Whether a switch supports a program, regardless of its size."""
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
    others = [one.name for one in PROFILES.values() if one.merges.issuperset(merges)]
    switches = f"a switch that can ({', '.join(others)})" if others else "a collective between hosts"
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
    others = [one.name for one in PROFILES.values() if policy in one.overflows]
    hint = f"use {profile.overflows[0]}, or " if profile.overflows else "use "
    raise FitError(
        "overflow",
        f"switch profile {profile.name!r}: its ALUs cannot make sums {SUMS[policy]} (they can: {able})",
        f"{hint}a switch that can: {', '.join(others) or 'there is none'}",
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
    able = [one.name for one in PROFILES.values() if why_misfit(one, declare_on(one, name, demand)) is None]
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
