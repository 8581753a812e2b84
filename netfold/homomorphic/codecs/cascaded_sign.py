"""Codec `cascaded_sign`: scaled signs that every hop decompresses, adds, and compresses again.

What one-bit compression does without a merge of its own on a ring ("cascading compression" in Wu et al., DAC
2022, which shows that its error grows with every hop): here to compare with. A message has a part for each
worker, of nearly equal length, as a ring's segments. A part is its number of elements, a scale, which is the
mean magnitude, and a bit for each element, as in Karimireddy et al., "Error feedback fixes SignSGD and other
gradient compression schemes", ICML 2019; so is its error feedback. That hops compress as workers do is
reconstructed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

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
from netfold.homomorphic.codecs.majority import Majority
from netfold.homomorphic.codecs.sign_bits import Bits, pack_signs, unpack_signs, words_of
from netfold.homomorphic.error_bounds import FLOAT_MAX, TINY, Doubles, ErrorBound, Sums
from netfold.homomorphic.feedback import STATE_BYTES, FeedbackEncoder
from netfold.homomorphic.merge import WORD_BITS, Hop, Merge, Words, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.kinds import register

_HEADER_WORDS = 2
"""Words before the signs of a part: its number of elements, and the bits of its scale."""


@register
@dataclass(frozen=True)
class CascadedSign(Codec):
    """Signs and their mean magnitude; every hop adds what it decodes and encodes the sum again.

    feedback: whether a worker adds what it did not send to its next gradient. What hops lose stays lost.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "cascaded_sign"
    origin: ClassVar[Origin] = Origin("reconstructed", "the baseline of Wu et al., DAC 2022")
    instead: ClassVar[str] = Majority.kind
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.HOST})

    feedback: bool = False

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return RoundedFeedback(CascadedSignEncoder()) if self.feedback else CascadedSignEncoder()

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """The bound of a total that may have nothing in common with the sum."""
        return CascadeBound(len(contributions))

    def bits_per_element(self, workers: int) -> BitsPerElement:
        """A bit up, a bit down."""
        return BitsPerElement(1, 1)

    @property
    def state_bytes(self) -> int:
        return STATE_BYTES if self.feedback else 0


@dataclass(frozen=True)
class CascadeBound:
    """Bound of n − 1 hops.

    A contribution is ± its part's scale, so Σ|x| is the sum of the scales. A merged scale is at most the sum
    of both, rounded, and so the total and the sum of the contributions are both within Σ|x|.
    """

    workers: int

    def of(self, sums: Sums) -> Doubles:
        """Σ|x| + |Σx|, and the rounding of n − 1 scales."""
        rounding = (self.workers - 1) * (2.0**-24 * (1 + 2.0**-20) * sums.magnitude + TINY)
        return np.asarray(sums.magnitude * (1 + 2.0**-40) + np.abs(sums.total) + rounding)


class RoundedFeedback(FeedbackEncoder):
    """Error feedback of a codec whose contributions do not add up with residuals in float32.

    A value far below its contribution is rounded away there, and `residual`, which is exact, is None.
    """

    remembers: ClassVar[str] = "a residual that is rounded"

    def residual(self, bucket: int) -> None:
        """None: what it holds back is rounded."""
        return


class SignPart(NamedTuple):
    """What the words of a part say."""

    elements: int
    scale: np.float32
    bits: Bits  # (words_of(elements),)

    @classmethod
    def of(cls, words: Words) -> SignPart:
        """Read the part that begins with the first of some words."""
        elements = int(words[0])
        end = _HEADER_WORDS + words_of(elements)
        return cls(elements, words[1:2].view(np.float32)[0], words[_HEADER_WORDS:end])

    @property
    def words(self) -> Words:
        """The words that say it."""
        header = np.array([self.elements, np.float32(self.scale).view(np.uint32)], np.uint32)
        return np.concatenate([header, self.bits])

    def merged(self, other: SignPart) -> SignPart:
        """The signs and the mean magnitude of the sums.

        Where the signs are equal, the sum is that sign times the sum of the scales. Elsewhere it has the sign
        of the larger scale, times their difference; +0 if they are equal.
        """
        differing = int(np.bitwise_count(self.bits ^ other.bits).sum())
        small, large = sorted((float(self.scale), float(other.scale)))
        total = (self.elements - differing) * (large + small) + differing * (large - small)
        if small == large:
            bits = self.bits | other.bits
        else:
            bits = self.bits if self.scale > other.scale else other.bits
        return SignPart(self.elements, np.float32(total / self.elements), bits)


