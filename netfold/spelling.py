"""Hints for names that are not known, for messages of all rooms."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

NAMES_SHOWN = 8  # where there may be hundreds


def closest(found: str, known: Iterable[str]) -> str:
    """The known name that is most like another, "" if none is."""
    return next(iter(get_close_matches(found, list(known), n=1)), "")


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """A question that ends with a space, "" if no known name is like the one found."""
    meant = closest(found, known)
    return f"did you mean {meant!r}? " if meant else ""


def names_hint(found: str, known: Iterable[str], what: str = "known", most: int | None = None) -> str:
    """Which name may be meant, and all there are, or the first of them: "did you mean 'a'? known: a, b"."""
    names = list(known)
    return f"{did_you_mean(found, names)}{what}: {', '.join(names[:most])}"
