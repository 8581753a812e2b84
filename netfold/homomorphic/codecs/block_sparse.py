"""Codec `block_sparse`: blocks that are not zero, for gradients whose zeros come in runs.

After OmniReduce (Fei et al., "Efficient sparse collective communication and its application to accelerate
distributed deep learning", SIGCOMM 2021). A gradient is cut into blocks of 256 elements, and a block of which
some worker has a non-zero element is summed as a whole. Workers announce these blocks in one of two ways:

`lookahead`, as OmniReduce does: blocks are assigned to columns in turn. In every operation, each column sends
its current block, with the number of the next block that is not zero at this worker. The smallest of those
numbers is the column's next block at all workers. Nothing is known in advance, so every column starts with
its first block, zero or not. Here columns advance together; in OmniReduce each advances independently.

`bitmap`: one operation unites a bit per block, one sums the blocks. These are two operations for any number
of blocks, at the cost of a bit per 256 elements.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.block_floating_point import all_of
from netfold.homomorphic.codec import (
    Codec,
    Decoded,
    DecodeError,
    Encoder,
    Exchange,
    Origin,
    Promise,
)
from netfold.homomorphic.error_bounds import ErrorBound
from netfold.homomorphic.merge import Merge, Merged, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.homomorphic.number_formats import (
    Agreed,
    NumberFormat,
    Values,
    number_format,
    number_merges,
    number_promise,
)
from netfold.homomorphic.union_index import (
    WORD_ELEMENTS,
    WideIndex,
    WorkerBucket,
    check_block_elements,
    check_contains,
    decode,
    exchange_values,
    full_support,
    members_message,
    own_index,
    report_infinite,
    support_of,
    word_layout,
)
from netfold.kinds import register

BLOCK_ELEMENTS = 256
"""Elements of a block, as in OmniReduce's evaluation."""
_BLOCK_WORDS = BLOCK_ELEMENTS // WORD_ELEMENTS

Announcement = Literal["lookahead", "bitmap"]
Blocks = NDArray[np.int64]  # numbers of blocks


@register
@dataclass(frozen=True)
class BlockSparse(Codec):
    """Sparse gradients as their blocks of 256 elements that are not zero everywhere.

    values: how a value becomes words: block_exponent (one integer, as fixed_point), float32, exact (several
        integers, which give the true sum).
    blocks: how live blocks are announced: lookahead (each with the number of the next, as OmniReduce does),
        bitmap (a bit each, in advance).
    columns: lookahead: blocks in flight at a time.
    block_elements: elements that share an exponent; a power of two from 256 to 65536.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "block_sparse"
    origin: ClassVar[Origin] = Origin("reconstructed", "OmniReduce: Fei et al., SIGCOMM 2021")

    values: Values = "block_exponent"
    blocks: Announcement = "lookahead"
    columns: int = 512
    block_elements: int = 4096

    def __post_init__(self) -> None:
        check_block_elements(self.block_elements, BLOCK_ELEMENTS)
        if self.columns < 1:
            raise ValueError(f"columns is {self.columns}: must be at least 1, 512 is usual")

    @property
    def promise(self) -> Promise:
        return number_promise(self.values)

    @property
    def merges(self) -> frozenset[Merge]:
        announcement = Merge.OR if self.blocks == "bitmap" else Merge.MAX
        return number_merges(self.values) | {announcement}

    def worker(self, rank: int, workers: int, seed: int) -> BlockSparseEncoder:
        return BlockSparseEncoder(self)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """The bound of the numbers: zeros add no error."""
        return number_format(self.values, self.block_elements).error_bound(gradients, is_forecast=False)


@dataclass(frozen=True)
class BlockSparseEncoder(Encoder):
    """One worker's side."""

    codec: BlockSparse

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Agree on numbers; announce and sum live blocks."""
        if not gradient.size:
            return Decoded(np.zeros(0, np.float32), gradient)
        numbers = number_format(self.codec.values, self.codec.block_elements)
        announced = numbers.announce(all_of(gradient, numbers.block_elements), round)
        if self.codec.blocks == "bitmap":
            total = yield from _exchange_bitmap(gradient, numbers, announced, round)
            return Decoded(total, gradient)
        merged = (yield announced) if announced else ()
        agreed = numbers.agree(gradient.size, announced, merged, round)
        return Decoded((yield from self._look_ahead(gradient, numbers, agreed, round)), gradient)

    def _look_ahead(
        self, gradient: Gradient, numbers: NumberFormat[Any], agreed: Agreed, round: Round
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], Gradient]:
        """Sum each column's blocks in order."""
        upcoming = _Upcoming(gradient, self.codec.columns)
        whole = full_support(gradient.size)
        decoded = np.zeros(gradient.size, np.float32)
        scanned_bytes, infinite, current = gradient.nbytes, 0, upcoming.first
        while current.size:
            layout = word_layout(support_of(_only(whole, current), self.codec.block_elements), agreed)
            message = members_message(gradient, layout, numbers, "blocks")
            size_bytes, next_blocks = message.words.nbytes, upcoming.after(current)
            values, following = yield (
                replace(
                    message,
                    work=Work(scanned_bytes + 4 * layout.support.count, size_bytes),
                    decode_work=Work(size_bytes, 4 * layout.support.count),
                ),
                # The largest of the negated numbers is the smallest number.
                Message((-next_blocks).astype(np.int32), Merge.MAX, "next blocks"),
            )
            infinite += decode(layout, values.words, decoded, clear=False)
            scanned_bytes = 0  # the first operation has read all of it
            chosen = -following.words.astype(np.int64)
            upcoming.check(current, next_blocks, chosen)
            current = np.sort(chosen[chosen < upcoming.end])
        report_infinite(infinite, decoded, round)
        return decoded


