"""The ATP switch program as a truth table, one packet at a time, in plain Python.

Source: in-ATP/ATP, p4src/p4ml.p4, includes/registers.p4 and includes/common.p4. The program cuts a packet's
values in two halves, each with its own entry and pass; both always do the same, so here one entry is both.
Identity, bitmap, count, mark and values are separate registers and can disagree after a fault.

What a data packet does to its entry (id: identity, 0 = free; bm: bitmap; c: count; n: workers; "new": a bit
of the packet that bm has not):

    packet       id       new   bm        values      count    verdict
    first time   another  -     -         -           -        COLLIDED
    first time   own, 0   yes   bm | bit  merged      c + 1    FORWARD_COMPLETE if c + 1 = n, else CONSUMED
    first time   own, 0   no    bm        read        c        FORWARD_ANSWER if c = n, else DROPPED
    resend       own      yes   0         merged      0        FORWARD_EVICT
    resend       own      no    0         read        0        FORWARD_EVICT
    resend       others   -     -         -           -        COLLIDED

    merged      overwritten if bm was 0, else added; sums stick at the ends of int32
    identity    the packet's after a first time, 0 after a resend, unless it collided
    mark        gains the packet's mark, unless it collided; only an acknowledgement takes it away

What is forwarded has the entry's values, its bitmap with the packet's bit, and its mark. What collided is
forwarded as it came.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from netfold.sim.engine.engine_data import Overflow
from tests.reference.switch.merging import added

FREE = 0  # identity of an entry that nobody claims


class Verdict(Enum):
    """What becomes of a data packet after its pass through the switch."""

    FORWARD_COMPLETE = "merged as the last: to the server"
    FORWARD_EVICT = "a resend freed its entry and takes what was in it along: to the server"
    FORWARD_ANSWER = "duplicate of a complete entry: its values to the server"
    CONSUMED = "merged, others are missing"
    DROPPED = "duplicate of an incomplete entry"
    COLLIDED = "the entry is not its own: to the server as it came"


class Outcome(NamedTuple):
    """A verdict and, if it is to forward, the packet as it leaves."""

    verdict: Verdict
    bits: int
    words: list[int]
    is_marked: bool
    overflowed_words: int = 0  # of this packet: sums that left int32, and words that stuck


@dataclass
class Entry:
    """Registers of one entry."""

    identity: int = FREE
    bitmap: int = 0
    count: int = 0
    mark: bool = False
    values: list[int] = field(default_factory=list)  # grows to the most words ever written


class AtpReference:
    """All entries of one switch, whichever jobs use them."""

    def __init__(self) -> None:
        self.entries: defaultdict[int, Entry] = defaultdict(Entry)

    def data(
        self,
        entry: int,
        identity: int,
        bits: int,
        workers: int,
        is_resend: bool,
        is_marked: bool,
        words: Sequence[int],
    ) -> Outcome:
        """Process one data packet of a unit of `workers` workers.

        `identity` is the unit's, not 0; `words` are int32 values, from position 0 of the register on.
        """
        registers = self.entries[entry]
        allowed = {identity} if is_resend else {identity, FREE}
        if registers.identity not in allowed:
            return Outcome(Verdict.COLLIDED, bits, list(words), is_marked)
        before = registers.bitmap
        is_new = bits & ~before != 0
        registers.identity = FREE if is_resend else identity
        registers.bitmap = 0 if is_resend else before | bits
        registers.count = 0 if is_resend else registers.count + is_new
        registers.mark |= is_marked

        registers.values.extend([0] * (len(words) - len(registers.values)))
        verdict = forward_or_not(is_resend, is_new, registers.count == workers)
        overflowed = merge_words(registers.values, words, before == 0) if is_new else 0
        if verdict in (Verdict.CONSUMED, Verdict.DROPPED):
            return Outcome(verdict, bits, list(words), registers.mark, overflowed)
        values = registers.values[: len(words)]
        return Outcome(verdict, before | bits, values, registers.mark, overflowed)

    def acknowledge(self, entry: int, identity: int) -> None:
        """Free an entry if it is the unit's own; its values stay."""
        registers = self.entries[entry]
        if registers.identity == identity:
            registers.identity, registers.bitmap, registers.count, registers.mark = FREE, 0, 0, False

    def clear(self) -> None:
        self.entries.clear()

    def entry(self, index: int) -> Entry:
        return self.entries[index]

    def hold(self, index: int, entry: Entry) -> None:
        self.entries[index] = entry

    def claimed(self) -> list[int]:
        return sorted(index for index, entry in self.entries.items() if entry.identity != FREE)


def forward_or_not(is_resend: bool, is_new: bool, is_complete: bool) -> Verdict:
    """Verdict on a packet whose entry is its own."""
    if is_resend:
        return Verdict.FORWARD_EVICT
    if is_new:
        return Verdict.FORWARD_COMPLETE if is_complete else Verdict.CONSUMED
    return Verdict.FORWARD_ANSWER if is_complete else Verdict.DROPPED


def merge_words(values: list[int], words: Sequence[int], is_first: bool) -> int:
    """Merge a packet's words into an entry's values in place; how many words overflowed."""
    if is_first:
        values[: len(words)] = words
        return 0
    overflowed = 0
    for index, word in enumerate(words):
        values[index], is_over = added(values[index], word, Overflow.STICKY)
        overflowed += is_over
    return overflowed
