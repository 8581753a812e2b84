"""Values of the members of an index, gathered into compact arrays and put back.

An index has one bit per element, 64 to a word. Counting trailing zeros finds the next member and `word &
(word − 1)` clears it, so the work is proportional to the members: single bits are not tested, and values of
other elements are not read. Words with all bits set are copied as a whole.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.index.bits import WORD_ELEMENTS, WideIndex
from netfold.homomorphic.kernels.bits import popcount, trailing_zeros
from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.kernels.threads import in_parallel
from netfold.homomorphic.message import Gradient, Merged, Message, Work
from netfold.homomorphic.numbers.compact import Compact, all_of
from netfold.homomorphic.numbers.formats import Agreed, NumberFormat, word_starts
from netfold.homomorphic.round import Note, NoteKind, Round

_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
DENSE_SHARE = 8  # values are gathered if at most one in this many is non-zero
CHUNK_ELEMENTS = 1 << 19  # gathered and encoded at a time: buffers stay in the cache


@kernel
def count_members(index: WideIndex, block_words: int, starts: NDArray[np.int64]) -> None:
    """Write the number of members before each block of `block_words` words, `(blocks + 1,)`."""
    members = 0
    for block in range(starts.size - 1):
        starts[block] = members
        words = index[block * block_words : (block + 1) * block_words]
        for w in range(words.size):
            members += int(popcount(words[w]))
    starts[-1] = members


@kernel
def gather(index: WideIndex, gradient: Gradient, values: Gradient) -> None:
    """Write the values of members, in ascending order, into `values`, one for each."""
    first = position = np.uint64(0)  # unsigned: a signed subscript needs a test for negatives
    for w in range(index.size):
        word = index[w]
        if word == _ALL:
            for i in range(WORD_ELEMENTS):
                values[position + np.uint64(i)] = gradient[first + np.uint64(i)]
            position += np.uint64(WORD_ELEMENTS)
        else:
            while word:
                values[position] = gradient[first + trailing_zeros(word)]
                position += np.uint64(1)
                word &= word - np.uint64(1)
        first += np.uint64(WORD_ELEMENTS)


@kernel
def scatter(index: WideIndex, values: Gradient, decoded: Gradient, clear: bool) -> None:
    """Put back the values of members; with `clear`, write zero to all other elements.

    The zeros of a word are written just before its values, while it is in the cache, so `decoded` passes
    through memory once.
    """
    position = np.uint64(0)
    for w in range(index.size):
        word = index[w]
        own = decoded[WORD_ELEMENTS * w : WORD_ELEMENTS * (w + 1)]
        if word == _ALL:
            source = values[position : position + np.uint64(WORD_ELEMENTS)]
            for i in range(own.size):
                own[i] = source[i]
            position += np.uint64(WORD_ELEMENTS)
        else:
            if clear:
                for i in range(own.size):
                    own[i] = np.float32(0)
            while word:
                element: np.uint64 = trailing_zeros(word)
                own[element] = values[position]
                position += np.uint64(1)
                word &= word - np.uint64(1)


@dataclass(frozen=True)
class WorkerBucket:
    """One worker's bucket in a round."""

    gradient: Gradient
    round: Round

    @cached_property
    def decoded(self) -> Gradient:
        """The decoded sum, zeros at first. Allocated late, because it is as large as the gradient."""
        return np.zeros(self.gradient.size, np.float32)


@dataclass(frozen=True)
class Members:
    """A set of elements of a bucket, block by block."""

    index: WideIndex
    starts: NDArray[np.int64]  # (blocks + 1,) members before each block
    block_elements: int

    @property
    def count(self) -> int:
        """Number of members."""
        return int(self.starts[-1])


