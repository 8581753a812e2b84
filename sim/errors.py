"""Errors that netfold reports in words instead of a traceback.

    NetfoldError            exit status
    ├── ScenarioError       2   a scenario file, or a value given with --set, that cannot be used
    ├── DataError           2   a data set or a run folder that is missing, unfinished or damaged
    │   └── UnwrittenError  1   a result that cannot be written
    ├── units.UnitError     2   a text that is no rate, time, size or fraction
    ├── RunError            1   a run that cannot go on
    │   └── StuckError      1   traffic that makes no progress; the variant's verdict is "stuck"
    └── InvariantError      3   netfold contradicts itself: a bug, never the user's mistake

A message says where and what was found; the hint says what is allowed and the nearest fix. A run whose checks
fail is not an error: it is a result, and exits with 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from sim.diagnosis import Diagnosis


def shown(value: object) -> str:
    """A value as an error shows it: the way a scenario file writes it, containers by their kind."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    return repr(value)


class NetfoldError(Exception):
    """Anything netfold reports in words; `str()` is the message and, indented below it, the hint."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class ScenarioError(NetfoldError):
    """A mistake in a scenario: `FILE:LINE: PATH: MESSAGE` and the hint below.

    `file` is "--set" and `line` 0 for values that came from the command line.
    """

    def __init__(self, file: str, line: int, path: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.args = (file, line, path, message, hint)  # what pickle calls __init__ with
        self.file = file
        self.line = line
        self.path = path

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (place, self.path, super().__str__()) if part)


class DataError(NetfoldError):
    """A data set or run folder that is missing, unfinished or damaged."""


class UnwrittenError(DataError):
    """A result that cannot be written, such as to a full disk, though it is there."""

    exit_code: ClassVar[int] = 1


class RunError(NetfoldError):
    """A run that cannot go on."""

    exit_code: ClassVar[int] = 1


class StuckError(RunError):
    """Somebody waits for what will never come; `diagnosis` says who, for what, and most likely why."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(str(diagnosis))
        self.args = (diagnosis,)  # what pickle calls __init__ with
        self.diagnosis = diagnosis


class InvariantError(NetfoldError):
    """A broken promise inside netfold, such as bytes that were sent and neither arrived nor were lost."""

    exit_code: ClassVar[int] = 3
