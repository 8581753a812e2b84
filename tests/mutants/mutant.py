"""Deliberate faults and harmless changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Mutant(NamedTuple):
    """A fault: a changed piece of one file."""

    name: str  # what is wrong, in words
    file: str
    before: str  # occurs once in the file
    after: str
    tests: tuple[str, ...]  # files or node ids: the cheapest that notice it


class Harmless(NamedTuple):
    """A change that no test can notice, and why."""

    file: str
    before: str
    after: str
    reason: str


def faults(file: str, tests: Sequence[str], changes: Sequence[tuple[str, str, str]]) -> list[Mutant]:
    """Faults of one file that the same tests notice: (name, before, after)."""
    return [Mutant(name, file, before, after, tuple(tests)) for name, before, after in changes]
