"""The result of a check, and the inputs of checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from netfold.sim.results.records import CheckRecord

Counters = Sequence[Mapping[str, int]]  # of one job's switch program, by point


class Finding(NamedTuple):
    """Whether a check passed, and the numbers behind it."""

    passed: bool
    detail: str


class LeakCause(NamedTuple):
    """An effect of an injected fault that can leave slots or entries occupied."""

    what: str
    most: int | None = None  # slots or entries that it can leave occupied; None: any number


class Ending(NamedTuple):
    """How a job ended: "pass" when all its steps are done, "stuck", or "fail" if its codec cannot go on."""

    verdict: str
    detail: str
    diagnosis: Mapping[str, Any] | None = None  # of a stall
    leaks: Sequence[str] = ()  # slots and entries that are still occupied at the end
    leak_causes: Sequence[LeakCause] = ()  # injected faults that can explain them
    is_undecoded: bool = False  # some merged messages could not be decoded
    trace: str = ""  # of a codec that raised: Python's traceback


def recorded(label: str, checks: Mapping[str, Callable[[], Finding]]) -> list[CheckRecord]:
    """Run the checks of a variant or job."""
    found = {name: check() for name, check in checks.items()}
    return [
        CheckRecord(label, name, "pass" if finding.passed else "fail", finding.detail)
        for name, finding in found.items()
    ]
