"""Closed forms of all-reduces: the numbers of a schedule, and what follows from them without simulation.

An estimate of the time on a network is no bound: the busiest link and all delays are added as if nothing
overlapped, so a run can be faster.

What it assumes: words travel without headers and acknowledgements; hosts that take time work on packets of
1024 B; links are idle and full duplex; each pair of workers uses one path for each channel, as in a run
with the same seed; hosts and switches merge in no time, and no window limits what is sent; packets take no
time on the wire besides that of the words on the busiest link. Ways that follow one another take the delays
of a word's longest way from worker to worker where each sends to one other, as in a ring, and of the
longest way up and down a tree; elsewhere each takes those of the longest path between two workers that send
at the same time. Stages that follow one another begin together at all workers; those of a collective that
cuts a message into blocks overlap.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine.schedule import Schedule
from netfold.sim.plan.idle_network import packet_rate_bps
from netfold.topologies.network import Network, flow_key_plain, path, shares
from netfold.units import PS_PER_S

_TRANSFER_BYTES = 300  # of a schedule and what is derived from it, two messages under way
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
    overlaps: bool = False  # of the first: all stages are under way at the same time, with other words each
    passed_words: int = 0  # that have to arrive before any of them is passed on; 0: those of a packet
    windows: int = 1  # of a pair: its messages under way at the same time that share no window
    channels: Sequence[int] = ()  # of each pair, which of its connections it uses; empty: 0

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
    """How large a schedule is that the engine carries out (`engine/schedule.py`)."""

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
    link: str  # that bounds it: the one that is busy longest; empty for one worker
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
    while trips:  # of twice as many pairs each time
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
