"""Faults, their verdicts, and records of both in a file."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


class Record(NamedTuple):
    """A fault with its verdict."""

    fault: Fault
    verdict: Verdict

    def line(self) -> str:
        """Itself as a line of JSON."""
        fields = {**self.fault._asdict(), **self.verdict._asdict()}
        return json.dumps(
            {name: value for name, value in fields.items() if name != "output"}, ensure_ascii=False
        )


def read_records(path: Path) -> list[Record]:
    """The records of a file; none if there is no such file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    records = []
    for fields in map(json.loads, lines):
        fault = _fault(fields)
        verdict = Verdict(fields["verdict"], fields["noticed_by"], tuple(fields["tests"]))
        records.append(Record(fault, verdict))
    return records


def read_accepted(path: Path) -> dict[Fault, str]:
    """Survivors that no test can notice, with the reason."""
    return {
        _fault(fields): fields["reason"] for fields in map(json.loads, path.read_text("utf-8").splitlines())
    }


def _fault(fields: dict[str, Any]) -> Fault:
    return Fault(*(fields[name] for name in Fault._fields))


def found_again(kept: Sequence[Fault], faults: Iterable[Fault]) -> list[Fault | None]:
    """The kept faults in changed sources: in their file, or else in the only one that has them."""
    in_file: dict[tuple[object, ...], Fault] = {}
    anywhere: defaultdict[tuple[object, ...], list[Fault]] = defaultdict(list)
    for fault in faults:
        in_file[fault.file.removeprefix("netfold/"), *fault.key] = fault
        anywhere[fault.key[:-1]].append(fault)
    again: list[Fault | None] = []
    for fault in kept:
        others = anywhere[fault.key[:-1]]
        only = others[0] if len(others) == 1 else None
        again.append(in_file.get((fault.file.removeprefix("netfold/"), *fault.key), only))
    return again
