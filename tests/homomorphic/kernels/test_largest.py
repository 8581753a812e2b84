"""The largest elements, by sample and without, against a full sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from netfold.homomorphic.kernels import largest as module
from netfold.homomorphic.kernels.largest import largest
from tests.examples import examples

SAMPLED = 270_000  # elements: enough for a sample


def by_sorting(values: np.ndarray, count: int) -> list[int]:
    """Stable, so equal magnitudes stay in order; NaN is above infinity."""
    magnitudes = np.abs(values).view(np.int32)
    return sorted(np.argsort(-magnitudes.astype(np.int64), kind="stable")[:count].tolist())


@examples(80)
@given(values=arrays(np.float32, st.integers(1, 60)), data=st.data())
def test_any_few_values(values: np.ndarray, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, values.size))

    found = largest(values, count)

    assert found.dtype == np.int64
    assert found.tolist() == by_sorting(values, count)


def drawn(kind: str, size: int = SAMPLED) -> np.ndarray:
    random = np.random.default_rng(1)
    values = random.standard_normal(size, np.float32)
    if kind == "ties":
        return np.round(values)
    if kind == "sparse":
        return np.where(random.random(size) < 0.02, values, np.float32(-0.0))
    if kind == "ascending":
        return np.sort(values)
    if kind == "equal":
        return np.full(size, -1, np.float32)
    if kind == "not finite":
        values[::1000], values[5::1000] = np.nan, -np.inf
    if kind == "strided":  # the large ones at equal distances
        values[::64] *= 100
    return values


KINDS = ("normal", "ties", "sparse", "ascending", "equal", "not finite", "strided")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [1 / SAMPLED, 0.001, 0.3, 1.0])
def test_many_values(kind: str, share: float) -> None:
    values = drawn(kind)
    count = round(share * SAMPLED)

    assert largest(values, count).tolist() == by_sorting(values, count)


@pytest.mark.parametrize("left_over", [1, 31, 32, 63])
def test_the_last_elements_count(left_over: int) -> None:
    values = drawn("normal", SAMPLED // 64 * 64 + left_over)
    values[-1] = 1000

    assert largest(values, 300).tolist() == by_sorting(values, 300)


def test_a_view_with_gaps() -> None:
    values = drawn("normal")[::2]

    assert largest(values, 100).tolist() == by_sorting(np.ascontiguousarray(values), 100)


@pytest.mark.parametrize("bound", [0.0, 4.0, 100.0])
def test_a_sample_that_misleads_costs_time_only(bound: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below all values there is no room for what is collected; above the wanted ones too few are."""
    monkeypatch.setattr(module, "_draw", lambda bits, sample: sample.fill(np.float32(bound).view(np.int32)))
    values = drawn("normal")

    assert largest(values, 3000).tolist() == by_sorting(values, 3000)


def test_a_sample_finds_few_more_than_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes it fast: the selection among candidates sees 1.2 times as many as are wanted."""
    seen = []
    chosen = module._chosen
    monkeypatch.setattr(
        module, "_chosen", lambda magnitudes, count: seen.append(magnitudes.size) or chosen(magnitudes, count)
    )
    largest(drawn("normal"), 3000)

    (candidates,) = seen
    assert 3000 <= candidates < 1.5 * 3000
