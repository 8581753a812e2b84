"""Plain data that an engine takes and returns, shared by the compiled engine and its reference."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import WORD_BITS, Merge
from netfold.sim.engine.congestion_policies import FIXED
from netfold.switch.program import ProgramSpec, default_program

NEVER_PS = 2**63 - 1
BACKLOG_MAX_PS = 2**59  # 6.7 days; with a packet of the largest size at 1 bps and the time, it fits int64
TIME_MAX_PS = 2**61  # 26 days; delays and timeouts are far shorter, so their sums fit int64
RULES_MAX = 64  # a link's rules are one word of bits
SEGMENTS_MAX = 8
"""The most segments that a stream has."""
MEMBERS_MAX = 32  # workers of a job that the bitmap in a packet's header has room for


class BacklogError(RuntimeError):
    """The backlog of a link takes longer than the engine's clock can represent."""


@dataclass(frozen=True)
class Frame:
    """Sizes of one packet format. All wire sizes include FCS (4 B), preamble and inter-packet gap (20 B)."""

    name: str
    elements: int  # 32-bit words per full packet
    overhead_bytes: int  # wire bytes that are not payload
    first_bytes: int = 0  # extra on the first packet of a message
    last_bytes: int = 0  # extra on the last
    ack_bytes: int = 84

    def wire_bytes(self, words: int, *, first: bool, last: bool) -> int:
        return self.overhead_bytes + 4 * words + self.first_bytes * first + self.last_bytes * last


@dataclass(frozen=True)
class Sender:
    """How somebody sends: the same record in a plan, in what the engine is asked for, and in its rows."""

    frame: Frame
    window: int
    """Packets that may be outstanding."""
    timeout_ps: int  # until the first that is not answered is sent again; 0: never
    ack_every: int = 1
    """Packets per acknowledgement, of flows."""
    first_timeout_ps: int = 0
    """That of the first window of a stream."""
    timeout_max_ps: int = NEVER_PS
    """Longer timeouts stop growing there."""
    waits_for_loss: bool = False  # timers do nothing before something is lost; those of streams then back off
    policy: int = FIXED
    """How its window reacts: a number of `policies.POLICIES`."""
    ecn_bytes: int = -1
    """Packets that find this backlog at a switch port are marked; −1: it needs no marks."""


class Overflow(IntEnum):
    """How an ADD handles a sum that leaves int32; sums of lanes of 8 and 16 bits likewise leave theirs."""

    WRAP = 0  # modulo 2^32
    SATURATE = 1  # the nearest int32; later words may bring it back
    STICKY = 2  # the nearest int32; a word at or beyond ±(2^31 − 1) does not change any more


@dataclass(frozen=True)
class Branch:
    """A switch of an aggregation tree below the root: what it adds up goes on to its parent."""

    switch: int  # node
    parent: int  # point: 0 is the job's `switch`, i its `branches[i − 1]`
    loopback_link: int = -1
    route: int = 0  # picks among equal-cost paths between it and its parent


@dataclass(frozen=True)
class Split:
    """A switch that gets one copy of each result of a point for all its children, and sends copies on.

    A result for one child alone does not pass it.
    """

    switch: int  # node
    point: int
    """The point whose results it copies."""
    parent: int  # the split that it gets its copy from, before it in `Job.splits`; −1: from the point
    children: tuple[int, ...]
    """Children of the point, by index, that it sends a copy to itself; ascending."""
    route: int = 0  # picks among equal-cost paths between it and its parent


@dataclass(frozen=True)
class AtpServer:
    """A parameter server, and the sizes of its switch's and workers' state."""

    host: int  # node; no worker runs there
    entries: int  # aggregators of the switch, shared by all jobs on it
    window_max: int  # packets: entries that one worker's window cycles over
    route: int = 0


