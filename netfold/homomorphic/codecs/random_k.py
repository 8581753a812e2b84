"""Codec `random_k`: the same random elements of all workers, summed on the way.

A shared seed chooses a round's elements, so no index is sent, and words may be added anywhere. After Stich et
al., "Sparsified SGD with memory", NeurIPS 2018; with `unbiased` after Wangni et al., "Gradient sparsification
for communication-efficient distributed optimization", NeurIPS 2018, with equal probabilities.
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
    Encoder,
    Exchange,
    Origin,
    Promise,
    Variance,
)
from netfold.homomorphic.codecs.topk import check_share, count_of
from netfold.homomorphic.error_bounds import TINY, Doubles, ErrorBound, Sums
from netfold.homomorphic.feedback import STATE_BYTES, charge, with_feedback
from netfold.homomorphic.merge import Merge, Merged, Work
from netfold.homomorphic.message import Gradient, Round
from netfold.homomorphic.number_formats import Values, number_format, number_merges, number_promise
from netfold.homomorphic.union_index import (
    WORD_ELEMENTS,
    SupportIndex,
    WorkerBucket,
    check_block_elements,
    exchange_values,
    nonzeros_of,
    report_infinite,
    support_of,
    word_layout,
)
from netfold.kernels import rng_streams
from netfold.kernels.compiled import kernel
from netfold.kernels.keyed_random import Integer, mix_plain, splitmix64
from netfold.kinds import register


@register
@dataclass(frozen=True)
class RandomK(Codec):
    """The same random elements of all workers, without an index, summed on the way.

    share: elements that are sent, of all; at least one of a bucket.
    feedback: whether a worker adds what it did not send to its next gradient; left out, yes, unless unbiased.
    unbiased: whether sums are divided by the share, so that they are right on average; without feedback.
    values: how a value becomes words: block_exponent (one integer, as fixed_point), float32, exact (several
        integers, which give the true sum).
    block_elements: elements that share an exponent; a power of two from 64 to 65536.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "random_k"
    origin: ClassVar[Origin] = Origin("published", "Stich et al., NeurIPS 2018; Wangni et al., NeurIPS 2018")
    settings: ClassVar[tuple[str, ...]] = ("", "unbiased=true,values=block_exponent")

    share: float = 0.01
    feedback: bool | None = None
    unbiased: bool = False
    values: Values = "float32"
    block_elements: int = 4096

    def __post_init__(self) -> None:
        check_share(self.share)
        check_block_elements(self.block_elements, WORD_ELEMENTS)
        if self.unbiased and self.feedback:
            raise ValueError(
                "feedback and unbiased exclude each other: scaled sums would count what is held back twice; "
                "leave one of them out"
            )

    @property
    def has_feedback(self) -> bool:
        """Whether residuals are kept."""
        return not self.unbiased if self.feedback is None else self.feedback

    @property
    def merges(self) -> frozenset[Merge]:
        return number_merges(self.values)

    @property
    def promise(self) -> Promise:
        """The promise of the numbers, about what is sent; or sums that are right on average."""
        return Promise.UNBIASED if self.unbiased else number_promise(self.values)

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return with_feedback(RandomKEncoder(self), self.has_feedback)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """The bound of the numbers; unbiased: of elements that may be scaled up, or left out."""
        numbers = number_format(self.values, self.block_elements)
        bound = numbers.error_bound(contributions, is_forecast=False)
        return ScaledBound(bound, self.scale(contributions)) if self.unbiased else bound

    def variance(self, contributions: Sequence[Gradient]) -> Variance:
        """The variance of elements that are scaled up with the probability of their share, else left out."""
        return SampleVariance(self.scale(contributions), self.error_bound(contributions))

    def scale(self, contributions: Sequence[Gradient]) -> float:
        """All elements of a bucket over those that are sent."""
        elements = contributions[0].size
        return elements / count_of(self.share, elements) if elements else 1.0

    def bits_per_element(self, workers: int) -> BitsPerElement | None:
        """One word for every element that is sent; exact values need a number that depends on them."""
        bits = 32 * self.share
        return None if self.values == "exact" else BitsPerElement(bits, bits)

    @property
    def state_bytes(self) -> int:
        return STATE_BYTES if self.has_feedback else 0


