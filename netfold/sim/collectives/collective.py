"""A collective: its keys, how they are resolved, what a codec must fulfil, and what carries words in a run.

A collective is one file with a `CollectiveSpec`, which `registry.py` lists. All other code uses the
specification and knows no collective by name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Carrier, Codec, Server, refusal_of
from netfold.homomorphic.merge import HostHop
from netfold.homomorphic.message import Merge, Merged, Message, Tensor
from netfold.sim.engine.interface import Overflow, Schedule
from netfold.sim.keys import Location, Section
from netfold.sim.plan.idle_network import packet_rate_bps
from netfold.sim.plan.plan import CollectivePlan, HostAllocation, Reference
from netfold.sim.workload.hardware import Device
from netfold.switch.profiles import Profile
from netfold.switch.program import names_of
from netfold.topologies.network import Network, flow_key_plain, path, shares
from netfold.units import PS_PER_S

if TYPE_CHECKING:
    import simpy

    from netfold.sim.network.fabric import Fabric, HostTimes


# Closed forms of all-reduces: the numbers of a schedule, and what follows from them without simulation.
#
# An estimate of the time on a network is no bound: the busiest link and all delays are added as if nothing
# overlapped, so a run can be faster.
#
# What it assumes: words travel without headers and acknowledgements; hosts that take time work on packets of
# 1024 B; links are idle and full duplex; each pair of workers uses one path for each channel, as in a run
# with the same seed; hosts and switches merge in no time, and no window limits what is sent; packets take no
# time on the wire besides that of the words on the busiest link. Ways that follow one another take the delays
# of a word's longest way from worker to worker where each sends to one other, as in a ring, and of the
# longest way up and down a tree; elsewhere each takes those of the longest path between two workers that send
# at the same time. Stages that follow one another begin together at all workers; those of a collective that
# cuts a message into blocks overlap.


_TRANSFER_BYTES = 300
"""Memory per transfer of a schedule and of what is derived from it, with two messages under way."""
_CELL_BYTES = 64
WORD_BITS = 32
PACKET_BYTES = 1024
Cells = tuple[Fraction, ...]  # (chunks + 1,) where chunks begin, as shares of a message, and 1


class Steps(NamedTuple):
    """The numbers of a schedule for some number of workers."""

    pairs: Sequence[tuple[int, int]]  # (sender, receiver) of messages at the same time
    hops: int  # chunks sent one after the other over the same links
    chunks: int  # parts that the words are divided into
    merges: int  # hops at which a chunk is merged
    trips: int = 0  # paths that a word takes one after the other; 0: as many as hops
    then: Steps | None = None  # what comes after these steps, between other pairs
    overlaps: bool = False
    """Said by the first stage: all stages are under way at the same time, with other words each."""
    passed_words: int = 0
    """Words that have to arrive before any of them is passed on; 0: those of a packet."""
    windows: int = 1
    """Messages of a pair under way at the same time that share no window."""
    channels: Sequence[int] = ()
    """Which of its connections each pair uses; empty: 0."""

    @classmethod
    def chain(cls, stages: Sequence[Steps]) -> Steps:
        """Stages one after the other."""
        first, *others = stages
        return first._replace(then=cls.chain(others) if others else None)

    @property
    def flows(self) -> list[tuple[int, int, int]]:
        """Sender, receiver and channel of every pair."""
        channels = self.channels or [0] * len(self.pairs)
        return [(*pair, channel) for pair, channel in zip(self.pairs, channels, strict=True)]

    @property
    def share(self) -> float:
        """Share of the words that each pair carries."""
        return self.hops / self.chunks

    @property
    def stages(self) -> Iterator[Steps]:
        """These steps, and those that come after them."""
        yield self
        if self.then is not None:
            yield from self.then.stages


class ScheduleSize(NamedTuple):
    """How large a schedule is that the engine carries out (`engine/schedules.py`)."""

    transfers: int
    chunks: int

    def tables_bytes(self, workers: int) -> int:
        """Memory of its tables, which do not depend on the words, while it is built and carried out."""
        return _TRANSFER_BYTES * self.transfers + _CELL_BYTES * self.chunks * workers


class Cut(NamedTuple):
    """A schedule, and where its chunks begin as shares of a message."""

    schedule: Schedule
    cells: Cells

    def ends(self, words: int) -> NDArray[np.int64]:
        """(chunks + 1,) where chunks begin in a message of `words`, rounded down, and where the last ends."""
        return np.array([words * edge.numerator // edge.denominator for edge in self.cells], np.int64)


def equal_cells(chunks: int) -> Cells:
    """The cells of chunks that are equal shares of a message."""
    return tuple(Fraction(chunk, chunks) for chunk in range(chunks + 1))


class Estimate(NamedTuple):
    """The estimated time of one all-reduce, and what bounds it for long messages."""

    seconds: float
    link: str
    """The link that bounds it, which is busy longest; empty for one worker."""
    busy_s: float  # how long that link is busy
    latency_s: float  # delays of paths that follow one another


def ways_in_turn_ps(stage: Steps, delays_ps: Sequence[int]) -> int:
    """Delays of the ways that follow one another in a stage; `delays_ps` is by pair."""
    return longest_ways_ps(stage.pairs, delays_ps, stage.trips or stage.hops)


def estimate_of(
    network: Network,
    nodes: Sequence[int],
    steps: Steps,
    words: int,
    seed: int = 0,
    ways_of: Callable[[Steps, Sequence[int]], int] = ways_in_turn_ps,
) -> Estimate:
    """The estimated time of `words` words of 32 bits on the nodes that the pairs of `steps` index."""
    if len(nodes) < 2:
        return Estimate(0.0, "", 0.0, 0.0)
    ways_ps, wire_s = 0, list[float]()
    busy = dict[int, float]()  # seconds, by link
    for stage in steps.stages:
        delays_ps, load = _there(network, nodes, stage, seed)
        ways_ps += ways_of(stage, delays_ps)
        bits = words * WORD_BITS * stage.share
        times = {link: bits * count / usable_bps(network, link) for link, count in load.items()}
        for link, time_s in times.items():
            busy[link] = busy.get(link, 0.0) + time_s
        wire_s.append(max(times.values(), default=0.0))
    link, busy_s = max(busy.items(), key=lambda item: item[1])
    latency_s = ways_ps / PS_PER_S
    wire = busy_s if steps.overlaps else sum(wire_s)
    return Estimate(wire + latency_s, network.link_names[link], busy_s, latency_s)


def _there(
    network: Network, nodes: Sequence[int], stage: Steps, seed: int
) -> tuple[list[int], dict[int, float]]:
    """Delays from sender to receiver, by pair, and how many messages each link carries at the same time."""
    delays_ps, load = [], defaultdict[int, float](int)
    delay_ps = network.delay_ps.tolist()
    for sender, receiver, channel in stage.flows:
        between = nodes[sender], nodes[receiver], flow_key_plain(seed, 0, sender, receiver, channel)
        links = path(network, *between)
        delays_ps.append(sum(delay_ps[link] for link in links))
        spread = shares(network, *between) if network.policy.is_sprayed else Counter(links)
        for link, share in spread.items():
            load[link] += share
    return delays_ps, load


def longest_ways_ps(pairs: Sequence[tuple[int, int]], delays_ps: Sequence[int], trips: int) -> int:
    """Delays of the longest way over so many pairs one after the other, each with its own delay.

    Where each sends to one other, a word that arrives is sent on to the receiver's own: a ring is walked
    round, and only as many of its ways are long as there are long pairs. Elsewhere every trip is the longest.
    """
    following = dict(pairs)
    if len(following) < len(pairs):
        return trips * max(delays_ps)
    own_ps = dict(zip(following, delays_ps, strict=True))
    sums_ps, ends = dict.fromkeys(following, 0), {one: one for one in following}
    while trips:  # each time round, a way is of twice as many pairs
        if trips % 2:
            sums_ps = {one: sums_ps[one] + own_ps.get(end, 0) for one, end in ends.items()}
            ends = {one: following.get(end, end) for one, end in ends.items()}
        own_ps = {one: own_ps[one] + own_ps.get(end, 0) for one, end in following.items()}
        following = {one: following.get(end, end) for one, end in following.items()}
        trips //= 2
    return max(sums_ps.values())


def usable_bps(network: Network, link: int) -> int:
    """The rate of a link, or at which a host works on packets."""
    return packet_rate_bps(network, link, PACKET_BYTES)


def estimate_by(
    steps_of: Callable[[Any, int], Steps],
) -> Callable[[Any, Network, Sequence[int], int, int], Estimate]:
    """The function of a collective's specification, of the closed form for its section and some workers."""

    def estimate(section: Any, network: Network, nodes: Sequence[int], words: int, seed: int) -> Estimate:
        return estimate_of(network, nodes, steps_of(section, len(nodes)), words, seed)

    return estimate


