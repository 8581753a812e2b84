"""Packets through the programs as the engines take them: the state machine, then the words.

`sim/engine/switches.py` (`take_words`, `take_lifted`), `slot_timer.py` and `atp.py` (`aggregate`)
do so with packets that have come over links. Here a packet is a value, and what leaves the switch is
returned. The plain-Python state machines have the same face, and run side by side with the compiled ones.
What workers send is sensible or not: next packets, resends, copies, late ones, packets that never come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from random import Random
from typing import Any, ClassVar, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray

from netfold.homomorphic.merge import MERGEABLE, Merge, keep_threshold, lift
from netfold.kernels.keyed import mix_plain
from netfold.sim.engine.interface import Overflow
from netfold.switch import registers as arithmetic
from netfold.switch.program import Machine
from netfold.switch.programs import atp, switchml, timed, tree
from netfold.switch.registers import OVERWRITE, READ, VERDICTS, Registers, clear, new_registers
from tests.reference.atp.switch import Entry, Outcome, Verdict
from tests.reference.switch.merging import Operand, lifted
from tests.reference.switch.switchml import SwitchmlReference
from tests.reference.switch.timed import TimedReference
from tests.reference.switch.tree import TreeReference

SLOTS, ELEMENTS = 3, 8

# Both ends of int32, so that sums of codes overflow too.
TABLE = (2**31 - 1, -(2**31), 0, 1, -1, -(2**31) + 1, 2**30, -(2**30), 5, -7, 100, -100, 2, -2, 3, -3)


def table_of(lane_bits: int) -> list[int]:
    """The table for lanes of this width: both of their ends, too."""
    return [value >> 32 - lane_bits for value in TABLE]


ATP_VERDICTS = {
    atp.CONSUMED: Verdict.CONSUMED,
    atp.FORWARD_COMPLETE: Verdict.FORWARD_COMPLETE,
    atp.FORWARD_ANSWER: Verdict.FORWARD_ANSWER,
    atp.FORWARD_EVICT: Verdict.FORWARD_EVICT,
    atp.DROPPED: Verdict.DROPPED,
    atp.COLLIDED: Verdict.COLLIDED,
}


class Packet(NamedTuple):
    """A child's packet; `words` are int32 values, of TABLE_ADD codes of `TABLE`."""

    child: int
    slot: int
    generation: int  # its version is generation mod 2
    words: Sequence[int]
    merge: Merge = Merge.ADD
    exponent: int = -128
    workers: int = 1  # whose words these are; 0: it has none
    key: int = 0  # of SIGN's random bits
    lane_bits: int = 32  # of sums

    @property
    def members(self) -> int:
        """Bitmap of some workers, its child among them unless it has no words."""
        return (1 << self.child) * self.workers % 2**32

    def operand(self) -> Operand:
        """What it brings to a register of the reference, which lifts the words of TABLE_ADD."""
        words = list(self.words) if self.workers else []
        if self.merge is Merge.TABLE_ADD:
            words = lifted(words, table_of(self.lane_bits), self.lane_bits)
        return Operand(words, self.merge, self.exponent, self.workers, self.key, self.lane_bits, self.members)


