"""Codec `packed`: an index first, then the values of its members, one after the other.

The exact baseline of sparse aggregation (the bitmap of S2 Reducer, arXiv 2110.02140, without its sketch):

1. The workers agree on the union support, its members, and on the scales of their numbers (see
   `union_index.py` and `number_formats.py`).
2. Every worker sends its values of all members in ascending order, zeros included. So word k means the same
   element everywhere, and words may be added anywhere. The sums are put back where the index says.

There is no hashing, decoding cannot fail, and besides the index there are never more words than in a dense
message. A sketch (`lossless`) has a check; a damaged word of packed values is not noticed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange, Origin, Promise, State
from netfold.homomorphic.error_bounds import ErrorBound
from netfold.homomorphic.merge import Merge
from netfold.homomorphic.message import Gradient, Round
from netfold.homomorphic.number_formats import Values, number_format, number_merges, number_promise
from netfold.homomorphic.union_index import (
    WORD_ELEMENTS,
    IndexKind,
    IndexMemory,
    WorkerBucket,
    check_block_elements,
    exchange_index,
    exchange_values,
    index_merges,
    nonzeros_of,
    own_index,
    report_infinite,
    support_of,
    word_layout,
)
from netfold.kinds import register


@register
@dataclass(frozen=True)
class Packed(Codec):
    """Sparse gradients as an index and the values at its union.

    values: how a value becomes words: block_exponent (one integer, as fixed_point), float32, exact (several
        integers, which give the true sum).
    index: how workers send which elements are non-zero: flat (a bit each), two_level (a bit for each 64, then
        the bits of those), bloom (a filter; smaller below a density of 7 %).
    block_elements: elements that share an exponent; a power of two from 64 to 65536.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "packed"
    origin: ClassVar[Origin] = Origin(
        "reconstructed", "the bitmap of S2 Reducer, arXiv 2110.02140, without its sketch"
    )

    values: Values = "block_exponent"
    index: IndexKind = "flat"
    block_elements: int = 4096

    def __post_init__(self) -> None:
        check_block_elements(self.block_elements, WORD_ELEMENTS)

    @property
    def promise(self) -> Promise:
        return number_promise(self.values)

    @property
    def merges(self) -> frozenset[Merge]:
        return index_merges(self.index) | number_merges(self.values)

    def worker(self, rank: int, workers: int, seed: int) -> PackedEncoder:
        """Encoder of one worker; it remembers the sizes of unions."""
        return PackedEncoder(self, IndexMemory())

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """The bound of the numbers: packing adds no error."""
        return number_format(self.values, self.block_elements).error_bound(gradients, is_forecast=False)


@dataclass(frozen=True)
class PackedEncoder(Encoder):
    """One worker's side."""

    codec: Packed
    memory: IndexMemory

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Agree on members and numbers, sum the members' words, put the sums back."""
        codec = self.codec
        numbers = number_format(codec.values, codec.block_elements)
        support = support_of(own_index(gradient), codec.block_elements)
        announced = numbers.announce(nonzeros_of(support, gradient), round)
        agreed_union = yield from exchange_index(
            support.index, gradient.size, round, codec.index, announced, self.memory
        )
        if not agreed_union.union_elements:
            return Decoded(np.zeros(gradient.size, np.float32), gradient)
        agreed = numbers.agree(gradient.size, announced, agreed_union.merged, round)
        layout = word_layout(support_of(agreed_union.union, codec.block_elements), agreed)
        bucket = WorkerBucket(gradient, round)
        infinite = yield from exchange_values(bucket, layout, numbers, "values")
        report_infinite(infinite, bucket.decoded, round)
        return Decoded(bucket.decoded, gradient)

    def state(self) -> State:
        """The sizes of unions."""
        return self.memory.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.memory.restore(state)
