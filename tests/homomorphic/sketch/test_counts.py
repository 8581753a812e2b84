"""Count-Sketch against plain Python, and against its theory. Keys are fixed, so nothing fails by chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.sketch.counts import LANES, count, estimate, make_rows
from tests.examples import examples
from tests.reference.systems.count_sketch import Hashes, estimates_of, sketch_of


def normal(elements: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(elements, np.float32)


def estimates(rows: int, columns: int, key: int, values: np.ndarray) -> np.ndarray:
    own = make_rows(rows, columns, key)
    return estimate(own, count(own, values), values.size)


def errors(rows: int, columns: int, values: np.ndarray, keys: int) -> np.ndarray:
    """`(keys, elements)`."""
    return np.array([estimates(rows, columns, key, values) - values.astype(float) for key in range(keys)])


@examples(30)
@given(
    values=st.lists(st.integers(-1000, 1000), min_size=1, max_size=150),
    rows=st.sampled_from([1, 3, 5, 7]),
    columns=st.one_of(st.integers(1, 70), st.just(LANES), st.just(LANES - 1), st.integers(200, 5000)),
    key=st.integers(0, 2**64 - 1),
)
def test_plain_python(values: list[int], rows: int, columns: int, key: int) -> None:
    """Integers, so that float32 sums are exact."""
    hashes = Hashes(rows, columns, 32 if columns >= 32 else 1, key)
    table = sketch_of(values, hashes)
    own = make_rows(rows, columns, key)
    sketch = count(own, np.array(values, np.float32))

    assert sketch.reshape(rows, columns).tolist() == table
    assert estimate(own, sketch, len(values)).tolist() == estimates_of(table, hashes, len(values))


def test_large_ones_by_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks of several threads, and a block that is not whole."""
    monkeypatch.setenv("NETFOLD_THREADS", "2")
    values = np.round(100 * normal((1 << 18) + 4097)).astype(np.float32)
    own = make_rows(3, 30000, 5)
    sketch = count(own, values)
    found = estimate(own, sketch, values.size)
    hashes = Hashes(3, 30000, 32, 5)
    some = [0, 31, 32, 2047, 2048, 65535, 65536, (1 << 18) - 1, 1 << 18, values.size - 1]
    for element in some:
        places = [hashes.of(row, element) for row in range(3)]
        counters = [sketch[30000 * row + counter] * sign for row, (counter, sign) in enumerate(places)]

        assert found[element] == sorted(counters)[1]
    by_counter = np.zeros(30000)
    for element, value in enumerate(values[:50000].tolist()):
        counter, sign = hashes.of(2, element)
        by_counter[counter] += sign * value

    assert count(own, values[:50000]).reshape(3, -1)[2].tolist() == by_counter.tolist()


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_unbiased_over_keys(rows: int) -> None:
    values, keys = normal(3000), 400
    off_by = errors(rows, 100, values, keys)
    mean, deviation = off_by.mean(axis=0), off_by.std(axis=0) / np.sqrt(keys)

    assert np.abs(mean / deviation).max() < 5
    assert abs((mean * np.sign(values)).mean()) < 5 * deviation.mean() / np.sqrt(values.size / LANES)


@pytest.mark.parametrize("columns", [20, 256])  # a hash for each element; for each block
def test_variance_of_a_row(columns: int) -> None:
    """(‖v‖² − v_i²) / columns; elements of the same block never meet, so their squares do not count."""
    values = normal(2048)
    values[100] = 40  # an element that others see, and that does not see itself
    squares = values.astype(float) ** 2
    lanes = LANES if columns >= LANES else 1
    blocks = np.repeat(squares.reshape(-1, lanes).sum(axis=1), lanes)
    found = (errors(1, columns, values, 600) ** 2).mean(axis=0)

    assert abs((found / ((squares.sum() - blocks) / columns)).mean() - 1) < 0.02
    assert abs(found[100] / ((squares.sum() - blocks[100]) / columns) - 1) < 5 * np.sqrt(2 / 600)
    assert (found / ((squares.sum() - squares) / columns)).mean() < 1.02


@pytest.mark.parametrize(("rows", "constant"), [(1, 1.00), (3, 0.35), (5, 0.20)])
def test_mean_squared_error(rows: int, constant: float) -> None:
    values = normal(40_000)
    found = (errors(rows, 20_000, values, 20) ** 2).mean() * 20_000 / (values.astype(float) ** 2).sum()

    assert abs(found - constant) < 0.01