@dataclass
class Pipeline:
    """The registers of one switch that runs a program for one job."""

    program: Machine
    children: int
    overflow: Overflow = Overflow.WRAP
    registers: Registers = field(default_factory=lambda: new_registers(SLOTS, ELEMENTS))
    overflowed_words: int = 0

    def row(self, slot: int, generation: int) -> int:
        return 2 * slot if self.program is Machine.TREE else 2 * slot + generation % 2

    def receive(self, packet: Packet) -> int:
        row = self.row(packet.slot, packet.generation)
        slots, child, children = self.registers.slots, packet.child, self.children
        match self.program:
            case Machine.SWITCHML:
                verdict, action = switchml.process_packet(slots, row, child, children, packet.exponent)
            case Machine.TREE:
                verdict, action = tree.process_packet(slots, row, child, children, packet.exponent)
            case Machine.TIMED:
                verdict, action = timed.process_packet(slots, row, child, children, packet.generation)
            case _:
                raise AssertionError(f"{self.program!r} has no slots")
        if action != READ:
            self._take_words(row, packet, action)
        return verdict

    def keep(self, slot: int, generation: int, result: Operand) -> bool:
        """Take in a result of the parent: whether it is news."""
        row = self.row(slot, generation)
        held = self.registers.slots[row]
        if held.is_answered:
            return False
        held.is_answered, held.exponent = 1, result.exponent
        held.workers, held.members = result.workers, result.members
        if result.workers:
            self.registers.values[row, : len(result.words)] = result.words
        return True

    def time_out(self, slot: int, generation: int) -> None:
        self.registers.slots[self.row(slot, generation)].is_emitted = 1

    def clear(self, slot: int) -> None:
        clear(self.registers, slice(2 * slot, 2 * slot + 2))

    def exponent(self, slot: int, generation: int) -> int:
        return int(self.registers.slots[self.row(slot, generation)].exponent)

    def words(self, slot: int, generation: int, count: int = ELEMENTS) -> list[int]:
        values: list[int] = self.registers.values[self.row(slot, generation), :count].tolist()
        return values

    def _take_words(self, row: int, packet: Packet, action: int) -> None:
        slot, words = self.registers.slots[row], int32(packet.words)
        if action == OVERWRITE:
            slot.workers = slot.members = 0
        if packet.workers == 0:
            return
        if packet.merge is Merge.TABLE_ADD:
            table = int32(table_of(packet.lane_bits))
            words = lift(words.view(np.uint32), table, packet.lane_bits)
        values = self.registers.values[row, : words.size]
        held = int(slot.workers)
        if held == 0:
            values[:] = words
        elif packet.merge in (Merge.ADD, Merge.TABLE_ADD):
            bits = packet.lane_bits
            self.overflowed_words += arithmetic.add_lanes(values, words, bits, int(self.overflow))
        else:
            threshold = np.int64(keep_threshold(held, packet.workers))
            arithmetic.merge_otherwise(values, words, packet.merge.number, threshold, np.uint64(packet.key))
        slot.workers = held + packet.workers
        slot.members |= np.uint32(packet.members)


REFERENCES: dict[Machine, Callable[[int, int, Overflow], Any]] = {  # of children, slots, overflow
    Machine.SWITCHML: SwitchmlReference,
    Machine.TREE: TreeReference,
    Machine.TIMED: TimedReference,
}


class ReferencePipeline:
    """The plain-Python state machine of a program, with the face of `Pipeline`."""

    def __init__(self, program: Machine, children: int, overflow: Overflow = Overflow.WRAP) -> None:
        self.program = program
        self.state = REFERENCES[program](children, SLOTS, overflow)

    def receive(self, packet: Packet) -> int:
        generation = packet.generation if self.program is Machine.TIMED else packet.generation % 2
        verdict = self.state.packet(packet.child, packet.slot, generation, packet.operand())
        return VERDICTS.index(verdict.name.lower())

    def time_out(self, slot: int, generation: int) -> None:
        self.state.time_out(slot, generation)

    def exponent(self, slot: int, generation: int) -> int:
        return int(self.state.register(slot, generation % 2).exponent)

    def words(self, slot: int, generation: int, count: int = ELEMENTS) -> list[int]:
        words: list[int] = self.state.register(slot, generation % 2).read(count)
        return words


class AtpPipeline:
    """The aggregators of one switch, with the face of `AtpReference`."""

    def __init__(self, count: int, words: int = ELEMENTS) -> None:
        self.entries = atp.new_entries(count, words)

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
            self.entries, entry, identity, np.uint32(bits), workers, is_resend, int32(words)
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

    def claimed(self) -> list[int]:
        claimed: list[int] = np.flatnonzero(self.entries.rows.identity != atp.FREE).tolist()
        return claimed


def int32(words: Sequence[int]) -> NDArray[np.int32]:
    return np.array(words, np.int32)


INT32 = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 1])
SLOT_INDICES = st.integers(0, SLOTS - 1)
CHILD_DRAWS = st.integers(0, 2**16)  # modulo the number of children, which the run draws first
GENERATIONS = st.integers(0, 1)  # the two rows of a slot
CHILDREN = st.integers(1, 4) | st.integers(1, 32)


class Content(NamedTuple):
    """The contents of a packet of any sender."""

    words: list[int]
    merge: Merge
    exponent: int
    workers: int
    lane_bits: int