Wait: TypeAlias = "Generator[simpy.Event, Any, tuple[Merged, ...]]"
MergeOrders = dict[tuple[int, int], Sequence[Sequence[HostHop]]]


class OperationPlace(NamedTuple):
    """One network operation of a job, the same at all workers."""

    step: int
    bucket: int
    operation: int
    """The operation's number in the round."""

    def __str__(self) -> str:
        return f"step {self.step}, bucket {self.bucket}, operation {self.operation}"

    @property
    def in_words(self) -> str:
        """The same as part of a sentence."""
        return f"operation {self.operation} of bucket {self.bucket} of step {self.step}"


def _no_server() -> Server | None:
    return None


@dataclass(frozen=True)
class RunContext:
    """The environment of a job's collective."""

    environment: simpy.Environment
    fabric: Fabric
    hosts: HostTimes
    nodes: tuple[int, ...]
    """The node of each worker."""
    device: Device
    seed: int
    job: int = 0  # its number in the variant
    make_server: Callable[[], Server | None] = _no_server  # the codec's part where messages meet
    tensors: Sequence[tuple[Tensor, ...]] = ()
    """The tensors of each bucket; empty: unknown."""
    ranks: tuple[int, ...] = ()
    """Ranks of its workers in the job, if they are only some of the job's."""


