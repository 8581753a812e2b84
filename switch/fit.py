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
VERSIONS = 2


class FitError(ValueError):
    """A program that a switch cannot run; says what is needed and what there is."""


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
        raise FitError(
            f"switch profile {profile.name!r} only forwards; aggregation needs a programmable switch"
        )
    if workers > WORKERS_MAX:
        raise FitError(f"{workers} workers: SwitchML's bitmap is one 32-bit word, so {WORKERS_MAX} at most")
    if elements not in EXTRA_PASSES:
        raise FitError(
            f"{elements} words per packet: SwitchML processes {' or '.join(map(str, EXTRA_PASSES))}"
        )
    entries = VERSIONS * slots
    if profile.register_entries and entries > profile.register_entries:
        raise FitError(
            f"{slots} slots need register arrays of {entries} entries (two versions), {profile.name} has "
            f"{profile.register_entries}: {profile.register_entries // VERSIONS} slots at most"
        )
    extra_passes = EXTRA_PASSES[elements] if profile.loopback_rate_bps else 0
    return Fit(extra_passes, register_bytes=entries * elements * 4)
