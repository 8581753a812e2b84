"""Switch programs beside plain ones: SwitchML, trees of switches, timed slots, one of a user."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from netfold.commands import main
from netfold.homomorphic.message import Merge
from netfold.kernels.keyed import mix_plain
from netfold.sim.engine.interface import Overflow
from netfold.sim.scenario.load import schema
from netfold.switch.program import ROCE_1024, Demand, Machine, ProgramSpec, _registry, register
from netfold.switch.programs import programs, runnable
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.switch.registers import ANSWER, COMPLETE, CONSUMED, DROPPED, EXPIRED, LATE, new_registers
from tests.examples import examples
from tests.reference.switch.merging import NO_EXPONENT, Operand, Register
from tests.reference.switch.switchml import Slot
from tests.reference.switch.timed import Row as TimedRow
from tests.reference.switch.tree import Row
from tests.sim.scenes import TINY, job_of, only, refused, simulate
from tests.switch.pipeline import (
    CHILD_DRAWS,
    ELEMENTS,
    INT32,
    SLOT_INDICES,
    SLOTS,
    TURNS,
    LockStep,
    Make,
    Packet,
    Pipeline,
    both_engines,
    int32,
)

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


RANKS = st.integers(0, 4)


class SwitchmlLockStep(LockStep):
    """SwitchML, with faults that its registers do not survive together, and results of a parent."""

    program = Machine.SWITCHML

    @rule(
        slot=SLOT_INDICES,
        turn=TURNS,
        words=st.lists(INT32, max_size=ELEMENTS),
        exponent=st.integers(-128, 127),
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
            for turn, one in enumerate(reference.registers):
                assert one.read(ELEMENTS) == self.pipeline.words(slot, turn)
                assert (one.workers, one.members) == (rows[turn].workers, rows[turn].members)
                # Before a first packet an exponent says nothing.
                assert one.exponent in (NO_EXPONENT, rows[turn].exponent)


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


SMALL_SENT, SMALL_ADDED = [5, 20], [75, 13]


@pytest.mark.parametrize(
    ("children", "bitmap", "values_after", "exponent_after", "bitmap_after", "verdict"),
    [
        pytest.param(3, 0b000, SMALL_SENT, -4, 0b010, CONSUMED, id="empty: overwrite"),
        pytest.param(2, 0b00, SMALL_SENT, -4, 0b10, CONSUMED, id="empty, of two"),
        pytest.param(3, 0b001, SMALL_ADDED, 3, 0b011, CONSUMED, id="another: merge"),
        pytest.param(4, 0b1001, SMALL_ADDED, 3, 0b1011, CONSUMED, id="others, not all: merge"),
        pytest.param(3, 0b101, SMALL_ADDED, 3, 0b000, COMPLETE, id="all others: merge, empty again"),
        pytest.param(2, 0b01, SMALL_ADDED, 3, 0b00, COMPLETE, id="the other of two: merge, empty again"),
        pytest.param(3, 0b010, KEPT, 3, 0b010, DROPPED, id="seen: read"),
        pytest.param(3, 0b111, KEPT, 3, 0b111, DROPPED, id="seen, all: read, a fault"),
    ],
)
def test_truth_table_of_a_tree(
    children: int,
    bitmap: int,
    values_after: list[int],
    exponent_after: int,
    bitmap_after: int,
    verdict: int,
) -> None:
    """Child 1 sends to slot 1, whose registers are set by hand."""
    pipeline = Pipeline(Machine.TREE, children, registers=new_registers(3, 2))
    row = pipeline.registers.slots[2]
    row.bitmap, row.exponent, row.workers = bitmap, 3, 5
    pipeline.registers.values[2] = KEPT

    assert pipeline.receive(Packet(1, 1, 7, SMALL_SENT, exponent=-4, workers=2)) == verdict
    assert pipeline.words(1, 7, 2) == values_after
    assert (row.bitmap, row.exponent) == (bitmap_after, exponent_after)
    assert row.workers == {tuple(SMALL_SENT): 2, tuple(SMALL_ADDED): 7, tuple(KEPT): 5}[tuple(values_after)]
    # The counter is not used, a slot has one row, and other slots are as they were.
    assert row.counter == 0
    assert (np.delete(pipeline.registers.slots, 2) == np.delete(new_registers(3, 2).slots, 2)).all()
    assert not np.delete(pipeline.registers.values, 2, axis=0).any()


@both_engines
def test_resend_to_a_complete_slot_corrupts_the_next_round(make: Make) -> None:
    """Why the program needs a lossless network: it cannot distinguish a copy from the next packet."""
    pipeline = make(Machine.TREE, 2)
    assert [pipeline.receive(Packet(child, 0, 0, [word])) for child, word in [(0, 10), (1, 20)]] == [
        CONSUMED,
        COMPLETE,
    ]
    assert pipeline.receive(Packet(0, 0, 0, [10])) == CONSUMED
    assert pipeline.receive(Packet(0, 0, 1, [100])) == DROPPED
    assert pipeline.receive(Packet(1, 0, 1, [200])) == COMPLETE
    assert pipeline.words(0, 0, 1) == [210]


def test_float_sums_depend_on_the_order() -> None:
    """2^24 + 1 + 1 is 2^24 or 2^24 + 2 in float32, as the packets come."""
    great, one = (int(np.array([number], np.float32).view(np.int32)[0]) for number in (2.0**24, 1.0))

    def total(*words: int) -> float:
        pipeline = Pipeline(Machine.TREE, children=3)
        for child, word in enumerate(words):
            pipeline.receive(Packet(child, 0, 0, [word], Merge.FLOAT_ADD))
        return float(int32(pipeline.words(0, 0, 1)).view(np.float32)[0])

    assert total(great, one, one) == 2.0**24
    assert total(one, one, great) == 2.0**24 + 2


class TreeLockStep(LockStep):
    """TREE, with faults."""

    program = Machine.TREE

    @rule(slot=SLOT_INDICES)
    def clear(self, slot: int) -> None:
        """A fault: a slot is as at the start."""
        self.pipeline.clear(slot)
        self.reference.rows[slot] = Row()

    @rule(slot=SLOT_INDICES, names=st.sets(st.sampled_from(["bitmap", "values"])))
    def clear_some(self, slot: int, names: set[str]) -> None:
        """A fault: some registers of a slot lose their content, the others do not."""
        if "bitmap" in names:
            self.pipeline.registers.slots[2 * slot].bitmap = self.reference.rows[slot].bitmap = 0
        if "values" in names:
            self.pipeline.registers.values[2 * slot] = 0
            self.reference.rows[slot].register.values = []

    @invariant()
    def registers_are_equal(self) -> None:
        for slot, reference in enumerate(self.reference.rows):
            row, register = self.pipeline.registers.slots[2 * slot], reference.register
            assert reference.bitmap == row.bitmap
            assert register.read(ELEMENTS) == self.pipeline.words(slot, 0)
            assert register.workers == row.workers
            # Before a first packet an exponent says nothing.
            assert register.workers == 0 or register.exponent == row.exponent
        assert not self.pipeline.registers.values[1::2].any()


TestTreeInLockStep = TreeLockStep.TestCase
TestTreeInLockStep.settings = settings(examples(30, at_night=2), stateful_step_count=40)


TURN = 4  # of the row


@pytest.mark.parametrize(
    ("workers", "turn", "bitmap", "is_emitted", "values", "after", "verdict"),
    [
        pytest.param(
            3, 6, 0b101, False, SMALL_SENT, (6, 0b010, False), CONSUMED, id="newer, waiting: overwrite"
        ),
        pytest.param(
            3, 6, 0b111, True, SMALL_SENT, (6, 0b010, False), CONSUMED, id="newer, complete: overwrite"
        ),
        pytest.param(3, 8, 0b011, True, SMALL_SENT, (8, 0b010, False), CONSUMED, id="much newer, partial"),
        pytest.param(3, 4, 0b001, False, SMALL_ADDED, (4, 0b011, False), CONSUMED, id="same, new: merge"),
        pytest.param(3, 4, 0b101, False, SMALL_ADDED, (4, 0b111, True), COMPLETE, id="same, the last: merge"),
        pytest.param(4, 4, 0b101, False, SMALL_ADDED, (4, 0b111, False), CONSUMED, id="same, third of four"),
        pytest.param(3, 4, 0b011, False, KEPT, (4, 0b011, False), DROPPED, id="same, seen: read"),
        pytest.param(3, 4, 0b111, True, KEPT, (4, 0b111, True), ANSWER, id="emitted complete, seen: read"),
        pytest.param(3, 4, 0b010, True, KEPT, (4, 0b010, True), ANSWER, id="emitted partial, seen: read"),
        pytest.param(3, 4, 0b001, True, KEPT, (4, 0b001, True), LATE, id="emitted, not in it: read"),
        pytest.param(3, 4, 0b101, True, KEPT, (4, 0b101, True), LATE, id="emitted, the last: read"),
        pytest.param(3, 2, 0b001, False, KEPT, (4, 0b001, False), EXPIRED, id="older, waiting: read"),
        pytest.param(3, 2, 0b111, True, KEPT, (4, 0b111, True), EXPIRED, id="older, emitted: read"),
        pytest.param(3, 0, 0b010, True, KEPT, (4, 0b010, True), EXPIRED, id="older, seen: read"),
    ],
)
def test_truth_table_of_timed_slots(
    workers: int,
    turn: int,
    bitmap: int,
    is_emitted: bool,
    values: list[int],
    after: tuple[int, int, bool],
    verdict: int,
) -> None:
    """Worker 1 sends to slot 1, whose row for even turns is at turn 4."""
    pipeline = Pipeline(Machine.TIMED, workers, registers=new_registers(3, 2))
    row = pipeline.registers.slots[2]
    row.turn, row.bitmap, row.is_emitted, row.workers = TURN, bitmap, is_emitted, 2
    pipeline.registers.values[2] = KEPT

    assert pipeline.receive(Packet(1, 1, turn, SMALL_SENT)) == verdict
    assert pipeline.words(1, turn, 2) == values
    assert (row.turn, row.bitmap, row.is_emitted) == after
    assert row.workers == {tuple(SMALL_SENT): 1, tuple(SMALL_ADDED): 3, tuple(KEPT): 2}[tuple(values)]
    # The row for odd turns and other slots are as they were.
    assert (np.delete(pipeline.registers.slots, 2) == np.delete(new_registers(3, 2).slots, 2)).all()
    assert not np.delete(pipeline.registers.values, 2, axis=0).any()


def test_a_timed_slot_waits_from_its_first_turn_on_until_it_has_answered() -> None:
    slots = new_registers(2, 2).slots
    slots.turn[1:], slots.is_emitted[1:] = [0, 0, 2], [False, True, False]

    assert TIMED.is_waiting(slots).tolist() == [False, True, False, True]


@both_engines
def test_straggler_gets_what_the_others_had(make: Make) -> None:
    """It is too late for turn 0, in time for turn 1, and finds turn 0 gone once turn 2 has begun."""
    pipeline = make(Machine.TIMED, 3)
    quick, other, straggler = range(3)

    def sent(worker: int, turn: int, word: int) -> int:
        return pipeline.receive(Packet(worker, 0, turn, [word]))

    assert [sent(quick, 0, 1), sent(other, 0, 2)] == [CONSUMED, CONSUMED]
    pipeline.time_out(0, 0)
    assert [sent(quick, 1, 10), sent(straggler, 0, 4), sent(other, 1, 20)] == [CONSUMED, LATE, CONSUMED]
    assert pipeline.words(0, 0, 1) == [3]
    assert sent(straggler, 1, 40) == COMPLETE
    assert pipeline.words(0, 1, 1) == [70]

    assert sent(quick, 2, 100) == CONSUMED
    assert sent(straggler, 0, 4) == EXPIRED
    assert pipeline.words(0, 2, 1) == [100]


class TimedLockStep(LockStep):
    """TIMED, with faults; workers learn of turns that ended without them."""

    program = Machine.TIMED

    def next_turn(self, child: int, slot: int) -> int:
        """The newest turn of the slot, or the next one for a worker that has sent that."""
        latest = [history[-1].turn for (_, of), history in self.sent.items() if of == slot and history]
        history = self.history(child, slot)
        if history and history[-1].turn == max(latest):
            return history[-1].turn + 1
        return max(latest, default=0)

    @rule(slot=SLOT_INDICES, turn=TURNS)
    def time_out(self, slot: int, turn: int) -> None:
        row = self.reference.row(slot, turn)
        if row.turn >= 0 and not row.is_emitted:
            self.reference.time_out(slot, turn)
            self.pipeline.time_out(slot, turn)

    @rule(is_struck=st.sampled_from([False, False, False, True]))
    def clear(self, is_struck: bool) -> None:
        """A fault, not always: all slots are as at the start."""
        if is_struck:
            self.reference.clear()
            for slot in range(SLOTS):
                self.pipeline.clear(slot)

    @rule(slot=SLOT_INDICES, turn=TURNS, names=st.sets(st.sampled_from(["bitmap", "values"])))
    def clear_some(self, slot: int, turn: int, names: set[str]) -> None:
        """A fault: some registers of a slot lose their content, the others do not."""
        row, reference = self.pipeline.row(slot, turn), self.reference.row(slot, turn)
        if "bitmap" in names:
            self.pipeline.registers.slots[row].bitmap = reference.bitmap = 0
        if "values" in names:
            self.pipeline.registers.values[row] = 0
            reference.register.values = []

    @invariant()
    def registers_are_equal(self) -> None:
        for slot in range(SLOTS):
            for turn in (0, 1):
                row = self.pipeline.registers.slots[self.pipeline.row(slot, turn)]
                reference = self.reference.row(slot, turn)
                assert (reference.turn, reference.bitmap) == (row.turn, row.bitmap)
                assert reference.is_emitted == bool(row.is_emitted)
                held = reference.register
                assert (held.workers, held.members) == (row.workers, row.members)
                assert reference.register.read(ELEMENTS) == self.pipeline.words(slot, turn)


TestTimedInLockStep = TimedLockStep.TestCase
TestTimedInLockStep.settings = settings(examples(30, at_night=2), stateful_step_count=40)


every_children = pytest.mark.parametrize("children", [1, 2, 3])
OLD = {"exponent": 3, "workers": 6, "members": 0b11}


def hold(both: LockStep, row: int, **fields: int) -> Register:
    """Set a row of the compiled registers by hand; returns the same for the reference."""
    for name, value in {**fields, **OLD}.items():
        both.pipeline.registers.slots[row][name] = value
    both.pipeline.registers.values[row, :2] = 70, -7
    return Register([70, -7], **OLD)


def send(both: LockStep, child: int, turn: int) -> None:
    """A packet for slot 1, of two workers' words; all registers are equal afterwards."""
    both.arrive(Packet(child, 1, turn, [5, INT32_MAX], exponent=-4, workers=2))
    both.registers_are_equal()


