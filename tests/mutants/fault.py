"""Deliberate faults, as they are named, kept and found again."""

from __future__ import annotations

from typing import NamedTuple

BY_HAND = "by hand"


class Fault(NamedTuple):
    """A piece of one file that reads otherwise."""

    file: str  # its path in the repository
    line: int
    text: str  # of that line, without its indentation; of a fault by hand: what is wrong, in words
    operator: str  # of `operators.py`, or BY_HAND
    before: str
    after: str
    occurrence: int = 0  # of faults of this file that are alike but for their line: which one

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What stays when other lines of the file change."""
        return self.text, self.operator, self.before, self.after, self.occurrence

    @property
    def label(self) -> str:
        """File, line and change, in a line."""
        if self.operator == BY_HAND:
            return f"{self.file}: {self.text}"
        return f"{self.file}:{self.line}: {short(self.before)} → {short(self.after) or 'nothing'}"


class Verdict(NamedTuple):
    """What became of one fault."""

    verdict: str  # of `play.py`
    noticed_by: str = ""  # a test, or the files of which one ended the process
    tests: tuple[str, ...] = ()  # that were run
    output: str = ""  # the end of it, of an error


def short(code: str) -> str:
    """Code in one line of bounded length."""
    line = " ".join(code.split())
    return line if len(line) <= 100 else line[:97] + "…"