class Collective(Protocol):
    """Carries a job's network operations; all workers call it for the same operations."""

    @property
    def servers(self) -> Sequence[Server]:
        """The codec's server parts, for their `state` and `restore`; empty if it has none."""

    @property
    def is_serial(self) -> bool:
        """Whether it carries one operation of a worker at a time, in the same order at all workers."""

    @property
    def takes_floats(self) -> bool:
        """Whether it adds a message's floats if the sums of its words overflow."""

    @property
    def overflow(self) -> Overflow:
        """Its policy for integer sums that leave int32."""

    def pipelines(self, message: Message) -> bool:
        """Whether it agrees on a scaled message's exponents while it sends the words."""

    def exchange(self, worker: int, messages: tuple[Message, ...], place: OperationPlace) -> Wait:
        """Send one worker's messages now, and return the merged messages to the waiting SimPy process."""

    def merge_orders(self, step: int, bucket: int) -> MergeOrders:
        """The hops at which HOST messages of a finished round merged, by operation and message.

        It is asked once per round, and forgets them then.
        """

    def switch_counters(self) -> list[dict[str, int]]:
        """Counters of its switch program, one mapping per switch, root first; empty without a program."""

    def leaks(self) -> list[str]:
        """Slots and entries of switches that still hold words at the end of a run."""

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """Where a word of message `part` of an operation of the latest step was merged: slot or segment."""

    def share(self) -> float:
        """Progress of the operations in flight, from 0 to 1."""

    def retransmitted_packets(self) -> int:
        """Packets retransmitted so far, by all workers."""


class CollectiveSection(Section):
    """The keys of a collective; the first is `kind`, a literal."""

    recorded_always: ClassVar[tuple[str, ...]] = ()
    """Keys that run folders record even if they have their default value."""

    kind: str


class SharedState(Protocol):
    """What a collective keeps of the jobs of a variant."""

    network: Network

    def release(self, location: Location) -> None:
        """Free what a job has reserved."""

    def add_loopbacks(self) -> None:
        """Add loopback links to `network` wherever jobs like the earlier ones may need them."""


@dataclass
class Site:
    """State that the jobs of a variant share; they are resolved one after the other."""

    graph: nx.Graph
    network: Network  # a collective that needs more links replaces it
    profiles: dict[str, Profile]
    """Profiles of switches, by their name."""
    profile_key: str  # the scenario key that names them
    occupied: HostAllocation
    sharing: int = 1
    """How many jobs divide what a switch holds, where jobs take what they need."""
    shared_state: dict[str, SharedState] = field(default_factory=dict)
    """What a collective keeps of earlier jobs, by its kind."""

    def release(self, location: Location) -> None:
        """Free what the collective of a job has reserved; its hosts are in `occupied`."""
        for state in self.shared_state.values():
            state.release(location)

    def add_links(self) -> None:
        """Add the links that a job like the earlier ones may need on switches where none of them is."""
        for state in self.shared_state.values():
            state.network = self.network
            state.add_loopbacks()
            self.network = state.network


