"""SWITCHML: the compiled program row by row of its truth table, and what both engines do with packets."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.message import Merge
from netfold.switch.program import Machine
from netfold.switch.registers import ANSWER, COMPLETE, CONSUMED, DROPPED, new_registers
from tests.examples import examples
from tests.reference.switch.merging import NO_EXPONENT, Operand
from tests.reference.switch.switchml import Slot
from tests.switch.pipeline import ELEMENTS, SLOTS, Make, Packet, Pipeline, both_engines
from tests.switch.programs.lockstep import CHILD_DRAWS, INT32, SLOT_INDICES, TURNS, LockStep

INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)
KEPT = [70, -7]  # what the register held before
SENT = [5, INT32_MAX]
ADDED = [75, INT32_MAX - 7]


@pytest.mark.parametrize(
    ("workers", "bitmap", "counter", "values_after", "counter_after", "verdict"),
    [
        pytest.param(3, 0b000, 0, SENT, 2, CONSUMED, id="zero bitmap, zero counter: overwrite, count from n"),
        pytest.param(3, 0b000, 2, SENT, 1, CONSUMED, id="zero bitmap, counter 2: overwrite, a fault"),
        pytest.param(3, 0b000, 1, SENT, 0, COMPLETE, id="zero bitmap, counter 1: overwrite, a fault"),
        pytest.param(3, 0b001, 2, ADDED, 1, CONSUMED, id="others, counter 2: merge"),
        pytest.param(3, 0b101, 1, ADDED, 0, COMPLETE, id="others, counter 1: merge, the last"),
        pytest.param(3, 0b101, 0, ADDED, 2, CONSUMED, id="others, zero counter: merge, a fault"),
        pytest.param(3, 0b111, 0, KEPT, 0, ANSWER, id="seen, zero counter: read, the slot is complete"),
        pytest.param(3, 0b010, 2, KEPT, 2, DROPPED, id="seen, counter 2: read, not complete yet"),
        pytest.param(1, 0b000, 0, SENT, 0, COMPLETE, id="one worker, new: no counter"),
        pytest.param(1, 0b000, 1, SENT, 1, COMPLETE, id="one worker, new, odd counter: no counter"),
        pytest.param(1, 0b010, 0, KEPT, 0, ANSWER, id="one worker, seen"),
        pytest.param(1, 0b010, 1, KEPT, 1, ANSWER, id="one worker, seen, odd counter: no counter"),
    ],
)
def test_truth_table(
    workers: int, bitmap: int, counter: int, values_after: list[int], counter_after: int, verdict: int
) -> None:
    """Worker 1 sends version 0 of slot 2, whose registers are set by hand; it had sent version 1 before."""
    pipeline = Pipeline(Machine.SWITCHML, workers, registers=new_registers(4, 2))
    slots, values = pipeline.registers
    slots["bitmap"][[4, 5]] = bitmap, 0b111
    slots["counter"][[4, 5]] = counter, 9
    slots["exponent"][[4, 5]] = 3, -1
    slots["workers"][[4, 5]] = 6, 8
    slots["is_answered"][[4, 5]] = 1
    values[[4, 5]] = KEPT, [11, 12]
    other = slots[5].copy()

    assert pipeline.receive(Packet(1, 2, 0, SENT, exponent=-4, workers=2)) == verdict
    assert pipeline.words(2, 0, 2) == values_after
    assert slots[4].counter == counter_after
    assert slots[4].exponent == (-4 if bitmap == 0 else 3)
    assert slots[4].is_answered == (bitmap != 0)
    assert slots[4].workers == {tuple(SENT): 2, tuple(ADDED): 8, tuple(KEPT): 6}[tuple(values_after)]
    assert slots.bitmap[[4, 5]].tolist() == [bitmap | 0b010, 0b101]
    # Nothing else of the other version changes, and no other slot.
    other.bitmap = 0b101
    assert slots[5] == other
    assert pipeline.words(2, 1, 2) == [11, 12]
    assert (np.delete(slots, [4, 5]) == np.delete(new_registers(4, 2).slots, [4, 5])).all()
    assert not np.delete(values, [4, 5], axis=0).any()


@both_engines
def test_a_round_and_copies_of_its_packets(make: Make) -> None:
    """Addition wraps around, the exponent is the largest, and copies change neither."""
    pipeline = make(Machine.SWITCHML, 3)
    script = [
        # worker, word, exponent -> verdict, word and exponent after it
        (0, INT32_MAX, -5, CONSUMED, INT32_MAX, -5),
        (0, 99, 99, DROPPED, INT32_MAX, -5),
        (2, 1, 4, CONSUMED, INT32_MIN, 4),
        (1, 5, -1, COMPLETE, INT32_MIN + 5, 4),
        (2, 99, 99, ANSWER, INT32_MIN + 5, 4),
    ]
    for worker, word, exponent, verdict, after, exponent_after in script:
        assert pipeline.receive(Packet(worker, 1, 0, [word], exponent=exponent)) == verdict
        assert (pipeline.words(1, 0, 1), pipeline.exponent(1, 0)) == ([after], exponent_after)
    assert pipeline.words(0, 0, 1) == [0]


EXPONENTS = st.integers(-128, 127)
RANKS = st.integers(0, 4)


class SwitchmlLockStep(LockStep):
    """SwitchML, with faults that its registers do not survive together, and results of a parent."""

    program = Machine.SWITCHML

    @rule(
        slot=SLOT_INDICES,
        turn=TURNS,
        words=st.lists(INT32, max_size=ELEMENTS),
        exponent=EXPONENTS,
        workers=st.integers(0, 9),
    )
    def keep(self, slot: int, turn: int, words: list[int], exponent: int, workers: int) -> None:
        """A result comes down from the parent."""
        result = Operand(words, Merge.ADD, exponent, workers, members=2**workers - 1)
        assert self.reference.keep(slot, turn, result) == self.pipeline.keep(slot, turn, result)

    @rule(slot=SLOT_INDICES)
    def clear(self, slot: int) -> None:
        """A fault: a slot is as at the start."""
        self.pipeline.clear(slot)
        self.reference.slots[slot] = Slot()

    @rule(slot=SLOT_INDICES, turn=TURNS, names=st.sets(st.sampled_from(["bitmap", "counter", "values"])))
    def clear_some(self, slot: int, turn: int, names: set[str]) -> None:
        """A fault: some registers of a slot lose their content, the others do not."""
        row, reference = 2 * slot + turn, self.reference.slots[slot]
        if "bitmap" in names:
            self.pipeline.registers.slots[row].bitmap = reference.bitmap[turn] = 0
        if "counter" in names:
            self.pipeline.registers.slots[row].counter = reference.counter[turn] = 0
        if "values" in names:
            self.pipeline.registers.values[row] = 0
            reference.registers[turn].values = []

    @invariant()
    def registers_are_equal(self) -> None:
        for slot, reference in enumerate(self.reference.slots):
            rows = self.pipeline.registers.slots[2 * slot : 2 * slot + 2]
            assert reference.bitmap == rows.bitmap.tolist()
            assert reference.counter == rows.counter.tolist()
            assert reference.answered == rows.is_answered.tolist()
            for turn, register in enumerate(reference.registers):
                assert register.read(ELEMENTS) == self.pipeline.words(slot, turn)
                assert (register.workers, register.members) == (rows[turn].workers, rows[turn].members)
                # Before a first packet an exponent says nothing.
                assert register.exponent in (NO_EXPONENT, rows[turn].exponent)


class Result(NamedTuple):
    """A result under way to a worker."""

    slot: int
    round: int
    word: int


@dataclass
class Worker:
    """One worker: per slot the round it is in, and whether its result is still awaited."""

    rounds: list[int] = field(default_factory=lambda: [-1] * SLOTS)
    is_waiting: list[bool] = field(default_factory=lambda: [False] * SLOTS)
    up: deque[tuple[int, int]] = field(default_factory=deque)  # slot and round, oldest first
    down: deque[Result] = field(default_factory=deque)


class Protocol(RuleBasedStateMachine):
    """Workers that keep to the protocol, FIFO paths, any loss: accepted results are sums of their round."""

    @initialize(workers=st.integers(1, 5))
    def start(self, workers: int) -> None:
        self.pipeline = Pipeline(Machine.SWITCHML, workers)
        self.workers = [Worker() for _ in range(workers)]

    def worker(self, draw: int) -> Worker:
        return self.workers[draw % len(self.workers)]

    @staticmethod
    def word(rank: int, slot: int, round_: int) -> int:
        """What a worker contributes: any int32, so that sums wrap."""
        return mix_plain(rank, slot, round_) % 2**32 - 2**31

    def pass_switch(self, rank: int, slot: int, round_: int) -> None:
        """A packet reaches the switch; its result, if any, goes to whom it concerns."""
        packet = Packet(rank, slot, round_, [self.word(rank, slot, round_)])
        verdict = self.pipeline.receive(packet)
        receivers = {COMPLETE: self.workers, ANSWER: [self.workers[rank]]}.get(verdict, [])
        for receiver in receivers:
            receiver.down.append(Result(slot, round_, self.pipeline.words(slot, round_)[0]))

    @rule(draw=CHILD_DRAWS, slot=SLOT_INDICES)
    def send(self, draw: int, slot: int) -> None:
        """The next round of a slot once its last is done; else the same packet again, as a timer would."""
        worker = self.worker(draw)
        worker.rounds[slot] += not worker.is_waiting[slot]
        worker.is_waiting[slot] = True
        worker.up.append((slot, worker.rounds[slot]))

    @rule(draw=CHILD_DRAWS, is_lost=st.sampled_from([False, False, False, True]))
    def pass_up(self, draw: int, is_lost: bool) -> None:
        rank = draw % len(self.workers)
        if self.workers[rank].up:
            slot, round_ = self.workers[rank].up.popleft()
            if not is_lost:
                self.pass_switch(rank, slot, round_)

    @rule(draw=CHILD_DRAWS, is_lost=st.sampled_from([False, False, False, True]))
    def pass_down(self, draw: int, is_lost: bool) -> None:
        worker = self.worker(draw)
        if worker.down:
            result = worker.down.popleft()
            if not is_lost:
                self.accept(worker, result)

    def accept(self, worker: Worker, result: Result) -> None:
        """Take a result if it is awaited; it must be the sum of all workers' words of that round."""
        if worker.is_waiting[result.slot] and worker.rounds[result.slot] == result.round:
            total = sum(self.word(rank, result.slot, result.round) for rank in range(len(self.workers)))
            assert (total + 2**31) % 2**32 - 2**31 == result.word
            worker.is_waiting[result.slot] = False

    @rule(slot=SLOT_INDICES, lost_up=st.sets(RANKS), lost_down=st.sets(RANKS))
    def exchange(self, slot: int, lost_up: set[int], lost_down: set[int]) -> None:
        """All workers send, then all packets in flight arrive, except lost ones."""
        for rank in range(len(self.workers)):
            self.send(rank, slot)
        for rank, worker in enumerate(self.workers):
            while worker.up:
                self.pass_up(rank, rank in lost_up)
        for rank, worker in enumerate(self.workers):
            while worker.down:
                self.pass_down(rank, rank in lost_down)

    @rule()
    def recover(self) -> None:
        """From any state, resending without loss brings the latest round of every slot to its end.

        Twice is enough: a worker may first need the repeated result of the round before.
        """
        for slot in range(SLOTS):
            latest = max(worker.rounds[slot] for worker in self.workers)
            for _ in range(2):
                for rank, worker in enumerate(self.workers):
                    if worker.is_waiting[slot] or worker.rounds[slot] < latest:
                        self.send(rank, slot)
                    while worker.up:
                        self.pass_up(rank, False)
                for rank, worker in enumerate(self.workers):
                    while worker.down:
                        self.pass_down(rank, False)
            assert not any(worker.is_waiting[slot] for worker in self.workers)
            assert {latest} == {worker.rounds[slot] for worker in self.workers}

    @invariant()
    def no_worker_is_two_versions_ahead(self) -> None:
        for slot in range(SLOTS):
            rounds = [worker.rounds[slot] for worker in self.workers]
            assert max(rounds) - min(rounds) <= 1


TestLockStep = SwitchmlLockStep.TestCase
TestLockStep.settings = settings(examples(30, at_night=2), stateful_step_count=40)
TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(examples(30, at_night=2), stateful_step_count=60)
