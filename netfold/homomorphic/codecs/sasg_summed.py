"""Codec `sasg_summed`: SASG whose uploads are summed on the way, also by switches. This form is ours.

A worker that uploads sends its new values minus its old ones, as integers, and every worker adds the merged
differences to a sum that it keeps. A worker that skips sends headers alone, which say that it is absent. So
the network keeps nothing between steps, and the sum of the last uploads is exact.

Uploads of different workers hold different elements. With `index: flat` those who upload first send a bit for
every element that changes. Then all know the union of the changes, and word k is the same element everywhere.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import (
    BitsPerElement,
    Decoded,
    Encoder,
    Exchange,
    Origin,
    Promise,
    State,
    part_of,
    prefixed,
)
from netfold.homomorphic.codecs.sasg import (
    FRACTION_BITS,
    SasgOptions,
    StepGrid,
    UploadEncoder,
    check_fraction_bits,
    encode_work,
)
from netfold.homomorphic.error_bounds import ErrorBound, RoundingBound
from netfold.homomorphic.merge import Merge, Merged, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.homomorphic.union_index import check_contains
from netfold.kinds import register

Integers = NDArray[np.int32]
_SUM_BYTES = 4  # per element
_BITS = 32
"""Bits of an index word."""


@register
@dataclass(frozen=True)
class SasgSummed(SasgOptions):
    """SASG in integers that any network adds; workers that skip send headers alone.

    A worker's values are γ · gradient, where γ is the learning rate over the number of workers. Every worker
    keeps the sum of the last uploads of all, which is subtracted from the weights.

    share: elements of every tensor that an upload holds, rounded down; at least one.
    alpha: coefficient of the threshold; left out, 1 / γ. 0: every worker uploads in every step.
    staleness: steps that a worker may skip before it must upload (D); also the steps of the warm start.
    index: flat (a bit for every element first, then a word for each that changes at some worker), none (a
        word for every element).
    fraction_bits: values are multiples of 2^-fraction_bits.
    """

    kind: ClassVar[str] = "sasg_summed"
    origin: ClassVar[Origin] = Origin("ours", "after Deng et al., IEEE Trans. Big Data 2024")
    promise: ClassVar[Promise] = Promise.EXACT

    index: Literal["flat", "none"] = "flat"
    fraction_bits: int = FRACTION_BITS

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction_bits(self.fraction_bits)

    @property
    def merges(self) -> frozenset[Merge]:
        """Integers are added, bits united."""
        return frozenset({Merge.ADD} if self.index == "none" else {Merge.ADD, Merge.OR})

    @property
    def may_be_absent(self) -> bool:
        """Unless every worker uploads in every step."""
        return self.alpha != 0

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """One rounding to float32."""
        return RoundingBound(len(contributions))

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        """Encoder of one worker, with what it holds back and the sum of the last uploads."""
        return SummedEncoder(self, workers)

    def bits_per_element(self, workers: int) -> BitsPerElement | None:
        """A word of every element, if every worker uploads in every step."""
        return BitsPerElement(32, 32) if self.alpha == 0 and self.index == "none" else None

    @property
    def state_bytes(self) -> int:
        """The sum too."""
        return super().state_bytes + _SUM_BYTES


class SummedEncoder(UploadEncoder):
    """One worker's side."""

    def __init__(self, codec: SasgSummed, workers: int) -> None:
        self._codec, self._grid = codec, StepGrid(codec.fraction_bits, workers)
        super().__init__(codec, workers, self._grid)
        self._sums: dict[int, Integers] = {}  # sums of all workers' last uploads, by bucket

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send the difference of two uploads, or headers; add the merged differences to the sum.

        Raises
        ------
        EncodeError
            An element is NaN, infinite, or too large for the grid.
        DecodeError
            The merged index lacks elements that this worker sent.
        RuntimeError
            The step has not begun.
        """
        self.rule.require(round.step)
        size = gradient.size
        if not size:
            return Decoded(np.zeros(0, np.float32), np.zeros(0, np.float32), is_update=True)
        change: Integers | None = None
        if self.rule.uploads:
            change = self._uploads.upload(gradient, self.rule.rate, round).difference(size)
        work = encode_work(self.rule, gradient, 0 if change is None else change.nbytes)
        total = self._sums.setdefault(round.bucket, np.zeros(size, np.int32))
        if self._codec.index == "none":
            (merged,) = yield (_changes(change, size, work, gradient.nbytes),)
            total += merged.words
        else:
            yield from self._add_members(change, total, work)
        contribution = self._uploads.contribution(round.bucket, size)
        return Decoded(self._grid.values(total), contribution, is_update=True)

    def _add_members(
        self, change: Integers | None, total: Integers, work: Work
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], None]:
        """Agree on the elements that change anywhere, then add their words."""
        words = np.empty(0, np.uint32)
        index_words = -(-total.size // _BITS)
        if change is not None:
            words = np.zeros(index_words, np.uint32)
            bits = np.packbits(change != 0, bitorder="little")
            words.view(np.uint8)[: bits.size] = bits
        (united,) = yield (
            Message(
                words,
                Merge.OR,
                "changed",
                work,
                decode_work=Work(4 * index_words, 4 * index_words),
                absent_words=index_words if change is None else 0,
            ),
        )
        if change is not None:
            check_contains(words, united.words)
        is_member = np.unpackbits(united.words.view(np.uint8), count=total.size, bitorder="little")
        members = np.flatnonzero(is_member)
        if members.size:
            increments = None if change is None else change[members]
            more = (
                Work() if increments is None else Work(4 * index_words + increments.nbytes, increments.nbytes)
            )
            (merged,) = yield (_changes(increments, members.size, more, total.nbytes),)
            total[members] += merged.words

    def state(self) -> State:
        sums = {str(bucket): total.copy() for bucket, total in self._sums.items()}
        return super().state() | prefixed("sum", sums)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        super().restore(state)
        self._sums = {int(bucket): total.copy() for bucket, total in part_of(state, "sum").items()}


def _changes(change: Integers | None, size: int, work: Work, total_bytes: int) -> Message:
    """A worker's differences of `size` elements, or the message of a worker that has none."""
    return Message(
        np.empty(0, np.int32) if change is None else change,
        Merge.ADD,
        "changes",
        work,
        # Added to the sum, all of which is then read and written as float32.
        decode_work=Work(8 * size + total_bytes, 4 * size + total_bytes, flops=size),
        absent_words=size if change is None else 0,
    )
