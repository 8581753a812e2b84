"""Merge kernels against NumPy and plain loops, and the errors of merges that cannot be."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from netfold.homomorphic.merge import (
    add_words,
    combine,
    float_add_words,
    lift,
    max_words,
    merge_all,
    or_words,
)
from netfold.homomorphic.message import Merge, Merged
from tests.reference.codecs.codecs import wrapping_sum

int32s = st.integers(-(2**31), 2**31 - 1)
THC_TABLE = np.array([0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30], np.int32)


@st.composite
def pairs(draw: st.DrawFn, dtype: type[np.generic] = np.int32) -> tuple[np.ndarray, np.ndarray]:
    size = draw(st.integers(0, 70))
    elements = int32s if dtype is np.int32 else st.floats(-(2.0**100), 2.0**100, width=32)
    return draw(arrays(dtype, size, elements=elements)), draw(arrays(dtype, size, elements=elements))


@given(pair=pairs())
def test_integer_kernels_are_the_numpy_expressions(pair: tuple[np.ndarray, np.ndarray]) -> None:
    first, second = pair
    for kernel, expression in ((add_words, np.add), (or_words, np.bitwise_or), (max_words, np.maximum)):
        merged = first.copy()
        kernel(merged, second)

        assert expression(first, second).tolist() == merged.tolist()


@given(pair=pairs(np.float32))
def test_float_kernel_is_the_numpy_expression(pair: tuple[np.ndarray, np.ndarray]) -> None:
    first, second = pair
    merged = first.copy()
    float_add_words(merged, second)

    assert (first + second).tobytes() == merged.tobytes()


def test_kernels_merge_only_the_words_given() -> None:
    """A packet may be shorter than the register it lands in, and start anywhere."""
    registers = np.arange(10, dtype=np.int32)
    add_words(registers[3:], np.array([100, 200], np.int32))

    assert registers.tolist() == [0, 1, 2, 103, 204, 5, 6, 7, 8, 9]


@given(
    columns=st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(int32s, min_size=n, max_size=n), min_size=1)
    )
)
def test_addition_wraps_like_registers(columns: list[list[int]]) -> None:
    parts = [np.array(column, np.int32) for column in columns]
    before = [part.copy() for part in parts]

    assert wrapping_sum(columns) == merge_all(Merge.ADD, parts).tolist()
    assert [part.tolist() for part in before] == [part.tolist() for part in parts]


def test_codes_are_lifted_through_the_table_lowest_bits_first() -> None:
    codes = [15, 0, 1, 2, 3, 14, 7, 8]
    word = sum(code << (4 * place) for place, code in enumerate(codes))

    lanes = lift(np.array([word], np.uint32), THC_TABLE)

    assert lanes.tolist() == [30, 0, 3, 5, 7, 27, 14, 16]
    assert np.int32 == lanes.dtype


@given(seed=st.integers(0, 2**32), workers=st.integers(1, 6), words=st.integers(0, 5))
def test_table_add_is_look_up_then_add_in_any_grouping(seed: int, workers: int, words: int) -> None:
    parts = [
        np.random.default_rng([seed, rank]).integers(0, 2**32, words, np.uint32) for rank in range(workers)
    ]
    expected = [
        sum(int(THC_TABLE[(int(part[lane // 8]) >> 4 * (lane % 8)) & 15]) for part in parts)
        for lane in range(8 * words)
    ]

    assert expected == merge_all(Merge.TABLE_ADD, parts, table=THC_TABLE).tolist()
    if workers > 1:
        left = Merged(merge_all(Merge.TABLE_ADD, parts[:1], table=THC_TABLE), 1)  # lifted before
        right = Merged(merge_all(Merge.TABLE_ADD, parts[1:], table=THC_TABLE), workers - 1)
        together = combine(Merge.TABLE_ADD, left, right)

        assert expected == together.words.tolist()
        assert workers == together.workers


def test_combine_changes_neither_side() -> None:
    left, right = Merged(np.array([1, 2], np.int32), 2), Merged(np.array([3, -4], np.int32), 3)

    merged = combine(Merge.ADD, left, right)

    assert merged.words.tolist() == [4, -2]
    assert (merged.workers, left.words.tolist(), right.words.tolist()) == (5, [1, 2], [3, -4])


@pytest.mark.parametrize(
    ("merge", "parts", "text"),
    [
        (Merge.ADD, [], "nothing to merge: give the words of at least one worker"),
        (
            Merge.ADD,
            [np.zeros(2, np.int32), np.zeros(3, np.int32)],
            "add merges equal lengths, found 2 and 3 words",
        ),
        (
            Merge.OR,
            [np.zeros(2, np.int32)],
            "or merges 1-D arrays of uint32, found int32 of shape (2,)",
        ),
        (
            Merge.TABLE_ADD,
            [np.zeros((2, 1), np.float32)],
            "table_add merges 1-D arrays of uint32 or int32, found float32 of shape (2, 1)",
        ),
        (
            Merge.TABLE_ADD,
            [np.zeros(2, np.uint32)],
            "table_add needs the message's table to read packed codes",
        ),
        (
            Merge.GATHER,
            [np.zeros(2, np.int32)],
            "gather cannot be merged: use a collective that delivers every message, such as all_gather",
        ),
    ],
)
def test_what_cannot_be_merged(merge: Merge, parts: list[np.ndarray], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        merge_all(merge, parts)


def test_a_table_has_sixteen_values() -> None:
    text = "table_add needs a table of 16 int32 values, one per 4-bit code, found int64 of shape (3,)"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        lift(np.zeros(1, np.uint32), np.zeros(3, np.int64))
