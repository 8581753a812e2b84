"""The compiled ATP program and the plain one under any packets: equal registers and results."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.reference.atp.switch import AtpReference
from tests.switch.pipeline import ELEMENTS, AtpPipeline
from tests.switch.programs.lockstep import CHILD_DRAWS, CHILDREN, INT32

ENTRIES = 2
ENTRY_INDICES = st.integers(0, ENTRIES - 1)
WORDS = st.lists(INT32, max_size=ELEMENTS)
# Units of one job and of others, the longest identity included: 12 bits of job, 20 of stream, 31 of unit.
IDENTITIES = st.sampled_from([1, 2, (4095 << 51) | (2**20 - 1 << 31) | 2**31 - 1])


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
            entry = self.reference.entries[index]
            values = entry.values + [0] * (ELEMENTS - len(entry.values))
            assert replace(entry, values=values) == self.pipeline.entry(index)


TestLockStep = AtpLockStep.TestCase
TestLockStep.settings = settings(stateful_step_count=40)
