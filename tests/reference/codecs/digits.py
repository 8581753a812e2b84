"""Exact numbers from their definition: fractions and Python's integers, one value at a time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

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
