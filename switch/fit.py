"""Does a program fit a switch? What it takes if so; if not, the reason and the most that would fit.

A pipeline is checked as its compiler would: stateful ALUs, their order in stages, SRAM blocks and map RAMs
(`switch.placement`), packet header vector, parser, loopback ports. Other switches have few limits: memory, or
what a group has reserved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from netfold.homomorphic.codec import Merge
from netfold.switch.limits import PIPELINE, SUMS, Profile
from netfold.switch.placement import Stage, place
from netfold.switch.profiles import PROFILES
from netfold.switch.program import Demand, Program
from netfold.switch.programs import declare, names_of, programs
from netfold.switch.refusals import Refusal, declare_on, loopback_bps, loses, read_passes, refusal, runs

_PER_PASS_MAX = 1024  # words a pass that are tried; no pipeline comes near
_UNITS = {
    "workers": "workers",
    "slots": "slots",
    "jobs": "jobs",
    "words": "words a packet",
    "words_per_pass": "words a pass",
}


class FitError(ValueError):
    """What a switch cannot run: what is needed, what there is, and what would fit.

    `about` says what to change: "profile", "program", "workers", "slots", "words", "words_per_pass", "jobs",
    "merges" or "overflow".
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
    """What a program takes of a switch."""

    profile: Profile
    program: Program
    stages: tuple[Stage, ...]  # of one pipeline; empty for other switches
    packet_passes: int  # of every packet
    read_passes: int  # more, to read a complete slot out

    @property
    def extra_passes(self) -> int:
        """Passes beyond the first of the packet that completes a slot."""
        return self.packet_passes - 1 + self.read_passes

    @property
    def register_bytes(self) -> int:
        """Bytes of the values of all slots, in all their versions."""
        return self.program.values_bytes

    @property
    def result_latency_ps(self) -> int:
        """What the packet that completes a slot spends in the switch."""
        return (1 + self.extra_passes) * self.profile.pass_latency_ps

    @property
    def reply_passes(self) -> int:
        """Passes of a server's reply that frees the slot."""
        return (
            self.program.reply_passes if self.profile.kind == PIPELINE else min(1, self.program.reply_passes)
        )

    def round_passes(self, workers: int) -> int:
        """Passes of one slot round: every worker's packet, reading out, and a server's reply."""
        return workers * self.packet_passes + self.read_passes + self.reply_passes

    @property
    def loopback_ports(self) -> int | None:
        """Loopback ports that are busy when all workers send as fast as their links; None at any rate."""
        if self.profile.kind != PIPELINE:
            return 0
        rate_bps, sent_bps = self.profile.loopback_rate_bps, loopback_bps(self.profile, self.program)
        if sent_bps is None:
            return None
        return -(-sent_bps // rate_bps) if rate_bps else 0


def fit(profile: Profile, program_name: str, demand: Demand, *, any_words: bool = True) -> Fit:
    """Place a program on a switch.

    `any_words` false keeps hints to the sizes that packets of the program are known to have.

    Raises
    ------
    FitError
        The switch cannot run it, or it needs more than there is.
    switch.program.UnknownProgramError
        There is no such program.
    """
    program = declare_on(profile, program_name, demand)
    refused = refusal(profile, program)
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
    """Whether a switch runs a program at all; how much of it fits is another question."""
    return runs(profile, _released(program_name)) is None


def suits(profile: Profile, program_name: str) -> bool:
    """Whether a switch runs a program, on a network that loses nothing if the program needs one."""
    program = _released(program_name)
    return runs(profile, program) is None and loses(profile, program) is None


def _released(program_name: str) -> Program:
    return declare(program_name, programs()[program_name].released)


def check_merges(profile: Profile, merges: Collection[Merge]) -> None:
    """Check that a switch can merge words so.

    Raises
    ------
    FitError
        About "merges": which it cannot do, what it can, and which switches could.
    """
    refused = sorted(merge.value for merge in merges if merge not in profile.merges)
    if not refused:
        return
    able = ", ".join(sorted(merge.value for merge in profile.merges)) or "nothing"
    others = [one.name for one in PROFILES.values() if one.merges.issuperset(merges)]
    switches = f"a switch that can ({', '.join(others)})" if others else "a collective between hosts"
    raise FitError(
        "merges",
        f"switch profile {profile.name!r} cannot merge words by {', '.join(refused)} (it can: {able})",
        f"use {switches}, or a codec that needs no more than it can",
    )


def check_overflow(profile: Profile, policy: str) -> None:
    """Check that sums that leave int32 can wrap, saturate or stick on a switch.

    Raises
    ------
    FitError
        About "overflow": what it can do, and which switches could.
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


def _hint(refused: Refusal, profile: Profile, program: Program, any_words: bool) -> str:
    """The largest setting that fits, found by trying."""
    about, demand, name = refused.about, program.demand, program.name

    def fits(**changes: int) -> bool:
        return refusal(profile, declare_on(profile, name, replace(demand, **changes))) is None

    sizes = _sizes([words for words in program.spec.words if fits(words=words)])
    if about == "program":
        fixed = " or ".join(names_of(lambda spec: spec.fits_fixed))
        return f"use program {fixed}, or a programmable switch: {', '.join(_able(program))}"
    if about == "words" and sizes:
        return f"use {sizes} a packet"
    may_name_most = about in _UNITS and (any_words or about != "words")
    if may_name_most and (most := _most(about, getattr(demand, about), fits)):
        alternative = f", or {sizes} a packet" if about == "workers" and sizes else ""
        return f"use {most} {_UNITS[about]} at most{alternative}"
    other = ""
    if refused == loses(profile, program):
        other = f"program {names_of(lambda spec: not spec.needs_lossless)[0]}, or "
    return f"use {other}a switch that can: " + ", ".join(_able(program))


def _sizes(words: list[int]) -> str:
    """Payloads in words and bytes: "64 (256 B) or 256 words (1024 B)"; nothing for none."""
    *others, last = [f"{count} ({4 * count} B)" for count in words] or [""]
    last = last.replace(" ", " words ", 1)
    return f"{', '.join(others)} or {last}" if others else last


def _able(program: Program) -> list[str]:
    """Profiles that can run a program as it is asked for."""
    name, demand = program.name, program.demand
    able = [one.name for one in PROFILES.values() if refusal(one, declare_on(one, name, demand)) is None]
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
