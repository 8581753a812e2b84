"""What programs and the switches they run on can do."""

from __future__ import annotations

from homomorphic.codec import Merge
from sim.collectives.in_network import SWITCH_MERGES
from switch.fit import FitError, fit_switchml
from switch.profiles import Profile
from switch.programs.switchml import WORKERS_MAX

_ALL = frozenset(SWITCH_MERGES)
PROGRAM_MERGES = {
    "switchml": _ALL,
    "tree": _ALL,
    "timed": frozenset({Merge.ADD, Merge.FLOAT_ADD}),
    "atp": frozenset({Merge.ADD}),
}
NEEDS_LINEAR = ("timed", "atp")  # a result may hold some workers only, or be asked for again as floats


def merges_of(program: str, kind: Profile) -> frozenset[Merge]:
    """Merges that a program can do on a switch of this profile."""
    able = _ALL if kind.name == "ideal" else frozenset({Merge.ADD, Merge.OR, Merge.MAX})
    return PROGRAM_MERGES[program] & able


def overflows_of(kind: Profile) -> tuple[str, ...]:
    """What its ALUs can do where a sum leaves int32; the first is what they do by default."""
    return ("wrap", "saturate", "sticky")


def extra_passes(program: str, kind: Profile, workers: int, slots: int, words: int) -> int:
    """Passes beyond the first that a result takes.

    Raises
    ------
    FitError
        The program does not fit.
    """
    if program == "switchml":
        return fit_switchml(kind, workers, slots, words).extra_passes
    if not kind.is_programmable:
        raise FitError("profile", f"switch profile {kind.name!r} only forwards", "use a programmable one")
    if workers > WORKERS_MAX:
        raise FitError(
            "workers",
            f"{program} cannot tell {workers} workers apart: its bitmap is one 32-bit word",
            f"use {WORKERS_MAX} at most",
        )
    return 1 if kind.loopback_rate_bps else 0
