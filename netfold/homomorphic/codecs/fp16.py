"""Codec `fp16`: half-precision gradients, added in half precision on every host that they pass.

As PyTorch's `fp16_compress_hook` over NCCL's ring does, without its division by the number of workers: every
hop adds two halves and rounds the sum to a half (IEEE 754 binary16). No switch profile adds halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from netfold.homomorphic.codec import (
    BitsPerElement,
    Codec,
    Decoded,
    EncodeError,
    Encoder,
    Exchange,
    Origin,
)
from netfold.homomorphic.error_bounds import Doubles, ErrorBound, Sums
from netfold.homomorphic.feedback import STATE_BYTES, with_feedback
from netfold.homomorphic.merge import Hop, Merge, Words, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.kinds import register

HALF_MAX = 65504.0
_U = 2.0**-11  # unit roundoff of halves
_TINY = 2.0**-25  # half of the smallest half above zero


@register
@dataclass(frozen=True)
class Fp16(Codec):
    """Half-precision gradients, added and rounded to halves at every hop.

    feedback: whether a worker adds what rounding took to its next gradient.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "fp16"
    origin: ClassVar[Origin] = Origin("published", "PyTorch, torch.distributed fp16_compress_hook")
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.HOST})

    feedback: bool = False

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return with_feedback(Fp16Encoder(), self.feedback)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """The bound of n − 1 additions of halves."""
        return HalfAddBound(len(contributions))

    def bits_per_element(self, workers: int) -> BitsPerElement:
        """A half up and a half down."""
        return BitsPerElement(16, 16)

    @property
    def state_bytes(self) -> int:
        return STATE_BYTES if self.feedback else 0


@dataclass(frozen=True)
class HalfAddBound:
    """Bound of n − 1 additions of halves, in any order, whose partial sums stay in range.

    As `bounds.addition_error`, with the unit roundoff of halves.
    """

    workers: int

    def of(self, sums: Sums) -> Doubles:
        """(n − 1) · (2⁻¹¹ · Σ|x| + 2⁻²⁵)."""
        return np.asarray((self.workers - 1) * (_U * sums.magnitude * (1 + 2.0**-40) + _TINY))


class HalfAdd:
    """Adds halves that are packed two in a word."""

    def split(self, words: Words, count: int) -> list[Words]:
        """Ranges of words of nearly equal length."""
        bounds = [words.size * index // count for index in range(count + 1)]
        return [words[first:last] for first, last in pairwise(bounds)]

    def merge(self, accumulated: Words, arriving: Words, hop: Hop) -> Words:
        """The sums, each rounded to a half."""
        total: Words = (accumulated.view(np.float16) + arriving.view(np.float16)).view(np.uint32)
        return total

    def join(self, parts: Sequence[Words]) -> Words:
        """All parts, one after the other."""
        return np.concatenate(parts)

    def work(self, accumulated: Words, arriving: Words) -> Work:
        """Both are read, one is written."""
        return Work(accumulated.nbytes + arriving.nbytes, accumulated.nbytes, flops=2 * accumulated.size)


class Fp16Encoder(Encoder):
    """One worker's side."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Round to halves, let hosts add them, return the sum.

        Raises
        ------
        EncodeError
            An element is NaN, or so large that the sum of all workers may leave the range of halves.
        """
        limit = HALF_MAX / (round.workers * (1 + round.workers * _U))
        is_carried = np.abs(gradient) <= limit
        if not is_carried.all():
            element = int(np.argmin(is_carried))
            raise EncodeError(
                f"gradient[{element}] is {gradient[element]}: sums of {round.workers} workers may leave the "
                f"range of halves, up to {limit:.6g} fits; scale the loss down, or use another codec"
            )
        halves = np.zeros(-(-gradient.size // 2) * 2, np.float16)
        halves[: gradient.size] = gradient
        words = halves.view(np.uint32)
        work = Work(gradient.nbytes, words.nbytes)
        decode_work = Work(words.nbytes, gradient.nbytes)
        (merged,) = yield (
            Message(words, Merge.HOST, "halves", work, decode_work=decode_work, host_merge=HalfAdd()),
        )
        total = merged.words.view(np.float16)[: gradient.size].astype(np.float32)
        return Decoded(total, halves[: gradient.size].astype(np.float32))