@every_children
def test_every_state_of_a_slot_of_switchml(children: int) -> None:
    """States that only a fault leaves included; every child sends version 0, and had sent version 1."""
    for bitmap, counter, child in product(range(2**children), range(3), range(children)):
        both = SwitchmlLockStep()
        both.start(children, Overflow.WRAP)
        slot = both.reference.slots[1]
        slot.bitmap, slot.counter, slot.answered = [bitmap, 2**children - 1], [counter, 9], [True, True]
        slot.registers = [
            hold(both, 2 + turn, bitmap=slot.bitmap[turn], counter=slot.counter[turn], is_answered=1)
            for turn in (0, 1)
        ]
        send(both, child, 0)


@every_children
def test_every_state_of_a_slot_of_a_tree(children: int) -> None:
    for bitmap, child in product(range(2**children), range(children)):
        both = TreeLockStep()
        both.start(children, Overflow.WRAP)
        both.reference.rows[1] = Row(bitmap, hold(both, 2, bitmap=bitmap))
        send(both, child, 7)


@every_children
def test_every_state_of_a_timed_slot(children: int) -> None:
    """Its row for even turns is at turn 4: the packet's turn is older, the same, or newer."""
    states = product(range(2**children), (False, True), range(children), range(0, 10, 2))
    for bitmap, is_emitted, child, turn in states:
        both = TimedLockStep()
        both.start(children, Overflow.WRAP)
        held = hold(both, 2, turn=4, bitmap=bitmap, is_emitted=is_emitted)
        both.reference.rows[1][0] = TimedRow(4, bitmap, held, is_emitted)
        send(both, child, turn)


