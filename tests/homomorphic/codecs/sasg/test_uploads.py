"""What an upload holds, what is held back, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec, EncodeError
from netfold.homomorphic.codecs.sasg.lists import Sasg
from netfold.homomorphic.codecs.sasg.summed import SasgSummed
from netfold.homomorphic.codecs.sasg.uploads import Grid, count_of
from netfold.homomorphic.message import WORD_MAX
from netfold.homomorphic.round import Tensor
from netfold.testing import check_codec
from tests.homomorphic.codecs.sasg.tiny import ELEMENTS, Tiny, Training, flat
from tests.reference.systems.sasg import sparse_sgd

FC = [(512, 784), (512,), (10, 512), (10,)]
SELDOM = {"staleness": 2, "alpha": 1e30}  # so that all skip in the third of the law's rounds
VARIANTS = [
    Sasg(share=0.3, down="union", **SELDOM),
    Sasg(share=1.0, **SELDOM),
    Sasg(share=0.3, aggregation="incremental", **SELDOM),
    Sasg(share=0.3, aggregation="incremental", down="union", staleness=1, alpha=0.0),
    SasgSummed(staleness=2, alpha=1e30),
    SasgSummed(share=0.3, index="none", staleness=2, alpha=1e30),
]


def resnet18() -> list[tuple[int, ...]]:
    """ResNet-18 for CIFAR-10: a first convolution of 3 × 3, four stages of two blocks."""
    shapes: list[tuple[int, ...]] = [(64, 3, 3, 3), (64,), (64,)]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        for block in range(2):
            shapes += [(outputs, inputs, 3, 3), (outputs,), (outputs,)]
            shapes += [(outputs, outputs, 3, 3), (outputs,), (outputs,)]
            if block == 0 and inputs != outputs:
                shapes += [(outputs, inputs, 1, 1), (outputs,), (outputs,)]
            inputs = outputs
    return [*shapes, (10, 512), (10,)]


def upload_count(share: float, tensors: Sequence[Tensor]) -> int:
    """Elements that one upload of these tensors holds."""
    return sum(count_of(share, tensor.elements) for tensor in tensors)


@pytest.mark.parametrize(
    ("shapes", "elements", "sent"),
    [
        (FC, 407_050, 4_071),
        (resnet18(), 11_173_962, 111_723),
    ],
)
def test_published_counts_of_an_upload(shapes: Sequence[tuple[int, ...]], elements: int, sent: int) -> None:
    tensors = [Tensor("", shape, "") for shape in shapes]

    assert sum(tensor.elements for tensor in tensors) == elements
    assert upload_count(0.01, tensors) == sent


def test_counts_are_rounded_down_to_at_least_one() -> None:
    assert [count_of(0.01, elements) for elements in (0, 1, 99, 100, 199, 200)] == [0, 1, 1, 1, 1, 2]
    assert count_of(1.0, 7) == 7


@pytest.mark.parametrize("codec", VARIANTS, ids=repr)
def test_the_law(codec: Codec) -> None:
    """With rounds in which workers skip, for all kinds of values; large ones are refused on a grid."""
    check_codec(codec, cases=5)


@pytest.mark.parametrize(("alpha", "rate"), [(0.0, 0.01), (1e-300, 0.1)])
def test_with_threshold_0_it_is_sparse_sgd_with_feedback_bit_for_bit(alpha: float, rate: float) -> None:
    """10 workers; the rates are those of the mean, and those of a worker are 0.001 and 0.01."""
    workers, model = 10, Tiny()
    run = Training(Sasg(share=0.1, alpha=alpha), model, workers, rate).run(40)

    weights = model.start
    errors = [[np.zeros_like(one) for one in weights]] * workers
    for step, found in enumerate(run.weights):
        gradients = [model.gradient(weights, step, rank) for rank in range(workers)]
        update, errors = sparse_sgd(gradients, errors, rate / workers, 0.1)
        weights = [own - more for own, more in zip(weights, update, strict=True)]
        assert found.tobytes() == flat(weights).tobytes()
    assert run.upload_share == 1


def test_bits_per_element_are_those_sent() -> None:
    for share, up in ((0.01, 0.64), (1.0, 32.0)):
        found = Sasg(share=share, alpha=0.0).bits_per_element(8)
        assert found is not None
        assert (found.up, found.down) == (up, 32)
    assert Sasg().bits_per_element(8) is None
    assert Sasg(alpha=0.0, down="union").bits_per_element(8) is None
    assert SasgSummed(alpha=0.0, index="none").bits_per_element(8) == (32, 32)
    assert SasgSummed(index="none").bits_per_element(8) is None


def test_work_is_what_a_worker_does() -> None:
    """All in units of the gradient's bytes; an upload of 5 elements and the numbers of these, twice."""
    training = Training(Sasg(share=0.1, alpha=1e300), Tiny(), 1, 0.5)
    run = training.run(22)
    upload, skip, due = (run.rounds[step].messages[0][0][0].work for step in (0, 10, 20))
    size = 4 * ELEMENTS

    assert (upload.read_bytes, upload.written_bytes, upload.launches) == (4 * size, size + 2 * 40, 1)
    assert (skip.read_bytes, skip.written_bytes, skip.flops) == (2 * size, 0, 3 * ELEMENTS)
    assert due == upload
    compared = Training(Sasg(share=0.1, alpha=1e-300), Tiny(), 1, 0.5).run(11)
    both = compared.rounds[10].messages[0][0][0].work
    assert (both.read_bytes, both.flops, both.launches) == (6 * size, 5 * ELEMENTS, 2)


