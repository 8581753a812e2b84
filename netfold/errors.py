"""Errors that netfold reports as a message instead of a traceback.

    NetfoldError            exit status
    ├── ScenarioError       2   a scenario file, or a value given with --set, that cannot be used
    │   └── MistakesError   2   several of these
    ├── OptionError         2   a value of an option that cannot be used; also a ValueError
    ├── DataError           2   a data set or a run folder that is missing, unfinished or damaged
    │   └── UnwrittenError  1   a result that cannot be written
    ├── files.UnreadableError  2  a file that cannot be read: why
    ├── units.UnitError     2   text that is not a rate, time, size or fraction
    ├── RunError            1   a run that cannot continue
    │   └── stall.StalledError 1   traffic that makes no progress; the variant's verdict is "stalled"
    └── InvariantError      3   a broken invariant: a bug in netfold, never the user's mistake

The message says where the error is and what was found; the hint says what is allowed and the nearest fix. A
run whose checks fail is not an error but a result; it exits with 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import ClassVar

_SHOWN_CHARACTERS = 80
"""Characters of a value that a message shows."""
_SHOWN_MISTAKES = 20


def shown(value: object) -> str:
    """A value as errors show it: in the syntax of scenario files, containers by kind, long text cut short."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return "a very long number"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


class NetfoldError(Exception):
    """Base class of errors without a traceback; `str()` is the message with the hint indented below."""

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
        where = f"{self.file}:{self.line}" if self.line else self.file
        path = self.path if self.path.isprintable() else repr(self.path)[1:-1]
        if len(path) > _SHOWN_CHARACTERS:
            path = f"{path[: _SHOWN_CHARACTERS - 1]}…"
        return ": ".join(part for part in (where, path, super().__str__()) if part)


class OptionError(NetfoldError, ValueError):
    """A value of an option that cannot be used, by itself or beside others; `key` is that of the value."""

    def __init__(self, key: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.args = (key, message, hint)  # what pickle calls __init__ with
        self.key = key


class UnknownKeyError(ScenarioError):
    """An unknown key; `meant` is the nearest known one."""

    meant: str = ""


class MissingKeyError(ScenarioError):
    """A missing key."""

    key: str = ""


class UnreadableValueError(ScenarioError):
    """A value that cannot be read, so that nothing else is known about it."""


class MistakesError(ScenarioError):
    """Several mistakes, one below the other; file, line and path are those of the first."""

    def __init__(self, mistakes: tuple[ScenarioError, ...]) -> None:
        first = mistakes[0]
        super().__init__(first.file, first.line, first.path, first.message, first.hint)
        self.args = (mistakes,)  # what pickle calls __init__ with
        self.mistakes = mistakes

    def __str__(self) -> str:
        texts = [str(mistake) for mistake in self.mistakes[:_SHOWN_MISTAKES]]
        more = len(self.mistakes) - len(texts)
        return "\n".join([*texts, f"and {more} more"] if more else texts)


class Mistakes:
    """Collects mistakes so that all can be reported together, each once."""

    def __init__(self) -> None:
        self.found: list[ScenarioError] = []
        self._seen: set[str] = set()

    def add(self, error: ScenarioError) -> None:
        """Add one mistake, or each of several."""
        for mistake in error.mistakes if isinstance(error, MistakesError) else (error,):
            if str(mistake) not in self._seen:
                self._seen.add(str(mistake))
                self.found.append(mistake)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect a ScenarioError of the block instead of raising it."""
        try:
            yield
        except ScenarioError as error:
            self.add(error)

    def raise_any(self) -> None:
        """Raise the collected mistake, or a `MistakesError` of several; nothing if there are none."""
        if self.found:
            raise as_one_error(self.found)


def as_one_error(mistakes: Iterable[ScenarioError]) -> ScenarioError:
    """One error for one or more mistakes, in order of line; those of the command line come last."""
    ordered = tuple(sorted(mistakes, key=lambda mistake: (mistake.line == 0, mistake.file, mistake.line)))
    return ordered[0] if len(ordered) == 1 else MistakesError(ordered)


class DataError(NetfoldError):
    """A data set or run folder that is missing, unfinished or damaged."""


class UnwrittenError(DataError):
    """A result that cannot be written, for example to a full disk."""

    exit_code: ClassVar[int] = 1


class RunError(NetfoldError):
    """A run that cannot continue."""

    exit_code: ClassVar[int] = 1


class InvariantError(NetfoldError):
    """A broken invariant of netfold, such as bytes that were sent and neither arrived nor were lost."""

    exit_code: ClassVar[int] = 3


# Hints for unknown names, in error messages.


NAMES_SHOWN = 8
"""Names that a hint shows of lists that may have hundreds."""


def closest(name: str, known: Iterable[str]) -> str:
    return next(iter(get_close_matches(name, list(known), n=1)), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with a space at its end, "" if no known name is similar."""
    meant = closest(name, known)
    return f"did you mean {meant!r}? " if meant else ""


def names_hint(name: str, known: Iterable[str], what: str = "known", most: int | None = None) -> str:
    """A suggestion and the known names (at most `most`): "did you mean 'a'? known: a, b"."""
    names = list(known)
    return f"{did_you_mean(name, names)}{what}: {', '.join(names[:most])}"


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # C0, DEL and C1, without tabs and line ends


def escaped(text: str) -> str:
    """Text in which characters that control a terminal are written as JSON writes them."""
    return _CONTROL.sub(lambda character: f"\\u{ord(character[0]):04x}", text)