@dataclass(frozen=True)
class ScaledBound:
    """Bound of sums of which a share is scaled up and the others are left out."""

    bound: ErrorBound
    """Bound of the numbers alone, without scaling."""
    scale: float

    def of(self, sums: Sums) -> Doubles:
        """The scaled sum may be left out, or be off by itself times scale − 1, and as its numbers."""
        numbers = self.scale * self.bound.of(sums)
        sampling = max(1.0, self.scale - 1) * np.abs(sums.total)
        rounding = 2.0**-24 * (self.scale * np.abs(sums.total) + numbers) + TINY
        return np.asarray(sampling + numbers + rounding)


@dataclass(frozen=True)
class SampleVariance(Variance):
    """Variance of sums of which random elements, equally many every time, are scaled up.

    An element is there with probability 1 / scale. Two elements are there together less often than
    independent ones (sampling without replacement), so no covariance is positive.
    """

    scale: float
    bound: ErrorBound

    def of(self, sums: Sums) -> Doubles:
        """(scale − 1) · Σ², and the square of what rounding adds."""
        rounding = self.bound.of(sums) - max(1.0, self.scale - 1) * np.abs(sums.total)
        return np.asarray((np.sqrt(max(0.0, self.scale - 1)) * np.abs(sums.total) + rounding) ** 2)


@dataclass(frozen=True)
class RandomKEncoder(Encoder):
    """One worker's side; it keeps nothing."""

    codec: RandomK

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Agree on the numbers of the chosen elements, sum their words."""
        if not gradient.size:
            return Decoded(np.zeros(0, np.float32), gradient)
        return (yield from charge(self._sums(gradient, round), _drawing(gradient.size)))

    def _sums(self, gradient: Gradient, round: Round) -> Exchange:
        """The sums of the chosen elements."""
        codec = self.codec
        count = count_of(codec.share, gradient.size)
        chosen = self._choose(gradient.size, count, round)
        contribution = _only(chosen, gradient)
        numbers = number_format(codec.values, codec.block_elements)
        announced = numbers.announce(nonzeros_of(chosen, contribution), round)
        merged: tuple[Merged, ...] = (yield announced) if announced else ()
        agreed = numbers.agree(gradient.size, announced, merged, round)
        layout = word_layout(chosen, agreed)
        bucket = WorkerBucket(contribution, round)
        if layout.offsets[-1]:
            infinite = yield from exchange_values(bucket, layout, numbers, "values")
            report_infinite(infinite, bucket.decoded, round)
        if not codec.unbiased:
            return Decoded(bucket.decoded, contribution)
        return Decoded(bucket.decoded * np.float32(gradient.size / count), gradient)

    def _choose(self, elements: int, count: int, round: Round) -> SupportIndex:
        """A round's elements, the same at all workers."""
        key = mix_plain(round.seed, rng_streams.RANDOM_K, round.step, round.bucket)
        draws = np.empty(elements, np.uint64)
        _draw(np.uint64(key), draws)
        is_chosen = np.zeros(-(-elements // WORD_ELEMENTS) * WORD_ELEMENTS, np.bool_)
        is_chosen[np.argpartition(draws, count - 1)[:count]] = True  # draws differ: splitmix64 is a bijection
        index = np.packbits(is_chosen, bitorder="little").view(np.uint64)
        return support_of(index, self.codec.block_elements)


def _drawing(elements: int) -> Work:
    # Of each element: a draw of 8 bytes is written, and read twice to find the least; then a byte is written,
    # and read for its bit in the index.
    return Work(17 * elements, 9 * elements + elements // 8)


@kernel
def _draw(key: Integer, draws: NDArray[np.uint64]) -> None:
    """A random number for every element."""
    for i in range(draws.size):
        draws[i] = splitmix64(np.uint64(key) + np.uint64(i))


def _only(chosen: SupportIndex, gradient: Gradient) -> Gradient:
    """The gradient with zeros for all elements that are not chosen."""
    bits = np.unpackbits(chosen.index.view(np.uint8), bitorder="little", count=gradient.size)
    return np.where(bits != 0, gradient, np.float32(0))
