"""Conversion of scenarios and values from Python to the text of scenario files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from netfold.errors import NetfoldError, ScenarioError
from netfold.sim.scenario.yaml_tree import COMMAND_LINE, ScenarioText, parse

Given = str | os.PathLike[str] | Mapping[str, Any]  # a path, a scenario's text, or its content


def scenario_of(given: Given) -> Path | ScenarioText:
    """The path or text of a scenario: text has a line break, a path has none.

    Raises
    ------
    NetfoldError
        It is none of the three, or a mapping with a value that a file cannot hold.
    """
    if isinstance(given, Mapping):
        return ScenarioText(_json(given, "scenario", indent=1) + "\n", "<mapping>")
    if isinstance(given, str) and "\n" in given:
        return ScenarioText(given, "<text>")
    if not isinstance(given, str | os.PathLike):
        raise NetfoldError(
            f"cannot read a scenario from {type(given).__name__}",
            "give the path of a scenario file, its text, or a mapping with its content",
        )
    return Path(given)


def sets_of(changes: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Values by path as `--set` writes them: "PATH=VALUE"."""
    return tuple(f"{path}={_value(path, value)}" for path, value in (changes or {}).items())


def _value(path: str, value: Any) -> str:
    """A value as a user writes it: text has no quotes if it is read back as the same text."""
    if isinstance(value, str):
        try:
            if parse(COMMAND_LINE, value, first_line=0, path=path).plain == value:
                return value
        except ScenarioError:
            pass
    return _json(value, path)


def _json(value: Any, what: str, indent: int | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent, default=_plain)
    except (TypeError, ValueError) as error:
        raise NetfoldError(
            f"{what}: {error}", "use values that a scenario file can hold: text, numbers, lists and mappings"
        ) from None


def _plain(value: Any) -> Any:
    """Convert a value of a type that JSON does not have."""
    match value:
        case np.generic():
            return value.item()
        case np.ndarray():
            return value.tolist()
        case os.PathLike():
            return os.fspath(value)
        case Mapping():
            return dict(value)
    raise TypeError(f"cannot write {type(value).__name__} into a scenario")
