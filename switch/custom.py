"""Profiles that users write: a known one, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from netfold.homomorphic.codec import MERGEABLE, Merge
from netfold.spelling import names_hint
from netfold.switch.limits import KINDS, OVERFLOWS, PIPELINE, Profile, ProfileError
from netfold.switch.profiles import PROFILES

MERGES = {merge.value: merge for merge in Merge if merge in MERGEABLE}
_LEAST = {  # of a pipeline
    **dict.fromkeys(("pipes", "stages", "salus_per_stage", "salu_lanes", "words_out"), 1),
    **dict.fromkeys(("sram_blocks_per_stage", "map_rams_per_stage", "block_rows", "phv_bits"), 1),
    "block_row_bits": 64,  # an entry of two words
}
_KEYS = {field.name: str(field.type) for field in fields(Profile) if field.name not in ("name", "sources")}


def profile_from(mapping: Mapping[str, object], where: str) -> Profile:
    """Profile of a mapping: `name`, `like` (a known profile) and fields of `Profile` that differ from it.

    Rates are int bits per second, times int picoseconds, sizes int bytes; `merges` and `overflows` are lists
    of names. `where` begins every message and is the source of what is given.

    Raises
    ------
    ProfileError
        A key or name that there is not (with the nearest), a value of the wrong type, a name that is taken,
        a switch that adds up without overflows, or a pipeline without stages, ALUs or memory.
    """
    try:
        return _made(dict(mapping), where)
    except _RefusedError as refused:
        raise ProfileError(where, *refused.args) from None


def _made(given: dict[str, object], where: str) -> Profile:
    name = _text(given.pop("name", None), "name")
    if name in PROFILES:
        raise _RefusedError("name", f"{name!r} is a known profile", "use another name")
    like = _text(given.pop("like", None), "like")
    if like not in PROFILES:
        raise _RefusedError("like", f"there is no switch profile {like!r}", names_hint(like, PROFILES))
    unknown = next((key for key in given if key not in _KEYS), None)
    if unknown is not None:
        raise _RefusedError(unknown, "unknown key", names_hint(unknown, ("name", "like", *_KEYS)))
    values: dict[str, Any] = {key: _read(key, value) for key, value in given.items()}
    base = PROFILES[like]
    made = replace(base, **values, name=name, sources={**base.sources, **dict.fromkeys(values, where)})
    if made.is_programmable and not made.overflows:
        hint = f"name one at least: {', '.join(OVERFLOWS)}"
        raise _RefusedError(
            "overflows", "a switch that adds up does something to sums that leave int32", hint
        )
    if made.kind == PIPELINE:
        for key, least in _LEAST.items():
            if getattr(made, key) < least:
                found = f"must be at least {least} in a pipeline, found {getattr(made, key)}"
                raise _RefusedError(key, found, f"tofino1 has {getattr(PROFILES['tofino1'], key)}")
    return made


class _RefusedError(Exception):
    """Key, message and hint of a `ProfileError`."""


def _read(key: str, value: object) -> object:
    """The value of one field, of the type it must have."""
    return _READERS[_KEYS[key]](value, key) if key != "kind" else _choice(value, KINDS, key)


def _text(value: object, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise _RefusedError(key, f"must be a name, found {value!r}", "for example like: tofino1")
    return value


def _count(value: object, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _RefusedError(key, f"must be a whole number of at least 0, found {value!r}", "0 is no limit")
    return value


def _flag(value: object, key: str) -> bool:
    if not isinstance(value, bool):
        raise _RefusedError(key, f"must be true or false, found {value!r}", "for example false")
    return value


def _choice(value: object, allowed: Mapping[str, Any], key: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise _RefusedError(key, f"there is no {value!r}", names_hint(str(value), allowed))
    return value


def _choices(value: object, allowed: Mapping[str, Any], key: str) -> list[str]:
    if not isinstance(value, list | tuple):
        raise _RefusedError(key, f"must be a list, found {value!r}", f"of: {', '.join(allowed)}")
    return [_choice(one, allowed, key) for one in value]


def _merges(value: object, key: str) -> frozenset[Merge]:
    return frozenset(MERGES[one] for one in _choices(value, MERGES, key))


def _overflows(value: object, key: str) -> tuple[str, ...]:
    return tuple(_choices(value, dict.fromkeys(OVERFLOWS), key))


_READERS: dict[str, Callable[[object, str], object]] = {
    "str": _text,
    "int": _count,
    "bool": _flag,
    "frozenset[Merge]": _merges,
    "tuple[str, ...]": _overflows,
}
