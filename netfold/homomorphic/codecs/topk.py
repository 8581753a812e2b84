"""Codec `topk`: the largest elements of each worker, gathered by all.

Each worker sends the indices and values of its own largest elements, so messages cannot be merged on the way.
Every worker adds up all of them, in rank order. After Aji and Heafield, "Sparse communication for distributed
gradient descent", EMNLP 2017; with error feedback as in Stich et al., "Sparsified SGD with memory", NeurIPS
2018.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.block_floating_point import not_finite
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
from netfold.homomorphic.error_bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.feedback import STATE_BYTES, with_feedback
from netfold.homomorphic.merge import Merge, Words, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.kernels.bits import largest
from netfold.kinds import register

ENTRY_BYTES = 8  # an index and a value


def check_share(share: float, usual: float = 0.01) -> None:
    """Reject a share of elements or rows that is not above 0 and at most 1; the error names a usual one.

    Raises
    ------
    ValueError
        It is not.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}: must be above 0 and at most 1, {usual} is usual")


def count_of(share: float, elements: int) -> int:
    """How many of some elements are a share of them: at least one, if there are any."""
    return min(elements, max(1, math.ceil(share * elements)))


@register
@dataclass(frozen=True)
class TopK(Codec):
    """The largest elements of each worker, as indices and values that all workers gather.

    share: elements that a worker sends, of all; at least one of each part.
    of: tensor (a share of every tensor), bucket (a share of the whole bucket).
    feedback: whether a worker adds what it did not send to its next gradient.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "topk"
    origin: ClassVar[Origin] = Origin("published", "Aji and Heafield, EMNLP 2017; Stich et al., NeurIPS 2018")
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.GATHER})

    share: float = 0.01
    of: Literal["tensor", "bucket"] = "tensor"
    feedback: bool = True

    def __post_init__(self) -> None:
        check_share(self.share)

    def count_of(self, elements: int) -> int:
        """How many of some elements are sent."""
        return count_of(self.share, elements)

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return with_feedback(TopKEncoder(self), self.feedback)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """The bound of float32 additions of the values that were sent."""
        return FloatAddBound(len(contributions))

    def bits_per_element(self, workers: int) -> BitsPerElement:
        """Indices and values of one worker up, those of all others down."""
        sent_bits = 8 * ENTRY_BYTES * self.share
        return BitsPerElement(sent_bits, (workers - 1) * sent_bits)

    @property
    def state_bytes(self) -> int:
        return STATE_BYTES if self.feedback else 0


@dataclass(frozen=True)
class TopKEncoder(Encoder):
    """One worker's side."""

    codec: TopK

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send the largest elements, add up those of all workers.

        Raises
        ------
        EncodeError
            An element is NaN or infinite.
        DecodeError
            A message names an element twice, or one that does not exist.
        """
        chosen = self._choose(gradient, round)
        words = np.concatenate([chosen.astype(np.uint32), gradient[chosen].view(np.uint32)])
        # The selection reads all magnitudes twice: for the smallest that is sent, and for the elements.
        work = Work(2 * gradient.nbytes, words.nbytes)
        decode_work = Work(round.workers * words.nbytes, round.workers * words.nbytes // 2 + gradient.nbytes)
        (merged,) = yield (Message(words, Merge.GATHER, "largest", work, decode_work=decode_work),)
        total = np.zeros(gradient.size, np.float32)
        for rank, part in enumerate(merged.parts):
            _add_entries(part, rank, total)
        contribution = np.zeros(gradient.size, np.float32)
        contribution[chosen] = gradient[chosen]
        return Decoded(total, contribution)

    def _choose(self, gradient: Gradient, round: Round) -> NDArray[np.int64]:
        """The elements to send, in ascending order."""
        if not np.isfinite(gradient).all():
            raise EncodeError(not_finite(gradient))
        if self.codec.of == "bucket":
            return largest(gradient, self.codec.count_of(gradient.size))
        parts = [
            tensor.start + largest(gradient[tensor.place], self.codec.count_of(tensor.elements))
            for tensor in round.tensors_of(gradient)
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _add_entries(part: Words, rank: int, total: Gradient) -> None:
    """Add one worker's entries: indices, then values."""
    if part.size % 2:
        raise DecodeError(
            f"worker {rank}'s message has {part.size} words: indices and values need an even number"
        )
    elements, values = np.split(part, 2)
    if elements.size and not (elements[-1] < total.size and (elements[1:] > elements[:-1]).all()):
        raise DecodeError(f"worker {rank}'s indices are not ascending elements of {total.size}")
    total[elements] += values.view(np.float32)
