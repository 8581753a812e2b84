"""The index in plain Python: sets of elements, one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from netfold.kernels.keyed_random import splitmix64_plain
from tests.reference.codecs import codecs as plain


def members_of(values: Sequence[float]) -> set[int]:
    """Elements that are not zero; −0.0 is."""
    return {element for element, value in enumerate(values) if value != 0}


def flat(gradients: Sequence[Sequence[float]]) -> list[int]:
    """32-bit words of the union: a bit per element."""
    union = set().union(*(members_of(values) for values in gradients))
    return plain.index_words([float(element in union) for element in range(len(gradients[0]))], 32)


def two_level(gradients: Sequence[Sequence[float]]) -> tuple[list[int], list[list[int]]]:
    """Merged words of the first level, and each worker's words of the second.

    The first has a bit for every 64 elements of which one is a member at some worker; the second has 64 bits
    for each of those, lower half first.
    """
    elements = len(gradients[0])
    union = set().union(*(members_of(values) for values in gradients))
    live = sorted({element // 64 for element in union})
    first = plain.index_words([float(block in live) for block in range(-(-elements // 64))], 32)
    second = []
    for values in gradients:
        own = members_of(values)
        bits = [float(64 * block + j in own) for block in live for j in range(64)]
        second.append(plain.index_words(bits, 32))
    return first, second


def filter_bits(element: int, words: int, hashes: int, key: int) -> set[int]:
    """The bits of a Bloom filter of 64-bit words that an element sets.

    Elements with the same 64ths share the words; in each, they follow one another from a hashed bit on.
    """
    hashed = splitmix64_plain((key + element // 64) % 2**64)
    bits = set()
    for _ in range(hashes):
        word = (hashed // 2**32) * words // 2**32
        first_bit = hashed // 2**26 % 64
        bits.add(64 * word + (first_bit + element) % 64)
        hashed = (hashed * 0xD1342543DE82EF95 + 1) % 2**64
    return bits


def bloom_filter(members: set[int], words: int, hashes: int, key: int) -> set[int]:
    return set().union(*(filter_bits(element, words, hashes, key) for element in members))


def named(bits: set[int], elements: int, words: int, hashes: int, key: int) -> set[int]:
    return {element for element in range(elements) if filter_bits(element, words, hashes, key) <= bits}
