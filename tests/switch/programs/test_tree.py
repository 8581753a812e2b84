"""The compiled TREE program: its truth table row by row, and equal to the plain one under any packets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from netfold.homomorphic.message import Merge
from netfold.switch.program import Machine
from netfold.switch.registers import COMPLETE, CONSUMED, DROPPED, new_registers
from tests.examples import examples
from tests.reference.switch.tree import Row
from tests.switch.pipeline import ELEMENTS, Make, Packet, Pipeline, both_engines, int32
from tests.switch.programs.lockstep import SLOT_INDICES, LockStep

KEPT, SENT, ADDED = [70, -7], [5, 20], [75, 13]


@pytest.mark.parametrize(
    ("children", "bitmap", "values_after", "exponent_after", "bitmap_after", "verdict"),
    [
        pytest.param(3, 0b000, SENT, -4, 0b010, CONSUMED, id="empty: overwrite"),
        pytest.param(2, 0b00, SENT, -4, 0b10, CONSUMED, id="empty, of two"),
        pytest.param(3, 0b001, ADDED, 3, 0b011, CONSUMED, id="another: merge"),
        pytest.param(4, 0b1001, ADDED, 3, 0b1011, CONSUMED, id="others, not all: merge"),
        pytest.param(3, 0b101, ADDED, 3, 0b000, COMPLETE, id="all others: merge, empty again"),
        pytest.param(2, 0b01, ADDED, 3, 0b00, COMPLETE, id="the other of two: merge, empty again"),
        pytest.param(3, 0b010, KEPT, 3, 0b010, DROPPED, id="seen: read"),
        pytest.param(3, 0b111, KEPT, 3, 0b111, DROPPED, id="seen, all: read, a fault"),
    ],
)
def test_truth_table(
    children: int,
    bitmap: int,
    values_after: list[int],
    exponent_after: int,
    bitmap_after: int,
    verdict: int,
) -> None:
    """Child 1 sends to slot 1, whose registers are set by hand."""
    pipeline = Pipeline(Machine.TREE, children, registers=new_registers(3, 2))
    row = pipeline.registers.slots[2]
    row.bitmap, row.exponent, row.workers = bitmap, 3, 5
    pipeline.registers.values[2] = KEPT

    assert pipeline.receive(Packet(1, 1, 7, SENT, exponent=-4, workers=2)) == verdict
    assert pipeline.words(1, 7, 2) == values_after
    assert (row.bitmap, row.exponent) == (bitmap_after, exponent_after)
    assert row.workers == {tuple(SENT): 2, tuple(ADDED): 7, tuple(KEPT): 5}[tuple(values_after)]
    # The counter is not used, a slot has one row, and other slots are as they were.
    assert row.counter == 0
    assert (np.delete(pipeline.registers.slots, 2) == np.delete(new_registers(3, 2).slots, 2)).all()
    assert not np.delete(pipeline.registers.values, 2, axis=0).any()


@both_engines
def test_resend_to_a_complete_slot_corrupts_the_next_round(make: Make) -> None:
    """Why the program needs a lossless network: it cannot distinguish a copy from the next packet."""
    pipeline = make(Machine.TREE, 2)
    assert [pipeline.receive(Packet(child, 0, 0, [word])) for child, word in [(0, 10), (1, 20)]] == [
        CONSUMED,
        COMPLETE,
    ]
    assert pipeline.receive(Packet(0, 0, 0, [10])) == CONSUMED
    assert pipeline.receive(Packet(0, 0, 1, [100])) == DROPPED
    assert pipeline.receive(Packet(1, 0, 1, [200])) == COMPLETE
    assert pipeline.words(0, 0, 1) == [210]


def test_float_sums_depend_on_the_order() -> None:
    """2^24 + 1 + 1 is 2^24 or 2^24 + 2 in float32, as the packets come."""
    great, one = (int(np.array([number], np.float32).view(np.int32)[0]) for number in (2.0**24, 1.0))

    def total(*words: int) -> float:
        pipeline = Pipeline(Machine.TREE, children=3)
        for child, word in enumerate(words):
            pipeline.receive(Packet(child, 0, 0, [word], Merge.FLOAT_ADD))
        return float(int32(pipeline.words(0, 0, 1)).view(np.float32)[0])

    assert total(great, one, one) == 2.0**24
    assert total(one, one, great) == 2.0**24 + 2


class TreeLockStep(LockStep):
    """TREE, with faults."""

    program = Machine.TREE

    @rule(slot=SLOT_INDICES)
    def clear(self, slot: int) -> None:
        """A fault: a slot is as at the start."""
        self.pipeline.clear(slot)
        self.reference.rows[slot] = Row()

    @rule(slot=SLOT_INDICES, names=st.sets(st.sampled_from(["bitmap", "values"])))
    def clear_some(self, slot: int, names: set[str]) -> None:
        """A fault: some registers of a slot lose their content, the others do not."""
        if "bitmap" in names:
            self.pipeline.registers.slots[2 * slot].bitmap = self.reference.rows[slot].bitmap = 0
        if "values" in names:
            self.pipeline.registers.values[2 * slot] = 0
            self.reference.rows[slot].register.values = []

    @invariant()
    def registers_are_equal(self) -> None:
        for slot, reference in enumerate(self.reference.rows):
            row, register = self.pipeline.registers.slots[2 * slot], reference.register
            assert reference.bitmap == row.bitmap
            assert register.read(ELEMENTS) == self.pipeline.words(slot, 0)
            assert register.workers == row.workers
            # Before a first packet an exponent says nothing.
            assert register.workers == 0 or register.exponent == row.exponent
        assert not self.pipeline.registers.values[1::2].any()


TestLockStep = TreeLockStep.TestCase
TestLockStep.settings = settings(examples(30, at_night=2), stateful_step_count=40)
