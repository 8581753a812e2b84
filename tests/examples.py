"""How many examples property tests try, and which.

CI tries as many as a test names: always the same ones, but new ones in every run where a law is `drawn_anew`.
The seed of these is printed by pytest, and NETFOLD_TEST_SEED repeats a run. HYPOTHESIS_PROFILE=nightly tries
20 times as many of everything, all of them new, and runs `nightly` tests, which take minutes each. `bounds`
tries a fifth: the same tests once more, with the bounds of compiled code checked.
"""

from __future__ import annotations

import os
from secrets import randbits

import pytest
from hypothesis import seed, settings

FACTORS = {"ci": 1.0, "nightly": 20.0, "mutants": 1.0, "bounds": 0.2}
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")

# The first process to come by draws it, and those that it starts inherit it.
SEED = int(os.environ.setdefault("NETFOLD_TEST_SEED", str(randbits(32))))

drawn_anew = seed(SEED)
nightly = pytest.mark.skipif(PROFILE != "nightly", reason="takes minutes: `make nightly` runs it")


def scaled(count: int) -> int:
    """How many of `count` examples the profile tries, at least one."""
    return max(1, round(count * FACTORS.get(PROFILE, 1.0)))


def examples(count: int) -> settings:
    """Decorate a property test: `count` examples in CI, more in nightly runs, fewer with bounds checked."""
    return settings(max_examples=scaled(count))
