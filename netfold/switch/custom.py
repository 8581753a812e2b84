"""Custom profiles: a known profile, and the fields that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from netfold.spelling import names_hint
from netfold.switch.limits import OVERFLOWS, PIPELINE, Profile, ProfileError
from netfold.switch.profiles import PROFILES

_LEAST = {  # of a pipeline
    **dict.fromkeys(("pipes", "stages", "salus_per_stage", "salu_lanes", "words_out"), 1),
    **dict.fromkeys(("sram_blocks_per_stage", "map_rams_per_stage", "block_rows", "phv_bits"), 1),
    "block_row_bits": 64,  # an entry of two words
}


def derived(name: str, like: str, changes: Mapping[str, Any], source: str) -> Profile:
    """The known profile `like` under another name, with changed fields of `Profile` and their source.

    Raises
    ------
    ProfileError
        A name that is taken or unknown, an aggregating switch without an overflow policy, or a pipeline
        without stages, ALUs or memory.
    """
    if name in PROFILES:
        raise ProfileError("name", f"{name!r} is a known profile", "use another name")
    if like not in PROFILES:
        raise ProfileError("like", f"there is no switch profile {like!r}", names_hint(like, PROFILES))
    base = PROFILES[like]
    made = replace(base, **changes, name=name, sources={**base.sources, **dict.fromkeys(changes, source)})
    if made.is_programmable and not made.overflows:
        hint = f"name at least one: {', '.join(OVERFLOWS)}"
        raise ProfileError(
            "overflows", "a switch that aggregates needs a policy for sums that leave int32", hint
        )
    if made.kind == PIPELINE:
        for key, least in _LEAST.items():
            if getattr(made, key) < least:
                found = f"must be at least {least} in a pipeline, found {getattr(made, key)}"
                raise ProfileError(key, found, f"tofino1 has {getattr(PROFILES['tofino1'], key)}")
    return made
