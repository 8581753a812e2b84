"""The TREE switch program as a truth table, one packet at a time, in plain Python.

A streaming aggregation tree over a network that loses nothing, as SHARP has it (Graham et al., COM-HPC 2016;
ISC 2020): one version of every slot, no counter, no answers. A slot is free again as soon as it is complete.

What one packet of child c does to its slot (bm: bitmap, n: children):

    bm before        bm after        values         verdict
    empty            {c}, or empty   overwritten    CONSUMED, or COMPLETE if n = 1
    others, not c    with c          merged         CONSUMED
    all others       empty           merged         COMPLETE
    with c           as it was       untouched      DROPPED
"""

from __future__ import annotations

from dataclasses import dataclass, field

from netfold.sim.engine.engine_data import Overflow
from tests.reference.switch.merging import Operand, Register
from tests.reference.switch.switchml import Verdict


@dataclass
class Row:
    """Registers of one slot."""

    bitmap: int = 0
    register: Register = field(default_factory=Register)


class TreeReference:
    """`slots` slots of one point with so many children."""

    def __init__(self, children: int, slots: int, overflow: Overflow = Overflow.WRAP) -> None:
        self.children = children
        self.overflow = overflow
        self.rows = [Row() for _ in range(slots)]
        self.overflowed_words = 0

    def packet(self, child: int, slot: int, version: int, operand: Operand) -> Verdict:
        """Process one packet of any version; its words belong to position 0 of the register and on."""
        row = self.rows[slot]
        if row.bitmap & 1 << child:
            return Verdict.DROPPED
        if row.bitmap == 0:
            row.register.overwrite(operand)
        else:
            self.overflowed_words += row.register.merge(operand, self.overflow)
        row.bitmap |= 1 << child
        if row.bitmap != (1 << self.children) - 1:
            return Verdict.CONSUMED
        row.bitmap = 0
        return Verdict.COMPLETE

    def register(self, slot: int, version: int) -> Register:
        return self.rows[slot].register

    def is_answered(self, slot: int, version: int) -> bool:
        """No result of the parent is kept."""
        return False

    def keep(self, slot: int, version: int, result: Operand) -> bool:
        """A result of the parent is always news."""
        return True

    def clear(self) -> None:
        self.rows = [Row() for _ in self.rows]
