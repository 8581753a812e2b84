"""The sketch in plain Python: which counters an element adds to, and peeling in snapshot rounds.

Written from the description of the three settings and of synchronous peeling, with dictionaries and sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from netfold.kernels.keyed_random import splitmix64_plain
from tests.reference.codecs.codecs import wrap

Choices = list[tuple[int, int]]  # of one element: counter and sign (1 or −1) for each of three hashes


class Peeled(NamedTuple):
    values: dict[int, float]  # by element
    estimates: dict[int, float]  # median of what is left, for elements that never stood alone
    rounds: int  # in which something came out
    left: list[float]  # in the counters


def murmur3(key: int, seed: int) -> int:
    """MurmurHash3_x86_32 of four bytes."""
    mask = 2**32 - 1

    def rotated(bits: int, by: int) -> int:
        return (bits << by | bits >> (32 - by)) & mask

    h = seed ^ rotated(key * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h = (rotated(h, 13) * 5 + 0xE6546B64 & mask) ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16


def published(element: int, lanes: int, rows: int) -> Choices:
    """Li et al.: a row and a sign per block and hash, the lane as it is, all rows in one array."""
    block, lane = divmod(element, lanes)
    hashes = [murmur3(block, seed) for seed in range(3)]
    return [(bits % rows * lanes + lane, -1 if bits >> 31 else 1) for bits in hashes]


def rotated(element: int, lanes: int, rows: int, key: int) -> Choices:
    """A row and a turn of the lane per block and hash, in three segments of `rows` rows."""
    block, lane = divmod(element, lanes)
    choices = []
    for number in range(3):
        row = murmur3(block, splitmix64_plain(key + number) % 2**32) % rows
        turn = murmur3(block, splitmix64_plain(key + 100 + number) % 2**32)
        choices.append(((number * rows + row) * lanes + (lane + turn) % lanes, 1))
    return choices


def repaired(element: int, lanes: int, rows: int, key: int) -> Choices:
    """Row and turn are the quotient and the remainder of one number below rows · lanes per hash."""
    block, lane = divmod(element, lanes)
    bits = splitmix64_plain(key + block)
    product = bits * 0xD1342543DE82EF95 % 2**64
    choices = []
    for number, half in enumerate([bits >> 32, bits % 2**32, product >> 32]):
        row, turn = divmod(half * rows * lanes >> 32, lanes)
        choices.append(((number * rows + row) * lanes + (lane + turn) % lanes, 1))
    return choices


def sketch(values: Mapping[int, int], choices: Mapping[int, Choices], counters: int) -> list[int]:
    """Every element's integer in its three counters, modulo 2^32."""
    table = [0] * counters
    for element, value in values.items():
        for counter, sign in choices[element]:
            table[counter] = wrap(table[counter] + sign * value)
    return table


def peel(
    table: Sequence[Any],
    choices: Mapping[int, Choices],
    value_of: Callable[[Any], Any] = wrap,
    counter_of: Callable[[Any], Any] = wrap,
) -> Peeled:
    """In every round, take out all elements that stand alone in a counter when the round begins.

    `value_of` gives what is in a counter as an element's value, `counter_of` what is left as a counter's.
    """
    left = list(table)
    hits: dict[int, list[int]] = {counter: [] for counter in range(len(left))}
    for element, three in choices.items():
        for counter, _ in three:
            hits[counter].append(element)  # twice, if two of its hashes coincide: then it is never alone
    values: dict[int, float] = {}
    rounds = 0
    while True:
        alone: dict[int, Any] = {}
        for element, three in choices.items():
            for counter, sign in three:
                if element not in alone and hits[counter] == [element]:
                    alone[element] = value_of(sign * left[counter])
        if not alone:
            break
        rounds += 1
        values.update(alone)
        for element, value in alone.items():
            for counter, sign in choices[element]:
                left[counter] = counter_of(left[counter] - sign * value)
                hits[counter].remove(element)
    estimates = {
        element: median(sign * left[counter] for counter, sign in choices[element])
        for element in choices
        if element not in values
    }
    return Peeled(values, estimates, rounds, list(left))
