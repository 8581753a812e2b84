"""The generator of covering arrays, against brute force."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.pairs.array import Combination, Factors, Row, combinations_of, covering_array, row_with


def made(sizes: list[int]) -> Factors:
    return {f"f{index}": [f"v{value}" for value in range(size)] for index, size in enumerate(sizes)}


def all_rows(factors: Factors, refused: list[Combination]) -> list[Row]:
    """Every row that has nothing refused."""
    rows = [dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())]
    return [row for row in rows if not any(choices <= row.items() for choices in refused)]


@st.composite
def arrays(draw: st.DrawFn) -> tuple[Factors, int, list[Combination]]:
    """Factors, a strength, and refused pairs and triples."""
    factors = made(draw(st.lists(st.integers(1, 4), min_size=2, max_size=5)))
    strength = draw(st.integers(1, min(3, len(factors))))
    wide = min(3, len(factors))
    able = [choices for size in range(2, wide + 1) for choices in combinations_of(factors, size)]
    return factors, strength, draw(st.lists(st.sampled_from(able), max_size=6))


@examples(200)
@given(arrays(), st.integers(0, 5))
def test_every_combination_is_in_a_row_or_in_none_that_there_could_be(
    drawn: tuple[Factors, int, list[Combination]], seed: int
) -> None:
    factors, strength, refused = drawn
    able = all_rows(factors, refused)
    rows, impossible = covering_array(factors, strength, refused, seed)

    assert all(row in able for row in rows)
    for combination in combinations_of(factors, strength):
        is_possible = any(combination <= row.items() for row in able)
        is_covered = any(combination <= row.items() for row in rows)
        assert is_covered == is_possible
        is_named = not any(choices <= combination for choices in refused)
        assert (combination in impossible) == (is_named and not is_possible)


@examples(100)
@given(arrays())
def test_a_row_with_some_choices(drawn: tuple[Factors, int, list[Combination]]) -> None:
    """Nothing else of it is refused."""
    factors, strength, refused = drawn
    for chosen in (*refused, *combinations_of(factors, strength)):
        others = [choices for choices in refused if not choices <= chosen]
        row = row_with(factors, chosen, refused, seed=1)
        able = [whole for whole in all_rows(factors, others) if chosen <= whole.items()]
        assert (row in able) if able else (row is None)


def test_the_same_arguments_make_the_same_rows() -> None:
    factors = made([5, 4, 3, 3])

    assert covering_array(factors, 2, seed=3) == covering_array(factors, 2, seed=3)
    assert covering_array(factors, 2, seed=3) != covering_array(factors, 2, seed=4)


@pytest.mark.parametrize(
    ("sizes", "strength", "most"),
    [
        ([2] * 10, 2, 12),  # 6 are possible
        ([3] * 13, 2, 24),  # 15 are known
        ([22, 13, 8, 5, 5, 5, 5, 2], 2, 1.15 * 22 * 13),
        ([2] * 6, 3, 18),  # 12 are known
    ],
)
def test_rows_are_few(sizes: list[int], strength: int, most: float) -> None:
    rows, impossible = covering_array(made(sizes), strength)

    assert len(rows) <= most
    assert impossible == []
