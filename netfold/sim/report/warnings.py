"""The warnings of a run: what several variants have in common is said once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def warnings(summary: Mapping[str, Any]) -> list[str]:
    """The warnings of a run's `summary.json`, each text once, with the variants that have it."""
    names = {variant["name"] for variant in summary["variants"]}
    found: dict[str, list[str]] = {}
    for warning in summary["warnings"]:
        name, colon, text = warning.partition(": ")
        if colon and name in names:
            found.setdefault(text, []).append(name)
        else:
            found.setdefault(warning, [])
    return [_told(text, having, len(names)) for text, having in found.items()]


def _told(text: str, having: Sequence[str], count: int) -> str:
    """One warning; `count` is the number of variants."""
    if not having:
        return text
    if len(having) == count > 1:
        return f"all variants: {text}"
    if len(having) <= _LISTED:
        return f"{', '.join(having)}: {text}"
    return f"{', '.join(having[: _LISTED - 1])} and {len(having) - _LISTED + 1} more: {text}"


_LISTED = 4  # names
