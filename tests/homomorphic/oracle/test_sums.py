"""Exact sums against rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.oracle.sums import exact_sums
from tests.examples import examples

LARGEST = float(np.finfo(np.float32).max)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
near = st.sampled_from(
    [1.0, -1.0, 2.0**-24, -(2.0**-24), 2.0**-25, 3 * 2.0**-25, 2.0**-78, -(2.0**-149), 2.0**100]
)


def rounded(total: Fraction) -> np.float32:
    """The float32 next to a rational number, ties to even, from the distances to its neighbours."""
    if abs(total) >= Fraction(2) ** 128 - Fraction(2) ** 103:  # half a step beyond the largest
        return np.float32(np.inf if total > 0 else -np.inf)
    guess = np.float32(max(-LARGEST, min(LARGEST, float(total))))
    with np.errstate(over="ignore"):
        neighbours = [
            guess,
            np.nextafter(guess, np.float32(np.inf)),
            np.nextafter(guess, np.float32(-np.inf)),
        ]
    finite = [one for one in neighbours if np.isfinite(one)]
    return min(finite, key=lambda one: (abs(Fraction(float(one)) - total), int(one.view(np.int32)) & 1))


@examples(60)
@given(
    st.integers(1, 9).flatmap(
        lambda n: st.lists(st.lists(floats | near, min_size=n, max_size=n), min_size=1, max_size=6)
    )
)
def test_sums_are_exact_and_rounded_once(rows: list[list[float]]) -> None:
    gradients = [np.array(row, np.float32) for row in rows]

    sums = exact_sums(gradients)

    for element, values in enumerate(zip(*rows, strict=True)):
        total = sum(map(Fraction, values))
        assert rounded(total) == sums.rounded[element]
        assert float(total) == pytest.approx(
            sums.totals[element], rel=2.0**-40, abs=sum(map(abs, values)) * 2.0**-50
        )
        assert sums.is_member[element] == any(values)


def test_chunks_join() -> None:
    random = np.random.default_rng(0)
    gradients = [random.standard_normal(600_001).astype(np.float32) for _ in range(3)]
    wide = [gradient.astype(np.longdouble) for gradient in gradients]  # 64 bits hold these sums exactly

    sums = exact_sums(gradients)

    assert np.array_equal(sums.rounded, (wide[0] + wide[1] + wide[2]).astype(np.float32))
    assert sums.is_member.all()
