"""A compiled program and its plain-Python truth table, side by side, packet by packet.

What workers send is sensible or not: next packets, resends, copies, late ones, packets that never come, and
faults that clear some registers of a slot and not others. Verdicts and registers are equal after each.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.message import MERGEABLE, Merge
from netfold.sim.engine.interface import Overflow
from netfold.switch.program import Machine
from tests.switch.pipeline import ELEMENTS, SLOTS, Packet, Pipeline, ReferencePipeline

INT32 = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 1])
SLOT_INDICES = st.integers(0, SLOTS - 1)
CHILD_DRAWS = st.integers(0, 2**16)  # modulo the number of children, which the run draws first
TURNS = st.integers(0, 1)  # the two rows of a slot
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