def members_of(index: WideIndex, block_elements: int) -> Members:
    """The members of an index."""
    block_words = block_elements // WORD_ELEMENTS
    starts = np.empty(-(-index.size // block_words) + 1, np.int64)
    count_members(index, block_words, starts)
    return Members(index, starts, block_elements)


def nonzeros_of(own: Members, gradient: Gradient) -> Compact:
    """A worker's non-zero values if they are few enough that gathering pays; else all values."""
    if DENSE_SHARE * own.count > gradient.size:
        return all_of(gradient, own.block_elements)
    values, block_words = np.empty(own.count, np.float32), own.block_elements // WORD_ELEMENTS

    def write(first: int, last: int) -> None:
        part = gradient[first * own.block_elements : last * own.block_elements]
        index = own.index[first * block_words : last * block_words]
        gather(index, part, values[own.starts[first] : own.starts[last]])

    in_parallel(write, own.starts.size - 1)
    return Compact(values, own.starts, gradient)


def full_support(elements: int) -> WideIndex:
    """The index with all elements."""
    index = np.full(-(-elements // WORD_ELEMENTS), _ALL, np.uint64)
    if elements % WORD_ELEMENTS:
        index[-1] >>= np.uint64(WORD_ELEMENTS - elements % WORD_ELEMENTS)
    return index


class WordLayout(NamedTuple):
    """Where the words of members are in a message: one group of blocks after the other."""

    members: Members
    agreed: Agreed
    group_blocks: int
    offsets: NDArray[np.int64]  # (groups + 1,) words before each group


def word_layout(members: Members, agreed: Agreed, group_blocks: int = 1) -> WordLayout:
    """Lay out the words of members."""
    return WordLayout(members, agreed, group_blocks, word_starts(agreed, members.starts, group_blocks))


def encode(place: WordLayout, source: Compact, words: NDArray[Any]) -> None:
    """Write one worker's words of all members, `(offsets[-1],)`.

    `source` has the members' values only, or all values of the gradient.
    """
    is_gathered = source.values.size == place.members.count

    def write(first: int, last: int) -> None:
        for chunk in range(first, last):
            part = _chunk(place, chunk)
            if is_gathered:
                values = source.values[part.members]
            else:
                values = np.empty(part.starts[-1], np.float32)
                gather(part.index, source.gradient[part.elements], values)
            part.agreed.encode(values, part.starts, place.group_blocks, words[part.words])

    in_parallel(write, _chunks(place))


def decode(place: WordLayout, words: NDArray[Any], decoded: Gradient, clear: bool) -> int:
    """Write the values of merged words into `decoded`, and with `clear` zero to all other elements.

    Returns the number of sums that are beyond float32 and became infinite.
    """
    infinite = np.zeros(_chunks(place), np.int64)

    def write(first: int, last: int) -> None:
        for chunk in range(first, last):
            part = _chunk(place, chunk)
            if not (clear or part.starts[-1]):
                continue
            values = np.empty(part.starts[-1], np.float32)
            infinite[chunk] = part.agreed.decode(words[part.words], part.starts, place.group_blocks, values)
            scatter(part.index, values, decoded[part.elements], clear)

    in_parallel(write, infinite.size)
    return int(infinite.sum())


@dataclass(frozen=True)
class _Chunk:
    """A run of whole groups."""

    index: WideIndex
    starts: NDArray[np.int64]
    agreed: Agreed
    elements: slice
    members: slice
    words: slice


def _chunk_groups(place: WordLayout) -> int:
    return max(1, CHUNK_ELEMENTS // (place.group_blocks * place.members.block_elements))


def _chunks(place: WordLayout) -> int:
    return -(-(place.offsets.size - 1) // _chunk_groups(place))


def _chunk(place: WordLayout, number: int) -> _Chunk:
    members = place.members
    groups = slice(number * _chunk_groups(place), (number + 1) * _chunk_groups(place))
    last_group = min(groups.stop, place.offsets.size - 1)
    first = groups.start * place.group_blocks
    last = min(groups.stop * place.group_blocks, members.starts.size - 1)
    elements = slice(first * members.block_elements, last * members.block_elements)
    return _Chunk(
        index=members.index[elements.start // WORD_ELEMENTS : elements.stop // WORD_ELEMENTS],
        starts=members.starts[first : last + 1] - members.starts[first],
        agreed=place.agreed.part(first, last),
        elements=elements,
        members=slice(int(members.starts[first]), int(members.starts[last])),
        words=slice(int(place.offsets[groups.start]), int(place.offsets[last_group])),
    )


def exchange_members(
    bucket: WorkerBucket, place: WordLayout, numbers: NumberFormat[Any], label: str, clear: bool = True
) -> Generator[tuple[Message, ...], tuple[Merged, ...], int]:
    """Sum the members' values in one operation and `decode` them; return the number of infinite sums."""
    (merged,) = yield (members_message(bucket.gradient, place, numbers, label),)
    return decode(place, merged.words, bucket.decoded, clear)


def members_message(gradient: Gradient, place: WordLayout, numbers: NumberFormat[Any], label: str) -> Message:
    """One worker's words of all members, as a message."""
    words = np.empty(int(place.offsets[-1]), numbers.dtype)
    encode(place, all_of(gradient, place.members.block_elements), words)
    index_bytes, value_bytes = place.members.index.nbytes, 4 * place.members.count
    return Message(
        words,
        numbers.merge,
        label,
        # The index is read to count bits and again to gather their values.
        Work(2 * index_bytes + value_bytes, words.nbytes),
        decode_work=Work(index_bytes + words.nbytes, gradient.nbytes),
    )


def report_infinite(infinite: int, decoded: Gradient, round: Round) -> None:
    """Report the sums of finite values that are beyond float32, if `decode` found any.

    `decode` may have found some twice, or in words that were sent again, so the final sums are counted.
    """
    elements = np.flatnonzero(np.isinf(decoded)) if infinite else np.zeros(0, np.int64)
    if elements.size:
        text = f"{elements.size} sums are beyond the range of float32 and became infinite"
        round.report(Note(NoteKind.INFINITE, text, elements.size, decoded.size, elements))
