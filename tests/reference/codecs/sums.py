"""What merging must give, in Python's integers, word by word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.message import Merge, Message
from tests.reference.codecs.codecs import wrap
from tests.reference.switch.merging import lanes_of, packed


class Right(NamedTuple):
    words: list[int]  # of OR without a sign, of all others as int32
    exponents: list[int] | None  # agreed ones, of a scaled message


def right_merge(messages: Sequence[Message]) -> Right:
    """One message of every worker, merged in any order. FLOAT_ADD and SIGN have no single right result."""
    exponents = _largest_exponents(messages)
    columns = zip(*(_integers(message, exponents) for message in messages), strict=True)
    match messages[0].merge:
        case Merge.OR:
            return Right([_united(column) for column in columns], None)
        case Merge.MAX:
            return Right([max(column) for column in columns], None)
        case Merge.ADD | Merge.TABLE_ADD:
            bits = messages[0].lane_bits
            sums = [sum(column) for column in columns]
            if bits in (4, 32):  # counters are added as words
                return Right([wrap(total) for total in sums], exponents)
            count = 32 // bits
            words = [packed(sums[first : first + count], bits) for first in range(0, len(sums), count)]
            return Right(words, exponents)
    raise AssertionError(f"{messages[0].merge} has no single right result")


def _united(column: Sequence[int]) -> int:
    union = 0
    for word in column:
        union |= word
    return union


def _largest_exponents(messages: Sequence[Message]) -> list[int] | None:
    scalings = [message.scaling for message in messages]
    if scalings[0] is None:
        return None
    return [max(column) for column in zip(*(one.exponents.tolist() for one in scalings), strict=True)]


def _integers(message: Message, exponents: list[int] | None) -> list[int]:
    """What the words of a message stand for: themselves, their lanes, values of codes, or scaled integers."""
    if message.scaling is not None:
        assert exponents is not None
        return [
            scaled(value, exponents[position // message.scaling.block_elements], message.scaling.workers)
            for position, value in enumerate(message.words)
        ]
    words = message.words.tolist()
    if message.table is None or message.words.dtype != np.uint32:
        if message.lane_bits in (4, 32):
            return words
        return [lane for word in words for lane in lanes_of(word, message.lane_bits)]
    values = message.table.tolist()
    return [values[word >> 4 * lane & 15] for word in words for lane in range(8)]


def scaled(value: np.float32, exponent: int, workers: int) -> int:
    """round(x · scale), half to even; scale and product are float32, as in SwitchML's client.

    scale = (2^31 − 1) / (n · 2^e); from 256 workers on, a little less.
    """
    full = 2**31 - 1 if workers <= 255 else 2**31 - 256 - workers
    scale = np.float32(full) / np.float32(workers * 2.0**exponent)
    return round(float(np.float32(value) * scale))
