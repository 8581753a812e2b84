"""What is expected of rows over many draws."""

from __future__ import annotations

import math

import numpy as np

from netfold.homomorphic.codec import Codec
from tests.homomorphic.codecs.bird.layers import Shapes, drawn, folded, layers_of, round_of, tensors_of
from tests.reference.systems import bird as twin

SMALL: Shapes = [(12, 9, 1), (3, 140, 0)]


def row_norms(codec: Codec, gradient: np.ndarray, shapes: Shapes, draws: int) -> np.ndarray:
    """L1 norms of the rows that are received, `(draws, rows)`, of all layers."""
    found = []
    for step in range(draws):
        (own,) = folded(codec, [gradient], round_of(shapes, step=step)).contributions
        layers = layers_of(np.abs(own), shapes)
        found.append([sum(row) for layer in layers for row in layer.rows])
    return np.array(found)


def farthest(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest distance of a mean from what is expected, in standard errors."""
    found = found.astype(np.float64)
    off = np.abs(found.mean(axis=0) - expected)
    errors = found.std(axis=0) / math.sqrt(len(found)) + 1e-6 * np.abs(expected) + 1e-30
    return float((off / errors).max())


def expected_norms(shapes: Shapes, gradient: np.ndarray) -> np.ndarray:
    return np.array([twin.l1(row) for layer in layers_of(gradient, shapes) for row in layer.rows])


def uneven(shapes: Shapes, seed: int = 3) -> np.ndarray:
    """Rows whose norms differ by up to 10, so that all are seen often."""
    random = np.random.default_rng(seed)
    gradient = drawn(shapes, seed)
    for tensor in tensors_of(shapes):
        rows = tensor.shape[0]
        values = random.standard_normal((rows, tensor.elements // rows)) * random.uniform(0.1, 1, (rows, 1))
        gradient[tensor.place] = values.ravel()
    return gradient
