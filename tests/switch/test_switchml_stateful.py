"""The compiled switch program under every order of events that hypothesis thinks of.

`LockStep` feeds it and the plain-Python truth table the same packets, sensible or not. `Protocol` puts
workers around it that follow the protocol on FIFO paths with loss, and checks that this makes sums exact.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from homomorphic.keyed import mix_plain
from sim.engine.model import Merge
from switch.programs.switchml import ANSWER, COMPLETE, CONSUMED, DROPPED, new_registers, process_packet
from tests.reference.merging import Operand
from tests.reference.switchml import SwitchmlReference, Verdict

SLOTS = 3
ELEMENTS = 4
VERDICTS = {
    CONSUMED: Verdict.CONSUMED,
    COMPLETE: Verdict.COMPLETE,
    ANSWER: Verdict.ANSWER,
    DROPPED: Verdict.DROPPED,
}
INT32 = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1])
WORDS = st.lists(INT32, max_size=ELEMENTS)
EXPONENTS = st.integers(-128, 127)
SLOT_INDICES = st.integers(0, SLOTS - 1)
RANKS = st.integers(0, 4)
WORKER_DRAWS = st.integers(0, 2**16)  # modulo the number of workers, which the run draws first


class Sent(NamedTuple):
    """A packet as its worker sent it."""

    worker: int
    slot: int
    version: int
    words: list[int]
    merge: Merge
    exponent: int


class LockStep(RuleBasedStateMachine):
    """Kernel and truth table, packet by packet: equal verdicts, equal registers."""

    @initialize(workers=st.integers(1, 4) | st.integers(1, 32))
    def start(self, workers: int) -> None:
        self.workers = workers
        self.registers = new_registers(SLOTS, ELEMENTS)
        self.reference = SwitchmlReference(workers, SLOTS)
        self.sent: dict[tuple[int, int], list[Sent]] = {}  # by worker and slot
        self.written: set[tuple[int, int]] = set()  # slot and version; before that an exponent says nothing

    def send_next(self, worker: int, slot: int, words: list[int], merge: Merge, exponent: int) -> Sent:
        """A worker's packet for the version after its last one."""
        history = self.sent.setdefault((worker, slot), [])
        packet = Sent(worker, slot, len(history) % 2, words, merge, exponent)
        history.append(packet)
        return packet

    def arrive(self, packet: Sent) -> None:
        """Both process one packet."""
        row = 2 * packet.slot + packet.version
        verdict = process_packet(
            self.registers,
            row,
            packet.worker,
            self.workers,
            int(packet.merge),
            packet.exponent,
            np.array(packet.words, np.int32),
        )
        self.written.add((packet.slot, packet.version))
        operand = Operand(packet.words, packet.merge, packet.exponent)
        answer = self.reference.packet(packet.worker, packet.slot, packet.version, operand)
        assert VERDICTS[verdict] == answer

    def history(self, worker: int, slot: int) -> list[Sent]:
        return self.sent.get((worker % self.workers, slot), [])

    @rule(
        worker=WORKER_DRAWS,
        slot=SLOT_INDICES,
        words=WORDS,
        merge=st.sampled_from([Merge.ADD, Merge.OR, Merge.MAX]),
        exponent=EXPONENTS,
    )
    def send(self, worker: int, slot: int, words: list[int], merge: Merge, exponent: int) -> None:
        self.arrive(self.send_next(worker % self.workers, slot, words, merge, exponent))

    @rule(
        worker=WORKER_DRAWS,
        slot=SLOT_INDICES,
        words=WORDS,
        merge=st.sampled_from([Merge.ADD, Merge.OR, Merge.MAX]),
        exponent=EXPONENTS,
    )
    def lose(self, worker: int, slot: int, words: list[int], merge: Merge, exponent: int) -> None:
        """The worker moves on as if it had arrived; a retransmission may still bring it."""
        self.send_next(worker % self.workers, slot, words, merge, exponent)

    @rule(
        slot=SLOT_INDICES,
        words=WORDS,
        merge=st.sampled_from([Merge.ADD, Merge.OR, Merge.MAX]),
        order=st.randoms(use_true_random=False),
    )
    def send_all(self, slot: int, words: list[int], merge: Merge, order: Random) -> None:
        """All workers send their next version: mostly a whole round, which single sends rarely make."""
        ranks = list(range(self.workers))
        order.shuffle(ranks)
        for worker in ranks:
            shifted = [(word + worker + 2**31) % 2**32 - 2**31 for word in words]
            self.arrive(self.send_next(worker, slot, shifted, merge, worker - 16))

    @rule(worker=WORKER_DRAWS, slot=SLOT_INDICES, copies=st.integers(1, 2))
    def retransmit(self, worker: int, slot: int, copies: int) -> None:
        """The latest packet again: as a retransmission, or its first arrival, and maybe a copy behind it."""
        for packet in self.history(worker, slot)[-1:] * copies:
            self.arrive(packet)

    @rule(worker=WORKER_DRAWS, slot=SLOT_INDICES, age=st.integers(1, 3))
    def late_duplicate(self, worker: int, slot: int, age: int) -> None:
        """A packet from before the worker changed the version."""
        history = self.history(worker, slot)
        if len(history) > age:
            self.arrive(history[-1 - age])

    @rule(
        slot=SLOT_INDICES,
        version=st.integers(0, 1),
        names=st.sets(st.sampled_from(["bitmap", "counter", "values"])),
    )
    def clear(self, slot: int, version: int, names: set[str]) -> None:
        """A fault: some registers of a slot lose their content, the others do not."""
        row, reference = 2 * slot + version, self.reference.slots[slot]
        if "bitmap" in names:
            self.registers.bitmap[row] = reference.bitmap[version] = 0
        if "counter" in names:
            self.registers.counter[row] = reference.counter[version] = 0
        if "values" in names:
            self.registers.values[row] = 0
            reference.registers[version].values = []

    @invariant()
    def registers_are_equal(self) -> None:
        for slot, reference in enumerate(self.reference.slots):
            rows = [2 * slot, 2 * slot + 1]
            assert reference.bitmap == self.registers.bitmap[rows].tolist()
            assert reference.counter == self.registers.counter[rows].tolist()
            for version, row in enumerate(rows):
                words, exponent = self.reference.read(slot, version, ELEMENTS)
                assert words == self.registers.values[row].tolist()
                assert (slot, version) not in self.written or exponent == self.registers.exponent[row]


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
        self.registers = new_registers(SLOTS, 1)
        self.workers = [Worker() for _ in range(workers)]

    def worker(self, draw: int) -> Worker:
        return self.workers[draw % len(self.workers)]

    @staticmethod
    def word(rank: int, slot: int, round_: int) -> int:
        """What a worker contributes: any int32, so that sums wrap."""
        return mix_plain(rank, slot, round_) % 2**32 - 2**31

    def pass_switch(self, rank: int, slot: int, round_: int) -> None:
        """A packet reaches the switch; its result, if any, goes to whom it concerns."""
        row = 2 * slot + round_ % 2
        word = np.array([self.word(rank, slot, round_)], np.int32)
        verdict = process_packet(self.registers, row, rank, len(self.workers), int(Merge.ADD), 0, word)
        receivers = {COMPLETE: self.workers, ANSWER: [self.workers[rank]]}.get(verdict, [])
        for receiver in receivers:
            receiver.down.append(Result(slot, round_, int(self.registers.values[row, 0])))

    @rule(draw=WORKER_DRAWS, slot=SLOT_INDICES)
    def send(self, draw: int, slot: int) -> None:
        """The next round of a slot once its last is done; else the same packet again, as a timer would."""
        worker = self.worker(draw)
        worker.rounds[slot] += not worker.is_waiting[slot]
        worker.is_waiting[slot] = True
        worker.up.append((slot, worker.rounds[slot]))

    @rule(draw=WORKER_DRAWS, is_lost=st.sampled_from([False, False, False, True]))
    def pass_up(self, draw: int, is_lost: bool) -> None:
        rank = draw % len(self.workers)
        if self.workers[rank].up:
            slot, round_ = self.workers[rank].up.popleft()
            if not is_lost:
                self.pass_switch(rank, slot, round_)

    @rule(draw=WORKER_DRAWS, is_lost=st.sampled_from([False, False, False, True]))
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
        """All workers send, then all that is under way arrives, but for the losses of some."""
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


TestLockStep = LockStep.TestCase
TestLockStep.settings = settings(stateful_step_count=40)
TestProtocol = Protocol.TestCase
TestProtocol.settings = settings(stateful_step_count=60)
