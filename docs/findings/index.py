"""Bits per element that an index takes on the wire, beside closed forms."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

import numpy as np

from docs.findings.patterns import support
from docs.findings.table import Cells, Line, Table, digits
from netfold.homomorphic.codec import codec_kinds
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Round

ELEMENTS = 2**20
DENSITIES = (0.0001, 0.001, 0.01, 0.05, 0.07, 0.1, 0.3)
WORD_COST_BITS = 39.2  # what a false positive costs in its table
KINDS: Mapping[str, tuple[str, dict[str, object]]] = {
    "4-bit": ("lossless", {"setting": "published", "index_bits": 4}),
    "flat": ("packed", {"index": "flat"}),
    "two_level": ("packed", {"index": "two_level"}),
    "bloom": ("packed", {"index": "bloom"}),
}


def measured_bits(name: str, density: float, elements: int = ELEMENTS) -> float:
    """Bits per element of the messages that carry the index of an iid gradient."""
    wanted = support("iid", elements, density, 1, np.random.default_rng(round(1e6 * density)))
    kind, options = KINDS[name]
    gradient = wanted.astype(np.float32)
    folded = fold([codec_kinds()[kind](**options).worker(0, 1, 0)], [gradient], Round(0, 0, 1, seed=2))
    messages = [message for operation in folded.messages for message in operation[0]]
    index_bytes = sum(one.size_bytes for one in messages if one.label in ("index", "index blocks", "count"))
    return 8 * index_bytes / elements


def expected_bits(name: str, density: float) -> float:
    """Bits per element by the closed form of the density."""
    if name == "4-bit":
        return 4.0
    if name == "two_level":
        return 1 / 64 + 1 - (1 - density) ** 64
    if name == "bloom":
        # bits(f) = ρ · log2(1/f) / ln 2 + 39.2 · f · (1 − ρ) is least where its derivative is zero.
        false_positives = density / (1 - density) / (WORD_COST_BITS * math.log(2) ** 2)
        hashes = max(1, round(-math.log2(false_positives)))
        bits = density * hashes / math.log(2)
        return bits if bits + density / math.log(2) ** 2 < 1 else 1.0
    return 1.0


def figures(density: float) -> Cells:
    """Cells with the measured and the expected figure."""
    return tuple(
        f"{digits(measured_bits(name, density), 3)} ({digits(expected_bits(name, density), 3)})"
        for name in KINDS
    )


TABLE = Table(
    "index",
    ("density", *KINDS),
    tuple(
        Line((f"{100 * density:g} %",), functools.partial(figures, density), True) for density in DENSITIES
    ),
)
