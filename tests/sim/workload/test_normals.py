"""NumPy is the oracle: the same bits, and a generator left where NumPy would leave it."""

from __future__ import annotations

import numpy as np
import pytest

from netfold.sim.workload import normals
from netfold.sim.workload.normals import fill_normal
from tests.examples import scaled


def generators(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    ours, theirs = (np.random.Generator(np.random.PCG64([seed, 7])) for _ in range(2))
    return ours, theirs


@pytest.mark.parametrize("seed", range(2))
def test_values_are_those_of_numpy_to_the_bit(seed: int) -> None:
    """So many draws meet the tail some 80 times, and a layer's edge some hundred times."""
    ours, theirs = generators(seed)
    values = np.empty(scaled(300_000), np.float32)
    fill_normal(values, ours)

    expected = theirs.standard_normal(values.size, np.float32)
    assert np.array_equal(values.view(np.uint32), expected.view(np.uint32))
    assert ours.bit_generator.state == theirs.bit_generator.state
    assert np.abs(expected).max() > 3.6541528853610088


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_a_half_that_is_kept_is_used_before_and_after(size: int) -> None:
    ours, theirs = generators(9)
    for generator in (ours, theirs):
        generator.integers(0, 9, dtype=np.int32)  # takes 32 of 64 bits
    values = np.empty(size, np.float32)
    fill_normal(values, ours)

    assert values.tolist() == theirs.standard_normal(size, np.float32).tolist()
    assert ours.bit_generator.state == theirs.bit_generator.state
    assert ours.random() == theirs.random()


def test_pieces_that_a_signal_may_part_are_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normals, "_DRAWN_AT_ONCE", 1000)
    ours, theirs = generators(3)
    values = np.empty(4321, np.float32)
    fill_normal(values, ours)

    assert values.tolist() == theirs.standard_normal(4321, np.float32).tolist()
