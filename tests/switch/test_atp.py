"""ATP in both engines: the truth table row by row, and what packets in a row do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.examples import examples
from tests.reference.atp.switch import FREE, AtpReference, Entry, Outcome, Verdict
from tests.switch.pipeline import ATP_VERDICTS, CHILD_DRAWS, CHILDREN, ELEMENTS, INT32, AtpPipeline

OWN, OTHER = 7, 8
KEPT = [100, -5]  # what the entry held before
SENT = [3, 20]
ADDED = [103, 15]
COMPLETE, EVICT, ANSWER, CONSUMED, DROPPED, COLLIDED = Verdict

ENTRIES, WORDS = 6, 3

Switch = AtpPipeline | AtpReference
Make = Callable[[], Switch]
both_engines = pytest.mark.parametrize(
    "make", [lambda: AtpPipeline(ENTRIES, WORDS), AtpReference], ids=["compiled", "reference"]
)


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


LOCKED = 2
ENTRY_INDICES = st.integers(0, LOCKED - 1)
ANY_WORDS = st.lists(INT32, max_size=ELEMENTS)
# Units of one job and of others, the longest identity included: 12 bits of job, 20 of stream, 31 of unit.
IDENTITIES = st.sampled_from([1, 2, (4095 << 51) | (2**20 - 1 << 31) | 2**31 - 1])


class AtpLockStep(RuleBasedStateMachine):
    """Units compete for two entries; workers send and resend in any order; registers get lost."""

    @initialize(workers=CHILDREN)
    def start(self, workers: int) -> None:
        self.workers = workers
        self.pipeline = AtpPipeline(LOCKED)
        self.reference = AtpReference()

    def arrive(
        self, entry: int, identity: int, bits: int, is_resend: bool, is_marked: bool, words: list[int]
    ) -> None:
        packet = (entry, identity, bits, self.workers, is_resend, is_marked, words)
        assert self.reference.data(*packet) == self.pipeline.data(*packet)

    @rule(
        entry=ENTRY_INDICES,
        identity=IDENTITIES,
        worker=CHILD_DRAWS,
        is_resend=st.sampled_from([False, False, True]),
        is_marked=st.booleans(),
        words=ANY_WORDS,
    )
    def send(
        self, entry: int, identity: int, worker: int, is_resend: bool, is_marked: bool, words: list[int]
    ) -> None:
        self.arrive(entry, identity, 1 << worker % self.workers, is_resend, is_marked, words)

    @rule(entry=ENTRY_INDICES, identity=IDENTITIES, words=ANY_WORDS, order=st.randoms(use_true_random=False))
    def send_all(self, entry: int, identity: int, words: list[int], order: Random) -> None:
        """All workers send a unit: mostly a whole round, which single sends rarely make."""
        workers = list(range(self.workers))
        order.shuffle(workers)
        for worker in workers:
            shifted = [(word + worker + 2**31) % 2**32 - 2**31 for word in words]
            self.arrive(entry, identity, 1 << worker, False, False, shifted)

    @rule(entry=ENTRY_INDICES, identity=IDENTITIES, bits=st.integers(1, 2**32 - 1), words=ANY_WORDS)
    def send_for_several(self, entry: int, identity: int, bits: int, words: list[int]) -> None:
        """No worker does: a packet with several bits, some of them seen."""
        self.arrive(entry, identity, bits, False, False, words)

    @rule(entry=ENTRY_INDICES, identity=IDENTITIES)
    def acknowledge(self, entry: int, identity: int) -> None:
        self.reference.acknowledge(entry, identity)
        self.pipeline.acknowledge(entry, identity)

    @rule(
        entry=ENTRY_INDICES,
        names=st.sets(st.sampled_from(["identity", "bitmap", "count", "is_marked", "values"])),
    )
    def clear_some(self, entry: int, names: set[str]) -> None:
        """A fault: some registers of an entry lose their content, the others do not."""
        reference = self.reference.entries[entry]
        for name in names - {"values"}:
            setattr(self.pipeline.entries.rows[entry], name, 0)
        reference.identity *= "identity" not in names
        reference.bitmap *= "bitmap" not in names
        reference.count *= "count" not in names
        reference.mark &= "is_marked" not in names
        if "values" in names:
            self.pipeline.entries.values[entry] = 0
            reference.values = []

    @invariant()
    def registers_are_equal(self) -> None:
        for index in range(LOCKED):
            entry = self.reference.entries[index]
            values = entry.values + [0] * (ELEMENTS - len(entry.values))
            assert replace(entry, values=values) == self.pipeline.entry(index)


TestLockStep = AtpLockStep.TestCase
TestLockStep.settings = settings(examples(30, at_night=2), stateful_step_count=40)
