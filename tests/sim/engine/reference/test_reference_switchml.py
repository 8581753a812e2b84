"""The SwitchML truth table on its own."""

from __future__ import annotations

import pytest

from netfold.homomorphic.codec import Merge
from tests.reference.switch.merging import Operand
from tests.reference.switch.switchml import SwitchmlReference, Verdict


def test_late_duplicate_corrupts_a_slot_for_good() -> None:
    """A copy of A's first packet comes after A moved on: FIFO paths rule it out, nothing would detect it."""
    switch = SwitchmlReference(workers=2, slots=1)
    a, b = 0, 1

    def send(worker: int, version: int, word: int) -> Verdict:
        return switch.packet(worker, 0, version, Operand([word], Merge.ADD))

    assert [send(a, 0, 10), send(b, 0, 20)] == [Verdict.CONSUMED, Verdict.COMPLETE]
    assert switch.read(0, 0, 1)[0] == [30]
    assert send(a, 1, 1) == Verdict.CONSUMED
    assert send(a, 0, 10) == Verdict.CONSUMED  # the late duplicate
    assert (switch.slots[0].bitmap, switch.slots[0].counter) == ([3, 0], [1, 1])

    assert send(b, 1, 2) == Verdict.COMPLETE
    assert switch.read(0, 1, 1)[0] == [2]  # instead of 1 + 2
    assert [send(a, 0, 100), send(b, 0, 200)] == [Verdict.DROPPED, Verdict.COMPLETE]
    assert switch.read(0, 0, 1)[0] == [240]  # instead of 100 + 200


def test_switch_truth_table() -> None:
    switch = SwitchmlReference(workers=3, slots=2)
    script = [
        # worker, word, exponent -> verdict, word and exponent after it
        (0, 2**31 - 1, -5, Verdict.CONSUMED, 2**31 - 1, -5),
        (0, 99, 99, Verdict.DROPPED, 2**31 - 1, -5),
        (2, 1, 4, Verdict.CONSUMED, -(2**31), 4),  # addition wraps around
        (1, 5, -1, Verdict.COMPLETE, -(2**31) + 5, 4),
        (2, 99, 99, Verdict.ANSWER, -(2**31) + 5, 4),
    ]
    for worker, word, exponent, verdict, after, exponent_after in script:
        assert switch.packet(worker, 1, 0, Operand([word], Merge.ADD, exponent)) == verdict
        assert switch.read(1, 0, 1) == ([after], exponent_after)
    assert switch.read(0, 0, 1) == ([0], -128)


def test_one_worker_completes_every_new_packet() -> None:
    switch = SwitchmlReference(workers=1, slots=1)
    sent = [(version, word) for version, word in zip([0, 0, 1, 0], [4, 5, 6, 7], strict=True)]
    verdicts = [switch.packet(0, 0, version, Operand([word], Merge.ADD)) for version, word in sent]

    assert verdicts == [Verdict.COMPLETE, Verdict.ANSWER, Verdict.COMPLETE, Verdict.COMPLETE]
    assert (switch.read(0, 0, 1)[0], switch.read(0, 1, 1)[0]) == ([7], [6])


def test_short_packets_touch_only_their_own_words() -> None:
    switch = SwitchmlReference(workers=2, slots=1)
    switch.packet(0, 0, 0, Operand([1, 2, 3], Merge.ADD))
    switch.packet(1, 0, 0, Operand([10], Merge.ADD))
    assert switch.read(0, 0, 3)[0] == [11, 2, 3]
    switch.packet(0, 0, 1, Operand([], Merge.ADD))
    switch.packet(
        0, 0, 0, Operand([7], Merge.ADD)
    )  # worker 1 is still in the bitmap: not overwritten but added
    assert switch.read(0, 0, 4)[0] == [18, 2, 3, 0]


@pytest.mark.parametrize(
    ("merge", "old", "new", "expected"), [(Merge.OR, -8, 3, -5), (Merge.MAX, -1, 1, 1), (Merge.MAX, 5, -9, 5)]
)
def test_other_merges(merge: Merge, old: int, new: int, expected: int) -> None:
    switch = SwitchmlReference(workers=2, slots=1)
    switch.packet(0, 0, 0, Operand([old], merge))
    switch.packet(1, 0, 0, Operand([new], merge))
    assert switch.read(0, 0, 1)[0] == [expected]