def parts_of(words: Words) -> list[SignPart]:
    """The parts that some words say, one after the other."""
    parts, first = [], 0
    while first < words.size:
        parts.append(SignPart.of(words[first:]))
        first += _HEADER_WORDS + parts[-1].bits.size
    return parts


def words_of_parts(parts: Sequence[SignPart]) -> Words:
    """The words that say them."""
    return np.concatenate([np.empty(0, np.uint32), *(part.words for part in parts)])


class Cascade:
    """Decodes parts of two workers, adds them, and encodes the sums."""

    def split(self, words: Words, count: int) -> list[Words]:
        """Ranges of whole parts; of a ring one each."""
        parts = parts_of(words)
        ends = [len(parts) * index // count for index in range(count + 1)]
        return [words_of_parts(parts[first:last]) for first, last in pairwise(ends)]

    def merge(self, accumulated: Words, arriving: Words, hop: Hop) -> Words:
        """Merge the parts of the same elements."""
        pairs = zip(parts_of(accumulated), parts_of(arriving), strict=True)
        return words_of_parts([part.merged(other) for part, other in pairs])

    def join(self, parts: Sequence[Words]) -> Words:
        """All parts, one after the other."""
        return np.concatenate(parts)

    def work(self, accumulated: Words, arriving: Words) -> Work:
        """Both are read and one is written; an element takes an addition, a magnitude and a sign."""
        flops = 3 * WORD_BITS * accumulated.size
        return Work(accumulated.nbytes + arriving.nbytes, accumulated.nbytes, flops)


class CascadedSignEncoder(Encoder):
    """One worker's side; it keeps nothing."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send signs and scales, a part for each worker; decode the parts that come back.

        Raises
        ------
        EncodeError
            An element is not finite, or the sum of all workers' scales may leave float32.
        """
        if not gradient.size:
            return Decoded(gradient.copy(), gradient)
        parts = _encode(gradient, round.workers)
        words = words_of_parts(parts)
        work = Work(2 * gradient.nbytes, words.nbytes, flops=2 * gradient.size)  # read again for the signs
        decode_work = Work(words.nbytes, gradient.nbytes)
        (merged,) = yield (
            Message(words, Merge.HOST, "signs", work, decode_work=decode_work, host_merge=Cascade()),
        )
        return Decoded(_decode(parts_of(merged.words)), _decode(parts))


def _encode(gradient: Gradient, workers: int) -> list[SignPart]:
    """A gradient in as many parts as there are workers, or words of bits, of nearly equal length."""
    ends = [words_of(gradient.size) * index // workers for index in range(workers + 1)]
    parts = []
    for first, last in pairwise(ends):
        if first == last:
            continue
        values = gradient[WORD_BITS * first : WORD_BITS * last]
        bits = np.empty(last - first, np.uint32)
        pack_signs(values, bits)
        parts.append(SignPart(values.size, _scale_of(values, workers, WORD_BITS * first), bits))
    return parts


def _scale_of(values: Gradient, workers: int, first: int) -> np.float32:
    """The mean magnitude of some values; the first of them is element `first` of the gradient."""
    mean = float(np.abs(values).mean(dtype=np.float64))
    if not mean * workers < FLOAT_MAX / 2:
        element = int(np.argmax(np.where(np.isnan(values), np.inf, np.abs(values))))
        raise EncodeError(
            f"gradient[{first + element}] is {values[element]}: the scales of {workers} workers may leave "
            "float32; lower the learning rate"
        )
    return np.float32(mean)


def _decode(parts: Sequence[SignPart]) -> Gradient:
    """± the scale of each part."""
    values = np.empty(sum(part.elements for part in parts), np.float32)
    first = 0
    for part in parts:
        unpack_signs(part.bits, part.scale, values[first : first + part.elements])
        first += part.elements
    return values
