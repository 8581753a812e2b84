"""How many examples property tests try, and which.

CI tries as many as a test names, always the same ones, so that a test fails because of the change under test.
HYPOTHESIS_PROFILE=nightly tries 20 times as many, all of them new, keeps those that fail in `tests/failing`
and tries them first from then on, and runs `nightly` tests, which take minutes each. `bounds` tries a fifth:
the same tests once more, with the bounds of compiled code checked.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

FACTORS = {"ci": 1.0, "nightly": 20.0, "mutants": 1.0, "bounds": 0.2}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")

nightly = pytest.mark.skipif(PROFILE != "nightly", reason="takes minutes: `make nightly` runs it")


def scaled(count: int) -> int:
    """How many of `count` examples the profile tries, at least one."""
    return max(1, round(count * FACTORS.get(PROFILE, 1.0)))


def examples(count: int, *, at_night: int = 1) -> settings:
    """Decorate a property test: `count` examples in CI, more in nightly runs, fewer with bounds checked.

    Where they are dear, CI tries few: the other profiles try `at_night` times as many as they would.
    """
    return settings(max_examples=scaled(count if PROFILE == "ci" else count * at_night))
