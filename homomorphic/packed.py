"""Packed values: an index by OR, then the values of its members, one after the other, by ADD.

The exact baseline of sparse aggregation. A round is one network operation for index and block exponents (see
`membership`), and one for the values:

1. The union of the workers' bits tells all of them which elements are members, the largest exponents how they
   are quantised.
2. Every worker sends its own integers of all members in ascending order, zeros included, so that word k means
   the same element everywhere and words may be added wherever they meet. The sums are put back where the
   index says.

No hashing, nothing that can fail, and never more words than a dense message has beside the index. What a
sketch has instead (`lossless`) is a check: a damaged word of packed values is not noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from homomorphic import bits
from homomorphic.codec import Exchange, Gradient, Merge, Message, Round, Work, register
from homomorphic.fixed_point import error_bound
from homomorphic.membership import agree, check_block_elements


@register
@dataclass(frozen=True)
class Packed:
    """Sparse gradients as an index and the values at its union, one word each.

    block_elements: elements that share an exponent; a power of two from 64 to 65536.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "packed"
    exact: ClassVar[bool] = True
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.OR, Merge.MAX, Merge.ADD})
    is_linear: ClassVar[bool] = False  # what a word of the values means depends on all workers' indexes

    block_elements: int = 4096

    def __post_init__(self) -> None:
        check_block_elements(self.block_elements, bits.WORD_ELEMENTS)

    def worker(self, rank: int, workers: int, seed: int) -> PackedEncoder:
        """Encoder of one worker; it keeps no state."""
        return PackedEncoder(self.block_elements)

    def error_bound(self, gradients: Sequence[Gradient]) -> NDArray[np.float64]:
        """That of fixed point with the same blocks: packing adds nothing to it."""
        return error_bound(gradients, self.block_elements)


@dataclass(frozen=True)
class PackedEncoder:
    """One worker's side."""

    block_elements: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Agree on members and exponents, sum the members' integers, put the sums where they belong."""
        _, union, scales = yield from agree(gradient, self.block_elements, round)
        index = np.empty(-(-gradient.size // bits.WORD_ELEMENTS), np.uint64)
        words = np.empty(bits.widen(union, index), np.int32)
        if words.size == 0:
            return np.zeros(gradient.size, np.float32)
        bits.pack(index, gradient, scales, self.block_elements, words)
        (merged,) = yield (
            Message(
                words,
                Merge.ADD,
                "values",
                # The union is widened, its bits are counted, and the values at them are gathered.
                Work(union.nbytes + 2 * index.nbytes + words.nbytes, index.nbytes + words.nbytes),
                decode_work=Work(index.nbytes + words.nbytes, gradient.nbytes),
            ),
        )
        decoded = np.empty(gradient.size, np.float32)
        bits.expand(index, merged.words, scales, self.block_elements, decoded)
        return decoded
