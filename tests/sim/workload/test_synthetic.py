"""Made-up gradients: support laws unit by unit, values, keys."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.sim.workload import StepCost, SyntheticSpec, Workload, synthetic_workload
from netfold.sim.workload.draws import keyed
from netfold.sim.workload.fusion.size import BySize
from netfold.sim.workload.synthetic import BLOCK_ELEMENTS, Distribution, Pattern

PATTERNS: tuple[Pattern, ...] = ("iid", "rows", "columns", "blocks")
DISTRIBUTIONS: tuple[Distribution, ...] = ("normal", "lognormal", "loguniform", "integer")

specs = st.builds(
    SyntheticSpec,
    elements=st.integers(1, 3000),
    density=st.floats(0, 1),
    pattern=st.sampled_from(PATTERNS),
    row_elements=st.integers(1, 70),
    overlap=st.floats(0, 1),
    distribution=st.just("integer"),  # never 0
)


def flat(workload: Workload, step: int = 0) -> NDArray[np.float32]:
    """Copy of the step's gradients, `(workers, elements)`."""
    return np.stack([np.concatenate(buckets) for buckets in workload.gradients(step)])


def unit_of(index: int, spec: SyntheticSpec) -> int:
    match spec.pattern:
        case "iid":
            return index
        case "rows":
            return index // spec.row_elements
        case "columns":
            return index % spec.row_elements
        case "blocks":
            return index // BLOCK_ELEMENTS


@given(specs, st.integers(1, 4), st.integers(0, 99))
def test_support_law(spec: SyntheticSpec, workers: int, seed: int) -> None:
    gradients = flat(synthetic_workload(spec, workers, seed))
    units = [unit_of(index, spec) for index in range(spec.elements)]
    units_count = max(units) + 1
    chosen = round(spec.density * units_count)
    live_units = []
    for gradient in gradients:
        live = {unit for unit, value in zip(units, gradient, strict=True) if value}

        assert chosen == len(live)
        assert all((unit in live) == bool(value) for unit, value in zip(units, gradient, strict=True))
        live_units.append(live)

    assert len(set.intersection(*live_units)) >= round(spec.overlap * chosen)


@pytest.mark.parametrize("overlap", [0.0, 0.4, 1.0])
def test_union_of_workers_is_as_announced(overlap: float) -> None:
    units, workers, density = 200_000, 8, 0.1
    spec = SyntheticSpec(units, density, overlap=overlap, distribution="integer")
    union = int((flat(synthetic_workload(spec, workers, 3)) != 0).any(axis=0).sum())
    chosen, common = density * units, overlap * density * units
    private_share = (chosen - common) / (units - common)
    expected = common + (units - common) * (1 - (1 - private_share) ** workers)

    assert union == pytest.approx(expected, abs=5 * math.sqrt(units) / 2)


@pytest.mark.parametrize("density", [0.0, 1.0])
def test_a_row_longer_than_the_gradient_is_all_of_it(density: float) -> None:
    """However long: nothing of its length is ever made."""
    spec = SyntheticSpec(elements=10, density=density, pattern="rows", row_elements=10**12)
    assert np.count_nonzero(flat(synthetic_workload(spec, 1, 1))) == 10 * density


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_signs_are_even(distribution: Distribution) -> None:
    values = flat(synthetic_workload(SyntheticSpec(40_000, distribution=distribution), 1, 1))

    assert np.float32 == values.dtype
    assert np.isfinite(values).all()
    assert (values > 0).mean() == pytest.approx(0.5, abs=5 * 0.5 / 200)


def test_normal_has_unit_variance() -> None:
    values = flat(synthetic_workload(SyntheticSpec(40_000), 1, 1))

    assert values.std() == pytest.approx(1, abs=0.02)


def test_lognormal_has_normal_logarithms() -> None:
    logarithms = np.log(
        np.abs(flat(synthetic_workload(SyntheticSpec(40_000, distribution="lognormal"), 1, 1)))
    )

    assert logarithms.mean() == pytest.approx(0, abs=0.08)
    assert logarithms.std() == pytest.approx(3, abs=0.06)


