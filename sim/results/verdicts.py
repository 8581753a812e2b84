"""Verdicts: "pass", "approximate: N entries", "stuck" or "fail", from good to bad.

What is approximate holds all its checks, but N elements of its sums are estimates, as its codec told. That is
what the codec is asked to do, so it is no failure; but no bound holds for those elements.
"""

from __future__ import annotations

from collections.abc import Iterable

GOOD = ("pass", "approximate")  # kinds of verdict that a run may end with and exit with 0
PATTERN = r"^(pass|approximate: [0-9]{1,18} entries|stuck|fail)$"
_APPROXIMATE = "approximate: {} entries"


def kind(verdict: str) -> str:
    """The word without the number: "approximate" of "approximate: 12 entries"."""
    return verdict.partition(":")[0]


def of_checks(verdicts: Iterable[str], estimates_count: int) -> str:
    """Verdict of a variant from those of its checks and the elements that are estimates."""
    checks = worst(verdicts)
    return _APPROXIMATE.format(estimates_count) if checks == "pass" and estimates_count else checks


def worst(verdicts: Iterable[str]) -> str:
    """The worst of some: wrong numbers (fail) are worse than none (stuck); what was never checked fails.

    The entries of approximate ones are added up.
    """
    found = list(verdicts)
    kinds = {kind(verdict) for verdict in found}
    if not kinds or not kinds <= {*GOOD, "stuck"}:
        return "fail"
    if "stuck" in kinds:
        return "stuck"
    return _APPROXIMATE.format(sum(map(entries, found))) if "approximate" in kinds else "pass"


def entries(verdict: str) -> int:
    """How many elements a verdict says are estimates."""
    return int(verdict.split()[1]) if kind(verdict) == "approximate" else 0
