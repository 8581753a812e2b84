"""Errors of sums: float32 in shared counters, beside float32 alone, integers and digits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from docs.findings.patterns import support
from docs.findings.table import Cells, Line, Table, digits
from netfold.homomorphic.codec import codec_kinds
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Gradient, Note, NoteKind, Round

WORKERS = 4
RATIO = 10
ELEMENTS = 2**24
LOADS = (0.5, 0.75)

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
DISTRIBUTIONS: Mapping[str, Draw] = {
    "normal": lambda random, count: random.standard_normal(count),
    "log-normal, σ = 3": lambda random, count: (
        np.exp(3 * random.standard_normal(count)) * random.choice([-1.0, 1.0], count)
    ),
    "log-uniform, 10⁻⁸ to 1": lambda random, count: (
        10.0 ** random.uniform(-8, 0, count) * random.choice([-1.0, 1.0], count)
    ),
}
CODECS: Mapping[str, tuple[str, dict[str, object]]] = {
    "published": ("lossless", {"setting": "published", "ratio": float(RATIO)}),
    "float32 alone": ("none", {}),
    "packed, integers": ("packed", {}),
    "repaired, exact": ("lossless", {"values": "exact"}),
}


class RelativeErrors(NamedTuple):
    """Relative errors of the members' sums: `|decoded − true| / |true|`."""

    median: float
    most: float  # the 99 % quantile
    largest: float
    of_largest_sum: float  # the largest error, as part of the bucket's largest sum


def gradients_of(draw: Draw, load: float, elements: int, seed: int) -> list[Gradient]:
    """One gradient per worker, with the same support, as in the released benchmark."""
    random = np.random.default_rng(seed)
    live = np.flatnonzero(support("iid", elements, load / RATIO, 1, random))
    gradients = [np.zeros(elements, np.float32) for _ in range(WORKERS)]
    for gradient in gradients:
        gradient[live] = draw(random, live.size)
    return gradients


def errors_of(name: str, gradients: Sequence[Gradient]) -> RelativeErrors:
    """Errors of one codec's decoded sums, without estimates."""
    kind, options = CODECS[name]
    notes: list[Note] = []
    encoders = [codec_kinds()[kind](**options).worker(rank, WORKERS, 0) for rank in range(WORKERS)]
    decoded = fold(encoders, gradients, Round(0, 0, WORKERS, seed=1, report=notes.append)).decoded[0]
    true = np.sum(gradients, axis=0, dtype=np.float64)
    counted = true != 0
    for note in notes:
        if note.kind is NoteKind.ESTIMATE and note.elements is not None:
            counted[note.elements] = False
    errors = np.abs(decoded[counted] - true[counted])
    relative = errors / np.abs(true[counted])
    median, most = np.quantile(relative, [0.5, 0.99])
    of_largest_sum = errors.max() / np.abs(true).max()
    return RelativeErrors(float(median), float(most), float(relative.max()), float(of_largest_sum))


def figures(distribution: str, load: float, name: str) -> Cells:
    """Cells for one bucket."""
    errors = errors_of(name, gradients_of(DISTRIBUTIONS[distribution], load, ELEMENTS, seed=4))
    return tuple(map(digits, errors))


TABLE = Table(
    "floats",
    ("values", "load", "sums by", "median", "99 %", "largest", "largest, of the largest sum"),
    tuple(
        Line((distribution, digits(load), name), functools.partial(figures, distribution, load, name), False)
        for distribution in DISTRIBUTIONS
        for load in LOADS
        for name in CODECS
        if name == "published" or load == LOADS[0]  # the load is that of the published table
    ),
)
