"""What reference registers do with words: overflow policies by table, signs against the library's kernel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic import merge as library
from netfold.homomorphic.codec import Merge
from netfold.sim.engine.interface import Overflow
from tests.reference.switch.merging import Operand, Register, added
from tests.reference.switch.switchml import Verdict
from tests.reference.switch.tree import TreeReference

MAX, MIN = 2**31 - 1, -(2**31)


@pytest.mark.parametrize(
    ("old", "new", "wrap", "saturate", "sticky"),
    [
        (1, 2, (3, False), (3, False), (3, False)),
        (MAX - 1, 1, (MAX, False), (MAX, False), (MAX, False)),
        (MAX, 1, (MIN, True), (MAX, True), (MAX, True)),
        (MAX, 0, (MAX, False), (MAX, False), (MAX, False)),
        (MAX, -5, (MAX - 5, False), (MAX - 5, False), (MAX, True)),
        (-5, MAX, (MAX - 5, False), (MAX - 5, False), (MAX - 5, False)),
        (MIN, -1, (MAX, True), (MIN, True), (MIN, True)),
        (-MAX, 7, (-MAX + 7, False), (-MAX + 7, False), (-MAX, True)),
        (-MAX, -1, (MIN, False), (MIN, False), (-MAX, True)),
    ],
)
def test_overflow_policies(
    old: int, new: int, wrap: tuple[int, bool], saturate: tuple[int, bool], sticky: tuple[int, bool]
) -> None:
    assert added(old, new, Overflow.WRAP) == wrap
    assert added(old, new, Overflow.SATURATE) == saturate
    assert added(old, new, Overflow.STICKY) == sticky


@given(
    st.lists(st.tuples(*[st.integers(0, 2**32 - 1)] * 2), max_size=5),
    *[st.integers(1, 40)] * 2,
    st.integers(0, 2**64 - 1),
)
def test_signs_merge_as_the_library_does(pairs: list[tuple[int, int]], a: int, b: int, key: int) -> None:
    old, new = (np.array([pair[side] for pair in pairs], np.uint32) for side in (0, 1))
    register = Register(old.view(np.int32).tolist(), workers=a)
    register.merge(Operand(new.view(np.int32).tolist(), Merge.SIGN, workers=b, key=key), Overflow.WRAP)
    library.sign_words(old, new, library.keep_threshold(a, b), np.uint64(key))

    assert register.values == old.view(np.int32).tolist()
    assert register.workers == a + b


def test_tree_truth_table() -> None:
    switch = TreeReference(children=3, slots=1)

    def send(child: int, word: int) -> Verdict:
        return switch.packet(child, 0, 0, Operand([word], Merge.ADD))

    for _ in range(2):  # a complete slot is free at once
        assert send(1, 10) == Verdict.CONSUMED
        assert send(1, 99) == Verdict.DROPPED
        assert send(0, 20) == Verdict.CONSUMED
        assert send(2, 30) == Verdict.COMPLETE
        assert (switch.rows[0].bitmap, switch.rows[0].register.values) == (0, [60])


def test_tree_with_one_child_completes_every_packet() -> None:
    switch = TreeReference(children=1, slots=1)
    for word in (4, 5):
        assert switch.packet(0, 0, 0, Operand([word], Merge.ADD)) == Verdict.COMPLETE
        assert switch.rows[0].register.values == [word]
