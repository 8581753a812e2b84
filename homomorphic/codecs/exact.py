"""Dense sums that are bit for bit the correctly rounded true ones, through adders that know integers only.

The workers agree on each block's range of binary digits first, then send every element as a few signed
digits in 32-bit words with room for carries (see `numbers` and `digits`). Integer addition is exact and has
no order, so the decoded sum is the float32 nearest to the true sum of the workers' float32 values, whatever
the order and number of workers; ties go to even.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from netfold.homomorphic.bounds import ErrorBound
from netfold.homomorphic.codec import Exchange, Gradient, Merge, Round, register
from netfold.homomorphic.index.bits import WORD_ELEMENTS
from netfold.homomorphic.index.members import (
    Bucket,
    everyone,
    exchange_members,
    members_of,
    placed,
    tell_infinite,
)
from netfold.homomorphic.index.membership import check_block_elements
from netfold.homomorphic.numbers.compact import all_of
from netfold.homomorphic.numbers.formats import number_format


@register
@dataclass(frozen=True)
class DenseExact:
    """Dense gradients whose decoded sums are the correctly rounded true ones.

    block_elements: elements that have as many digits; a power of two from 64 to 65536.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "exact"
    exact: ClassVar[bool] = True
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.MAX, Merge.ADD})
    is_linear: ClassVar[bool] = False  # which digits there are depends on all workers

    block_elements: int = 4096

    def __post_init__(self) -> None:
        check_block_elements(self.block_elements, WORD_ELEMENTS)

    def worker(self, rank: int, workers: int, seed: int) -> DenseExactEncoder:
        """Encoder of one worker; it keeps no state."""
        return DenseExactEncoder(self.block_elements)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """Half a unit in the last place of the sum."""
        return number_format("exact", self.block_elements).error_bound(gradients, is_forecast=False)


@dataclass(frozen=True)
class DenseExactEncoder:
    """One worker's side."""

    block_elements: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Agree on the digits, sum them, round the sums."""
        if not gradient.size:
            return np.zeros(0, np.float32)
        numbers = number_format("exact", self.block_elements)
        announced = numbers.announce(all_of(gradient, numbers.block_elements), round)
        merged = yield announced
        place = placed(
            members_of(everyone(gradient.size), self.block_elements),
            numbers.agree(gradient.size, announced, merged, round),
        )
        if not place.offsets[-1]:  # zeros everywhere
            return np.zeros(gradient.size, np.float32)
        bucket = Bucket(gradient, round)
        infinite = yield from exchange_members(bucket, place, numbers, "values")
        tell_infinite(infinite, bucket.decoded, round)
        return bucket.decoded