def test_loguniform_fills_every_binade_evenly() -> None:
    spec = SyntheticSpec(48_000, distribution="loguniform")
    _, exponents = np.frexp(np.abs(flat(synthetic_workload(spec, 1, 1))))
    counts = np.bincount(-exponents.ravel()[exponents.ravel() <= 0], minlength=24)

    assert len(counts) == 24
    np.testing.assert_allclose(counts, 2000, atol=5 * math.sqrt(2000))


def test_integers_are_whole_and_evenly_spread() -> None:
    values = flat(synthetic_workload(SyntheticSpec(127_000, distribution="integer"), 1, 1)).astype(np.int64)
    counts = np.bincount(np.abs(values.ravel()))

    assert len(counts) == 128
    assert counts[0] == 0
    np.testing.assert_allclose(counts[1:], 1000, atol=5 * math.sqrt(1000))


def test_same_key_same_bits_and_every_part_of_the_key_counts() -> None:
    spec = SyntheticSpec(100, density=0.5)
    workload = synthetic_workload(spec, 2, seed=1)
    first = flat(workload, step=0)

    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, flat(workload, step=1))
    assert not np.array_equal(first, flat(synthetic_workload(spec, 2, seed=2)))
    assert first.tobytes() == flat(workload, step=0).tobytes()
    # a worker's gradient does not depend on how many others there are
    assert first.tobytes() == flat(synthetic_workload(spec, 3, seed=1))[:2].tobytes()


def test_buckets_cut_the_same_gradient() -> None:
    whole = synthetic_workload(SyntheticSpec(1000), 2, seed=1)
    cut = synthetic_workload(SyntheticSpec(1000, fusion=BySize(1201)), 2, seed=1)

    assert [(b.start, b.elements) for b in cut.buckets] == [(0, 301), (301, 301), (602, 301), (903, 97)]
    assert [(b.start, b.elements) for b in whole.buckets] == [(0, 1000)]
    assert [b.ready_share for b in cut.buckets] == [0.301, 0.602, 0.903, 1.0]
    assert flat(whole).tobytes() == flat(cut).tobytes()


def test_nothing_is_trained() -> None:
    workload = synthetic_workload(SyntheticSpec(10), 2, seed=1)
    first = flat(workload)
    workload.apply(0, [first.sum(axis=0)])

    assert workload.workers == 2
    assert workload.loss is None
    assert StepCost() == workload.cost
    assert first.tobytes() == flat(workload).tobytes()


def test_buffers_are_reused() -> None:
    workload = synthetic_workload(SyntheticSpec(10), 2, seed=1)

    assert all(
        np.shares_memory(a, b)
        for a, b in zip(workload.gradients(0)[1], workload.gradients(1)[1], strict=True)
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("overlap", [0.0, 0.3, 1.0])
def test_a_dense_gradient_is_all_the_draws_of_its_key(distribution: Distribution, overlap: float) -> None:
    """The values are those drawn from the worker's own key, in order, for any overlap between workers."""
    spec = SyntheticSpec(1000, overlap=overlap, distribution=distribution)
    generator, doubles = keyed(5, "gradient", 2, 1), np.float64  # rounded to float32 at the end, once
    wanted = {
        "normal": lambda: generator.standard_normal(1000, np.float32),
        "lognormal": lambda: np.exp(doubles(generator.standard_normal(1000, np.float32) * np.float32(3))),
        "loguniform": lambda: np.exp2(doubles(generator.random(1000, np.float32) * np.float32(-24))),
        "integer": lambda: generator.integers(1, 127, 1000, np.int8, endpoint=True),
    }[distribution]()
    found = flat(synthetic_workload(spec, 2, 5), step=2)[1]

    np.testing.assert_array_equal(np.abs(found), np.abs(wanted.astype(np.float32)))
