"""The merges: how the words of two messages combine, on a switch, on a host or in a test.

The `*_words` kernels merge one packet's words into an accumulator in place; switch and host kernels call
them on slices. `combine` and `merge_all` are the same operations as pure functions on whole messages.

Sums are made in lanes of 4, 8, 16 or 32 bits, packed in words, lowest bits first. Lanes of 8 bits and more
are signed and wrap on overflow, each for itself; a switch may differ: that is a property of its profile.
Lanes of 4 bits are counters that a wrapping adder of 32 bits adds: one that overflows carries into the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed_random import Integer, mix_plain, splitmix64

Words = NDArray[Any]  # 1-D; int32 (ADD, MAX), uint32 (OR, SIGN, TABLE_ADD, HOST) or float32 (FLOAT_ADD)
WORD_MAX = 2**31 - 1  # the largest int32
WORD_BITS = 32
LANE_BITS = (4, 8, 16, 32)  # possible widths of the lanes of sums
COUNTER_BITS = 4  # lanes of this width are unsigned, and adders of 32 bits that wrap add them
CODE_BITS = 4
"""Bits of a code of TABLE_ADD."""


class Merge(Enum):
    """How two messages of one network operation combine (see above).

    Each has a name in scenarios and reports, a number in compiled code, and the types of words it takes.
    """

    number: int
    dtypes: tuple[type[np.generic], ...]

    def __new__(cls, name: str, number: int, *dtypes: type[np.generic]) -> Merge:
        """Make the name the value: `Merge("add")`."""
        merge = object.__new__(cls)
        merge._value_, merge.number, merge.dtypes = name, number, dtypes
        return merge

    ADD = "add", 0, np.int32  # hosts wrap; a switch does what its profile says
    OR = "or", 1, np.uint32  # bitwise union
    MAX = "max", 2, np.int32  # the larger
    FLOAT_ADD = "float_add", 3, np.float32  # order-dependent
    SIGN = "sign", 4, np.uint32  # one random worker's bit survives per position; carries worker counts
    TABLE_ADD = "table_add", 5, np.uint32, np.int32  # 4-bit codes, which a table lifts to lanes; or these
    GATHER = "gather", 6  # cannot be merged: every worker must receive every message
    HOST = "host", 7, np.uint32  # merged by a function of the codec (`HostMerge`), on hosts only


MERGEABLE = frozenset(Merge) - {Merge.GATHER, Merge.HOST}
"""Merges that switches and hosts can do on the way."""
ORDER_FREE = frozenset({Merge.ADD, Merge.OR, Merge.MAX, Merge.TABLE_ADD})  # same bits in any order
SUMS = frozenset({Merge.ADD, Merge.TABLE_ADD})
"""Merges that add in lanes of integers."""


def words_per_word(merge: Merge, lane_bits: int) -> int:
    # TABLE_ADD turns each code of a word into a lane.
    return lane_bits // CODE_BITS if merge is Merge.TABLE_ADD else 1


def check_lanes(merge: Merge, lane_bits: int, table: NDArray[np.int32] | None = None) -> None:
    """Check that a merge has lanes of this width, and that the values of a table fit them.

    Raises
    ------
    ValueError
        What was found, and what is allowed.
    """
    allowed = LANE_BITS if merge is Merge.ADD else LANE_BITS[1:] if merge in SUMS else (WORD_BITS,)
    if lane_bits not in allowed:
        *others, last = map(str, allowed)
        widths = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{merge.value} merges lanes of {widths} bits, found {lane_bits}")
    if table is None:
        return
    if table.shape != (2**CODE_BITS,) or table.dtype != np.int32:
        raise ValueError(
            f"table_add needs a table of 16 int32 values, one per 4-bit code, "
            f"found {table.dtype} of shape {table.shape}"
        )
    most = 2 ** (lane_bits - 1) - 1
    if not -most - 1 <= int(table.min()) <= int(table.max()) <= most:
        raise ValueError(
            f"a table for lanes of {lane_bits} bits has values from {-most - 1} to {most}, "
            f"found {table.min()} to {table.max()}"
        )


@dataclass(frozen=True)
class Work:
    """Work of encoding or decoding a message; device models charge for it."""

    read_bytes: int = 0
    written_bytes: int = 0
    flops: int = 0
    launches: int = 1  # kernels of the device that start one after the other

    @property
    def is_free(self) -> bool:
        # Such work starts no kernel, whatever `launches` says.
        return not (self.read_bytes or self.written_bytes or self.flops)


@dataclass(frozen=True)
class Holders:
    """The workers that contributed to each unit of merged words: bit r of `bitmaps` is worker r.

    A worker that is absent is no holder, whether its header was in time or late.
    """

    bitmaps: NDArray[np.uint32]  # (units,)
    unit_words: int  # the last unit may be shorter


@dataclass(frozen=True)
class Merged:
    """A merged message: its words, and who contributed, as the packets say that carried it.

    Workers may share the words: do not write to them. Words that nobody contributed to are those that change
    no others (`homomorphic.merge.unchanged_by`): zeros, of MAX the smallest int32.
    """

    words: Words
    """Merged words; of TABLE_ADD packed lanes, of GATHER none, or a server's answer."""
    workers: int
    """Workers that contributed; with `holders`: to at least one unit."""
    exponents: NDArray[np.int8] | None = None
    """Agreed exponents of a scaled message, whose words are int32."""
    parts: tuple[Words, ...] = ()  # GATHER: every worker's words, in rank order
    is_float: NDArray[np.bool_] | None = None  # words that hold the bits of a float32 sum
    holders: Holders | None = None  # the contributors, where some may be missing
    present: NDArray[np.bool_] | None = None  # (workers,) who contributed; None: all, unknown, or see `parts`
    is_mixed: bool = False  # parts of it say that different workers contributed: something is wrong

    @property
    def size_bytes(self) -> int:
        """Payload bytes of the merged words, their exponents, and the parts of all workers."""
        exponents = 0 if self.exponents is None else self.exponents.size
        return self.words.nbytes + exponents + sum(part.nbytes for part in self.parts)


