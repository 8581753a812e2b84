"""Exact numbers from their definition, in fractions and Python's integers; and what merging must give."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.merge import Merge
from netfold.homomorphic.message import Message
from tests.reference.codecs.codecs import wrap
from tests.reference.switch.merging import lanes_of, packed

LARGEST = Fraction(2) ** 128 - Fraction(2) ** 104  # of float32


def lowest_bit(value: float) -> int:
    """Exponent of the lowest bit set in a value that is not zero."""
    numerator, denominator = value.as_integer_ratio()
    return (numerator & -numerator).bit_length() - denominator.bit_length()


def top(value: float) -> int:
    """Smallest exponent of a power of two above the magnitude of a value that is not zero."""
    exponent = -148
    while abs(Fraction(value)) >= Fraction(2) ** exponent:
        exponent += 1
    return exponent


def digits_of(value: float, low: int, digit_bits: int, count: int) -> list[int]:
    """Digits of value / 2^low, lowest first, each with the sign of the value."""
    integer = Fraction(value) / Fraction(2) ** low
    assert integer.denominator == 1
    left, sign = abs(integer.numerator), 1 if value >= 0 else -1
    digits = []
    for _ in range(count):
        left, digit = divmod(left, 2**digit_bits)
        digits.append(sign * digit)
    assert left == 0
    return digits


def layout(
    blocks: Sequence[Sequence[float]], lows: Sequence[int], counts: Sequence[int], rule: tuple[int, int]
) -> list[int]:
    """Words of compact blocks; `rule` is (bits of a digit, blocks of a group)."""
    digit_bits, group_blocks = rule
    words = []
    for first in range(0, len(blocks), group_blocks):
        group = range(first, min(first + group_blocks, len(blocks)))
        planes = max(counts[block] for block in group)
        digits = [
            digits_of(value, lows[block], digit_bits, counts[block]) + [0] * (planes - counts[block])
            for block in group
            for value in blocks[block]
        ]
        words += [one[plane] for plane in range(planes) for one in digits]
    return words


def nearest_float32(exact: Fraction) -> float:
    """The float32 nearest to a number, ties to even; infinite from half a step above the largest on."""
    magnitude = abs(exact)
    exponent = -126
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - 23)
    rounded = round(magnitude / step) * step  # Python rounds fractions half to even
    if rounded > LARGEST:
        return float("inf") if exact > 0 else float("-inf")
    return float(rounded) if exact >= 0 else -float(rounded)


def exact_sum(values: Sequence[float]) -> float:
    """The float32 nearest to the true sum; +0 where that is zero."""
    return nearest_float32(sum((Fraction(value) for value in values), Fraction(0)))


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
