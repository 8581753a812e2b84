"""Codec `count_sketch`: sketches that any network adds; all workers find the heavy hitters in their sum.

The sketch half of Sketch-Fusion (Dai et al., Journal of Parallel and Distributed Computing 185, 2024), of
which only the abstract was available: it is reconstructed here from what it builds on. Count-Sketch: Charikar
et al., ICALP 2002. One and two rounds, error feedback and momentum factor masking: Ivkin et al.,
"Communication-efficient distributed SGD with sketching" (Sketched-SGD), NeurIPS 2019, and its code
nikitaivkin/csh.

All workers hash alike, so the sum of their sketches is the sketch of their sum. It has an estimate of every
element. With one round, the largest estimates are the total. With two rounds, they only name candidates; the
workers add up the exact values of these, and the largest sums are the total.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from netfold.homomorphic.bounds import TINY, Doubles, ErrorBound, FloatAddBound, Sums
from netfold.homomorphic.carrier import Carrier
from netfold.homomorphic.codec import BitsPerElement, Codec, Encoder, Origin, register
from netfold.homomorphic.codecs.sketched.count_sketch.encoder import CountSketchEncoder, Layout
from netfold.homomorphic.codecs.sketched.count_sketch.momentum import MomentumEncoder
from netfold.homomorphic.codecs.sparse.topk import check_share, count_of
from netfold.homomorphic.feedback import STATE_BYTES, with_feedback
from netfold.homomorphic.message import WORD_BITS, Gradient, Merge

EXPONENT_ELEMENTS = 256  # without a network
EXPONENT_BITS = 8
_U = 2.0**-24  # unit roundoff of float32


@register
@dataclass(frozen=True)
class CountSketch(Codec):
    """The largest elements of the sum, which all workers find in the sum of their sketches.

    rows: independent rows of counters; odd, since an estimate is their median.
    ratio: counters of the sketch, of the bucket's elements. A bucket that is no larger than what it would
        send is sent whole.
    share: elements of the total that are not zero, of all; at least one.
    candidates: elements whose values are added up in a second round, for each of these; 0: no second round,
        the total has estimates.
    feedback: whether a worker adds what it did not contribute to its next gradient.
    momentum: what remains of a worker's momentum after a step, from 0 (none) to below 1. The optimizer should
        have none then.
    masking: whether an element that was chosen loses its momentum (momentum factor masking).
    values: how a value becomes words: block_exponent (one integer, as fixed_point), float32.
    block_elements: block_exponent: words that share an exponent; left out, the network's unit, or 256 without
        a network.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "count_sketch"
    origin: ClassVar[Origin] = Origin(
        "reconstructed",
        "Sketch-Fusion: Dai et al., JPDC 2024; after Sketched-SGD: Ivkin et al., NeurIPS 2019",
    )

    rows: int = 5
    ratio: float = 0.1
    share: float = 0.01
    candidates: int = 4
    feedback: bool = True
    momentum: float = 0.0
    masking: bool = True
    values: Literal["block_exponent", "float32"] = "block_exponent"
    block_elements: int | None = None

    def __post_init__(self) -> None:
        if self.rows < 1 or self.rows % 2 == 0:
            raise ValueError(
                f"rows is {self.rows}: must be an odd number; an even number has two middle values, "
                "and the lower one is too small on average; 3 and 5 are usual"
            )
        if not 0 < self.ratio <= 1:
            raise ValueError(f"ratio is {self.ratio}: must be above 0 and at most 1, 0.1 is usual")
        check_share(self.share)
        if self.candidates < 0:
            raise ValueError(
                f"candidates is {self.candidates}: must be at least 1, 4 is usual, or 0 for one round"
            )
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum}: must be at least 0 and below 1, 0.9 is usual")
        self._check_block_elements()

    def _check_block_elements(self) -> None:
        if self.block_elements is None:
            return
        if self.values != "block_exponent":
            raise ValueError(
                f"block_elements belongs to values block_exponent, found values {self.values}; remove it"
            )
        if self.block_elements < 1:
            raise ValueError(
                f"block_elements is {self.block_elements}: a block needs at least 1 word; "
                "leave it out for the network's unit"
            )

    @property
    def merges(self) -> frozenset[Merge]:
        """ADD of integers, or FLOAT_ADD."""
        return frozenset({Merge.FLOAT_ADD if self.exponent_elements is None else Merge.ADD})

    @property
    def exponent_elements(self) -> int | None:
        """Words that share an exponent; None if they are floats."""
        return None if self.values == "float32" else self.block_elements or EXPONENT_ELEMENTS

    def layout(self, elements: int) -> Layout:
        """What is sent of a bucket of some elements."""
        columns = max(1, math.ceil(self.ratio * elements / self.rows))
        chosen = count_of(self.share, elements)
        candidates = min(elements, self.candidates * chosen)
        if self.rows * columns + candidates >= elements:
            return Layout(0, 0, elements, chosen)
        return Layout(self.rows, columns, candidates, chosen)

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        """Encoder of one worker, with its momentum and its residual."""
        encoder = with_feedback(CountSketchEncoder(self.layout, self.exponent_elements), self.feedback)
        return MomentumEncoder(encoder, self.momentum, self.masking) if self.momentum else encoder

    def carried_by(self, carrier: Carrier) -> CountSketch:
        """Fill in the network's unit as the block of exponents if that is left out."""
        if self.values != "block_exponent":
            return self
        return replace(self, block_elements=self.block_elements or carrier.unit_elements)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """The bound of adding up what was contributed. Estimates are noted and exempt.

        A worker contributes values as they were added, already rounded to integers.
        """
        workers = len(contributions)
        return FloatAddBound(workers) if self.exponent_elements is None else AddedBound(workers)

    def bits_per_element(self, workers: int) -> BitsPerElement:
        """The counters and the candidates, with their exponents."""
        blocks = self.exponent_elements
        bits = WORD_BITS + (EXPONENT_BITS / blocks if blocks else 0)
        own = bits * min(1.0, self.ratio + self.candidates * self.share)
        return BitsPerElement(own, own)

    @property
    def state_bytes(self) -> int:
        """The residual and the momentum."""
        return STATE_BYTES * (self.feedback + (self.momentum > 0))


@dataclass(frozen=True)
class AddedBound:
    """Bound of sums of integers, which are exact, against the sums of their values.

    A value is an integer divided by its block's scale in float32, off by u. So is the sum, which is rounded
    to float32 before: u · Σ|x| + 2u · |Σ|. Denormal quotients are off by half of the smallest.
    """

    workers: int

    def of(self, sums: Sums) -> Doubles:
        """Add the errors of the values and of their sum."""
        off_by = _U * sums.magnitude + 2 * _U * np.abs(sums.total)
        return np.asarray(off_by * (1 + 2.0**-20) + (self.workers + 1) * TINY)
