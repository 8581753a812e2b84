"""The index: agreeing on the union support, its kernels, and the values at its bits."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.block_floating_point import Compact, all_of
from netfold.homomorphic.codec import DecodeError, State
from netfold.homomorphic.merge import WORD_MAX, Merge, Merged, Work
from netfold.homomorphic.message import Gradient, Message, Note, NoteKind, Round
from netfold.homomorphic.number_formats import Agreed, NumberFormat, word_starts
from netfold.kernels import rng_streams
from netfold.kernels.bits import popcount, trailing_zeros
from netfold.kernels.compiled import in_parallel, inlined, kernel
from netfold.kernels.keyed_random import mix_plain, splitmix64

# Compiled kernels over indexes: writing them, counting them, and words at their set bits.
#
# An index is read 64 bits at a time. Counting trailing zeros finds the next member and `word & (word − 1)`
# clears it, so the work is proportional to the members. Writing an index is limited by memory speed.
#
# Kernels work on slices, so threads may share an array by ranges of whole words.


WORD_ELEMENTS = 64

Index = NDArray[np.uint32]  # bit j of word w is element 32·w + j
WideIndex = NDArray[np.uint64]  # bit j of word w is element 64·w + j


@kernel
def write_index(values: NDArray[Any], index: Index) -> None:
    """Set a bit for every value that is not zero (−0.0 counts as zero); `index` is `(⌈values.size / 32⌉,)`.

    For a gradient, these are its members; for the words of an index, the words that are not zero.
    """
    for w in range(index.size):
        word_values = values[32 * w : 32 * w + 32]
        word = 0
        for j in range(word_values.size):
            word |= int(word_values[j] != 0) << j
        index[w] = word


@kernel
def count_members(index: WideIndex) -> int:
    """Count the set bits."""
    members = 0
    for w in range(index.size):
        members += int(popcount(index[w]))
    return members


@kernel
def first_missing(part: Index, whole: Index) -> int:
    """Number of the first word of `part` with a bit that `whole` lacks; the size if there is none."""
    for w in range(part.size):
        if part[w] & ~whole[w]:
            return w
    return part.size


@kernel
def gather_words(chosen: WideIndex, words: WideIndex, gathered: WideIndex) -> None:
    """Write the words whose bits are set in `chosen`, in ascending order, into `gathered`, one for each."""
    position = np.uint64(0)
    for w in range(chosen.size):
        first = np.uint64(WORD_ELEMENTS * w)
        word = chosen[w]
        while word:
            gathered[position] = words[first + trailing_zeros(word)]
            position += np.uint64(1)
            word &= word - np.uint64(1)


@kernel
def scatter_words(chosen: WideIndex, gathered: WideIndex, words: WideIndex) -> None:
    """Put gathered words back; the other words stay unchanged."""
    position = np.uint64(0)
    for w in range(chosen.size):
        first = np.uint64(WORD_ELEMENTS * w)
        word = chosen[w]
        while word:
            words[first + trailing_zeros(word)] = gathered[position]
            position += np.uint64(1)
            word &= word - np.uint64(1)


# Kernels of the Bloom index: a set of elements in fewer bits than one per element.
#
# A Bloom filter (Bloom, CACM 1970) sets a few hashed bits for every member; an element all of whose bits
# are set counts as a member. Members are never missed. Other elements are false positives with a small
# probability; their sums are zero. Filters unite by OR.
#
# Here 64 consecutive elements are hashed together: hash j of a word of the index gives a word of the filter
# and a rotation, and the index word is rotated and OR-ed into it. One load then answers 64 elements; a hash
# per element would need 64 loads. Members of one word never collide in the filter, and words collide at
# random rotations. So a bit is set as often as with hashes of single elements, and the expected share of
# false positives is the same. If members come in whole rows, false positives do too.
#
# A bucket has one filter, not one per tile. Sparsity differs along a gradient: each tile would need another
# size, which all workers must know in advance, and in tiles that are fuller than expected all elements
# would look like members. Tiles would also gain little: a filter is at most a 32nd of the gradient, and its
# loads are independent.


FALSE_POSITIVE_BITS = 39.2  # later cost of a false positive: 1.25 counters of 32 bits
BITS_PER_HASH = 1 / math.log(2)  # per member: half of the filter's bits are then set
HASHES_MAX = 24

_MULTIPLIER = 0xD1342543DE82EF95


class Filter(NamedTuple):
    """Size of a filter; the same at every worker."""

    words: int
    """Words of 64 bits; fewer than 2**32."""
    hashes: int


def design_filter(elements: int, members: int) -> Filter | None:
    """Size a filter for a bucket's members (at least one); None if a bit per element costs no more.

    With a share f of false positives a filter takes log2(1/f) / ln 2 bits per member. Their sum with
    `FALSE_POSITIVE_BITS` for each false positive is least at f = 0.053 · ρ / (1 − ρ), where ρ is the density:
    these then cost members / (ln 2)² bits, which the bits of the filter are compared with.
    """
    members = max(members, 1)
    if members >= elements:
        return None
    false_positives = members / (elements - members) * BITS_PER_HASH**2 / FALSE_POSITIVE_BITS
    hashes = min(max(round(-math.log2(false_positives)), 1), HASHES_MAX)
    words = math.ceil(members * hashes * BITS_PER_HASH / WORD_ELEMENTS)
    if WORD_ELEMENTS * words + members * BITS_PER_HASH**2 >= elements:
        return None
    return Filter(words, hashes)


@inlined
def _place(state: np.uint64, words: np.uint64) -> tuple[np.uint64, np.uint64]:
    """A word of the filter and a rotation of 0 to 63 bits, from the upper 38 bits of a hash."""
    row = ((state >> np.uint64(32)) * words) >> np.uint64(32)
    return row, (state >> np.uint64(26)) & np.uint64(63)


@inlined
def _next(state: np.uint64) -> np.uint64:
    # A congruential generator with Steele and Vigna's multiplier (2021). An arithmetic progression (Kirsch
    # and Mitzenmacher, ESA 2006) is worse: two words with the same step that collide once collide in all
    # hashes. For members in whole rows, errors were a third more frequent.
    return state * np.uint64(_MULTIPLIER) + np.uint64(1)


@inlined
def _turned_left(word: np.uint64, turn: np.uint64) -> np.uint64:
    # Turns are 0 to 63; the mask keeps a turn of 0 from a shift by 64.
    return (word << turn) | (word >> (-turn & np.uint64(63)))


@kernel
def insert(index: WideIndex, first_word: int, hashes: int, key: np.uint64, words: WideIndex) -> int:
    """Add the members of an index, or of a slice of it that begins at `first_word`, to a filter.

    Each thread needs its own filter. Returns the number of index words with members.
    """
    size = np.uint64(words.size)
    inserted = 0
    for w in range(index.size):
        members = index[w]
        if members:
            inserted += 1
            state = splitmix64(key + np.uint64(first_word + w))
            for _ in range(hashes):
                row, turn = _place(state, size)
                words[row] |= _turned_left(members, turn)
                state = _next(state)
    return inserted


@kernel
def query(words: WideIndex, hashes: int, key: np.uint64, first_word: int, index: WideIndex) -> None:
    """Write the elements of a filter into an index, or a slice of it that begins at `first_word`.

    Bits beyond the last element may be set. All hashes of a word are looked up: an early stop saves a few
    loads, but mispredicted branches cost more.
    """
    size = np.uint64(words.size)
    for w in range(index.size):
        state = splitmix64(key + np.uint64(first_word + w))
        members = ~np.uint64(0)
        for _ in range(hashes):
            row, turn = _place(state, size)
            members &= _turned_left(words[row], -turn & np.uint64(63))
            state = _next(state)
        index[w] = members


# Values of the members of an index, gathered into compact arrays and put back.
#
# An index has one bit per element, 64 to a word. Counting trailing zeros finds the next member and `word &
# (word − 1)` clears it, so the work is proportional to the members: single bits are not tested, and values of
# other elements are not read. Words with all bits set are copied as a whole.


_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
DENSE_SHARE = 8  # values are gathered if at most one in this many is non-zero
CHUNK_ELEMENTS = 1 << 19  # gathered and encoded at a time: buffers stay in the cache


@kernel
def count_members_of_blocks(index: WideIndex, block_words: int, starts: NDArray[np.int64]) -> None:
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
        block = decoded[WORD_ELEMENTS * w : WORD_ELEMENTS * (w + 1)]
        if word == _ALL:
            source = values[position : position + np.uint64(WORD_ELEMENTS)]
            for i in range(block.size):
                block[i] = source[i]
            position += np.uint64(WORD_ELEMENTS)
        else:
            if clear:
                for i in range(block.size):
                    block[i] = np.float32(0)
            while word:
                element: np.uint64 = trailing_zeros(word)
                block[element] = values[position]
                position += np.uint64(1)
                word &= word - np.uint64(1)


@dataclass
class WorkerBucket:
    """One worker's bucket in a round."""

    gradient: Gradient
    round: Round

    @cached_property
    def decoded(self) -> Gradient:
        # Zeros, until something is decoded; workers may share it.
        return np.zeros(self.gradient.size, np.float32)


