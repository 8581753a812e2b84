"""The SwitchML switch program as a truth table, one packet at a time, in plain Python.

Source: p4lang/p4app-switchML @ b5c74a0, dev_root/p4: bitmap_checker.p4, workers_counter.p4, processor.p4,
exponents.p4 and next_step_selector.p4. Bitmap, counter, values and exponent are separate registers there,
each with its own condition, and can disagree after a fault; so they can here.

What one packet of worker w does to its slot, version v (bm: bitmap, c: counter, n: workers):

    always                          bm[v] gains w, bm[1 - v] loses w: that readies the other version
    bm[v] was empty                 values and exponent are overwritten
    bm[v] had others, not w         values are merged, exponent is the larger
    bm[v] had w (a duplicate)       values, exponent and counter are only read

    duplicate   c before     c after     verdict
    no          0            n - 1       CONSUMED
    no          1            0           COMPLETE    multicast
    no          2 or more    c - 1       CONSUMED
    yes         0            0           ANSWER      unicast
    yes         1 or more    c           DROPPED

With one worker the counter is left out: a new packet is COMPLETE, a duplicate is an ANSWER.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from sim.engine.model import Merge

NO_EXPONENT = -128  # smallest int8: never wins a maximum


class Verdict(Enum):
    """What becomes of a packet after its pass through the switch."""

    CONSUMED = "merged, others are missing"
    COMPLETE = "merged as the last: result to every worker"
    ANSWER = "duplicate of a complete slot: result to its sender"
    DROPPED = "duplicate of an incomplete slot"


@dataclass
class Slot:
    """Registers of one slot, a pair of each: entry v belongs to version v."""

    bitmap: list[int] = field(default_factory=lambda: [0, 0])
    counter: list[int] = field(default_factory=lambda: [0, 0])
    values: list[list[int]] = field(default_factory=lambda: [[], []])  # grow to the most words ever written
    exponent: list[int] = field(default_factory=lambda: [NO_EXPONENT, NO_EXPONENT])


class SwitchmlReference:
    """`slots` slots of one job with `workers` workers; each slot has two versions."""

    def __init__(self, workers: int, slots: int) -> None:
        self.workers = workers
        self.slots = [Slot() for _ in range(slots)]

    def packet(
        self,
        worker: int,
        slot: int,
        version: int,
        words: Sequence[int],
        merge: Merge,
        exponent: int = NO_EXPONENT,
    ) -> Verdict:
        """Process one packet: `words` are int32 values, from position 0 of the register on."""
        registers = self.slots[slot]
        bit = 1 << worker
        before = registers.bitmap[version]
        duplicate = before & bit != 0
        registers.bitmap[version] |= bit
        registers.bitmap[1 - version] &= ~bit

        verdict = self._count(registers.counter, version, duplicate)
        values = registers.values[version]
        values.extend([0] * (len(words) - len(values)))
        if before == 0:
            values[: len(words)] = words
            registers.exponent[version] = exponent
        elif not duplicate:
            values[: len(words)] = [merged(merge, old, new) for old, new in zip(values, words, strict=False)]
            registers.exponent[version] = max(registers.exponent[version], exponent)
        return verdict

    def read(self, slot: int, version: int, count: int) -> tuple[list[int], int]:
        """The first `count` words of a slot (0 where none was ever written) and its exponent."""
        registers = self.slots[slot]
        values = registers.values[version]
        return values[:count] + [0] * (count - len(values)), registers.exponent[version]

    def _count(self, counter: list[int], version: int, duplicate: bool) -> Verdict:
        """Advance the counter, which alone decides whether the slot is complete."""
        if self.workers == 1:
            return Verdict.ANSWER if duplicate else Verdict.COMPLETE
        old = counter[version]
        if duplicate:
            return Verdict.ANSWER if old == 0 else Verdict.DROPPED
        counter[version] = self.workers - 1 if old == 0 else old - 1
        return Verdict.COMPLETE if old == 1 else Verdict.CONSUMED


def merged(merge: Merge, old: int, new: int) -> int:
    """Merge of two int32 words: ADD wraps around, OR joins bit patterns, MAX compares as signed."""
    if merge is Merge.OR:
        return old | new
    if merge is Merge.MAX:
        return max(old, new)
    return (old + new + 2**31) % 2**32 - 2**31
