"""A run's settings as the report shows them: shared ones once, and for each variant those that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from netfold.sim.report.words import format_value

NONE = "none"
_FIRST = ("program", "model", "hosts", "elements", "density", "rate", "switch", "count")
"""The keys that come first, in this order."""
_SECTIONS = ("topology", "workers", "workload", "device", "hosts", "overlap", "codec", "collective", "faults")


class Setup(NamedTuple):
    """The rows of settings."""

    shared: list[tuple[str, str]]  # section and its text
    headings: list[str]  # sections in which variants differ
    rows: list[tuple[str, list[str]]]  # variant, and its text under each heading


def setup(variants: Sequence[Mapping[str, Any]]) -> Setup:
    """Settings of a summary's variants; empty if no variant records its setup."""
    texts = {entry["name"]: _texts(entry.get("setup", {})) for entry in variants}
    sections = [name for name in _SECTIONS if any(name in settings for settings in texts.values())]
    same = {name for name in sections if len({settings.get(name, NONE) for settings in texts.values()}) == 1}
    first = next(iter(texts.values()))
    headings = [name for name in sections if name not in same]
    rows = [(variant, [settings.get(name, NONE) for name in headings]) for variant, settings in texts.items()]
    shared = [(name, first[name]) for name in sections if name in same and first[name] != NONE]
    return Setup(shared, headings, rows if headings else [])


def _texts(sections: Mapping[str, Any]) -> dict[str, str]:
    return {name: _section(value) for name, value in sections.items()}


def _section(value: Any) -> str:
    """A section's kind and its options with their names; a list's items one after the other."""
    if isinstance(value, list):
        return "; ".join(map(_section, value)) or NONE
    if not isinstance(value, dict):
        return format_value(value)
    kind = format_value(value["kind"]) if "kind" in value else ""
    keys = [key for key in _FIRST if key in value] + [key for key in value if key not in _FIRST]
    options = ", ".join(f"{key} {format_value(value[key])}" for key in keys if key != "kind")
    return ": ".join(part for part in (kind, options) if part) or NONE
