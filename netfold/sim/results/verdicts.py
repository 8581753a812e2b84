"""Verdicts: "pass", "approximate: N entries", "stuck" or "fail", from good to bad.

An approximate variant passes all its checks, but its codec reports that N elements of its sums are estimates.
That is expected of such a codec, so it is not a failure; but those elements have no error bound.
"""

from __future__ import annotations

from collections.abc import Iterable

GOOD = ("pass", "approximate")  # kinds of verdict with which a run exits with 0
PATTERN = r"^(pass|approximate: [0-9]{1,18} entries|stuck|fail)$"
_APPROXIMATE = "approximate: {} entries"


def kind(verdict: str) -> str:
    """The verdict without its number: "approximate" for "approximate: 12 entries"."""
    return verdict.partition(":")[0]


def of_checks(verdicts: Iterable[str], estimates_count: int) -> str:
    """Verdict of a variant, from those of its checks and its number of estimated elements."""
    checks = worst(verdicts)
    return _APPROXIMATE.format(estimates_count) if checks == "pass" and estimates_count else checks


def worst(verdicts: Iterable[str]) -> str:
    """The worst verdict: wrong numbers (fail) are worse than none (stuck), and no verdict at all is a fail.

    The entries of approximate verdicts are added up.
    """
    found = list(verdicts)
    kinds = {kind(verdict) for verdict in found}
    if not kinds or not kinds <= {*GOOD, "stuck"}:
        return "fail"
    if "stuck" in kinds:
        return "stuck"
    return _APPROXIMATE.format(sum(map(entries, found))) if "approximate" in kinds else "pass"


def entries(verdict: str) -> int:
    """Number of estimated elements in a verdict."""
    return int(verdict.split()[1]) if kind(verdict) == "approximate" else 0