_CODES = WORD_BITS // CODE_BITS
_CODE_MAX = np.uint32(2**CODE_BITS - 1)
_LANE_TYPES: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16}
"""Lanes of 4 bits have no type: they are added as words."""


@kernel
def add_words(accumulator: NDArray[np.int32], words: NDArray[np.int32]) -> None:
    """Add int32 words (or int16, int8) in place; they wrap."""
    for i in range(words.size):
        accumulator[i] += words[i]


_NAN = np.float32(np.nan)  # the bits 0x7FC00000


@kernel
def or_words(accumulator: NDArray[np.int32], words: NDArray[np.int32]) -> None:
    """Unite bit patterns in place."""
    for i in range(words.size):
        accumulator[i] |= words[i]


@kernel
def max_words(accumulator: NDArray[np.int32], words: NDArray[np.int32]) -> None:
    """Keep the larger int32 in place."""
    for i in range(words.size):
        accumulator[i] = max(accumulator[i], words[i])


@kernel
def float_add_words(accumulator: NDArray[np.float32], words: NDArray[np.float32]) -> None:
    """Add float32 words in place. NaNs become one NaN: processors differ in which of two they return."""
    for i in range(words.size):
        total = accumulator[i] + words[i]
        accumulator[i] = total if total == total else _NAN


@kernel
def random_lanes(threshold: Integer, key: Integer, index: int) -> np.uint64:
    """32 independent bits, each 1 with probability `threshold / 2**32` (threshold below 2**32).

    Builds the probability from its binary digits, lowest first: OR with a fair bit takes p to (1 + p) / 2,
    AND takes it to p / 2. One hash per digit serves 32 lanes.
    """
    lanes = np.uint64(0)
    for digit in range(32):
        if (threshold >> digit) & 1:
            lanes |= splitmix64(np.uint64(key) + np.uint64(32 * index + digit))
        elif lanes:
            lanes &= splitmix64(np.uint64(key) + np.uint64(32 * index + digit))
    return lanes & np.uint64(0xFFFFFFFF)


