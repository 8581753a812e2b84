"""Does SwitchML fit a switch? The reason if not, and the passes it takes if so.

From the released program (p4lang/p4app-switchML, `configuration.p4`, `next_step_selector.py`): one pass
adds 64 words; 256 words need the chip's four pipes in a row. A packet that completes a slot goes round
again to read the result out: once for 64 words, 3 more pipes and 7 harvest passes for 256.
"""

from __future__ import annotations

from dataclasses import dataclass

from switch.profiles import Profile
from switch.programs.switchml import WORKERS_MAX

EXTRA_PASSES = {64: 1, 256: 10}  # by words per packet: of a packet that completes a slot
FOLDED_WORDS, FOLDED_WORKERS_MAX = 256, 16  # loopback rules exist for worker ids 0 to 15
VERSIONS = 2


class FitError(ValueError):
    """A program that a switch cannot run: what is needed, what there is, and what would fit.

    `about` says whose fault it is: "profile", "workers", "frame" or "slots".
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
    """What SwitchML takes of a switch."""

    extra_passes: int
    register_bytes: int  # values of all slots, both versions


def fit_switchml(profile: Profile, workers: int, slots: int, elements: int) -> Fit:
    """Check SwitchML with `slots` slots of `elements` words for `workers` workers against a profile.

    Raises
    ------
    FitError
        The switch cannot run programs, or the program needs more than it has.
    """
    if not profile.is_programmable:
        raise FitError("profile", f"switch profile {profile.name!r} only forwards", "use a programmable one")
    if workers > WORKERS_MAX:
        raise FitError(
            "workers",
            f"SwitchML cannot tell {workers} workers apart: its bitmap is one 32-bit word",
            f"use {WORKERS_MAX} at most",
        )
    if profile.loopback_rate_bps and elements == FOLDED_WORDS and workers > FOLDED_WORKERS_MAX:
        raise FitError(
            "workers",
            f"SwitchML cannot fold packets of {FOLDED_WORDS} words over four pipes for {workers} workers",
            f"use {FOLDED_WORKERS_MAX} at most, or frame udp-256",
        )
    if elements not in EXTRA_PASSES:
        allowed = " or ".join(map(str, EXTRA_PASSES))
        raise FitError("frame", f"SwitchML cannot process {elements} words per packet", f"use {allowed}")
    entries = VERSIONS * slots
    if profile.register_entries and entries > profile.register_entries:
        raise FitError(
            "slots",
            f"{slots} slots need register arrays of {entries} entries (two versions), "
            f"{profile.name} has {profile.register_entries}",
            f"use {profile.register_entries // VERSIONS} slots at most",
        )
    extra_passes = EXTRA_PASSES[elements] if profile.loopback_rate_bps else 0
    return Fit(extra_passes, register_bytes=entries * elements * 4)