@dataclass(frozen=True)
class SupportIndex:
    """A set of elements of a bucket, block by block."""

    index: WideIndex
    starts: NDArray[np.int64]  # (blocks + 1,) members before each block
    block_elements: int

    @property
    def count(self) -> int:
        return int(self.starts[-1])


def support_of(index: WideIndex, block_elements: int) -> SupportIndex:
    block_words = block_elements // WORD_ELEMENTS
    starts = np.empty(-(-index.size // block_words) + 1, np.int64)
    count_members_of_blocks(index, block_words, starts)
    return SupportIndex(index, starts, block_elements)


def nonzeros_of(support: SupportIndex, gradient: Gradient) -> Compact:
    """A worker's non-zero values if they are few enough that gathering pays; else all values."""
    if DENSE_SHARE * support.count > gradient.size:
        return all_of(gradient, support.block_elements)
    values, block_words = np.empty(support.count, np.float32), support.block_elements // WORD_ELEMENTS

    def write(first: int, last: int) -> None:
        part = gradient[first * support.block_elements : last * support.block_elements]
        index = support.index[first * block_words : last * block_words]
        gather(index, part, values[support.starts[first] : support.starts[last]])

    in_parallel(write, support.starts.size - 1)
    return Compact(values, support.starts, gradient)


def full_support(elements: int) -> WideIndex:
    index = np.full(-(-elements // WORD_ELEMENTS), _ALL, np.uint64)
    if elements % WORD_ELEMENTS:
        index[-1] >>= np.uint64(WORD_ELEMENTS - elements % WORD_ELEMENTS)
    return index


class WordLayout(NamedTuple):
    """Where the words of members are in a message: one group of blocks after the other."""

    support: SupportIndex
    agreed: Agreed
    group_blocks: int
    offsets: NDArray[np.int64]  # (groups + 1,) words before each group


def word_layout(support: SupportIndex, agreed: Agreed, group_blocks: int = 1) -> WordLayout:
    return WordLayout(support, agreed, group_blocks, word_starts(agreed, support.starts, group_blocks))


def encode(layout: WordLayout, source: Compact, words: NDArray[Any]) -> None:
    """Write one worker's words of all members, `(offsets[-1],)`.

    `source` has the members' values only, or all values of the gradient.
    """
    is_gathered = source.values.size == layout.support.count

    def write(first: int, last: int) -> None:
        for chunk in range(first, last):
            part = _chunk(layout, chunk)
            if is_gathered:
                values = source.values[part.members]
            else:
                values = np.empty(part.starts[-1], np.float32)
                gather(part.index, source.gradient[part.elements], values)
            part.agreed.encode(values, part.starts, layout.group_blocks, words[part.words])

    in_parallel(write, _chunks(layout))


def decode(layout: WordLayout, words: NDArray[Any], decoded: Gradient, clear: bool) -> int:
    """Write the values of merged words into `decoded`, and with `clear` zero to all other elements.

    Returns the number of sums that are beyond float32 and became infinite.
    """
    infinite = np.zeros(_chunks(layout), np.int64)

    def write(first: int, last: int) -> None:
        for chunk in range(first, last):
            part = _chunk(layout, chunk)
            if not (clear or part.starts[-1]):
                continue
            values = np.empty(part.starts[-1], np.float32)
            infinite[chunk] = part.agreed.decode(words[part.words], part.starts, layout.group_blocks, values)
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


def _chunk_groups(layout: WordLayout) -> int:
    return max(1, CHUNK_ELEMENTS // (layout.group_blocks * layout.support.block_elements))


def _chunks(layout: WordLayout) -> int:
    return -(-(layout.offsets.size - 1) // _chunk_groups(layout))


def _chunk(layout: WordLayout, number: int) -> _Chunk:
    support = layout.support
    groups = slice(number * _chunk_groups(layout), (number + 1) * _chunk_groups(layout))
    last_group = min(groups.stop, layout.offsets.size - 1)
    first = groups.start * layout.group_blocks
    last = min(groups.stop * layout.group_blocks, support.starts.size - 1)
    elements = slice(first * support.block_elements, last * support.block_elements)
    return _Chunk(
        index=support.index[elements.start // WORD_ELEMENTS : elements.stop // WORD_ELEMENTS],
        starts=support.starts[first : last + 1] - support.starts[first],
        agreed=layout.agreed.part(first, last),
        elements=elements,
        members=slice(int(support.starts[first]), int(support.starts[last])),
        words=slice(int(layout.offsets[groups.start]), int(layout.offsets[last_group])),
    )


def exchange_values(
    bucket: WorkerBucket, layout: WordLayout, numbers: NumberFormat[Any], label: str, clear: bool = True
) -> Generator[tuple[Message, ...], tuple[Merged, ...], int]:
    """Sum the members' values in one operation and `decode` them; return the number of infinite sums."""
    (merged,) = yield (members_message(bucket.gradient, layout, numbers, label),)

    def written() -> tuple[Gradient, int]:
        decoded = np.empty_like(bucket.gradient) if clear else bucket.decoded.copy()
        return decoded, decode(layout, merged.words, decoded, clear)

    received = [merged.words] if clear else [merged.words, bucket.decoded]
    known: list[NDArray[Any]] = [layout.support.index, layout.offsets, numbers.record(layout.agreed)]
    bucket.decoded, infinite = bucket.round.once(label, received, known, written)
    return infinite


def members_message(
    gradient: Gradient, layout: WordLayout, numbers: NumberFormat[Any], label: str
) -> Message:
    """One worker's words of all members, as a message."""
    words = np.empty(int(layout.offsets[-1]), numbers.dtype)
    encode(layout, all_of(gradient, layout.support.block_elements), words)
    index_bytes, value_bytes = layout.support.index.nbytes, 4 * layout.support.count
    return Message(
        words,
        numbers.merge,
        label,
        # The index is read to count bits and again to gather their values.
        Work(2 * index_bytes + value_bytes, words.nbytes),
        decode_work=Work(index_bytes + words.nbytes, gradient.nbytes),
    )


def report_infinite(infinite: int, decoded: Gradient, round: Round) -> None:
    # `decode` may have found some twice, or in words that were sent again, so the final sums are counted.
    elements = np.flatnonzero(np.isinf(decoded)) if infinite else np.zeros(0, np.int64)
    if elements.size:
        text = f"{elements.size} sums are beyond the range of float32 and became infinite"
        round.report(Note(NoteKind.INFINITE, text, elements.size, decoded.size, elements))


# The index: the union support of a round, agreed on by all workers.
#
# An element is a member of the union if it is non-zero at any worker. Each worker sends its own support, and
# the network unites these by OR:
#
# * flat: one bit per element.
# * two_level: one bit per 64 elements first, then the 64 bits of those that have a member anywhere. Two
#   network operations; 0.49 bits per element at a density of 1 %, 0.08 at 0.1 %.
# * bloom: one Bloom filter of the bucket (see `Filter`), after a count of the members the first time. About
#   1.44 · log2(1/f) bits per member; a share f of the other elements become members too.
#
# On the wire an index is 32-bit words: bit j of word w is element 32·w + j. In memory the same bytes are
# 64-bit words (little endian): bit j of word w is element 64·w + j.


IndexKind = Literal["flat", "two_level", "bloom"]
Operations = Generator[tuple[Message, ...], tuple[Merged, ...], "AgreedUnion"]

BLOCK_ELEMENTS_MAX = 65_536


class AgreedUnion(NamedTuple):
    """The agreed index of a round; all fields except `own_support` are the same at every worker."""

    own_support: WideIndex  # (⌈elements / 64⌉,) the support of this worker
    union: WideIndex  # the union support; bloom: and false positives
    union_elements: int  # set bits of the union
    merged: tuple[Merged, ...]  # the messages sent along with the index


class _Scan(NamedTuple):
    """A worker's scan of its gradient."""

    own_support: WideIndex
    elements: int
    work: Work
    """Work of the scan, charged with the first message."""


class IndexMemory:
    """One worker's record of earlier unions; the same at all workers, and empty at the start."""

    def __init__(self) -> None:
        self._members: dict[int, int] = {}

    def expected_members(self, bucket: int) -> int | None:
        """Expected members of a bucket's next union; None before its first."""
        if bucket not in self._members:
            return None
        last = self._members[bucket]
        return last + last // 16 + 16  # 6 % too small costs more than 6 % too large

    def remember(self, bucket: int, members: int) -> None:
        self._members[bucket] = members

    def state(self) -> State:
        # `(buckets, 2)`: each bucket with the size of its union.
        return {"unions": np.array([*self._members.items()], np.int64)} if self._members else {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        unions = state.get("unions", np.empty((0, 2), np.int64))
        self._members = {int(bucket): int(members) for bucket, members in unions}


def own_index(gradient: Gradient) -> WideIndex:
    """The support of a gradient: its non-zero elements (−0.0 counts as zero)."""
    support = np.zeros(-(-gradient.size // WORD_ELEMENTS), np.uint64)
    write_index(gradient, _narrow(support, gradient.size))
    return support


def index_merges(kind: IndexKind) -> frozenset[Merge]:
    return frozenset({Merge.OR, Merge.ADD} if kind == "bloom" else {Merge.OR})


def exchange_index(
    own: WideIndex,
    elements: int,
    round: Round,
    kind: IndexKind,
    beside: tuple[Message, ...],
    memory: IndexMemory,
) -> Operations:
    # The messages `beside` are sent in the first operation, after those of the index.
    scan = _Scan(own, elements, Work(4 * elements, _narrow(own, elements).nbytes))
    if kind == "two_level":
        return (yield from _exchange_two_level(scan, beside))
    if kind == "bloom" and design_filter(elements, 1) is not None:
        return (yield from _exchange_bloom(scan, round, beside, memory))
    return (yield from _exchange_flat(scan, beside))


def _exchange_flat(scan: _Scan, beside: tuple[Message, ...]) -> Operations:
    """Exchange one bit per element."""
    words = _narrow(scan.own_support, scan.elements)
    # The merged words are compared with the sent ones, and widened; then their bits are counted.
    decode_work = Work(3 * words.nbytes + scan.own_support.nbytes, scan.own_support.nbytes)
    united, *others = yield (Message(words, Merge.OR, "index", scan.work, decode_work=decode_work), *beside)
    check_contains(words, united.words)
    union = widen(united.words)
    _check_end(union, scan.elements, "elements")
    return AgreedUnion(scan.own_support, union, count_members(union), tuple(others))


def _exchange_two_level(scan: _Scan, beside: tuple[Message, ...]) -> Operations:
    """Exchange one bit per 64 elements, then the words that have a member at any worker."""
    support = scan.own_support
    blocks = np.empty(-(-support.size // 32), np.uint32)
    live_bytes = support.itemsize * -(-support.size // WORD_ELEMENTS)
    write_index(support, blocks)
    united, *others = yield (
        Message(
            blocks,
            Merge.OR,
            "index blocks",
            Work(scan.work.read_bytes + support.nbytes, scan.work.written_bytes + blocks.nbytes),
            decode_work=Work(3 * blocks.nbytes + live_bytes, live_bytes),
        ),
        *beside,
    )
    check_contains(blocks, united.words)
    live = widen(united.words)
    _check_end(live, support.size, "blocks of 64 elements")
    words = np.empty(count_members(live), np.uint64)
    union = np.zeros_like(support)
    if words.size:
        gather_words(live, support, words)
        (united,) = yield (
            Message(
                words.view(np.uint32),
                Merge.OR,
                "index",
                Work(live.nbytes + words.nbytes, words.nbytes),
                # Compared, widened, scattered over words of zeros, and counted.
                decode_work=Work(
                    live.nbytes + 4 * words.nbytes + union.nbytes, 2 * words.nbytes + union.nbytes
                ),
            ),
        )
        check_contains(words.view(np.uint32), united.words)
        scatter_words(live, widen(united.words), union)
        _check_end(union, scan.elements, "elements")
    return AgreedUnion(support, union, count_members(union), tuple(others))


def _exchange_bloom(
    scan: _Scan, round: Round, beside: tuple[Message, ...], memory: IndexMemory
) -> Operations:
    """Exchange a filter for the expected members: in a bucket's first round, the sum of all workers' counts.

    If a filter would be no smaller than one bit per element, send the bits.
    """
    expected = memory.expected_members(round.bucket)
    counted: tuple[Merged, ...] = ()
    if expected is None:
        count = _count_message(scan, round.workers)
        total, *others = yield (count, *beside)
        expected = _checked_total(int(total.words[0]), int(count.words[0]), round.workers)
        scan, counted, beside = scan._replace(work=Work()), tuple(others), ()
    filter = design_filter(scan.elements, expected)
    if filter is None:
        agreed_union = yield from _exchange_flat(scan, beside)
    else:
        agreed_union = yield from _exchange_filter(scan, filter, round, beside)
    memory.remember(round.bucket, agreed_union.union_elements)
    return agreed_union._replace(merged=counted + agreed_union.merged)


def _exchange_filter(scan: _Scan, filter: Filter, round: Round, beside: tuple[Message, ...]) -> Operations:
    """Exchange a filter and query it for all elements. A small filter only has more false positives."""
    support = scan.own_support
    key = np.uint64(mix_plain(round.seed, round.step, round.bucket, rng_streams.FILTER))
    filled = np.zeros(filter.words, np.uint64)
    inserted_bytes = filled.itemsize * filter.hashes * insert(support, 0, filter.hashes, key, filled)
    words = filled.view(np.uint32)
    loaded_bytes = filled.itemsize * filter.hashes * support.size
    united, *others = yield (
        Message(
            words,
            Merge.OR,
            "index",
            Work(
                scan.work.read_bytes + support.nbytes + inserted_bytes,
                scan.work.written_bytes + words.nbytes + inserted_bytes,
            ),
            # Compared and widened; then queried, and the answers counted.
            decode_work=Work(3 * words.nbytes + loaded_bytes + support.nbytes, words.nbytes + support.nbytes),
        ),
        *beside,
    )
    check_contains(words, united.words)
    union = np.empty_like(support)
    query(widen(united.words), filter.hashes, key, 0, union)
    union[-1] &= ~_beyond(scan.elements)
    return AgreedUnion(support, union, count_members(union), tuple(others))


def _count_message(scan: _Scan, workers: int) -> Message:
    """A worker's number of members, limited so that the sum stays in int32."""
    count = min(count_members(scan.own_support), WORD_MAX // workers)
    work = Work(scan.work.read_bytes + scan.own_support.nbytes, scan.work.written_bytes + 4)
    return Message(np.array([count], np.int32), Merge.ADD, "count", work)


def _checked_total(total: int, own_count: int, workers: int) -> int:
    """The sum of the workers' counts; an impossible sum is an error."""
    limit = WORD_MAX // workers * workers
    if not own_count <= total <= limit:
        raise DecodeError(
            f"the merged count of members is {total}: must be between {own_count}, which this worker sent, "
            f"and {limit}: a worker's count was lost or damaged on the way"
        )
    return total


def _narrow(index: WideIndex, elements: int) -> Index:
    # A view of the same memory.
    return index.view(np.uint32)[: -(-elements // 32)]


def widen(words: Index) -> WideIndex:
    """Copy 32-bit words into 64-bit words; an odd last word gets an upper half of zeros."""
    wide = np.zeros(-(-words.size // 2), np.uint64)
    wide.view(np.uint32)[: words.size] = words
    return wide


def _beyond(count: int) -> np.uint64:
    # The bits of the last word that `count` bits leave unused.
    return np.uint64(2**64 - 2 ** ((count - 1) % WORD_ELEMENTS + 1))


def check_contains(sent: Index, united: Index) -> None:
    """Reject a merged index that contradicts this worker's: sums from it would be silently wrong."""
    missing = first_missing(sent, united)
    if missing < sent.size:
        raise DecodeError(
            f"the merged index lacks elements this worker sent, first in word {missing}: "
            "a worker's index was lost or damaged on the way"
        )


def _check_end(union: WideIndex, count: int, what: str) -> None:
    """Reject a merged index with bits beyond the last."""
    if count and union[-1] & _beyond(count):
        raise DecodeError(
            f"the merged index has {what} beyond the last, {count - 1}: "
            "a worker's index was damaged on the way"
        )


def check_block_elements(block_elements: int, least: int) -> None:
    # `least`: elements of one word of the codec's index.
    is_power = block_elements > 0 and block_elements & (block_elements - 1) == 0
    if not (is_power and least <= block_elements <= BLOCK_ELEMENTS_MAX):
        raise ValueError(
            f"block_elements is {block_elements}: must be a power of two from {least} to "
            f"{BLOCK_ELEMENTS_MAX}, 4096 is a good choice"
        )