def _exchange_bitmap(
    gradient: Gradient, numbers: NumberFormat[Any], announced: tuple[Message, ...], round: Round
) -> Generator[tuple[Message, ...], tuple[Merged, ...], Gradient]:
    """Unite the bits of live blocks, then sum those blocks."""
    bits = np.packbits(live_blocks(gradient), bitorder="little")
    words = np.frombuffer(bits.tobytes() + bytes(-bits.size % 4), np.uint32)
    work = Work(gradient.nbytes, words.nbytes)
    union, *merged = yield (Message(words, Merge.OR, "block index", work), *announced)
    blocks = -(-gradient.size // BLOCK_ELEMENTS)
    check_contains(words, union.words)
    live = np.unpackbits(union.words.view(np.uint8), bitorder="little", count=blocks).astype(np.bool_)
    if not live.any():
        return np.zeros(gradient.size, np.float32)
    agreed = numbers.agree(gradient.size, announced, tuple(merged), round)
    index = _only(full_support(gradient.size), np.flatnonzero(live))
    layout = word_layout(support_of(index, numbers.block_elements), agreed)
    bucket = WorkerBucket(gradient, round)
    infinite = yield from exchange_values(bucket, layout, numbers, "blocks")
    report_infinite(infinite, bucket.decoded, round)
    return bucket.decoded


class _Upcoming:
    """One worker's live blocks, column by column."""

    def __init__(self, gradient: Gradient, columns: int) -> None:
        self.end = -(-gradient.size // BLOCK_ELEMENTS)  # a column's next block when it has no more
        self._columns = min(columns, self.end)
        live = np.flatnonzero(live_blocks(gradient))
        self._keys = np.sort(self._key(live))

    @property
    def first(self) -> Blocks:
        """Every column's first block."""
        return np.arange(self._columns)

    def after(self, current: Blocks) -> Blocks:
        """The next live block of each current one's column, or `end`."""
        positions = np.searchsorted(self._keys, self._key(current), side="right")
        following = np.append(self._keys, -1)[positions]
        in_column = following // self.end == current % self._columns
        return np.where(in_column, following % self.end, self.end)

    def check(self, current: Blocks, own_blocks: Blocks, chosen: Blocks) -> None:
        """Reject next blocks that cannot be a minimum over workers, this one among them.

        Raises
        ------
        DecodeError
            A block that this worker still has to send would be skipped, or a block is of another column.
        """
        is_between = (current < chosen) & (chosen < own_blocks) & ((chosen - current) % self._columns == 0)
        wrong = np.flatnonzero((chosen != own_blocks) & ~is_between)
        if wrong.size:
            column = int(wrong[0])
            raise DecodeError(
                f"the merged next block after block {current[column]} is {chosen[column]}: must be "
                f"{own_blocks[column]}, which this worker sent, or one of that column between the two: "
                "a worker's number was lost or damaged on the way"
            )

    def _key(self, blocks: Blocks) -> Blocks:
        # Sorts by column, then by number.
        return (blocks % self._columns) * self.end + blocks


def live_blocks(gradient: Gradient) -> NDArray[np.bool_]:
    """Which blocks of 256 elements have a non-zero element, `(blocks,)`; the last block may be short."""
    words = own_index(gradient) != 0
    return np.logical_or.reduceat(words, np.arange(0, words.size, _BLOCK_WORDS))


def _only(whole: WideIndex, blocks: Blocks) -> WideIndex:
    """The index of all elements of these blocks."""
    live = np.zeros(-(-whole.size // _BLOCK_WORDS), np.bool_)
    live[blocks] = True
    return np.where(np.repeat(live, _BLOCK_WORDS)[: whole.size], whole, np.uint64(0))
