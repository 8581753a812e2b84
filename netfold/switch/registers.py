"""Register arrays of slots: the state of a switch between packets.

Bitmap, counter, values and exponent are separate registers, as in hardware: after a fault they can disagree,
and then results are wrong. Each program uses the fields it needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# The verdict on a packet after its pass through the switch.
CONSUMED, COMPLETE, ANSWER, DROPPED, LATE, EXPIRED, ANSWERED = 0, 1, 2, 3, 4, 5, 6
VERDICTS = ("consumed", "complete", "answer", "dropped", "late", "expired", "answered by the parent")

# The action of its words on the slot's values.
READ, OVERWRITE, MERGE = 0, 1, 2

CHILDREN_MAX = 64  # of a bitmap here; programs and switches may have narrower ones

# One row per slot and version. Rows `2 · slot + version`; the other version of a row is `row ^ 1`.
SLOT = np.dtype(
    [
        ("bitmap", "u8"),  # children seen
        ("counter", "i4"),  # children missing
        ("exponent", "i4"),  # values of an int8
        ("workers", "i4"),  # in the values; 0: the values are old ones
        ("is_answered", "i4"),  # a point below the root: the values are its parent's result
        ("turn", "i4"),  # slots with timers: units completed here before this one
        ("is_emitted", "i4"),
        ("words_count", "i4"),  # slots with timers: of the packet that started the row, like the next five
        ("owner", "i4"),
        ("serial", "i4"),
        ("unit", "i4"),
        ("attempt", "i4"),
        ("merge", "i4"),
        ("last_child", "i4"),  # for diagnosis: of the latest packet, like the next two
        ("last_verdict", "i4"),
        ("members", "u4"),  # bitmap of the workers in the values
        ("last_ps", "i8"),
        ("timer_order", "i8"),  # of the timer that is armed, or −1
    ],
    align=True,
)


class Registers(NamedTuple):
    """All slots of all switches."""

    slots: NDArray[Any]  # (rows,) SLOT
    values: NDArray[np.int32]  # (rows, words)


def new_registers(slots: int, words: int) -> Registers:
    """Cleared registers for `slots` slots, two versions each, of `words` words."""
    registers = Registers(np.zeros(2 * slots, SLOT).view(np.recarray), np.zeros((2 * slots, words), np.int32))
    _clear_slots(registers, slice(None))  # values are zero, and their memory not touched
    return registers


def clear(registers: Registers, rows: slice) -> None:
    """Reset rows to their initial state; armed timers no longer fire."""
    _clear_slots(registers, rows)
    registers.values[rows] = 0


def _clear_slots(registers: Registers, rows: slice) -> None:
    registers.slots[rows] = np.zeros((), SLOT)
    registers.slots["turn"][rows] = -1
    registers.slots["timer_order"][rows] = -1
    registers.slots["last_ps"][rows] = -1
