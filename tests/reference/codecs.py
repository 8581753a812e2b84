"""Codecs and merges in plain Python: dicts, loops and fractions, slow and readable."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from homomorphic.keyed import splitmix64_plain


def wrap(integer: int) -> int:
    """The int32 that this integer is modulo 2^32."""
    return (integer + 2**31) % 2**32 - 2**31


def wrapping_sum(columns: Sequence[Sequence[int]]) -> list[int]:
    """Sum of equally long lists, word by word, as int32 registers hold it."""
    return [wrap(sum(words)) for words in zip(*columns, strict=True)]


def quantise_exactly(value: float, exponent: int, workers: int) -> int:
    """round(x · 2^31 / (n · 2^e)), half to even: the released client's integer where n is a power of two."""
    return round(Fraction(value) * Fraction(2) ** (31 - exponent) / workers)


def counters_of(key: int, position: int, segment: int) -> list[int]:
    """One counter in each of three segments: two halves of a hash, and the top half of its product."""
    bits = splitmix64_plain(key + position)
    product = bits * 0xD1342543DE82EF95 % 2**64
    halves = [bits >> 32, bits % 2**32, product >> 32]
    return [number * segment + ((half * segment) >> 32) for number, half in enumerate(halves)]


def sketch(values: dict[int, int], key: int, segment: int) -> list[int]:
    """Counters of one tile: every value is added to three of them."""
    counters = [0] * (3 * segment)
    for position, value in values.items():
        for counter in counters_of(key, position, segment):
            counters[counter] = wrap(counters[counter] + value)
    return counters


def peel(counters: Sequence[int], positions: Sequence[int], key: int, segment: int) -> dict[int, int] | None:
    """Values by position, or None if some members never stand alone or something is left in the end."""
    left = list(counters)
    cells: dict[int, set[int]] = {counter: set() for counter in range(len(left))}
    for position in positions:
        for counter in counters_of(key, position, segment):
            cells[counter].add(position)
    values: dict[int, int] = {}
    while any(len(members) == 1 for members in cells.values()):
        counter = next(counter for counter, members in cells.items() if len(members) == 1)
        (position,) = cells[counter]
        values[position] = left[counter]
        for other in counters_of(key, position, segment):
            left[other] = wrap(left[other] - values[position])
            cells[other].discard(position)
    complete = len(values) == len(positions) and not any(left)
    return values if complete else None


def index_words(values: Sequence[float], width: int) -> list[int]:
    """A bit per element: bit j of word w tells whether element width·w + j is not zero."""
    words = [0] * (-(-len(values) // width))
    for element, value in enumerate(values):
        if value != 0:
            words[element // width] += 2 ** (element % width)
    return words


def members(words: Sequence[int], width: int) -> list[int]:
    """Elements that an index names, in ascending order."""
    return [width * w + j for w, word in enumerate(words) for j in range(width) if word // 2**j % 2]


def pack(positions: Sequence[int], values: Sequence[float], scale_of_element: Sequence[float]) -> list[int]:
    """Integers of some elements, one after the other; their products must be exact in double precision."""
    return [round(values[position] * scale_of_element[position]) for position in positions]


def expand(positions: Sequence[int], words: Sequence[int], scale_of_element: Sequence[float]) -> list[float]:
    """Every element's value: a word over its scale where there is one, zero elsewhere."""
    values = [0.0] * len(scale_of_element)
    for position, word in zip(positions, words, strict=True):
        values[position] = word / scale_of_element[position]
    return values


def surviving_bit(tree: object, bits: Sequence[int], thresholds: object) -> tuple[Fraction, int]:
    """Exact probability that the merged bit is 1, and the workers it holds.

    `tree` is a rank, or a pair of trees (accumulated, arriving); `thresholds(a, b)` is the probability, in
    units of 2^-32, that the accumulated bit survives where two bits differ.
    """
    if isinstance(tree, int):
        return Fraction(bits[tree]), 1
    left, right = tree  # type: ignore[misc]
    p, a = surviving_bit(left, bits, thresholds)
    q, b = surviving_bit(right, bits, thresholds)
    keep = Fraction(thresholds(a, b), 2**32)  # type: ignore[operator]
    return p * q + p * (1 - q) * keep + (1 - p) * q * (1 - keep), a + b
