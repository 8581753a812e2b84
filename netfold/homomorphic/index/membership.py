"""The index: the union support of a round, agreed on by all workers.

An element is a member of the union if it is non-zero at any worker. Each worker sends its own support, and
the network unites these by OR:

* flat: one bit per element.
* two_level: one bit per 64 elements first, then the 64 bits of those that have a member anywhere. Two network
  operations; 0.49 bits per element at a density of 1 %, 0.08 at 0.1 %.
* bloom: one Bloom filter of the bucket (see `bloom`), after a count of the members the first time. About
  1.44 · log2(1/f) bits per member; a share f of the other elements become members too.

On the wire an index is 32-bit words: bit j of word w is element 32·w + j. In memory the same bytes are 64-bit
words (little endian): bit j of word w is element 64·w + j.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import DecodeError, State
from netfold.homomorphic.index import bits, bloom
from netfold.homomorphic.index.bits import WORD_ELEMENTS, Index, WideIndex
from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.message import WORD_MAX, Gradient, Merge, Merged, Message, Work
from netfold.homomorphic.round import Round

IndexKind = Literal["flat", "two_level", "bloom"]
Operations = Generator[tuple[Message, ...], tuple[Merged, ...], "Membership"]

BLOCK_ELEMENTS_MAX = 65_536


class Membership(NamedTuple):
    """The agreed index of a round; all fields except `own` are the same at every worker."""

    own: WideIndex  # (⌈elements / 64⌉,) the support of this worker
    union: WideIndex  # the union support; bloom: and false positives
    members: int  # set bits of the union
    merged: tuple[Merged, ...]  # the messages sent along with the index


class _Scan(NamedTuple):
    """A worker's scan of its gradient."""

    own: WideIndex
    elements: int
    work: Work  # of the scan, charged with the first message


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
        """Record the size of a bucket's union."""
        self._members[bucket] = members

    def state(self) -> State:
        """Buckets and the sizes of their unions, `(buckets, 2)`; nothing before the first."""
        return {"unions": np.array([*self._members.items()], np.int64)} if self._members else {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        unions = state.get("unions", np.empty((0, 2), np.int64))
        self._members = {int(bucket): int(members) for bucket, members in unions}


def own_index(gradient: Gradient) -> WideIndex:
    """The support of a gradient: its non-zero elements (−0.0 counts as zero)."""
    own = np.zeros(-(-gradient.size // WORD_ELEMENTS), np.uint64)
    bits.write_index(gradient, _narrow(own, gradient.size))
    return own


def index_merges(kind: IndexKind) -> frozenset[Merge]:
    """Merges of the index's messages."""
    return frozenset({Merge.OR, Merge.ADD} if kind == "bloom" else {Merge.OR})


def exchange_index(
    own: WideIndex,
    elements: int,
    round: Round,
    kind: IndexKind,
    beside: tuple[Message, ...],
    memory: IndexMemory,
) -> Operations:
    """Exchange this worker's index of a number of elements.

    `beside` are messages of the first operation, after those of the index. Only bloom uses `memory`.

    Raises
    ------
    DecodeError
        The merged words contradict what this worker sent.
    """
    scan = _Scan(own, elements, Work(4 * elements, _narrow(own, elements).nbytes))
    if kind == "two_level":
        return (yield from _exchange_two_level(scan, beside))
    if kind == "bloom" and bloom.design_filter(elements, 1) is not None:
        return (yield from _exchange_bloom(scan, round, beside, memory))
    return (yield from _exchange_flat(scan, beside))


def _exchange_flat(scan: _Scan, beside: tuple[Message, ...]) -> Operations:
    """Exchange one bit per element."""
    words = _narrow(scan.own, scan.elements)
    # The merged words are compared with the sent ones, and widened; then their bits are counted.
    decode_work = Work(3 * words.nbytes + scan.own.nbytes, scan.own.nbytes)
    united, *others = yield (Message(words, Merge.OR, "index", scan.work, decode_work=decode_work), *beside)
    check_contains(words, united.words)
    union = widened(united.words)
    _check_end(union, scan.elements, "elements")
    return Membership(scan.own, union, bits.count_members(union), tuple(others))


def _exchange_two_level(scan: _Scan, beside: tuple[Message, ...]) -> Operations:
    """Exchange one bit per 64 elements, then the words that have a member at any worker."""
    own = scan.own
    blocks = np.empty(-(-own.size // 32), np.uint32)
    live_bytes = own.itemsize * -(-own.size // WORD_ELEMENTS)
    bits.write_index(own, blocks)
    united, *others = yield (
        Message(
            blocks,
            Merge.OR,
            "index blocks",
            Work(scan.work.read_bytes + own.nbytes, scan.work.written_bytes + blocks.nbytes),
            decode_work=Work(3 * blocks.nbytes + live_bytes, live_bytes),
        ),
        *beside,
    )
    check_contains(blocks, united.words)
    live = widened(united.words)
    _check_end(live, own.size, "blocks of 64 elements")
    words = np.empty(bits.count_members(live), np.uint64)
    union = np.zeros_like(own)
    if words.size:
        bits.gather_words(live, own, words)
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
        bits.scatter_words(live, widened(united.words), union)
        _check_end(union, scan.elements, "elements")
    return Membership(own, union, bits.count_members(union), tuple(others))


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
    filter = bloom.design_filter(scan.elements, expected)
    if filter is None:
        membership = yield from _exchange_flat(scan, beside)
    else:
        membership = yield from _exchange_filter(scan, filter, round, beside)
    memory.remember(round.bucket, membership.members)
    return membership._replace(merged=counted + membership.merged)


def _exchange_filter(
    scan: _Scan, filter: bloom.Filter, round: Round, beside: tuple[Message, ...]
) -> Operations:
    """Exchange a filter and query it for all elements. A small filter only has more false positives."""
    own = scan.own
    key = np.uint64(mix_plain(round.seed, round.step, round.bucket, purposes.FILTER))
    filled = np.zeros(filter.words, np.uint64)
    inserted_bytes = filled.itemsize * filter.hashes * bloom.insert(own, 0, filter.hashes, key, filled)
    words = filled.view(np.uint32)
    loaded_bytes = filled.itemsize * filter.hashes * own.size
    united, *others = yield (
        Message(
            words,
            Merge.OR,
            "index",
            Work(
                scan.work.read_bytes + own.nbytes + inserted_bytes,
                scan.work.written_bytes + words.nbytes + inserted_bytes,
            ),
            # Compared and widened; then queried, and the answers counted.
            decode_work=Work(3 * words.nbytes + loaded_bytes + own.nbytes, words.nbytes + own.nbytes),
        ),
        *beside,
    )
    check_contains(words, united.words)
    union = np.empty_like(own)
    bloom.query(widened(united.words), filter.hashes, key, 0, union)
    union[-1] &= ~_beyond(scan.elements)
    return Membership(own, union, bits.count_members(union), tuple(others))


def _count_message(scan: _Scan, workers: int) -> Message:
    """A worker's number of members, limited so that the sum stays in int32."""
    count = min(bits.count_members(scan.own), WORD_MAX // workers)
    work = Work(scan.work.read_bytes + scan.own.nbytes, scan.work.written_bytes + 4)
    return Message(np.array([count], np.int32), Merge.ADD, "count", work)


def _checked_total(total: int, own: int, workers: int) -> int:
    """The sum of the workers' counts; an impossible sum is an error."""
    limit = WORD_MAX // workers * workers
    if not own <= total <= limit:
        raise DecodeError(
            f"the merged count of members is {total}: must be between {own}, which this worker sent, "
            f"and {limit}: a worker's count was lost or damaged on the way"
        )
    return total


def _narrow(index: WideIndex, elements: int) -> Index:
    """The 32-bit words of an index of `elements`; a view of the same memory."""
    return index.view(np.uint32)[: -(-elements // 32)]


def widened(words: Index) -> WideIndex:
    """Copy 32-bit words into 64-bit words; an odd last word gets an upper half of zeros."""
    wide = np.zeros(-(-words.size // 2), np.uint64)
    wide.view(np.uint32)[: words.size] = words
    return wide


def _beyond(count: int) -> np.uint64:
    """The unused bits of the last word, of `count` bits in all."""
    return np.uint64(2**64 - 2 ** ((count - 1) % WORD_ELEMENTS + 1))


def check_contains(sent: Index, united: Index) -> None:
    """Reject a merged index that contradicts this worker's: sums from it would be silently wrong."""
    missing = bits.first_missing(sent, united)
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
    """Check the block size of a sparse codec; `least` is the elements of one word of its index.

    Raises
    ------
    ValueError
        It is not a power of two between the least and 65536.
    """
    is_power = block_elements > 0 and block_elements & (block_elements - 1) == 0
    if not (is_power and least <= block_elements <= BLOCK_ELEMENTS_MAX):
        raise ValueError(
            f"block_elements is {block_elements}: must be a power of two from {least} to "
            f"{BLOCK_ELEMENTS_MAX}, 4096 is a good choice"
        )
