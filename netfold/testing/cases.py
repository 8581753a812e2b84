"""Synthetic gradients that have broken encodings before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.contract import refusal_of
from netfold.homomorphic.message import Gradient

PATTERNS = ("iid", "rows", "columns")
VALUES = ("normal", "wide", "denormal", "constant", "negative zero")
_DENSITIES = (0.0, 0.003, 0.02, 0.1, 0.3, 0.6, 1.0)
_WORKERS = (1, 2, 3, 8, 32)
_SIZES = (1, 63, 100, 4097)


class LawCase(NamedTuple):
    """Gradients of all workers, and a description for errors."""

    gradients: list[Gradient]
    description: str


def support(pattern: str, elements: int, density: float, *, random: np.random.Generator) -> NDArray[np.bool_]:
    """A random support: single elements, whole rows of 64, or the same columns of every row."""
    if pattern == "rows":
        return np.repeat(random.random(elements // 64 + 1) < density, 64)[:elements]
    if pattern == "columns":
        return np.tile(random.random(64) < density, elements // 64 + 1)[:elements]
    return random.random(elements) < density


def values(kind: str, elements: int, random: np.random.Generator) -> Gradient:
    """Random values that have broken encodings before; `VALUES` has their kinds."""
    if kind == "wide":
        drawn = random.standard_normal(elements) * 10.0 ** random.uniform(-44, 34, elements)
    elif kind == "denormal":
        drawn = random.standard_normal(elements) * 1e-42
    elif kind == "constant":
        drawn = np.full(elements, 1 - 2.0**-24)
    elif kind == "negative zero":
        drawn = np.full(elements, -0.0)
    else:
        drawn = random.standard_normal(elements)
    return drawn.astype(np.float32)


def law_cases(codec: Codec, count: int, seed: int) -> Iterator[LawCase]:
    """Gradients of as many workers as the codec has room for; `seed` decides all random choices."""
    for number in range(count):
        random = np.random.default_rng([seed, number])
        workers, elements = int(random.choice(_WORKERS)), int(random.choice(_SIZES))
        while refusal_of(codec, workers) and workers > 1:
            workers //= 2
        density = float(random.choice(_DENSITIES))
        pattern, kind = str(random.choice(PATTERNS)), str(random.choice(VALUES))
        gradients = [
            np.where(
                support(pattern, elements, density, random=random),
                values(kind, elements, random),
                np.float32(0),
            )
            for _ in range(workers)
        ]
        sizes = f"{workers} workers, {elements} elements"
        description = f"case {number} (seed {seed}): {sizes}, {kind}, {density:.1%} {pattern}"
        yield LawCase(gradients, description)
