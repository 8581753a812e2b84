"""Codec `majority`: every worker votes for the sign of each element, and the majority wins.

After Bernstein et al., "signSGD: compressed optimisation for non-convex problems", ICML 2018, section 5, and
"signSGD with majority vote is communication efficient and fault tolerant", ICLR 2019. Votes are counted in
lanes of 4 bits, eight in a word, so that any adder that wraps can count them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import (
    BitsPerElement,
    Codec,
    Decoded,
    DecodeError,
    EncodeError,
    Encoder,
    Exchange,
    Origin,
)
from netfold.homomorphic.error_bounds import Doubles, ErrorBound, Sums
from netfold.homomorphic.merge import WORD_BITS, Merge, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.kernels.compiled import kernel
from netfold.kinds import register

LANE_BITS = 4
_LANES = WORD_BITS // LANE_BITS
_LANE_MAX = 2**LANE_BITS - 1


@register
@dataclass(frozen=True)
class Majority(Codec):
    """Signs, whose majority every worker takes: 4 bits per element, up to 15 workers.

    The total is the majority's sign times the number of workers, so that its mean is 1, −1, or 0 for a tie.
    The learning rate is the length of a step. Zero counts as positive.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "majority"
    origin: ClassVar[Origin] = Origin("published", "Bernstein et al., ICML 2018 and ICLR 2019")
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD})
    lane_bits: ClassVar[int] = LANE_BITS
    workers_max: ClassVar[int | None] = _LANE_MAX
    must_wrap: ClassVar[str] = "votes are packed in words, whose top lane uses the sign bit"
    ideal_name: ClassVar[str] = "the majority's sign times the number of workers"

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return MajorityEncoder()

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """No error: votes are counted."""
        return NoError()

    def ideal(self, sums: Sums) -> Doubles:
        """The sign that more workers have, times their number; 0 for a tie."""
        return np.asarray(np.sign(sums.total) * sums.magnitude)

    def bits_per_element(self, workers: int) -> BitsPerElement:
        """A lane up, a lane down."""
        return BitsPerElement(LANE_BITS, LANE_BITS)


@dataclass(frozen=True)
class NoError:
    """The bound of totals that are counted."""

    def of(self, sums: Sums) -> Doubles:
        """Zeros."""
        return np.zeros(sums.total.size)


class MajorityEncoder(Encoder):
    """One worker's side."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send votes, count them, take the majority.

        Raises
        ------
        EncodeError
            An element is NaN.
        DecodeError
            A lane counts more votes than there are workers.
        """
        words = np.zeros(-(-gradient.size // _LANES), np.int32)
        contribution, total = np.empty((2, gradient.size), np.float32)
        element = _vote(gradient, words.view(np.uint32), contribution)
        if element >= 0:
            raise EncodeError(f"gradient[{element}] is nan: it has no sign; lower the learning rate")
        work = Work(gradient.nbytes, words.nbytes)
        decode_work = Work(words.nbytes, gradient.nbytes)
        (merged,) = yield (
            Message(words, Merge.ADD, "votes", work, decode_work=decode_work, lane_bits=LANE_BITS),
        )
        element = _decide(merged.words.view(np.uint32), round.workers, total)
        if element >= 0:
            raise DecodeError(
                f"element {element} has more votes than there are workers, {round.workers}: "
                "some were damaged on the way"
            )
        return Decoded(total, contribution)


@kernel
def _vote(gradient: Gradient, words: NDArray[np.uint32], signs: Gradient) -> int:
    """Write votes, lowest bits first, and signs; returns the first element that is NaN, or −1."""
    for i in range(gradient.size):
        value = gradient[i]
        if value != value:
            return i
        is_positive = value >= 0
        signs[i] = np.float32(1) if is_positive else np.float32(-1)
        words[i // _LANES] |= np.uint32(is_positive) << np.uint32(LANE_BITS * (i % _LANES))
    return -1


@kernel
def _decide(words: NDArray[np.uint32], workers: int, total: Gradient) -> int:
    """Write the majorities; returns the first element with too many votes, or −1."""
    for i in range(total.size):
        votes = np.int64((words[i // _LANES] >> np.uint32(LANE_BITS * (i % _LANES))) & np.uint32(_LANE_MAX))
        if votes > workers:
            return i
        balance = 2 * votes - workers
        total[i] = np.float32(workers if balance > 0 else (-workers if balance < 0 else 0))
    return -1
