"""Faults of scenario files, units, and what plans resolve to."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

S = "tests/scenario/"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/units.py",
        [S + "test_units.py"],
        [
            (
                "rough figures may be less than the value",
                "self.format(-(-value // step) * step)",
                "self.format(value // step * step)",
            ),
            ("the largest value is refused", "if value > _LARGEST:", "if value >= _LARGEST:"),
            ("KiB is KB", '"KiB": 2**10, "MB"', '"KiB": 10**3, "MB"'),
            (
                "the shortest text of the smallest unit wins",
                "return min(reversed(texts), key=len)",
                "return min(texts, key=len)",
            ),
            ("a fraction of 1 is refused", "if not 0 <= fraction <= 1:", "if not 0 <= fraction < 1:"),
            (
                "time on the wire is rounded down",
                "return -(-size_bytes * 8 * PS_PER_S // rate_bps)",
                "return size_bytes * 8 * PS_PER_S // rate_bps",
            ),
            (
                "bytes per second are read as bits",
                '8 * factor for end in ("B/s", "Bps")',
                'factor for end in ("B/s", "Bps")',
            ),
        ],
    ),
    *faults(
        "sim/scenario/merge.py",
        [S + "test_load.py"],
        [
            (
                "a mapping of another kind is merged",
                "and old.plain != new.plain:",
                "and old.plain == new.plain and False:",
            ),
            (
                "the base wins",
                "merge(children[key], child) if key in children else child",
                "merge(child, children[key]) if key in children else child",
            ),
        ],
    ),
]