CONTENTS = st.builds(
    Content,
    words=st.lists(INT32, max_size=4),
    merge=st.sampled_from([Merge.ADD, *(merge for merge in Merge if merge in MERGEABLE)]),
    exponent=st.integers(-128, 127),
    workers=st.integers(0, 3),
    lane_bits=st.sampled_from([32, 32, 16, 8, 4]),
)


class LockStep(RuleBasedStateMachine):
    """Sends packets; a subclass says what the reference is, and what is equal."""

    program: ClassVar[Machine]

    @initialize(children=CHILDREN, overflow=st.sampled_from(Overflow))
    def start(self, children: int, overflow: Overflow) -> None:
        self.children = children
        self.pipeline = Pipeline(self.program, children, overflow)
        self.sent: dict[tuple[int, int], list[Packet]] = {}  # by child and slot
        self.twin = ReferencePipeline(self.program, children, overflow)
        self.reference = self.twin.state

    def next_turn(self, child: int, slot: int) -> int:
        return len(self.history(child, slot))

    def history(self, child: int, slot: int) -> list[Packet]:
        """What a child has sent to a slot, oldest first."""
        return self.sent.setdefault((child % self.children, slot), [])

    def packet(self, child: int, slot: int, content: Content) -> Packet:
        """A child's next packet, which it has now sent."""
        child %= self.children
        history = self.history(child, slot)
        packet = Packet(
            child,
            slot,
            self.next_turn(child, slot),
            words_of(content),
            content.merge,
            content.exponent,
            content.workers,
            mix_plain(child, slot, len(history)),
            lane_bits_of(content),
        )
        history.append(packet)
        return packet

    def arrive(self, packet: Packet) -> None:
        assert self.pipeline.receive(packet) == self.twin.receive(packet)

    @invariant()
    def as_many_words_overflowed(self) -> None:
        assert self.reference.overflowed_words == self.pipeline.overflowed_words

    @rule(child=CHILD_DRAWS, slot=SLOT_INDICES, content=CONTENTS)
    def send(self, child: int, slot: int, content: Content) -> None:
        self.arrive(self.packet(child, slot, content))

    @rule(child=CHILD_DRAWS, slot=SLOT_INDICES, content=CONTENTS)
    def lose(self, child: int, slot: int, content: Content) -> None:
        """The child moves on as if it had arrived; a resend may still bring it."""
        self.packet(child, slot, content)

    @rule(slot=SLOT_INDICES, content=CONTENTS, order=st.randoms(use_true_random=False))
    def send_all(self, slot: int, content: Content, order: Random) -> None:
        """All children send their next packet: mostly a whole round, which single sends rarely make."""
        children = list(range(self.children))
        order.shuffle(children)
        for child in children:
            words = [(word + child + 2**31) % 2**32 - 2**31 for word in content.words]
            own = content._replace(words=words, exponent=child - 16, workers=order.choice([0, 1, 1, 2]))
            self.arrive(self.packet(child, slot, own))

    @rule(child=CHILD_DRAWS, slot=SLOT_INDICES, copies=st.integers(1, 2))
    def resend(self, child: int, slot: int, copies: int) -> None:
        """The latest packet again: as a resend, or its first arrival, and maybe a copy behind it."""
        for packet in self.history(child, slot)[-1:] * copies:
            self.arrive(packet)

    @rule(child=CHILD_DRAWS, slot=SLOT_INDICES, age=st.integers(1, 3))
    def late_duplicate(self, child: int, slot: int, age: int) -> None:
        """A packet from before the child moved on."""
        history = self.history(child, slot)
        if len(history) > age:
            self.arrive(history[-1 - age])


def lane_bits_of(content: Content) -> int:
    """Width of the lanes that a packet can have: codes are lifted to 8 bits at least, others have words."""
    if content.merge is Merge.TABLE_ADD:
        return max(8, content.lane_bits)
    return content.lane_bits if content.merge is Merge.ADD else 32


def words_of(content: Content) -> list[int]:
    """Words that a packet can carry: codes take a word for eight."""
    if content.merge is Merge.TABLE_ADD:
        return content.words[: ELEMENTS // 8]
    return content.words