@dataclass(frozen=True)
class Job:
    """One aggregation job: `hosts[r]` is the node of worker r, `switch` the root of its tree."""

    hosts: tuple[int, ...]
    switch: int
    slot_base: int
    unit_packets: int
    sender: Sender  # of each worker; it has a slot for each packet of its window
    routes: tuple[int, ...]  # per worker: picks among equal-cost paths
    loopback_link: int = -1  # link from the switch to itself that every result passes, or -1
    program: ProgramSpec = field(default_factory=default_program)  # what its switches run
    overflow: Overflow = Overflow.WRAP
    branches: tuple[Branch, ...] = ()
    homes: tuple[int, ...] = ()  # point of each worker; empty: all at the root
    slot_timer_ps: int = 0  # slots with timers: longest that a slot waits
    lanes: int = 1  # TABLE_ADD: result words per word sent; 8, 4 or 2 for lanes of 32, 16 or 8 bits
    server: AtpServer | None = None
    """The parameter server, for programs that have one."""
    splits: tuple[Split, ...] = ()  # multicast of results; without, a point sends a copy to each child

    @property
    def frame(self) -> Frame:
        return self.sender.frame

    @property
    def slots_count(self) -> int:
        # Slots at each switch of its tree, of two versions each.
        return self.sender.window

    @property
    def switches(self) -> tuple[int, ...]:
        """Node of each point, the root first, then of each split."""
        return (
            self.switch,
            *(branch.switch for branch in self.branches),
            *(split.switch for split in self.splits),
        )

    @property
    def points(self) -> tuple[int, ...]:
        return self.switches[: 1 + len(self.branches)]

    def children_of(self, point: int) -> tuple[tuple[bool, int], ...]:
        """Children of a point by index: (True, rank) of its workers, then (False, point) of points below."""
        homes = self.homes or (0,) * len(self.hosts)
        workers = [(True, rank) for rank, home in enumerate(homes) if home == point]
        below = [
            (False, child) for child, branch in enumerate(self.branches, start=1) if branch.parent == point
        ]
        return (*workers, *below)


@dataclass(frozen=True)
class Shared:
    """Result words of one message that the workers of a job share.

    The first worker that receives a result packet writes its words into `words`. A worker that receives the
    same bits writes nothing; one that receives other bits writes them into its `result` and marks the packet.
    """

    words: NDArray[Any]
    """Like `Segment.result`, but one for all workers."""
    seen: NDArray[np.uint8]  # (units · unit_packets,) zeros at first


@dataclass(frozen=True)
class Segment:
    """One message of a stream: C-contiguous arrays of 4-byte items; `result` is written in place.

    With `shared`, `result` holds only the packets that `own` marks, and need not be initialised. With
    `absent_words` the worker contributes nothing: `words` is empty, and the others have this many words.
    """

    words: NDArray[Any]  # int32, uint32 or float32; float32 if scaled
    result: NDArray[Any]
    """As many words as `words`; `Job.lanes` times that for TABLE_ADD."""
    merge: Merge
    table: NDArray[np.int32] | None = None  # (16,) TABLE_ADD
    holders: NDArray[np.uint32] | None = None
    """(units,) for slots with timers, written: a bitmap of the workers in each result."""
    floats: NDArray[np.float32] | None = None
    """(words,) for programs with a server: sent in place of words whose sum overflowed."""
    is_float: NDArray[np.uint8] | None = None  # (units,) a server, read and written: units sent as floats
    shared: Shared | None = None  # the same object for all workers
    own: NDArray[np.uint8] | None = None
    """(units · unit_packets,) zeros at first; marks packets whose words are in this worker's `result`."""
    lane_bits: int = WORD_BITS
    """For sums: the width of the lanes that words and results are packed with."""
    absent_words: int = 0
    members: NDArray[np.uint32] | None = None
    """(packets, 2), written by programs that carry absence: how many workers each result packet holds, and
    which (`all_members`). It must say all at first: no more is written until a result lacks a worker."""

    @property
    def is_absent(self) -> bool:
        return self.absent_words > 0

    @property
    def size(self) -> int:
        # An absent worker has the size of the others.
        return self.absent_words or int(self.words.size)


def all_members(packets: int, workers: int) -> NDArray[np.uint32]:
    # (packets, 2) for `Segment.members`; in jobs of more than `MEMBERS_MAX` workers no bit is set.
    all_workers = workers | all_bits(workers) << 32
    return np.full(packets, all_workers, "<u8").view(np.uint32).reshape(packets, 2)


