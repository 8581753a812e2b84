"""The compiled TIMED program: its truth table row by row, its two rows a slot, and its timers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from netfold.switch.program import Machine
from netfold.switch.registers import ANSWER, COMPLETE, CONSUMED, DROPPED, EXPIRED, LATE, new_registers
from tests.examples import examples
from tests.switch.pipeline import ELEMENTS, SLOTS, Make, Packet, Pipeline, both_engines
from tests.switch.programs.lockstep import SLOT_INDICES, TURNS, LockStep

KEPT, SENT, ADDED = [70, -7], [5, 20], [75, 13]
TURN = 4  # of the row


@pytest.mark.parametrize(
    ("workers", "turn", "bitmap", "is_emitted", "values", "after", "verdict"),
    [
        pytest.param(3, 6, 0b101, False, SENT, (6, 0b010, False), CONSUMED, id="newer, waiting: overwrite"),
        pytest.param(3, 6, 0b111, True, SENT, (6, 0b010, False), CONSUMED, id="newer, complete: overwrite"),
        pytest.param(3, 8, 0b011, True, SENT, (8, 0b010, False), CONSUMED, id="much newer, partial"),
        pytest.param(3, 4, 0b001, False, ADDED, (4, 0b011, False), CONSUMED, id="same, new: merge"),
        pytest.param(3, 4, 0b101, False, ADDED, (4, 0b111, True), COMPLETE, id="same, the last: merge"),
        pytest.param(4, 4, 0b101, False, ADDED, (4, 0b111, False), CONSUMED, id="same, third of four"),
        pytest.param(3, 4, 0b011, False, KEPT, (4, 0b011, False), DROPPED, id="same, seen: read"),
        pytest.param(3, 4, 0b111, True, KEPT, (4, 0b111, True), ANSWER, id="emitted complete, seen: read"),
        pytest.param(3, 4, 0b010, True, KEPT, (4, 0b010, True), ANSWER, id="emitted partial, seen: read"),
        pytest.param(3, 4, 0b001, True, KEPT, (4, 0b001, True), LATE, id="emitted, not in it: read"),
        pytest.param(3, 4, 0b101, True, KEPT, (4, 0b101, True), LATE, id="emitted, the last: read"),
        pytest.param(3, 2, 0b001, False, KEPT, (4, 0b001, False), EXPIRED, id="older, waiting: read"),
        pytest.param(3, 2, 0b111, True, KEPT, (4, 0b111, True), EXPIRED, id="older, emitted: read"),
        pytest.param(3, 0, 0b010, True, KEPT, (4, 0b010, True), EXPIRED, id="older, seen: read"),
    ],
)
def test_truth_table(
    workers: int,
    turn: int,
    bitmap: int,
    is_emitted: bool,
    values: list[int],
    after: tuple[int, int, bool],
    verdict: int,
) -> None:
    """Worker 1 sends to slot 1, whose row for even turns is at turn 4."""
    pipeline = Pipeline(Machine.TIMED, workers, registers=new_registers(3, 2))
    row = pipeline.registers.slots[2]
    row.turn, row.bitmap, row.is_emitted, row.workers = TURN, bitmap, is_emitted, 2
    pipeline.registers.values[2] = KEPT

    assert pipeline.receive(Packet(1, 1, turn, SENT)) == verdict
    assert pipeline.words(1, turn, 2) == values
    assert (row.turn, row.bitmap, row.is_emitted) == after
    assert row.workers == {tuple(SENT): 1, tuple(ADDED): 3, tuple(KEPT): 2}[tuple(values)]
    # The row for odd turns and other slots are as they were.
    assert (np.delete(pipeline.registers.slots, 2) == np.delete(new_registers(3, 2).slots, 2)).all()
    assert not np.delete(pipeline.registers.values, 2, axis=0).any()


@both_engines
def test_straggler_gets_what_the_others_had(make: Make) -> None:
    """It is too late for turn 0, in time for turn 1, and finds turn 0 gone once turn 2 has begun."""
    pipeline = make(Machine.TIMED, 3)
    quick, other, straggler = range(3)

    def sent(worker: int, turn: int, word: int) -> int:
        return pipeline.receive(Packet(worker, 0, turn, [word]))

    assert [sent(quick, 0, 1), sent(other, 0, 2)] == [CONSUMED, CONSUMED]
    pipeline.time_out(0, 0)
    assert [sent(quick, 1, 10), sent(straggler, 0, 4), sent(other, 1, 20)] == [CONSUMED, LATE, CONSUMED]
    assert pipeline.words(0, 0, 1) == [3]
    assert sent(straggler, 1, 40) == COMPLETE
    assert pipeline.words(0, 1, 1) == [70]

    assert sent(quick, 2, 100) == CONSUMED
    assert sent(straggler, 0, 4) == EXPIRED
    assert pipeline.words(0, 2, 1) == [100]


class TimedLockStep(LockStep):
    """TIMED, with faults; workers learn of turns that ended without them."""

    program = Machine.TIMED

    def next_turn(self, child: int, slot: int) -> int:
        """The newest turn of the slot, or the next one for a worker that has sent that."""
        latest = [history[-1].turn for (_, of), history in self.sent.items() if of == slot and history]
        history = self.history(child, slot)
        if history and history[-1].turn == max(latest):
            return history[-1].turn + 1
        return max(latest, default=0)

    @rule(slot=SLOT_INDICES, turn=TURNS)
    def time_out(self, slot: int, turn: int) -> None:
        """A row has waited too long, if it waits."""
        row = self.reference.row(slot, turn)
        if row.turn >= 0 and not row.is_emitted:
            self.reference.time_out(slot, turn)
            self.pipeline.time_out(slot, turn)

    @rule(is_struck=st.sampled_from([False, False, False, True]))
    def clear(self, is_struck: bool) -> None:
        """A fault, not always: all slots are as at the start."""
        if is_struck:
            self.reference.clear()
            for slot in range(SLOTS):
                self.pipeline.clear(slot)

    @rule(slot=SLOT_INDICES, turn=TURNS, names=st.sets(st.sampled_from(["bitmap", "values"])))
    def clear_some(self, slot: int, turn: int, names: set[str]) -> None:
        """A fault: some registers of a slot lose their content, the others do not."""
        row, reference = self.pipeline.row(slot, turn), self.reference.row(slot, turn)
        if "bitmap" in names:
            self.pipeline.registers.slots[row].bitmap = reference.bitmap = 0
        if "values" in names:
            self.pipeline.registers.values[row] = 0
            reference.register.values = []

    @invariant()
    def registers_are_equal(self) -> None:
        for slot in range(SLOTS):
            for turn in (0, 1):
                row = self.pipeline.registers.slots[self.pipeline.row(slot, turn)]
                reference = self.reference.row(slot, turn)
                assert (reference.turn, reference.bitmap) == (row.turn, row.bitmap)
                assert reference.is_emitted == bool(row.is_emitted)
                held = reference.register
                assert (held.workers, held.members) == (row.workers, row.members)
                assert reference.register.read(ELEMENTS) == self.pipeline.words(slot, turn)


TestLockStep = TimedLockStep.TestCase
TestLockStep.settings = settings(examples(30, at_night=2), stateful_step_count=40)
