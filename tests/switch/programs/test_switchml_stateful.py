"""The compiled SwitchML program under every order of events that hypothesis thinks of.

`SwitchmlLockStep` feeds it and the plain-Python truth table the same packets, sensible or not. `Protocol`
puts workers around it that follow the protocol on FIFO paths with loss, and checks that sums are then exact.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.message import Merge
from netfold.switch.program import Machine
from netfold.switch.registers import ANSWER, COMPLETE
from tests.reference.switch.merging import NO_EXPONENT, Operand
from tests.reference.switch.switchml import Slot
from tests.switch.pipeline import ELEMENTS, SLOTS, Packet, Pipeline
from tests.switch.programs.lockstep import CHILD_DRAWS, INT32, SLOT_INDICES, TURNS, LockStep

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
TestLockStep.settings = settings(stateful_step_count=40)
TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(stateful_step_count=60)