@kernel
def sign_words(
    accumulator: NDArray[np.uint32], words: NDArray[np.uint32], threshold: Integer, key: Integer
) -> None:
    """Marsit's weighted one-bit merge (Wu et al., DAC 2022), in place; once a packet, each with its own key.

    Where bits differ, the accumulator's survives with `threshold / 2**32`, see `keep_threshold`.
    """
    for i in range(words.size):
        differing = np.uint64(accumulator[i] ^ words[i])
        if differing:
            taken = differing & ~random_lanes(threshold, key, i)
            accumulator[i] = np.uint32(np.uint64(accumulator[i]) ^ taken)


@inlined
def survival(accumulated_workers: Integer, arriving_workers: Integer) -> np.int64:
    # a / (a + b) in units of 2**-32, rounded: the probability that the accumulator's bit survives. With it
    # the surviving bit is a uniformly random worker's, for any order and tree of merges.
    total = accumulated_workers + arriving_workers
    return ((np.int64(accumulated_workers) << np.int64(32)) + total // 2) // total


def keep_threshold(accumulated_workers: int, arriving_workers: int) -> int:
    """`survival` for Python code, with checked arguments."""
    if accumulated_workers < 0 or arriving_workers < 1:
        raise ValueError(
            f"sign merge of {accumulated_workers} and {arriving_workers} workers: "
            "accumulated must be 0 or more, arriving at least 1"
        )
    return int(survival(accumulated_workers, arriving_workers))


@kernel
def _look_up(words: NDArray[np.uint32], table: NDArray[np.int32], lanes: NDArray[Any]) -> None:
    """Write the table's value of each packed code into `lanes`, lowest bits first."""
    for i in range(words.size):
        word = words[i]
        for j in range(_CODES):
            lanes[_CODES * i + j] = table[(word >> np.uint32(CODE_BITS * j)) & _CODE_MAX]


@kernel
def lift_words(
    words: NDArray[np.uint32], table: NDArray[np.int32], lifted: NDArray[np.int32], lane_bits: int
) -> None:
    """Write the table's value of each packed code into the lanes of `lifted`, whose width the values fit."""
    if lane_bits == 8:
        _look_up(words, table, lifted.view(np.int8))
    elif lane_bits == 16:
        _look_up(words, table, lifted.view(np.int16))
    else:
        _look_up(words, table, lifted)


def lift(
    words: NDArray[np.uint32], table: NDArray[np.int32], lane_bits: int = WORD_BITS
) -> NDArray[np.int32]:
    """Eight lanes for each word of 4-bit codes, as THC's aggregator adds them (Li et al., NSDI 2024)."""
    check_lanes(Merge.TABLE_ADD, lane_bits, table)
    lifted = np.empty(words_per_word(Merge.TABLE_ADD, lane_bits) * words.size, np.int32)
    lift_words(words, table, lifted, lane_bits)
    return lifted


def lanes_of(words: Words, lane_bits: int) -> NDArray[Any]:
    return words.view(_LANE_TYPES.get(lane_bits, words.dtype.type))


def combine(
    merge: Merge | HostMerge,
    accumulated: Merged,
    arriving: Merged,
    key: int = 0,
    table: NDArray[np.int32] | None = None,
    in_place: bool = False,
    lane_bits: int = WORD_BITS,
) -> Merged:
    """Merge two (partial) aggregates. Neither is changed; with `in_place` the first may be overwritten.

    `merge` is the codec's function for HOST. `key` decides SIGN's random bits; `table` is TABLE_ADD's, and
    `lane_bits` the width of the lanes of sums. Packed codes (uint32) become packed lanes (int32); lanes are
    added directly, so partial aggregates of TABLE_ADD combine too. The words of an aggregate of no worker do
    not matter: the other one comes out, and of two such the first.

    Raises
    ------
    ValueError
        The words cannot be merged this way: wrong type, unequal length, no table or function, lanes of
        another width than there are, or GATHER.
    """
    if accumulated.workers == 0 and arriving.workers:
        accumulated, arriving, in_place = arriving, accumulated, False
    workers, present = accumulated.workers + arriving.workers, None
    if accumulated.present is not None and arriving.present is not None:
        present = accumulated.present | arriving.present
    if not isinstance(merge, Merge):
        return Merged(_host_merged(merge, accumulated, arriving, key), workers, present=present)
    check_lanes(merge, lane_bits)
    accumulator = operand(merge, accumulated.words, table, lane_bits)
    if not in_place and accumulator is accumulated.words:
        accumulator = accumulator.copy()
    if arriving.workers:
        words = operand(merge, arriving.words, table, lane_bits)
        _merge_into(merge, accumulator, words, (accumulated.workers, arriving.workers, key), lane_bits)
    return Merged(accumulator, workers, present=present)


def unchanged_by(merge: Merge, words: int) -> Words:
    # A sum changes the sign of a float −0 nevertheless. SIGN has no such word: with no worker behind it, it
    # gives way to any other.
    smallest = np.iinfo(np.int32).min if merge is Merge.MAX else 0
    return np.full(words, smallest, merge.dtypes[-1])


def gather(parts: Sequence[Words]) -> Merged:
    """The messages of all workers, which are not merged; those without words contribute nothing."""
    present = np.array([part.size > 0 for part in parts])
    presence = None if present.all() else present
    return Merged(parts[0][:0], int(present.sum()), parts=tuple(parts), present=presence)


def merge_all(
    merge: Merge | HostMerge,
    parts: Sequence[Words],
    key: int = 0,
    table: NDArray[np.int32] | None = None,
    lane_bits: int = WORD_BITS,
) -> Words:
    """Merge the words of all workers that contribute, first to last; the parts are not changed.

    Raises
    ------
    ValueError
        As for `combine`, or there are no parts.
    """
    if not parts:
        raise ValueError("nothing to merge: give the words of at least one worker")
    if not isinstance(merge, Merge):
        merged = Merged(parts[0], 1)
        for rank, part in enumerate(parts[1:], start=1):
            merged = combine(merge, merged, Merged(part, 1), mix_plain(key, rank))
        return operand(Merge.HOST, merged.words).copy()
    check_lanes(merge, lane_bits)
    accumulator = operand(merge, parts[0], table, lane_bits).copy()
    for workers, part in enumerate(parts[1:], start=1):
        words = operand(merge, part, table, lane_bits)
        _merge_into(merge, accumulator, words, (workers, 1, mix_plain(key, workers)), lane_bits)
    return accumulator


def _host_merged(merge: HostMerge, accumulated: Merged, arriving: Merged, key: int) -> Words:
    held_words, other = (operand(Merge.HOST, merged.words) for merged in (accumulated, arriving))
    if arriving.workers == 0:
        return held_words
    return operand(
        Merge.HOST, merge.merge(held_words, other, Hop(accumulated.workers, arriving.workers, key))
    )


def operand(
    merge: Merge, words: Words, table: NDArray[np.int32] | None = None, lane_bits: int = WORD_BITS
) -> Words:
    """Check the type of words and turn packed codes into lanes."""
    if merge is Merge.GATHER:
        raise ValueError(
            "gather cannot be merged: use a collective that delivers every message, such as all_gather"
        )
    if words.ndim != 1 or words.dtype.type not in merge.dtypes:
        names = " or ".join(np.dtype(dtype).name for dtype in merge.dtypes)
        raise ValueError(
            f"{merge.value} merges 1-D arrays of {names}, found {words.dtype} of shape {words.shape}"
        )
    if merge is not Merge.TABLE_ADD or words.dtype == np.int32:
        return words
    if table is None:
        raise ValueError("table_add needs the message's table to read packed codes")
    return lift(words, table, lane_bits)


def _merge_into(
    merge: Merge, accumulator: Any, words: Any, sign: tuple[int, int, int], lane_bits: int
) -> None:
    """Merge in place; `sign` is (accumulated workers, arriving workers, key), used by SIGN alone."""
    if accumulator.size != words.size:
        raise ValueError(
            f"{merge.value} merges equal lengths, found {accumulator.size} and {words.size} words"
        )
    match merge:
        case Merge.HOST:
            raise ValueError("host merges need the codec's function: give Message.host_merge")
        case Merge.OR:
            or_words(accumulator.view(np.int32), words.view(np.int32))
        case Merge.MAX:
            max_words(accumulator, words)
        case Merge.FLOAT_ADD:
            float_add_words(accumulator, words)
        case Merge.SIGN:
            accumulated_workers, arriving_workers, key = sign
            threshold = keep_threshold(accumulated_workers, arriving_workers)
            sign_words(accumulator, words, threshold, np.uint64(key % 2**64))
        case _:
            add_words(lanes_of(accumulator, lane_bits), lanes_of(words, lane_bits))


# Merges that only hosts can do, part by part and hop by hop.


class Hop(NamedTuple):
    """One merge on a host."""

    accumulated_workers: int
    arriving_workers: int
    key: int
    """Key of the random draws; every merge has its own."""


class HostMerge(Protocol):
    """A merge that only hosts can do, such as decode, add and encode again, or the union of sparse lists.

    A collective divides a message into parts, merges equal parts of several workers on the way, and joins the
    merged parts. A merged part may have another length than its operands.
    """

    def split(self, words: Words, count: int) -> list[Words]:
        """Divide one worker's words into `count` parts; part i of all workers has the same elements."""

    def merge(self, accumulated: Words, arriving: Words, hop: Hop) -> Words:
        """Merge two equal parts; neither is changed."""

    def join(self, parts: Sequence[Words]) -> Words:
        """The words of a whole message from its merged parts."""

    def work(self, accumulated: Words, arriving: Words) -> Work:
        """The work of one merge of such parts."""


class HostHop(NamedTuple):
    """One host merge among the workers of a message: what `into` holds takes in what `taken` holds."""

    into: int
    taken: int
    key: int
    """Key of the merge's random draws."""


def replay(merge: HostMerge, parts: Sequence[Words], order: Sequence[Sequence[HostHop]]) -> Words:
    """Merge the words of all workers hop by hop: `order[i]` are the hops of part i, in their order.

    A message in one part is neither divided nor joined.

    Raises
    ------
    ValueError
        A hop, or the end, finds a worker merged twice or not at all; or the codec's words are not uint32.
    """
    pieces = [split_host(merge, words, len(order)) for words in parts]
    merged = []
    for index, hops in enumerate(order):
        partials = {rank: Merged(worker_pieces[index], 1) for rank, worker_pieces in enumerate(pieces)}
        for hop in hops:
            if hop.into == hop.taken or not {hop.into, hop.taken} <= partials.keys():
                raise ValueError(f"part {index} merges worker {hop.taken} into {hop.into} out of order")
            partials[hop.into] = combine(merge, partials[hop.into], partials.pop(hop.taken), hop.key)
        if len(partials) != 1:
            raise ValueError(
                f"part {index} leaves out workers: {len(partials)} were not merged with each other"
            )
        merged.append(partials.popitem()[1].words)
    return join_host(merge, merged)


def split_host(merge: HostMerge, words: Words, count: int) -> list[Words]:
    """A worker's words as `count` parts of a host merge; one part is the whole message."""
    if count == 1:
        return [words]
    parts = merge.split(words, count)
    if len(parts) != count:
        raise ValueError(f"{type(merge).__name__}.split makes {len(parts)} parts, asked for {count}")
    return parts


def join_host(merge: HostMerge, parts: Sequence[Words]) -> Words:
    return parts[0] if len(parts) == 1 else operand(Merge.HOST, merge.join(parts))
