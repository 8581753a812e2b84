"""Codec `random_k`: the same elements everywhere, others in every round."""

from __future__ import annotations

import math

import numpy as np
import pytest

from netfold.homomorphic.bounds import Sums
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs.sparse.random_k import RandomK
from netfold.homomorphic.fold import Folded, fold
from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.message import Gradient, Merge
from netfold.homomorphic.round import Round
from tests.examples import nightly
from tests.reference.systems.count_sketch import MASK, mixed, splitmix

ELEMENTS = 1000


def once(codec: Codec, gradients: list[Gradient], step: int = 0, seed: int = 1) -> Folded:
    workers = len(gradients)
    encoders = [codec.worker(rank, workers, 0) for rank in range(workers)]
    return fold(encoders, gradients, Round(step, 0, workers, seed))


def chosen_plain(elements: int, count: int, seed: int, step: int, bucket: int) -> list[int]:
    """The elements with the smallest hashes; splitmix64 in plain Python."""
    key = mixed(seed, purposes.RANDOM_K, step, bucket)
    return sorted(sorted(range(elements), key=lambda i: splitmix((key + i) & MASK))[:count])


@pytest.mark.parametrize(("share", "elements"), [(0.01, 1000), (0.3, 77), (1.0, 65), (0.5, 1)])
def test_the_elements_are_those_of_the_smallest_hashes(share: float, elements: int) -> None:
    gradients = [np.full(elements, rank + 1, np.float32) for rank in range(3)]
    found = once(RandomK(share), gradients, step=5, seed=9)
    chosen = chosen_plain(elements, max(1, math.ceil(share * elements)), 9, 5, 0)

    assert np.flatnonzero(found.decoded[0]).tolist() == chosen
    assert {float(value) for value in found.decoded[2][chosen]} == {6.0}
    assert found.contributions[2].sum() == 3 * len(chosen)
    assert found.messages[0][0][0].words.size == len(chosen)
    assert found.messages[0][0][0].merge is Merge.FLOAT_ADD


@pytest.mark.parametrize("values", ["float32", pytest.param("block_exponent", marks=nightly)])
def test_unbiased_sums_are_right_on_average(values: str) -> None:
    random = np.random.default_rng(3)
    gradients = [random.standard_normal(ELEMENTS).astype(np.float32) for _ in range(4)]
    codec = RandomK(0.25, unbiased=True, values=values)  # type: ignore[arg-type]
    rounds = 400

    totals = np.mean([once(codec, gradients, step=step).decoded[0] for step in range(rounds)], axis=0)

    true = np.sum(gradients, axis=0, dtype=np.float64)
    deviation = np.sqrt(3 * true**2 / rounds)  # (scale − 1) · Σ² of one round
    assert np.abs(totals - true).max() <= (6 * deviation + 1e-5).max()
    assert (np.abs(totals - true) <= 6 * deviation + 1e-5).all()
    assert 0.9 < np.sqrt(np.mean(((totals - true) / deviation) ** 2)) < 1.1
    variance = codec.variance(gradients).of(Sums(0, true, np.sum(np.abs(gradients), axis=0)))
    assert np.allclose(variance, 3 * true**2, rtol=1e-2, atol=1e-6)


def test_feedback_and_unbiased_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="feedback and unbiased exclude each other"):
        RandomK(unbiased=True, feedback=True)


@pytest.mark.parametrize("values", ["float32", "block_exponent"])
def test_choosing_elements_is_counted_once_for_all_elements(values: str) -> None:
    """A draw of 8 bytes for each is written and read twice, a byte is written and read, and a bit written."""

    def counted(share: float) -> tuple[int, int]:
        codec = RandomK(share, feedback=False, values=values)  # type: ignore[arg-type]
        exchange = codec.worker(0, 1, 0).exchange(np.ones(ELEMENTS, np.float32), Round(0, 0, 1, 1))
        work = next(exchange)[0].work
        return work.read_bytes, work.written_bytes

    few, more = counted(0.01), counted(0.02)
    # Of each element that is sent: its value is read, and written if the first message has the values.
    one_read, one_written = ((b - a) / 10 for a, b in zip(few, more, strict=True))
    assert one_read == 4
    assert one_written == (4 if values == "float32" else 0)
    index_bytes = 8 * math.ceil(ELEMENTS / 64)
    read, written = few[0] - 10 * 4, few[1] - 10 * one_written
    indexes = 2 * index_bytes if values == "float32" else 0  # counted and gathered by it
    assert read == (8 * 2 + 1) * ELEMENTS + indexes
    assert written == (8 + 1) * ELEMENTS + ELEMENTS // 8 + (0 if values == "float32" else 4)