SUMMARY = "slots of a tree, few and short"
ON_TOY = ("collective.program=toy", "collective.frame=roce-1024", "topology.switch=ideal")


@pytest.fixture(autouse=True)
def toy() -> Iterator[ProgramSpec]:
    spec = replace(
        TREE,
        name="toy",
        title="the toy",
        summary=SUMMARY,
        released=Demand(workers=4, slots=3, words=64),
        fits_fixed=False,
        frames=(ROCE_1024,),
        frame="roce-1024",
        may_be_tree=False,
    )
    yield register(spec)
    del _registry["toy"]
    assert "toy" not in programs()


def test_it_is_placed_on_a_switch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["netfold", "switch", "fit", "toy", "--profile", "ideal", "--json"])
    with pytest.raises(SystemExit) as stop:
        main.main()

    found = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0
    assert (found["program"], found["demand"]["slots"], found["values_bytes"]) == ("toy", 3, 3 * 64 * 4)


def test_it_is_in_the_schema() -> None:
    program = schema()["$defs"]["InNetworkSection"]["properties"]["program"]

    assert program["enum"] == list(runnable())
    assert "toy" in program["enum"]
    assert f"toy: {SUMMARY}" in " ".join(program["description"].split())


def test_a_scenario_has_its_defaults(toy: ProgramSpec, tmp_path: Path) -> None:
    text = TINY.replace("  frame: udp-256\n", "")
    job = job_of(only(tmp_path, "collective.program=toy", "topology.switch=ideal", text=text))

    assert (job.program, job.frame.name, job.unit_packets) == (toy, "roce-1024", 1)


def test_a_scenario_is_told_what_it_lacks(tmp_path: Path) -> None:
    udp = refused(tmp_path, "collective.program=toy")
    tree = refused(tmp_path, *ON_TOY, "collective.aggregators=tree")
    sharp = refused(tmp_path, *ON_TOY, "topology.switch=sharp")
    lossy = refused(tmp_path, *ON_TOY, "topology.switch=tofino1")

    assert "cannot use 'udp-256' with program toy\n  allowed: roce-1024" in udp
    assert "aggregators belongs to programs switchml and tree, found program toy" in tree
    assert "sharp runs program tree alone, found toy" in sharp
    assert "program toy does not recover from lost packets" in lossy


def test_it_runs(tmp_path: Path) -> None:
    found = simulate(tmp_path, *ON_TOY, "collective.slots=3")
    same = simulate(tmp_path, *ON_TOY, "collective.program=tree", "collective.slots=3")

    assert {check.verdict for check in found.checks} == {"pass"}
    assert [step.end_ps for step in found.steps] == [step.end_ps for step in same.steps]
