"""Whether a decoded total is the exact sum of the gradients: against exact fractions, and for real codecs."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from netfold.homomorphic.bounds import PART_ELEMENTS, sums_of_parts
from netfold.sim.checks.rounds.losses import Loss
from netfold.sim.run.run import summary_of_scenario
from netfold.sim.scenario.source import ScenarioText

VALUES = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100)
GRADIENTS = arrays.arrays(np.float32, (3, 5), elements=VALUES)


def rounded(values: list[float]) -> np.float32:
    """The exact sum, rounded once: of its float64 neighbours' roundings, the nearest; ties to even."""
    exact = sum(map(Fraction, values), Fraction(0))
    near = np.float32(float(exact))
    found = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    return min(found, key=lambda one: (abs(Fraction(float(one)) - exact), int(one.view(np.int32)) & 1))


def judged(total: np.ndarray, gradients: list[np.ndarray], is_float: bool = False) -> bool:
    loss = Loss()
    for sums in sums_of_parts(gradients):
        place = slice(sums.first, sums.first + sums.total.size)
        loss.judge(total[place], [own[place] for own in gradients], sums, is_float)
    return loss.is_exact


@given(GRADIENTS, st.integers(0, 4), st.booleans())
def test_a_total_is_exact_if_every_element_is_the_rounded_sum(
    drawn: np.ndarray, element: int, is_off: bool
) -> None:
    gradients = list(drawn)
    total = np.array([rounded([float(own[i]) for own in gradients]) for i in range(5)], np.float32)
    if is_off:
        total[element] = np.nextafter(total[element], np.float32(np.inf))

    assert judged(total, gradients) is not is_off


def test_a_sum_whose_float64_sum_rounds_the_other_way_is_exact() -> None:
    """1 + 2⁻²⁴ + 2⁻⁶⁰ is above the middle of two float32 values; in float64 the last part is lost."""
    gradients = [np.array([value], np.float32) for value in (1.0, 2.0**-24, 2.0**-60)]

    assert judged(np.array([1 + 2.0**-23], np.float32), gradients)
    assert not judged(np.array([1.0], np.float32), gradients)


def test_the_last_part_of_a_large_total_counts() -> None:
    gradients = [np.ones(3 * PART_ELEMENTS + 1, np.float32)] * 2
    total = np.full(3 * PART_ELEMENTS + 1, 2, np.float32)
    assert judged(total, gradients)
    total[-1] = 2.5

    assert not judged(total, gradients)


def test_of_float_additions_only_more_than_their_errors_is_wrong() -> None:
    """Of three workers with Σ|x| = 3, two additions: 2 · 2⁻²⁴ · 3."""
    gradients = [np.ones(1, np.float32)] * 3

    assert judged(np.array([3 + 2.0**-22], np.float32), gradients, is_float=True)
    assert not judged(np.array([3 + 2.0**-20], np.float32), gradients, is_float=True)


def test_what_codecs_are(tmp_path: Path) -> None:
    """Top 1 % is not exact, whatever its merges; float32 sums have no answer; integers of all digits are."""
    summary = summary_of_scenario(
        ScenarioText(
            """
name: exactness
workers: 4
topology: {kind: star, hosts: 4, rate: 100Gbps, delay: 1us}
workload: {kind: synthetic, elements: 2000, density: 10%}
collective: {kind: ring}
variants:
  - {name: top, codec: {kind: topk, share: 0.01}, collective: {kind: all_gather}}
  - {name: none, codec: {kind: none}}
  - {name: halves, codec: {kind: fp16}}
  - {name: scaled, codec: {kind: fixed_point}}
  - {name: integers, codec: {kind: fixed_point}, workload: {distribution: integer}}
  - {name: exact, codec: {kind: exact}}
  - {name: packed, codec: {kind: packed, values: exact}}
  - {name: lossless, codec: {kind: lossless, values: exact}}
  - {name: random, codec: {kind: random_k, share: 0.1, values: float32}}
""",
            "exactness.yaml",
        )
    )
    found = {one["name"]: one["metrics"] for one in summary["variants"]}

    assert {name: metrics["bit_exact"] for name, metrics in found.items()} == {
        **{"top": False, "none": None, "halves": False, "scaled": False, "integers": True},
        **{"exact": True, "packed": True, "lossless": True, "random": False},
    }
    assert all(metrics["merges_verified"] for metrics in found.values())
    assert {one["name"]: one["is_uncompressed"] for one in summary["variants"]}["none"]
    assert [one["ranking"]["baseline"] for one in summary["variants"]].count("none") == 8
