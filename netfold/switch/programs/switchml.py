"""SwitchML's aggregation pool on one pipeline: the effect of one packet.

As in the released program (p4lang/p4app-switchML, `bitmap_checker`, `workers_counter`, `processor`,
`exponents`). Per slot there are two versions; a child's packet for one version clears its bit in the other,
which makes a slot ready again without a control plane. Children are workers or, in a tree of
switches (Sapio et al., NSDI 2021, section 6), switches below.

    bitmap before  this child  counter  values     counter after  verdict
    zero           new         0        overwrite  n − 1          CONSUMED
    zero           new         c > 0    overwrite  c − 1          COMPLETE if c = 1, else CONSUMED   (1)
    non-zero       new         c > 0    merge      c − 1          COMPLETE if c = 1, else CONSUMED
    non-zero       new         0        merge      n − 1          CONSUMED                           (1)
    non-zero       seen        0        read       0              ANSWER: complete, repeat the result
    non-zero       seen        c > 0    read       c              DROPPED: not complete yet

(1) bitmap and counter disagree: only after a fault.

With one child the counter is bypassed: new is COMPLETE, seen is ANSWER. Exponents follow the values: the
first writer overwrites, others merge by signed 8-bit MAX.

The packet of an absent worker has no words: it counts as any, with the smallest exponent, and leaves the
values as they are. Where workers may be absent, a slot also has a register of those whose words it holds
("contributors"). The packet that starts a slot empties it; words overwrite the values if it is empty, else
they merge. The result of a slot in which it is still empty is a header, and so is a partial for the parent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.compiled import inlined
from netfold.kinds import register
from netfold.switch.program import (
    BITMAP_BITS,
    ROCE_1024,
    UDP_256,
    UDP_1024,
    Demand,
    Machine,
    Program,
    ProgramSpec,
    Register,
    Timeouts,
    bitmap_words,
    contributors,
    fold_rows,
    pairs_of_values,
)
from netfold.switch.registers import ANSWER, CHILDREN_MAX, COMPLETE, CONSUMED, DROPPED, MERGE, OVERWRITE, READ

QUEUE_PAIRS_MAX = 512
"""Most queue pairs that a worker can have."""

Slots = NDArray[Any]


@inlined
def mark_child(slots: Slots, row: int, child: int) -> bool:
    """Set the child's bit in this version, clear it in the other; returns whether it was set before."""
    bit = np.uint64(1) << np.uint64(child)
    was_set = bool(slots[row].bitmap & bit)
    slots[row].bitmap |= bit
    slots[row ^ 1].bitmap &= ~bit
    return was_set


@inlined
def count_child(slots: Slots, row: int, children: int, is_new: bool) -> int:
    """Count down for a new packet, or check whether the slot is complete; returns the verdict."""
    if children == 1:
        return COMPLETE if is_new else ANSWER
    count = slots[row].counter
    if not is_new:
        return ANSWER if count == 0 else DROPPED
    slots[row].counter = children - 1 if count == 0 else count - 1
    return COMPLETE if count == 1 else CONSUMED


@inlined
def process_packet(slots: Slots, row: int, child: int, children: int, exponent: int) -> tuple[int, int]:
    """Take one packet through the pipeline; returns its verdict and the action of its words."""
    is_first = slots[row].bitmap == 0
    is_new = not mark_child(slots, row, child)
    verdict = count_child(slots, row, children, is_new)
    if not is_new:
        return verdict, READ
    if is_first:
        slots[row].exponent = exponent
        slots[row].is_answered = 0
        return verdict, OVERWRITE
    slots[row].exponent = max(slots[row].exponent, exponent)
    return verdict, MERGE


def _layout(spec: ProgramSpec, demand: Demand) -> Program:
    """As released (p4/): two words an entry, two versions a slot.

    256 words are folded over the four pipelines of the chip, other payloads take one pass.
    """
    per_pass, pipes = fold_rows(demand)
    rows = spec.versions * demand.slots
    members, wide = contributors(demand, rows, after="bitmap"), bitmap_words(demand)
    registers = (
        Register("receiver", wide * BITMAP_BITS * QUEUE_PAIRS_MAX, 64, lanes=2),  # PSN and slot of a message
        Register("bitmap", demand.slots, 64, lanes=2, after=("receiver",), count=wide),  # both versions
        Register("counter", rows, 32, after=("bitmap",)),
        Register("exponents", rows, 16, lanes=2, after=("bitmap",)),
        *members,
        pairs_of_values(demand, per_pass, rows, after=("counter", *(member.name for member in members))),
    )
    return Program(spec, demand, registers, per_pass, pipes)


def _is_waiting(slots: Any) -> Any:
    return slots.counter != 0


SWITCHML = register(
    ProgramSpec(
        name="switchml",
        title="SwitchML",
        summary="slots in two versions, workers that retransmit",
        machine=Machine.SWITCHML,
        layout=_layout,
        released=Demand(workers=8, slots=8192, words=64),
        overflow="wrap",
        frames=(UDP_256, UDP_1024, ROCE_1024),
        frame="roce-1024",
        message_packets=4,
        timeouts=Timeouts(usual_ps=10 * 10**9),  # the released client's timeout
        may_be_tree=True,
        children_max=CHILDREN_MAX,
        has_counter=True,
        has_exponents_ahead=True,
        is_waiting=_is_waiting,
        reopened_by=frozenset({"duplicate", "reorder", "reboot"}),
    )
)
