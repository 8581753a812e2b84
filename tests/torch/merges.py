"""Messages of all kinds, carried between processes and compared with what they must come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

from netfold.homomorphic.codec import Request
from netfold.homomorphic.merge import Hop, Merge, Words, Work, keep_threshold, sign_words
from netfold.homomorphic.message import Message
from netfold.kernels.keyed_random import mix_plain
from netfold.torch.exchange import agree, carry
from netfold.torch.wire import Wire

SIZES = (0, 1, 2, 5, 1001)
ABSENT: tuple[tuple[int, ...], ...] = ((), (0,), (1, 2), (0, 1, 2))
WHOLE = (Merge.OR, Merge.MAX, Merge.FLOAT_ADD, Merge.SIGN, Merge.HOST, Merge.GATHER)
LANES = [(Merge.ADD, 4), *product((Merge.ADD, Merge.TABLE_ADD), (8, 16, 32)), *product(WHOLE, [32])]
KEY = 12345
TABLE = np.array([3, -1, 7, 0, 5, 2, -8, 1, 9, 4, 6, -3, 8, -2, -5, 10], np.int32)
REQUEST = Request(0, 0, 0, "words")


class Union:
    """Sorted lists of distinct words; which worker's came first does not matter, how many there are does."""

    def split(self, words: Words, count: int) -> list[Words]:
        raise AssertionError("messages are merged whole")

    def join(self, parts: Sequence[Words]) -> Words:
        raise AssertionError("messages are merged whole")

    def work(self, accumulated: Words, arriving: Words) -> Work:
        return Work()

    def merge(self, accumulated: Words, arriving: Words, hop: Hop) -> Words:
        assert hop.arriving_workers == 1
        return np.append(np.union1d(accumulated, arriving), np.uint32(hop.accumulated_workers))


def every_merge(rank: int, lacks: Sequence[frozenset[Merge]]) -> list[str]:
    """What is wrong, over wires whose all-reduce does not have some merges."""
    wire, wrong = Wire(dist.new_group()), list[str]()
    has = wire.reduces
    for lacking in lacks:
        wire.reduces, random = has - lacking, np.random.default_rng(5)
        for (merge, lane_bits), size, absent in product(LANES, SIZES, ABSENT):
            words = [_words(random, merge, size) for _ in range(3)]
            messages = [_message(merge, words[place], lane_bits, place in absent) for place in range(3)]
            wrong += _compare(wire, messages, f"{merge.name} in {lane_bits} bits, {size} words, {absent}")
    return wrong


def _compare(wire: Wire, messages: list[Message], what: str) -> list[str]:
    (sizes,) = agree(wire, (messages[wire.rank],), "here")
    merged = carry(wire, messages[wire.rank], sizes, KEY, None, REQUEST)
    first, wrong = messages[0], []
    there = [one for one in messages if not one.is_absent]
    if first.merge is Merge.GATHER:
        if [part.tolist() for part in merged.parts] != [one.words.tolist() for one in messages]:
            wrong.append(f"{what}: parts")
    elif there and (first.size or first.merge is Merge.HOST):
        expected = _EXPECTED[first.merge](first, [one.words for one in there])
        if merged.words.dtype != expected.dtype or not np.array_equal(merged.words, expected):
            wrong.append(f"{what}: {merged.words[:4]} and not {expected[:4]}")
    elif merged.words.size != first.merged_size:
        wrong.append(f"{what}: {merged.words.size} words of nobody")
    elif not (merged.words == (np.iinfo(np.int32).min if first.merge is Merge.MAX else 0)).all():
        wrong.append(f"{what}: {merged.words[:4]} of nobody")
    if first.size or first.merge is Merge.HOST:
        present = [True] * 3 if merged.present is None else merged.present.tolist()
        if present != [not one.is_absent for one in messages] or merged.workers != sum(present):
            wrong.append(f"{what}: {present} of {merged.workers} workers")
    return wrong


def _message(merge: Merge, words: Words, lane_bits: int, is_absent: bool) -> Message:
    absent = words.size if is_absent and merge not in (Merge.HOST, Merge.GATHER) else 0
    own = words[:0] if is_absent and merge is not Merge.HOST else words
    table = TABLE if merge is Merge.TABLE_ADD else None
    host_merge = Union() if merge is Merge.HOST else None
    return Message(
        own, merge, "words", table=table, lane_bits=lane_bits, absent_words=absent, host_merge=host_merge
    )


def _words(random: np.random.Generator, merge: Merge, size: int) -> Words:
    if merge is Merge.FLOAT_ADD:
        return (random.standard_normal(size) * 10.0 ** random.uniform(-9, 9, size)).astype(np.float32)
    if merge is Merge.HOST:
        size = int(random.integers(0, size + 1))  # of any length
        return np.unique(random.integers(0, 50, size)).astype(np.uint32)
    if merge is Merge.GATHER:
        size = int(random.integers(0, size + 1))
    words = random.integers(0, 2**32, size, dtype=np.uint32)
    return words.view(np.int32) if merge in (Merge.ADD, Merge.MAX) else words


def _add(message: Message, words: list[Words]) -> Words:
    """Sums in lanes, computed one lane after the other without packed arithmetic."""
    if message.lane_bits == 4:  # one wide adder
        total = sum(one.astype(object) for one in words)
        return np.array([int(one) % 2**32 for one in total], np.uint32).view(np.int32)
    kind = {8: np.uint8, 16: np.uint16, 32: np.uint32}[message.lane_bits]
    total = sum(one.view(kind).astype(np.int64) for one in words)
    return np.array(total % 2**message.lane_bits).astype(kind).view(np.int32)


def _table_add(message: Message, words: list[Words]) -> Words:
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    values = [TABLE[(one[:, None] >> shifts) & np.uint32(15)].reshape(-1).astype(np.int64) for one in words]
    kind: Any = {8: np.int8, 16: np.int16, 32: np.int32}[message.lane_bits]
    return np.array(sum(values)).astype(kind).view(np.int32)


def _float_add(_: Message, words: list[Words]) -> Words:
    total = words[0]
    for one in words[1:]:
        total = total + one
    return total


def _sign(_: Message, words: list[Words]) -> Words:
    total = words[0].copy()
    for workers, one in enumerate(words[1:], start=1):
        key = np.uint64(mix_plain(KEY, workers) % 2**64)
        sign_words(total, one, keep_threshold(workers, 1), key)
    return total


def _host(message: Message, words: list[Words]) -> Words:
    union = words[0].tolist()
    for workers, one in enumerate(words[1:], start=1):
        union = [*sorted({*union, *one.tolist()}), workers]
    return np.array(union, np.uint32)


_EXPECTED: dict[Merge, Callable[[Message, list[NDArray[Any]]], NDArray[Any]]] = {
    Merge.ADD: _add,
    Merge.TABLE_ADD: _table_add,
    Merge.OR: lambda _, words: np.bitwise_or.reduce(words),
    Merge.MAX: lambda _, words: np.maximum.reduce(words),
    Merge.FLOAT_ADD: _float_add,
    Merge.SIGN: _sign,
    Merge.HOST: _host,
}
