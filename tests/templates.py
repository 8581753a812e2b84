"""Pages are compiled once in a process: of a small report, that takes longer than all else."""

from __future__ import annotations

from types import CodeType
from typing import Any

import jinja2

SETTINGS = ("autoescape", "undefined", "trim_blocks", "lstrip_blocks", "keep_trailing_newline")

_compile = jinja2.Environment.compile
_known: dict[tuple[Any, ...], CodeType] = {}


def compiled(environment: jinja2.Environment, source: Any, *arguments: Any, **options: Any) -> Any:
    """What the environment would make of a source."""
    settings = (getattr(environment, name) for name in SETTINGS)
    key = (source, *arguments, *sorted(options.items()), *settings)
    if key not in _known:
        _known[key] = _compile(environment, source, *arguments, **options)
    return _known[key]


def compile_once() -> None:
    """Let all environments of this process share what they compile."""
    jinja2.Environment.compile = compiled  # type: ignore[assignment, method-assign]
