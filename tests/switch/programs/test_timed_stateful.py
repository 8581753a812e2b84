"""The compiled TIMED program and the plain one under any packets and timers: equal registers."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from netfold.switch.program import Machine
from tests.switch.pipeline import ELEMENTS, SLOTS
from tests.switch.programs.lockstep import SLOT_INDICES, TURNS, LockStep


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
TestLockStep.settings = settings(stateful_step_count=40)
