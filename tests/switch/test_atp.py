"""ATP in both engines: the truth table row by row, and what packets in a row do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from itertools import product

import numpy as np
import pytest

from netfold.switch.programs import atp
from tests.reference.atp.switch import FREE, AtpReference, Entry, Outcome, Verdict

ATP_VERDICTS = {getattr(atp, verdict.name): verdict for verdict in Verdict}
ENTRIES, WORDS = 6, 3


class AtpPipeline:
    """The aggregators of one switch, with the face of `AtpReference`."""

    def __init__(self) -> None:
        self.entries = atp.new_entries(ENTRIES, WORDS)

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
        """Take one packet of a unit of `workers` workers through the switch."""
        number, overflowed = atp.process_packet(
            self.entries, entry, identity, np.uint32(bits), workers, is_resend, np.array(words, np.int32)
        )
        verdict = ATP_VERDICTS[number]
        if verdict is Verdict.COLLIDED:
            return Outcome(verdict, bits, list(words), is_marked, overflowed)
        row = self.entries.rows[entry]
        row.is_marked |= is_marked
        mark = bool(row.is_marked)
        if verdict in (Verdict.CONSUMED, Verdict.DROPPED):
            return Outcome(verdict, bits, list(words), mark, overflowed)
        held = self.entries.values[entry, : len(words)].tolist()
        outcome = Outcome(verdict, int(row.bitmap), held, mark, overflowed)
        if verdict is Verdict.FORWARD_EVICT:
            atp.free(self.entries, entry)
        return outcome

    def acknowledge(self, entry: int, identity: int) -> None:
        atp.acknowledge(self.entries, entry, identity)

    def entry(self, index: int) -> Entry:
        row = self.entries.rows[index]
        held = (int(row.identity), int(row.bitmap), int(row["count"]), bool(row.is_marked))
        return Entry(*held, self.entries.values[index].tolist())

    def hold(self, index: int, entry: Entry) -> None:
        row = self.entries.rows[index]
        row.identity, row.bitmap, row["count"], row.is_marked = astuple(entry)[:-1]
        self.entries.values[index, : len(entry.values)] = entry.values


OWN, OTHER = 7, 8
KEPT = [100, -5]  # what the entry held before
SENT = [3, 20]
ADDED = [103, 15]
COMPLETE, EVICT, ANSWER, CONSUMED, DROPPED, COLLIDED = Verdict

Switch = AtpPipeline | AtpReference
Make = Callable[[], Switch]
both_engines = pytest.mark.parametrize("make", [AtpPipeline, AtpReference], ids=["compiled", "reference"])


def held(switch: Switch, index: int = 4) -> Entry:
    """What an entry holds, and 0 where it has no words."""
    entry = switch.entry(index)
    return replace(entry, values=entry.values + [0] * (WORDS - len(entry.values)))


def holding(make: Make, entry: Entry) -> Switch:
    """A switch whose entry 4 is set by hand."""
    switch = make()
    switch.hold(4, entry)
    return switch


TRUTH_TABLE = {  # identity, bitmap, count; resend or not; verdict, bits and words that leave; the entry after
    "claims": ((FREE, 0, 0), False, CONSUMED, 0b010, SENT, (OWN, 0b010, 1, SENT)),
    "adds": ((OWN, 0b001, 1), False, CONSUMED, 0b010, SENT, (OWN, 0b011, 2, ADDED)),
    "completes": ((OWN, 0b101, 2), False, COMPLETE, 0b111, ADDED, (OWN, 0b111, 3, ADDED)),
    "after a fault": ((OWN, 0b001, 2), False, COMPLETE, 0b011, ADDED, (OWN, 0b011, 3, ADDED)),
    "seen": ((OWN, 0b011, 2), False, DROPPED, 0b010, SENT, (OWN, 0b011, 2, KEPT)),
    "seen, complete": ((OWN, 0b111, 3), False, ANSWER, 0b111, KEPT, (OWN, 0b111, 3, KEPT)),
    "collides": ((OTHER, 0b011, 2), False, COLLIDED, 0b010, SENT, (OTHER, 0b011, 2, KEPT)),
    "resend, the last": ((OWN, 0b101, 2), True, EVICT, 0b111, ADDED, (FREE, 0, 0, ADDED)),
    "resend, new": ((OWN, 0b001, 1), True, EVICT, 0b011, ADDED, (FREE, 0, 0, ADDED)),
    "resend, seen": ((OWN, 0b011, 2), True, EVICT, 0b011, KEPT, (FREE, 0, 0, KEPT)),
    "resend, complete": ((OWN, 0b111, 3), True, EVICT, 0b111, KEPT, (FREE, 0, 0, KEPT)),
    "resend, free": ((FREE, 0, 0), True, COLLIDED, 0b010, SENT, (FREE, 0, 0, KEPT)),
    "resend, not its own": ((OTHER, 0b111, 3), True, COLLIDED, 0b010, SENT, (OTHER, 0b111, 3, KEPT)),
}


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize(
    ("before", "is_resend", "verdict", "bits", "words", "after"), TRUTH_TABLE.values(), ids=TRUTH_TABLE
)
@both_engines
def test_truth_table(
    make: Make,
    before: tuple[int, int, int],
    is_resend: bool,
    verdict: Verdict,
    bits: int,
    words: list[int],
    after: tuple[int, int, int, list[int]],
    is_marked: bool,
) -> None:
    """Worker 1 of three sends unit OWN to entry 4, whose registers are set by hand and unmarked."""
    switch = holding(make, Entry(*before, False, list(KEPT)))

    outcome = switch.data(4, OWN, 0b010, 3, is_resend, is_marked, SENT)
    assert outcome == Outcome(verdict, bits, words, is_marked, 0)
    *state, values = after
    assert held(switch) == Entry(*state, is_marked and verdict is not COLLIDED, [*values, 0])
    assert all(held(switch, other) == Entry(values=[0] * WORDS) for other in (0, 1, 2, 3, 5))


def test_truth_table_has_every_verdict() -> None:
    assert {row[2] for row in TRUTH_TABLE.values()} == set(ATP_VERDICTS.values()) == set(Verdict)


@pytest.mark.parametrize("is_resend", [False, True])
@pytest.mark.parametrize("identity", [FREE, OWN, OTHER])
@both_engines
def test_mark_stays_in_an_entry_until_it_is_acknowledged(make: Make, identity: int, is_resend: bool) -> None:
    """What collides neither leaves its mark nor takes the entry's along."""
    is_own = identity == OWN or (identity == FREE and not is_resend)
    for old, new in product([False, True], repeat=2):
        before = Entry(identity, 0b01 if identity else 0, int(identity != FREE), old, list(KEPT))
        switch = holding(make, before)
        outcome = switch.data(4, OWN, 0b10, 2, is_resend, new, SENT)
        assert outcome.is_marked == ((old or new) if is_own else new)
        assert held(switch).mark == ((old or new) if is_own else old)
        switch.acknowledge(4, held(switch).identity)
        assert held(switch).mark is False