def all_bits(workers: int) -> int:
    # Bit r for worker r; 0 if there are too many workers.
    return 2**workers - 1 if workers <= MEMBERS_MAX else 0


class Fate(IntEnum):
    """What a fault does to a packet that it strikes."""

    LOSS = 0  # the packet is lost on the wire
    CORRUPTION = 1  # a bit flips; the receiver's frame check sequence detects it and discards the packet
    FLIP = 2  # a bit of its words flips, undetected
    DUPLICATE = 3  # a copy follows it
    REORDER = 4  # it arrives later, and others may overtake it
    BURST_LOSS = 5  # the packet is lost, with a probability that depends on a state of the link

    @property
    def copies(self) -> bool:
        # Whether a packet that it strikes may need a second packet, or a payload row.
        return self in (Fate.FLIP, Fate.DUPLICATE, Fate.REORDER)


@dataclass(frozen=True)
class Burst:
    """A loss model with two states per link (Gilbert 1960, Elliott 1963): each packet is a step of the chain.

    The chain starts in its stationary distribution.
    """

    good_to_bad: float  # probabilities, above 0
    bad_to_good: float
    loss_good: float = 0.0

    @property
    def bad_share(self) -> float:
        return self.good_to_bad / (self.good_to_bad + self.bad_to_good)


@dataclass(frozen=True)
class Rule:
    """A fault on links: strikes packets at random, in a time interval.

    For each fate, only the first rule that names a link at a time applies, even if its probability is 0.
    """

    fate: Fate
    probability: float
    links: tuple[int, ...]
    delay_ps: int = 0  # DUPLICATE: of the copy; REORDER: of the packet
    from_ps: int = 0
    until_ps: int = NEVER_PS  # exclusive
    burst: Burst | None = None  # BURST_LOSS; `probability` is that of the bad state


def losses(probabilities: Iterable[float]) -> tuple[Rule, ...]:
    """Rules that lose packets with a probability per link."""
    by_probability: dict[float, list[int]] = {}
    for link, probability in enumerate(probabilities):
        if probability > 0:
            by_probability.setdefault(float(probability), []).append(link)
    return tuple(Rule(Fate.LOSS, share, tuple(links)) for share, links in by_probability.items())


@dataclass(frozen=True)
class Scaled:
    """Block exponents of a scaled stream (one segment, one exponent per unit-sized block)."""

    exponents: NDArray[np.int8]  # (blocks,) this worker's
    agreed: NDArray[np.int8]  # (blocks,) written: the maximum over workers


@dataclass(frozen=True)
class Flow:
    """One reliable unicast message; without `words` and `received` bytes are counted, not carried."""

    source: int
    target: int
    words_count: int
    words: NDArray[Any] | None
    received: NDArray[Any] | None  # written in place at the target
    sender: Sender
    route: int  # picks among equal paths, see `topologies/ecmp.py`
    key: int
    job: int = 0
    """The job that its retransmissions are counted for."""
    ack_route: int | None = None
    """The route of its acknowledgements; None: the same as its own."""

    @property
    def route_back(self) -> int:
        return self.route if self.ack_route is None else self.ack_route


@dataclass(frozen=True)
class Outstanding:
    """A unit that a worker has sent and whose result it waits for."""

    worker: int
    stream: int
    unit: int
    slot: int  # physical, of the unit's part 0
    version: int
    attempt: int  # 0: sent once so far
    sent_ps: int  # last time
    is_crashed: bool  # its worker's host has crashed: it is never sent again


@dataclass(frozen=True)
class SlotState:
    """State of one version of a slot at one point of a job's tree, and its last event."""

    children_seen: int  # bitmap
    children_count: int
    missing_count: int  # packets that its counter waits for; the bitmap is separate state
    last_ps: int
    """When its last packet was processed; −1: never."""
    last_child: int
    """The child that sent its last packet; −1: none."""
    last_verdict: str
    """What the program decided on its last packet; empty if there was none."""
    is_answered: bool  # it holds its parent's result


