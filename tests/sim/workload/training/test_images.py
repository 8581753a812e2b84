"""The images of digits, and their enlargement against exact fractions and PyTorch's own."""

from __future__ import annotations

import gzip
import hashlib
from fractions import Fraction

import numpy as np
import torch
from torch.nn import functional

from netfold.sim.workload.training.data.fetch import fetch
from netfold.sim.workload.training.data.images import Digits, enlarged


def bilinear(image: list[list[int]], row: int, column: int) -> Fraction:
    """Large pixel of an image of 8 by 8 greys, in fractions: half-pixel centres, edges continued."""

    def around(index: int) -> tuple[int, int, Fraction]:
        centre = Fraction(2 * index + 1, 2) * Fraction(8, 28) - Fraction(1, 2)
        place = min(max(centre, Fraction(0)), Fraction(7))
        low = int(place)
        return low, min(low + 1, 7), place - low

    top, bottom, down = around(row)
    left, right, across = around(column)
    upper = image[top][left] * (1 - across) + image[top][right] * across
    lower = image[bottom][left] * (1 - across) + image[bottom][right] * across
    return (upper * (1 - down) + lower * down) / 16


def test_every_enlarged_pixel_is_the_exact_fraction_rounded_once() -> None:
    greys = np.random.default_rng(1).integers(0, 17, (3, 8, 8))
    found = enlarged(greys.reshape(3, 64)).reshape(3, 28, 28)
    for image, large in zip(greys.tolist(), found, strict=True):
        expected = [[np.float32(float(bilinear(image, y, x))) for x in range(28)] for y in range(28)]
        assert np.array_equal(np.array(expected), large)


def test_enlarging_agrees_with_pytorch(digits: Digits, large_digits: Digits) -> None:
    small = torch.from_numpy(digits.images).reshape(-1, 1, 8, 8)
    expected = functional.interpolate(small, size=(28, 28), mode="bilinear", align_corners=False)

    assert np.float32 == large_digits.images.dtype
    # PyTorch computes places up to 7 in float32, so its weights are off by up to 5e-7 on each axis.
    np.testing.assert_allclose(large_digits.images, expected.numpy().reshape(-1, 784), rtol=0, atol=2e-6)
    assert np.array_equal(digits.labels, large_digits.labels)
    assert large_digits.images.shape == (1797, 784)
    assert large_digits.images.flags.c_contiguous
    digest = hashlib.sha256(large_digits.images.tobytes()).hexdigest()  # the same bits everywhere
    assert digest == "c7b05baebd3e110a6af35ad0583ba3c150769ce9016b593e5a72609085611b7b"


def test_mnist_is_what_the_file_says(mnist: Digits) -> None:
    lines = gzip.decompress(fetch("mnist-5k").read_bytes()).decode().splitlines()

    assert mnist.images.shape == (5000, 784)
    assert np.float32 == mnist.images.dtype
    assert np.bincount(mnist.labels).tolist() == [500] * 10
    assert (np.diff(mnist.labels) >= 0).all()
    for index in (0, 1234, 4999):
        *pixels, label = map(int, lines[index].split(","))
        assert np.array_equal(np.array(pixels, np.float32) / np.float32(255), mnist.images[index])
        assert label == mnist.labels[index]