@pytest.mark.parametrize("workers", [1, 2, 3, 32])
@pytest.mark.parametrize("is_resend", [False, True])
def test_every_state_of_an_entry(workers: int, is_resend: bool) -> None:
    """States that only a fault leaves included, packets of several workers, and sums that stick."""
    full, last = 2**workers - 1, 1 << workers - 1
    bitmaps = range(full + 1) if workers < 32 else (0, 1, last, full - last, full)
    kept, sent = [100, -(2**31) + 1, 2**31 - 1], [2**31 - 1, 5, 0]
    longest = (4095 << 51) | (2**20 - 1 << 31) | 2**31 - 1  # 12 bits of job, 20 of stream, 31 of unit
    counts = {0, 1, workers - 1, workers}
    for identity, before, count, bits in product((FREE, longest, OTHER), bitmaps, counts, bitmaps):
        entry = Entry(identity, before, count, False, kept)
        switches = holding(AtpPipeline, entry), holding(AtpReference, replace(entry, values=list(kept)))
        first, second = (switch.data(4, longest, bits, workers, is_resend, True, sent) for switch in switches)
        assert first == second
        assert held(switches[0]) == held(switches[1])
        for switch in switches:
            switch.acknowledge(4, longest)
        assert held(switches[0]) == held(switches[1])