class Disturbance(NamedTuple):
    """Packets that arrived although a fault duplicated, delayed or changed them."""

    fate: Fate  # DUPLICATE, REORDER or FLIP
    packets_count: int
    links: tuple[int, ...]
    """The links that the fault names; it struck on some of them."""


class WaitingFlow(NamedTuple):
    """A message that has not been delivered."""

    source: int  # node
    target: int
    route: int
    ack_route: int
    opened_ps: int
    packet_bytes: int
    owner: int = 0  # job of the variant
    what: str = ""
    """For a schedule: the transfer, its operation and its flow."""


class WaitingTransfer(NamedTuple):
    """A transfer of a schedule that is sent and not delivered."""

    schedule: int  # the engine's number
    transfer: int
    flow: int
    waiting: WaitingFlow


class PointView(NamedTuple):
    """One switch of a job's tree."""

    switch: int  # node
    children: tuple[tuple[str, int], ...]  # ("worker", rank) or ("point", index), by index of the child


@dataclass(frozen=True)
class Completion:
    """Something an engine finished: a worker's stream, a delivered flow, a worker's part of a schedule.

    "merge": a schedule asks for the merge of a transfer that has arrived.
    """

    time_ps: int
    kind: str  # "stream" | "flow" | "worker" | "merge"
    job: int  # stream: job index; flow: -1; else the number that open_schedule returned
    worker: int  # stream, worker: worker; flow: the number open_flow returned; merge: transfer


# Schedules: who sends which chunks of a message to whom, once what has arrived.
#
# A collective between hosts is a schedule over the chunks of a message. It is plain data: no times, no words,
# no hosts. `Engine` carries it out packet by packet and merges words at each hop; nothing above it acts until
# a worker has all of its result.
#
# Each worker holds one cell per chunk. In an all-reduce, every cell of a worker begins with the worker's own
# words. A transfer carries a run of adjacent cells from its source to its target, as one reliable message:
#
# 1. It is sent when its source has begun, and all transfers that it waits for (`waits_for`) are processed at
#    the source. Transfers of one `lane` share a window of packets: a transfer that is ready begins when the
#    lane's packets that are not delivered yet leave room for it, or if there are none; in the order in which
#    they became ready. A transfer without a lane (-1) begins at once.
# 2. When its last packet has arrived, it is processed at its target, as soon as the target has begun and the
#    transfer named by `follows` is processed. It is merged into the target's cells (`merges`: the arriving
#    words are the first operand, the target's own cell the second), which takes time on the target's device;
#    or it replaces them: then it is final, and holds what all workers contributed.
#    Between workers that share a host, a transfer arrives at once, whatever its lane.
# 3. A worker is finished when all transfers to it are processed.
#
# A source gives away the cells of a transfer that merges: they are not sent, and nothing is merged into them,
# before a final transfer replaces them. So at any time every contribution to a chunk is in one cell, and the
# final words of a chunk are made by one merge, at one worker.
#
# At one instant: what a delivery, the beginning of a worker, or the end of a merge makes possible happens
# before anything else, in the order in which it became possible. A delivery first lets its lane go on, then
# is processed. A transfer that is processed first lets others be sent, in the order of their numbers, and
# then lets those be processed that follow it and have arrived. A worker that begins first sends, and then
# processes what has arrived, in the order of arrival. A merge that takes time ends after all else of its
# instant.


NONE = -1


