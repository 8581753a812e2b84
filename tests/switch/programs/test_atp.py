"""The compiled ATP program: the reference's truth table row by row, and equal to it under any packets."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from netfold.switch.programs.atp import FREE, new_entries
from tests.reference.atp.switch import AtpReference, Outcome, Verdict
from tests.switch.pipeline import ATP_VERDICTS, ELEMENTS, AtpPipeline
from tests.switch.programs.lockstep import CHILD_DRAWS, CHILDREN, INT32
from tests.switch.programs.test_atp_reference import KEPT, OWN, SENT, TRUTH_TABLE

ENTRIES = 2
ENTRY_INDICES = st.integers(0, ENTRIES - 1)
WORDS = st.lists(INT32, max_size=ELEMENTS)
# Units of one job and of others, the longest identity included: 12 bits of job, 20 of stream, 31 of unit.
IDENTITIES = st.sampled_from([1, 2, (4095 << 51) | (2**20 - 1 << 31) | 2**31 - 1])


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize(
    ("before", "is_resend", "verdict", "bits", "words", "after"), TRUTH_TABLE.values(), ids=TRUTH_TABLE
)
def test_truth_table(
    before: tuple[int, int, int],
    is_resend: bool,
    verdict: Verdict,
    bits: int,
    words: list[int],
    after: tuple[int, int, int, list[int]],
    is_marked: bool,
) -> None:
    """Worker 1 of three sends unit OWN to entry 4, whose registers are set by hand and unmarked."""
    switch = AtpPipeline(6, 2)
    row, values = switch.entries.rows[4], switch.entries.values
    row.identity, row.bitmap, row.count = before
    values[4] = KEPT

    outcome = switch.data(4, OWN, 0b010, 3, is_resend, is_marked, SENT)
    assert outcome == Outcome(verdict, bits, words, is_marked, 0)
    assert (row.identity, row.bitmap, row.count, values[4].tolist()) == after
    assert row.is_marked == (is_marked and verdict is not Verdict.COLLIDED)
    assert (np.delete(switch.entries.rows, 4) == np.delete(new_entries(6, 2).rows, 4)).all()
    assert not np.delete(values, 4, axis=0).any()


def test_truth_table_has_every_verdict() -> None:
    assert {row[2] for row in TRUTH_TABLE.values()} == set(ATP_VERDICTS.values()) == set(Verdict)


def test_all_bits_of_the_bitmap_are_workers() -> None:
    switch = AtpPipeline(1)
    outcomes = [switch.data(0, 9, 1 << worker, 32, False, False, [worker]) for worker in (31, *range(31))]

    assert [outcome.verdict for outcome in outcomes] == [Verdict.CONSUMED] * 31 + [Verdict.FORWARD_COMPLETE]
    assert outcomes[-1] == Outcome(Verdict.FORWARD_COMPLETE, 2**32 - 1, [sum(range(32))], False, 0)


def test_sums_stick_and_are_counted() -> None:
    """INT32_MAX + 1 stays at INT32_MAX, under −5 too; a word that overwrites ends it."""
    switch = AtpPipeline(1)
    largest = 2**31 - 1
    overflowed = [
        switch.data(0, 9, 1 << worker, 3, False, False, [word, word]).overflowed_words
        for worker, word in enumerate([largest, 1, -5])
    ]
    assert overflowed == [0, 2, 2]
    assert switch.entries.values[0, :2].tolist() == [largest, largest]

    switch.acknowledge(0, 9)
    assert switch.data(0, 9, 0b1, 3, False, False, [-5, 4]).overflowed_words == 0
    assert switch.entries.values[0, :2].tolist() == [-5, 4]


def test_acknowledgement_frees_and_unmarks_its_own_entry_only() -> None:
    switch = AtpPipeline(2)
    switch.data(1, OWN, 0b1, 2, False, True, [3])
    held = switch.entries.rows[1].copy()
    switch.acknowledge(0, OWN)
    switch.acknowledge(1, OWN + 1)
    assert switch.entries.rows[1] == held
    assert (held.identity, held.bitmap, held.count, held.is_marked) == (OWN, 1, 1, 1)

    switch.acknowledge(1, OWN)
    assert (switch.entries.rows == new_entries(2, 1).rows).all()


def test_eviction_leaves_its_mark_to_who_claims_the_entry_next() -> None:
    switch = AtpPipeline(1)
    switch.data(0, OWN, 0b01, 2, False, True, [3])
    assert switch.data(0, OWN, 0b01, 2, True, False, [3]).is_marked
    assert (switch.entries.rows[0].identity, switch.entries.rows[0].is_marked) == (FREE, 1)
    switch.data(0, OWN + 1, 0b01, 2, False, False, [3])
    assert switch.data(0, OWN + 1, 0b10, 2, False, False, [3]).is_marked


class AtpLockStep(RuleBasedStateMachine):
    """Units compete for two entries; workers send and resend in any order; registers get lost."""

    @initialize(workers=CHILDREN)
    def start(self, workers: int) -> None:
        self.workers = workers
        self.pipeline = AtpPipeline(ENTRIES)
        self.reference = AtpReference()

    def arrive(
        self, entry: int, identity: int, bits: int, is_resend: bool, is_marked: bool, words: list[int]
    ) -> None:
        """Both process one packet."""
        packet = (entry, identity, bits, self.workers, is_resend, is_marked, words)
        assert self.reference.data(*packet) == self.pipeline.data(*packet)

    @rule(
        entry=ENTRY_INDICES,
        identity=IDENTITIES,
        worker=CHILD_DRAWS,
        is_resend=st.sampled_from([False, False, True]),
        is_marked=st.booleans(),
        words=WORDS,
    )
    def send(
        self, entry: int, identity: int, worker: int, is_resend: bool, is_marked: bool, words: list[int]
    ) -> None:
        self.arrive(entry, identity, 1 << worker % self.workers, is_resend, is_marked, words)

    @rule(entry=ENTRY_INDICES, identity=IDENTITIES, words=WORDS, order=st.randoms(use_true_random=False))
    def send_all(self, entry: int, identity: int, words: list[int], order: Random) -> None:
        """All workers send a unit: mostly a whole round, which single sends rarely make."""
        workers = list(range(self.workers))
        order.shuffle(workers)
        for worker in workers:
            shifted = [(word + worker + 2**31) % 2**32 - 2**31 for word in words]
            self.arrive(entry, identity, 1 << worker, False, False, shifted)

    @rule(entry=ENTRY_INDICES, identity=IDENTITIES, bits=st.integers(1, 2**32 - 1), words=WORDS)
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
        for index in range(ENTRIES):
            entry, row = self.reference.entries[index], self.pipeline.entries.rows[index]
            assert (entry.identity, entry.bitmap, entry.count) == (row.identity, row.bitmap, row.count)
            assert entry.mark == bool(row.is_marked)
            values = entry.values + [0] * (ELEMENTS - len(entry.values))
            assert values == self.pipeline.entries.values[index].tolist()


TestLockStep = AtpLockStep.TestCase
TestLockStep.settings = settings(stateful_step_count=40)
