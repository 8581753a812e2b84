"""The SwitchML switch program as a truth table, one packet at a time, in plain Python.

Source: p4lang/p4app-switchML @ b5c74a0, dev_root/p4: bitmap_checker.p4, workers_counter.p4, processor.p4,
exponents.p4 and next_step_selector.p4. Bitmap, counter, values and exponent are separate registers there,
each with its own condition, and can disagree after a fault; so they can here.

What one packet of worker w does to its slot, version v (bm: bitmap, c: counter, n: workers):

    always                          bm[v] gains w, bm[1 - v] loses w: that readies the other version
    the packet has no words         it counts as any, and merging it changes no value
    bm[v] was empty                 values and exponent are overwritten, the slot is not answered
    bm[v] had others, not w         values are merged, exponent is the larger
    bm[v] had w (a duplicate)       values, exponent and counter are only read

    duplicate   c before     c after     verdict
    no          0            n - 1       CONSUMED
    no          1            0           COMPLETE    multicast
    no          2 or more    c - 1       CONSUMED
    yes         0            0           ANSWER      unicast
    yes         1 or more    c           DROPPED

With one worker the counter is left out: a new packet is COMPLETE, a duplicate is an ANSWER. In a tree,
the workers of a point are its children.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from netfold.sim.engine.engine_data import Overflow
from tests.reference.switch.merging import Operand, Register


class Verdict(Enum):
    """What becomes of a packet after its pass through the switch."""

    CONSUMED = "merged, others are missing"
    COMPLETE = "merged as the last: result to every worker"
    ANSWER = "duplicate of a complete slot: result to its sender"
    DROPPED = "duplicate of an incomplete slot"
    LATE = "TIMED: the slot has answered without its sender: that result to it"
    EXPIRED = "TIMED: the slot has gone on: nothing but zeros to its sender"


@dataclass
class Slot:
    """Registers of one slot, a pair of each: entry v belongs to version v."""

    bitmap: list[int] = field(default_factory=lambda: [0, 0])
    counter: list[int] = field(default_factory=lambda: [0, 0])
    registers: list[Register] = field(default_factory=lambda: [Register(), Register()])
    answered: list[bool] = field(default_factory=lambda: [False, False])  # holds the result of the whole tree


class SwitchmlReference:
    """`slots` slots of one job with `workers` workers; each slot has two versions."""

    def __init__(self, workers: int, slots: int, overflow: Overflow = Overflow.WRAP) -> None:
        self.workers = workers
        self.overflow = overflow
        self.slots = [Slot() for _ in range(slots)]
        self.overflowed_words = 0

    def packet(self, worker: int, slot: int, version: int, operand: Operand) -> Verdict:
        """Process one packet; its words belong to position 0 of the register and on."""
        state = self.slots[slot]
        bit = 1 << worker
        before = state.bitmap[version]
        duplicate = before & bit != 0
        state.bitmap[version] |= bit
        state.bitmap[1 - version] &= ~bit

        verdict = self._count(state.counter, version, duplicate)
        if before == 0:
            state.registers[version].overwrite(operand)
            state.answered[version] = False
        elif not duplicate:
            self.overflowed_words += state.registers[version].merge(operand, self.overflow)
        return verdict

    def register(self, slot: int, version: int) -> Register:
        return self.slots[slot].registers[version]

    def is_answered(self, slot: int, version: int) -> bool:
        return self.slots[slot].answered[version]

    def keep(self, slot: int, version: int, result: Operand) -> bool:
        """Take in a result of the parent: whether it is news."""
        if self.is_answered(slot, version):
            return False
        self.register(slot, version).overwrite(result)
        self.slots[slot].answered[version] = True
        return True

    def clear(self) -> None:
        self.slots = [Slot() for _ in self.slots]

    def _count(self, counter: list[int], version: int, duplicate: bool) -> Verdict:
        """Advance the counter, which alone decides whether the slot is complete."""
        if self.workers == 1:
            return Verdict.ANSWER if duplicate else Verdict.COMPLETE
        old = counter[version]
        if duplicate:
            return Verdict.ANSWER if old == 0 else Verdict.DROPPED
        counter[version] = self.workers - 1 if old == 0 else old - 1
        return Verdict.COMPLETE if old == 1 else Verdict.CONSUMED