@dataclass(frozen=True, eq=False)
class Schedule:
    """T transfers of one message between workers, in an order in which each is after what it waits for.

    Cells may be uneven, even empty: the words of chunk i end where those of chunk i + 1 begin, and a message
    of any size is cut the same way (`ends`).
    """

    workers: int
    chunks: int
    source: NDArray[np.int32]  # (T,) worker
    target: NDArray[np.int32]  # (T,) worker
    first: NDArray[np.int32]  # (T,) the first chunk that it carries
    count: NDArray[np.int32]  # (T,) chunks that it carries, 1 or more
    merges: NDArray[np.bool_]  # (T,)
    step: NDArray[np.int64]
    """(T,) A step identifies the transfer in keyed draws, with its source, and also with its target."""
    follows: NDArray[np.int32]  # (T,) a transfer to the same target that is processed before; NONE
    lane: NDArray[np.int32]  # (T,) numbered from 0, of one source and target each; NONE
    waits_first: NDArray[np.int64]  # (T + 1,)
    waits_for: NDArray[np.int32]  # those of transfer t are [waits_first[t], waits_first[t + 1])
    channel: NDArray[np.int32] | None = None  # (T,) connection of its source and target; None: 0

    @property
    def transfers(self) -> int:
        return int(self.source.size)

    def ends(self, words: int) -> NDArray[np.int64]:
        # (chunks + 1,) where the chunks of a message begin, and where the last one ends.
        return words * np.arange(self.chunks + 1, dtype=np.int64) // self.chunks


# What carries out a schedule: hosts, sizes of chunks, words, and how they are merged.


@dataclass(frozen=True, eq=False)
class JointOperations:
    """Operations in which each worker gets the messages of several others, all as they are.

    The first worker of each operation's schedule has all its words, and the others have none. A worker has
    finished when it has finished all of them; there is one completion, with its rank.
    """

    number: int
    """The engine's, for its completions (`Engine.open_joint`)."""
    left: NDArray[np.int64]
    """(ranks,) written: operations that each has yet to finish, also of those that are not open."""
    has_begun: NDArray[np.bool_]
    """(ranks,) read when an operation opens."""
    lanes: NDArray[Any]
    """Windows that operations of the job share, of several messages too (`Engine.new_lanes`)."""


@dataclass(frozen=True, eq=False)
class Operation:
    """One message of every worker, carried by a schedule.

    Without a `merge`, words are counted and not carried. The words of HOST are merged by whoever opened the
    schedule: the engine asks for each merge, and knows only how many words each cell has.
    """

    schedule: Schedule
    hosts: tuple[int, ...]  # node of each worker
    sender: Sender  # of its flows; the window is also that of a lane
    number: int
    """The number that, with the job, identifies the operation in keyed draws."""
    seed: int
    """The seed of keyed draws."""
    ends: NDArray[np.int64]  # (chunks + 1,) where the chunks begin; HOST: not used
    job: int = 0
    merge: Merge | None = None
    result: NDArray[Any] | None = None  # written: the merged words, once for all workers
    table: NDArray[np.int32] | None = None  # (16,) TABLE_ADD of codes
    lane_bits: int = WORD_BITS
    lifted_words: int = 1  # TABLE_ADD of codes: merged words for each word of a worker
    merge_ps: NDArray[np.int64] | None = None  # (T, 2) time of each merge, of codes or words and of lanes
    ranks: tuple[int, ...] = ()
    """The ranks of its workers in the job; empty: it has all workers of the job."""
    asks: tuple[int, ...] = ()  # workers whose merges end when whoever opened the schedule says
    joint: JointOperations | None = None
    """The operations that it is one of; its workers may then share hosts, and it has `ranks`."""
    lane_names: NDArray[np.int64] | None = None
    """(lanes,) the lane of `joint` that each of the schedule's lanes is."""


@dataclass(frozen=True)
class Condition:
    """How a worker's host delays its work over time."""

    factor: Fraction = Fraction(1)
    stops: tuple[tuple[int, int], ...] = ()  # [from, until) of its pauses, sorted; may overlap
    crash_ps: int = NEVER_PS

    def end_ps(self, start_ps: int, work_ps: int) -> int:
        """The end of work that begins at `start_ps` and takes `work_ps` on a host without faults.

        A paused host does not finish even work that takes no time. A crash is ignored.
        """
        now_ps, left_ps = start_ps, work_ps if self.factor == 1 else math.ceil(work_ps * self.factor)
        for from_ps, until_ps in self.stops:
            if until_ps <= now_ps:
                continue
            if from_ps > now_ps:
                if now_ps + left_ps <= from_ps:
                    break
                left_ps -= from_ps - now_ps
            now_ps = until_ps
        return now_ps + left_ps
