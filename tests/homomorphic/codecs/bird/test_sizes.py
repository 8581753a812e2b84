"""Sizes of BIRD's messages: the prototype's, those of real ones, and top-k's at the same density."""

from __future__ import annotations

import math

import numpy as np
import pytest

from netfold.homomorphic.codecs.bird.published import Bird
from netfold.homomorphic.round import Round, Tensor
from tests.homomorphic.codecs.bird.layers import tensors_of
from tests.reference.systems import bird as twin

RESNET = [(64, 3 * 49, 2)]  # rows, elements of a row, vectors that ride along
for before, after, blocks in ((64, 64, 2), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
    for block in range(blocks):
        RESNET += [(after, 9 * (before if block == 0 else after), 2), (after, 9 * after, 2)]
        if block == 0 and before != after:
            RESNET.append((after, before, 2))
RESNET += [(256, 512, 1), (10, 256, 1)]
BIAS = 64  # of the first convolution: the prototype sends it whole
COUNTERS = 20  # of batches, one for each norm: the prototype sends a scale for each, and nothing else
ELEMENTS = 11_310_474


@pytest.mark.parametrize(
    ("share", "size_bytes", "ratio"),
    [(1.0, 1_434_419, 31.5), (0.1, 146_164, 309.5), (0.05, 73_707, 613.8), (0.01, 17_539, 2579)],
)
def test_the_sizes_of_the_prototype(share: float, size_bytes: int, ratio: float) -> None:
    """Its ResNet-18: a convolution of 7 × 7 with a bias at first, two linear layers at the end."""
    assert sum(rows * (n + riders) for rows, n, riders in RESNET) + BIAS == ELEMENTS

    found = twin.published_bytes(RESNET, share, BIAS, COUNTERS)

    assert found == size_bytes
    assert 4 * ELEMENTS / found == pytest.approx(
        ratio, rel=2e-4 if ratio > 1000 else 2e-3 if ratio < 100 else 1e-4
    )


def resnet_tensors() -> tuple[Tensor, ...]:
    """The bias of the first convolution rides along here."""
    return tensors_of([(64, 147, 3), *RESNET[1:]])


def test_the_size_of_a_real_message_for_resnet() -> None:
    """All rows have the same norm, so that every layer sends its share."""
    round = Round(0, 0, 1, 1, tensors=resnet_tensors())
    gradient = np.ones(ELEMENTS, np.float32)
    exchange = Bird(0.1).worker(0, 1, 0).exchange(gradient, round)

    (message,) = next(exchange)

    assert message.size_bytes == pytest.approx(146_164, rel=0.005)
    assert 4 * ELEMENTS / message.size_bytes == pytest.approx(309.5, rel=0.005)
    indices = sum(math.ceil(0.1 * rows) for rows, _, _ in RESNET)
    assert 4 * indices / message.size_bytes == pytest.approx(0.014, abs=0.001)


def test_top_k_at_the_same_density() -> None:
    """32.6 and 39.5 times are of a density of 10.2 %; that of the sizes above is 10.17 %: 32.5 and 39.3."""
    sent = sum(math.ceil(0.1 * rows) * (n + riders) for rows, n, riders in RESNET) + BIAS
    size_bytes = twin.published_bytes(RESNET, 0.1, BIAS, COUNTERS)

    assert sent / ELEMENTS == pytest.approx(0.1017, abs=5e-5)
    for density, one_bit, five_bytes in ((0.102, 32.6, 39.5), (sent / ELEMENTS, 32.5, 39.3)):
        assert density * ELEMENTS * 33 / 8 / size_bytes == pytest.approx(one_bit, abs=0.05)
        assert density * ELEMENTS * 5 / size_bytes == pytest.approx(five_bytes, abs=0.05)