@dataclass(frozen=True)
class JobContext:
    """The job that a collective is resolved for, without the collective's keys."""

    site: Site
    location: Location
    index: int
    """The job's number in its variant."""
    hosts: tuple[str, ...]
    """Hosts of the workers, in rank order."""
    codec: Codec
    device: Device
    elements: int
    """Elements that one operation sums."""
    buckets_in_flight: int = 1

    @property
    def nodes(self) -> tuple[int, ...]:
        """Node of each worker."""
        return tuple(self.site.network.nodes.index(name) for name in self.hosts)


class Resolved(NamedTuple):
    """A resolved collective, and the codec adapted to the network."""

    plan: CollectivePlan
    codec: Codec
    references: tuple[Reference, ...] = ()  # wire bounds
    warnings: tuple[str, ...] = ()


Keys = Mapping[str, Any]


def _no_choice() -> Mapping[str, Keys]:
    # No key decides which codecs a collective carries.
    return {"": {}}


def _fits(section: Any, workers: int, job: JobContext) -> None:
    """Default: any number of workers fits."""


@dataclass(frozen=True)
class Composable:
    """A collective between hosts as a part of another; all take its section and a number of workers."""

    cut: Callable[[Any, int], Cut]
    """The schedule of a share that is carried as a whole, not in chunks."""
    steps: Callable[[Any, int], Steps]
    check: Callable[[Any, int, JobContext], None] = _fits
    """Raises ScenarioError where it does not fit."""


@dataclass(frozen=True)
class CollectiveSpec:
    """One collective, as all other code sees it."""

    kind: str
    """The kind that its section and its plan have."""
    merges: frozenset[Merge]
    """The merges that it carries."""
    section: type[CollectiveSection]
    resolve: Callable[[Any, JobContext], Resolved]
    """Makes the plan of a job from its section."""
    start: Callable[[Any, RunContext], Collective]
    """Makes what carries a job's words from its plan."""
    works_anywhere: bool = True
    """Whether all its merges work on every network."""
    carries_absence: bool = False
    """Whether it counts workers that contribute nothing to a message that merges."""
    composable: Composable | None = None
    """What others need to be composed of it; None: they cannot be."""
    as_part: Callable[[Any, JobContext], Any] | None = None
    """From its section to that of a part of another, which it runs in switches; None: it cannot."""
    estimate: Callable[[Any, Network, Sequence[int], int, int], Estimate] | None = None
    """Its closed form: of its section, on the nodes of workers, for words, with a seed."""
    choices: Callable[[], Mapping[str, Keys]] = _no_choice
    """Keys that decide which codecs it carries, by a name; each is a column of the matrix."""


COLLECTIVES: dict[str, CollectiveSpec] = {}
"""All collectives by kind; `registry.py` fills it."""


def fitted(codec: Codec, carrier: Carrier) -> Codec:
    """The codec, adapted to the network."""
    return codec.carried_by(carrier)


def check_absence(location: Location, codec: Codec, carrier: str, carries_absence: bool) -> None:
    """Refuse a codec whose workers may be absent from merges where `carrier` cannot count them.

    Raises
    ------
    ScenarioError
        It cannot.
    """
    if not codec.may_be_absent or carries_absence:
        return
    able = names_of(lambda program: program.carries_absence)
    kinds = [kind for kind, spec in COLLECTIVES.items() if spec.carries_absence]
    raise location.job_error(
        "codec",
        f"workers of codec {codec.kind!r} may have nothing to contribute to a merge, and {carrier} cannot "
        "carry the header that says so",
        f"use one of the collectives {', '.join(kinds)}; of the switch programs, {', '.join(able)} can",
    )


def check_workers(
    location: Location, codec: Codec, workers: int, overflow: str, *, may_wrap: bool = True
) -> None:
    """Refuse more workers than a codec's sums have room for, options and adders that it cannot use.

    `overflow` is the policy for sums; `may_wrap` says whether the scenario could choose that they wrap.

    Raises
    ------
    ScenarioError
        There are too many, an option is too large, the adders do not wrap, or no sums have lanes of the
        codec's width.
    """
    if (refusal := refusal_of(codec, workers, overflow)) is None:
        return
    key, hint = "codec", f"use {refusal.remedy}"
    if refusal.option:
        key, hint = f"codec.{refusal.option}", f"use codec.{refusal.remedy}"
    if may_wrap and refusal_of(codec, workers) is None:
        hint += ", or collective.overflow: wrap"
    raise location.job_error(key, refusal.reason, hint)
