"""Hints for unknown names, in error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

NAMES_SHOWN = 8  # of lists that may have hundreds


def closest(found: str, known: Iterable[str]) -> str:
    """The known name most similar to the one found, "" if none is similar."""
    return next(iter(get_close_matches(found, list(known), n=1)), "")


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """A question with a space at its end, "" if no known name is similar."""
    meant = closest(found, known)
    return f"did you mean {meant!r}? " if meant else ""


def names_hint(found: str, known: Iterable[str], what: str = "known", most: int | None = None) -> str:
    """A suggestion and the known names (at most `most`): "did you mean 'a'? known: a, b"."""
    names = list(known)
    return f"{did_you_mean(found, names)}{what}: {', '.join(names[:most])}"