@pytest.mark.parametrize("codec", [Sasg(share=0.5), SasgSummed(share=0.5)], ids=repr)
def test_values_that_are_not_finite_are_refused(codec: Codec) -> None:
    training = Training(codec, Tiny(), 2, 0.5)
    gradient = np.ones(ELEMENTS, np.float32)
    gradient[3] = np.nan
    training.gradients = lambda step: [gradient] * 2  # type: ignore[method-assign]
    with pytest.raises(EncodeError, match=r"gradient\[3\] is nan"):
        training.step()


def test_values_too_large_for_the_grid_are_refused() -> None:
    """With 2 workers and 24 bits the limit is (2**31 − 1) // 4 steps of 2**−24."""
    grid = Grid(24, 2)
    largest = np.float32(2**29 - 32) / np.float32(2**24)
    assert grid.integers(np.array([largest, -largest], np.float32)).tolist() == [2**29 - 32, 32 - 2**29]
    with pytest.raises(
        EncodeError, match=r"an element of an upload is 32: with 2 workers and fraction_bits 24"
    ):
        grid.integers(np.array([32], np.float32))


@given(
    bits=st.integers(0, 60),
    workers=st.integers(1, 64),
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20),
)
def test_a_grid_loses_nothing(bits: int, workers: int, values: list[float]) -> None:
    """Rounded values and what is left of them are float32 numbers, and sums of all workers stay in int32."""
    grid, given = Grid(bits, workers), np.array(values, np.float32)
    if float(np.abs(given).max()) * 2.0**bits > grid.limit - 1:
        given *= np.float32((grid.limit - 1) / 2.0**bits / 1e6 / 2)
    integers = grid.integers(given)
    rounded = grid.values(integers)

    assert (np.abs(integers.astype(np.int64)) <= grid.limit).all()
    assert 2 * workers * grid.limit <= WORD_MAX
    assert (rounded.astype(np.float64) == integers / 2.0**bits).all()
    left: NDArray[Any] = given - rounded
    assert (left.astype(np.float64) == given.astype(np.float64) - rounded).all()
    assert (np.abs(left.astype(np.float64)) <= 0.5 / 2.0**bits).all()
