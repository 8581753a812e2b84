"""Keyed hashes: known values, compiled and plain equal bit for bit, evenly spread."""

from __future__ import annotations

import ast

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from numba import njit

from netfold.homomorphic.kernels import comparison as bits
from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.kernels.bits import popcount, trailing_zeros
from netfold.homomorphic.kernels.comparison import same_bits
from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.kernels.keyed import mix, mix_plain, splitmix64, splitmix64_plain
from netfold.sim.engine.interface import Fate
from tests import ROOT

int64s = st.integers(-(2**63), 2**63 - 1)


@njit
def mix_of_three_types(seed: int, small: np.int32, large: np.uint64) -> np.uint64:
    return mix(seed, small, large, 3)


def test_splitmix64_gives_the_published_sequence() -> None:
    """First outputs of the reference generator with seed 1234567; it adds the golden ratio per step."""
    states = [1234567 + step * 0x9E3779B97F4A7C15 for step in range(3)]

    assert [splitmix64_plain(state) for state in states] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(seed=int64s, first=int64s, second=int64s)
def test_compiled_and_plain_agree(seed: int, first: int, second: int) -> None:
    assert splitmix64_plain(seed) == splitmix64(seed)
    assert mix_plain(seed, first) == mix(seed, first)
    assert mix_plain(seed, first, second) == mix(seed, first, second)


@given(seed=int64s, small=st.integers(-(2**31), 2**31 - 1), large=st.integers(0, 2**64 - 1))
def test_values_may_be_of_different_types(seed: int, small: int, large: int) -> None:
    assert mix_plain(seed, small, large, 3) == mix_of_three_types(seed, np.int32(small), np.uint64(large))


def test_order_and_place_of_values_matter() -> None:
    keys = {mix_plain(1, *values) for values in [(2, 3), (3, 2), (2,), (2, 3, 0), (0, 2, 3), (-2, 3)]}

    assert len(keys) == 6


# Purposes of keyed numbers: different where they share a key, and named at every draw.

DRAWING = {"mix", "mix_plain", "packet_key", "to_point"}
SOURCES = {
    path: path.read_text("utf-8")
    for room in ("homomorphic", "switch", "topologies", "sim")
    for path in (ROOT / room).rglob("*.py")
}


def test_purposes_that_share_a_key_differ() -> None:
    numbers = {name: value for name, value in vars(purposes).items() if name.isupper()}
    del numbers["RING_FLOW_SEED"], numbers["FATE"]
    used = [*numbers.values(), *(purposes.FATE + fate for fate in Fate)]

    assert len(set(used)) == len(used)


def test_every_purpose_has_a_name_and_is_used() -> None:
    used, bare = set(), []
    for path, source in SOURCES.items():
        if not any(word in source for word in ("purposes", *DRAWING)):
            continue
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Attribute(value=ast.Name("purposes")):
                    used.add(node.attr)
                case ast.Call(func=ast.Name(name)) if name in DRAWING and any(map(is_bare, node.args)):
                    bare.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")

    assert bare == []
    assert used == {name for name in vars(purposes) if name.isupper()}


def is_bare(argument: ast.expr) -> bool:
    """Whether an argument is an integer, or a sum with one."""
    if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Add):
        return is_bare(argument.left) or is_bare(argument.right)
    return isinstance(argument, ast.Constant) and isinstance(argument.value, int)


# Bits of a word against Python's own count.


@kernel
def counts(word: np.uint64) -> tuple[np.uint64, np.uint64]:
    return popcount(word), trailing_zeros(word)


@given(word=st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 63).map(lambda bit: 1 << bit)))
def test_bits_of_a_word_are_counted(word: int) -> None:
    trailing = 64 if word == 0 else (word & -word).bit_length() - 1

    assert (word.bit_count(), trailing) == counts(np.uint64(word))


# Arrays are the same where their bytes are.

WORDS = st.lists(st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf]), max_size=12)


@given(WORDS, WORDS)
@example([1.0] * 12, [1.0] * 11 + [-0.0])
@example([1.0], [1.0] * 8)
def test_arrays_are_the_same_where_their_bytes_are(one: list[float], other: list[float]) -> None:
    left, right = np.array(one, np.float32), np.array(other, np.float32)
    before = bits._SLICE
    bits._SLICE = 4
    try:
        assert same_bits(left, right) == (left.tobytes() == right.tobytes())
        assert same_bits(left, left.copy())
    finally:
        bits._SLICE = before


def test_views_of_the_same_memory_are_the_same_if_they_are_as_long() -> None:
    whole = np.arange(8, dtype=np.int32)

    assert same_bits(whole, whole[:])
    assert not same_bits(whole, whole[:7])
    assert not same_bits(whole[::2], whole[:4])
