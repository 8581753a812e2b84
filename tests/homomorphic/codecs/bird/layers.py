"""Buckets of layers, for the tests of BIRD: as NumPy arrays, and as plain lists."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.fold import Folded, fold
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Round, Tensor
from tests.reference.systems import bird as twin
from tests.reference.systems.bird import Layer

Shapes = Sequence[tuple[int, int, int]]  # of layers: rows, elements of a row, vectors that ride along


def tensors_of(shapes: Shapes) -> tuple[Tensor, ...]:
    """In gradient-ready order: of each layer the first rider, the weight, the other riders."""
    tensors: list[Tensor] = []
    start = 0
    for number, (rows, row_elements, riders) in enumerate(shapes):
        own = [(rows,)] * riders
        own.insert(min(1, riders), (rows, row_elements))
        for place, shape in enumerate(own):
            tensors.append(Tensor(f"{number}.{place}", shape, f"layer{number}", start))
            start += tensors[-1].elements
    return tuple(tensors)


def layers_of(gradient: Gradient, shapes: Shapes) -> list[Layer]:
    """The same as plain lists."""
    layers, place = [], 0
    tensors = tensors_of(shapes)
    for rows, row_elements, riders in shapes:
        own = tensors[place : place + 1 + riders]
        place += 1 + riders
        weight = own[min(1, riders)]
        values = gradient[weight.place].reshape(rows, row_elements).tolist()
        layers.append(Layer(values, [gradient[one.place].tolist() for one in own if one is not weight]))
    return layers


def places_of(shapes: Shapes) -> list[list[int]]:
    """Of each layer: the places of its tensors in the bucket, the weight's first."""
    places, first = [], 0
    for _, _, riders in shapes:
        weight = first + min(1, riders)
        places.append([weight, *(one for one in range(first, first + 1 + riders) if one != weight)])
        first += 1 + riders
    return places


def flat(layers: Sequence[Layer], shapes: Shapes) -> Gradient:
    """A bucket from plain lists."""
    gradient = np.zeros(sum(one.elements for one in tensors_of(shapes)), np.float32)
    tensors = tensors_of(shapes)
    for layer, (weight, *riders) in zip(layers, places_of(shapes), strict=True):
        gradient[tensors[weight].place] = np.array(layer.rows, np.float32).ravel()
        for rider, values in zip(riders, layer.riders, strict=True):
            gradient[tensors[rider].place] = values
    return gradient


def round_of(shapes: Shapes, workers: int = 1, step: int = 0, seed: int = 7, bucket: int = 0) -> Round:
    return Round(step, bucket, workers, seed, tensors=tensors_of(shapes))


def folded(codec: Codec, gradients: Sequence[Gradient], round: Round) -> Folded:
    """One round of new encoders, with the codec's server part."""
    workers = round.workers
    encoders = [codec.worker(rank, workers, 0) for rank in range(workers)]
    return fold(encoders, gradients, round, server=codec.server(workers, 0))


def drawn(shapes: Shapes, seed: int) -> Gradient:
    """Normal values; rows of very different magnitudes, some of zeros."""
    random = np.random.default_rng(seed)
    gradient = np.zeros(sum(one.elements for one in tensors_of(shapes)), np.float32)
    for tensor in tensors_of(shapes):
        rows = tensor.shape[0]
        values = random.standard_normal(tensor.elements).reshape(rows, -1)
        if len(tensor.shape) > 1:
            values *= 10.0 ** random.uniform(-2, 1, (rows, 1)) * (random.random((rows, 1)) < 0.9)
        gradient[tensor.place] = values.ravel()
    return gradient


@st.composite
def buckets(draw: st.DrawFn) -> tuple[Shapes, int]:
    """Shapes of layers, and a seed for values."""
    shapes = draw(
        st.lists(
            st.tuples(st.integers(1, 12), st.sampled_from([1, 3, 31, 32, 33, 130, 200]), st.integers(0, 3)),
            min_size=1,
            max_size=4,
        )
    )
    return shapes, draw(st.integers(0, 2**32))


# What is expected of rows over many draws.

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
