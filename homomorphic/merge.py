"""The merge operations: how two messages combine, on a switch, on a host or in a test.

The `*_words` kernels merge one packet's words into an accumulator in place; switch and host kernels call
them on slices. `combine` and `merge_all` are the same operations as pure functions on whole messages.

ADD wraps on overflow (modulo 2**32). A switch may differ: that is a property of its profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.compiled import inlined, kernel
from netfold.homomorphic.kernels.keyed import Integer, mix_plain, splitmix64
from netfold.homomorphic.message import Merge, Merged, Message, Words

_LANES = Merge.TABLE_ADD.lanes


@kernel
def add_words(accumulator: NDArray[np.int32], words: NDArray[np.int32]) -> None:
    """Add int32 words in place, modulo 2**32."""
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
    """Add float32 words in place; the result depends on the order of the calls.

    Every NaN becomes the same NaN, because processors differ in which of two they return.
    """
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
    """Merge sign bits in place: where they differ, the accumulator's bit survives with `threshold / 2**32`.

    Marsit's one-bit merge (Wu et al., DAC 2022) in its weighted form, see `keep_threshold`. A packet must not
    be merged twice, and every merge needs its own `key`.
    """
    for i in range(words.size):
        differing = np.uint64(accumulator[i] ^ words[i])
        if differing:
            taken = differing & ~random_lanes(threshold, key, i)
            accumulator[i] = np.uint32(np.uint64(accumulator[i]) ^ taken)


@inlined
def survival(accumulated_workers: Integer, arriving_workers: Integer) -> np.int64:
    """Probability a / (a + b) that the accumulator's bit survives, in units of 2**-32, rounded to nearest.

    With it the surviving bit is a uniformly random worker's, for any order and tree of merges.
    """
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
def lift_words(words: NDArray[np.uint32], table: NDArray[np.int32], lanes: NDArray[np.int32]) -> None:
    """Write the table's value of each packed 4-bit code into `lanes`, lowest bits first."""
    for i in range(words.size):
        word = words[i]
        for j in range(_LANES):
            lanes[_LANES * i + j] = table[(word >> np.uint32(4 * j)) & np.uint32(15)]


def lift(words: NDArray[np.uint32], table: NDArray[np.int32]) -> NDArray[np.int32]:
    """Lanes `(8 · words,)` of packed 4-bit codes, as THC's aggregator adds them (Li et al., NSDI 2024)."""
    if table.shape != (16,) or table.dtype != np.int32:
        raise ValueError(
            f"table_add needs a table of 16 int32 values, one per 4-bit code, "
            f"found {table.dtype} of shape {table.shape}"
        )
    lanes = np.empty(_LANES * words.size, np.int32)
    lift_words(words, table, lanes)
    return lanes


def combine(
    merge: Merge,
    accumulated: Merged,
    arriving: Merged,
    key: int = 0,
    table: NDArray[np.int32] | None = None,
    in_place: bool = False,
) -> Merged:
    """Merge two (partial) aggregates. Neither is changed; with `in_place` the first may be overwritten.

    `key` decides SIGN's random bits; `table` is TABLE_ADD's. Packed codes (uint32) become int32 lanes; lanes
    are added directly, so partial aggregates of TABLE_ADD combine too. The words of an aggregate of no worker
    do not matter: the other one comes out, and of two such the first.

    Raises
    ------
    ValueError
        The words cannot be merged this way: wrong type, unequal length, no table, or GATHER.
    """
    if accumulated.workers == 0 and arriving.workers:
        accumulated, arriving, in_place = arriving, accumulated, False
    accumulator = _operand(merge, accumulated.words, table)
    if not in_place and accumulator is accumulated.words:
        accumulator = accumulator.copy()
    if arriving.workers:
        words = _operand(merge, arriving.words, table)
        _merge_into(merge, accumulator, words, (accumulated.workers, arriving.workers, key))
    present = None
    if accumulated.present is not None and arriving.present is not None:
        present = accumulated.present | arriving.present
    return Merged(accumulator, accumulated.workers + arriving.workers, present=present)


def unchanged_by(merge: Merge, words: int) -> Words:
    """The merged words of messages of `words` words that nobody contributed to: they change no others.

    Zeros, of MAX the smallest int32; the sign of a float −0 is the exception. SIGN has no such word: with no
    worker behind it, it gives way to any other.
    """
    dtype = merge.dtypes[-1]
    return np.full(words * merge.lanes, np.iinfo(np.int32).min if merge is Merge.MAX else 0, dtype)


def merged_message(messages: Sequence[Message], key: int = 0) -> Merged:
    """Merge one message of some workers, first to last; `present[i]` says whether the i-th contributed.

    Raises
    ------
    ValueError
        As for `merge_all`.
    """
    first = messages[0]
    present = np.array([not message.is_absent for message in messages])
    words = [message.words for message in messages if not message.is_absent]
    if not words:
        return Merged(unchanged_by(first.merge, first.size), 0, present=present)
    merged = merge_all(first.merge, words, key, first.table)
    return Merged(merged, len(words), present=None if present.all() else present)


def merge_all(
    merge: Merge, parts: Sequence[Words], key: int = 0, table: NDArray[np.int32] | None = None
) -> Words:
    """Merge the words of all workers that contribute, first to last; the parts are not changed.

    Raises
    ------
    ValueError
        As for `combine`, or there are no parts.
    """
    if not parts:
        raise ValueError("nothing to merge: give the words of at least one worker")
    accumulator = _operand(merge, parts[0], table).copy()
    for workers, part in enumerate(parts[1:], start=1):
        words = _operand(merge, part, table)
        _merge_into(merge, accumulator, words, (workers, 1, mix_plain(key, workers)))
    return accumulator


def _operand(merge: Merge, words: Words, table: NDArray[np.int32] | None) -> Words:
    """Check the type of words and turn packed codes into lanes."""
    if merge is Merge.GATHER:
        raise ValueError(
            "gather cannot be merged: use a collective that delivers every message, such as all_gather"
        )
    if words.ndim != 1 or words.dtype.type not in merge.dtypes:
        names = " or ".join(np.dtype(one).name for one in merge.dtypes)
        raise ValueError(
            f"{merge.value} merges 1-D arrays of {names}, found {words.dtype} of shape {words.shape}"
        )
    if merge is not Merge.TABLE_ADD or words.dtype == np.int32:
        return words
    if table is None:
        raise ValueError("table_add needs the message's table to read packed codes")
    return lift(words, table)


def _merge_into(merge: Merge, accumulator: Any, words: Any, sign: tuple[int, int, int]) -> None:
    """Merge in place; `sign` is (accumulated workers, arriving workers, key), used by SIGN alone."""
    if accumulator.size != words.size:
        raise ValueError(
            f"{merge.value} merges equal lengths, found {accumulator.size} and {words.size} words"
        )
    match merge:
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
            add_words(accumulator, words)
