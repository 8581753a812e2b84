"""Random small plans: a network, its jobs and flows, what faults strike, and what changes in between."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.merge import MERGEABLE, Merge
from netfold.sim.engine.congestion_policies import POLICIES
from netfold.sim.engine.engine_data import (
    NEVER_PS,
    NONE,
    AtpServer,
    Branch,
    Burst,
    Fate,
    Flow,
    Frame,
    Job,
    Operation,
    Overflow,
    Rule,
    Schedule,
    Sender,
)
from netfold.sim.engine.tree_paths import with_splits
from netfold.switch.program import ProgramSpec, runnable
from netfold.switch.programs.atp import ATP
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.network import Network, compile_network
from tests.reference.switch.merging import words_per_word
from tests.sim.engine.checked_schedule import check_schedule

LANES = {Merge.ADD: (32, 16, 8, 4), Merge.TABLE_ADD: (32, 16, 8)}


@dataclass(frozen=True)
class Scheduled:
    """An operation, what each worker puts in, and when."""

    operation: Operation  # its result is replaced by each run's own
    words: list[NDArray[Any] | None]  # None where they are only counted
    sizes: list[NDArray[np.int64] | None]  # of HOST
    absent: frozenset[int]
    begins_ps: list[int | None]  # None: never

    def fresh(self) -> Operation:
        result = self.operation.result
        return self.operation if result is None else replace(self.operation, result=np.zeros_like(result))


@dataclass
class Sent:
    """A transfer while a schedule is drawn."""

    source: int
    target: int
    chunks: range
    merges: bool


def drawn_schedule(random: np.random.Generator, workers: int) -> Schedule:
    """For some runs of chunks each, a random tree of merges and a random way back; interleaved."""
    chunks = int(random.integers(1, 6))
    cuts = sorted({0, chunks, *random.integers(0, chunks + 1, 2).tolist()})
    lines = [drawn_line(random, workers, range(first, end)) for first, end in pairwise(cuts)]
    sent: list[Sent] = []
    while any(lines):
        line = lines[random.integers(len(lines))]
        if line:
            sent.append(line.pop(0))
    return schedule_of(random, workers, chunks, sent)


def drawn_line(random: np.random.Generator, workers: int, chunks: range) -> list[Sent]:
    """All contributions to a run of chunks come together at one worker, and go to all from there."""
    holders, line = list(range(workers)), []
    while len(holders) > 1:
        source, target = random.choice(holders, 2, replace=False).tolist()
        line.append(Sent(source, target, chunks, True))
        holders.remove(source)
    ways = [chunks] if random.integers(2) else [range(one, one + 1) for one in chunks]
    for way in ways:
        have = list(holders)
        for target in random.permutation([one for one in range(workers) if one not in have]).tolist():
            line.append(Sent(int(random.choice(have)), target, way, False))
            have.append(target)
    return line


def schedule_of(random: np.random.Generator, workers: int, chunks: int, sent: list[Sent]) -> Schedule:
    """Each transfer waits for all that its source received of its chunks, and perhaps for more."""
    waits: list[list[int]] = []
    follows: list[int] = []
    for number, one in enumerate(sent):
        to_source = [at for at, other in enumerate(sent[:number]) if other.target == one.source]
        needed = [at for at in to_source if set(sent[at].chunks) & set(one.chunks)]
        more = [at for at in to_source if at not in needed and random.integers(4) == 0]
        waits.append([int(at) for at in random.permutation([*needed, *more])])
        to_target = [at for at, other in enumerate(sent[:number]) if other.target == one.target]
        follows.append(int(random.choice(to_target)) if to_target and random.integers(2) else NONE)
    pairs: dict[tuple[int, int], int] = {}
    has_lanes = random.integers(2)
    lane = [
        pairs.setdefault((one.source, one.target), len(pairs)) if has_lanes and random.integers(4) else NONE
        for one in sent
    ]
    schedule = Schedule(
        workers,
        chunks,
        np.array([one.source for one in sent], np.int32),
        np.array([one.target for one in sent], np.int32),
        np.array([one.chunks.start for one in sent], np.int32),
        np.array([len(one.chunks) for one in sent], np.int32),
        np.array([one.merges for one in sent], np.bool_),
        random.permutation(len(sent)).astype(np.int64),
        np.array(follows, np.int32),
        np.array(lane, np.int32),
        np.append(0, np.cumsum([len(one) for one in waits])).astype(np.int64),
        np.array([at for one in waits for at in one], np.int32),
    )
    check_schedule(schedule)
    return schedule


@st.composite
def scheduled(draw: st.DrawFn, network: Network) -> Scheduled:
    random = np.random.default_rng(draw(SEEDS))
    hosts = [int(host) for host in random.permutation(nodes(network, is_host=True))]
    workers = draw(st.integers(1, len(hosts)))
    schedule = drawn_schedule(random, workers)
    merge = draw(st.sampled_from([*MERGES, Merge.HOST, None]))
    lane_bits = int(random.choice(LANES.get(merge, (32,)))) if merge else 32
    size = draw(st.integers(0, 60))
    ends = np.sort(np.append([0, size], random.integers(0, size + 1, schedule.chunks - 1))).astype(np.int64)
    carries = merge not in (None, Merge.HOST)
    has_codes = merge is Merge.TABLE_ADD and bool(random.integers(4))
    lifted = words_per_word(Merge.TABLE_ADD, lane_bits) if has_codes else 1
    times = random.choice([0, 1, 70_000, 2_000_000], (schedule.transfers, 2)).astype(np.int64)
    window = draw(st.integers(1, 12))
    extra = draw(st.integers(0, 3))
    asks = random.choice(workers, int(random.integers(workers + 1)), replace=False).tolist()
    operation = Operation(
        schedule=schedule,
        hosts=tuple(hosts[:workers]),
        ranks=tuple(random.integers(1000, size=workers).tolist()),
        sender=Sender(
            frame=Frame("scheduled", 4, 30, first_bytes=extra, last_bytes=2 * extra, ack_bytes=20),
            window=window,
            timeout_ps=draw(st.sampled_from([2_000_000, 30_000_000])),
            waits_for_loss=draw(st.booleans()),
            ack_every=draw(st.integers(1, window)),
            policy=draw(POLICY),
            ecn_bytes=draw(st.sampled_from([-1, 0, 100, 10_000])),
        ),
        number=draw(st.integers(0, 1000)),
        seed=draw(SEEDS),
        ends=ends,
        job=draw(st.integers(0, 3)),
        merge=merge,
        result=np.zeros(size * lifted, np.int32) if carries else None,
        table=integers(random, 16) >> 32 - lane_bits if has_codes else None,
        lane_bits=lane_bits,
        lifted_words=lifted,
        merge_ps=times if random.integers(2) and carries else None,
        asks=tuple(asks) if random.integers(2) else (),
    )
    own: list[Any] = [None] * workers
    if merge is not None and carries:
        own = [words(random, size, merge).view(np.int32) for _ in range(workers)]
    sizes = [random.integers(0, 20, schedule.chunks) for _ in range(workers)]
    absent = set(random.choice(workers, int(random.integers(workers + 1)), replace=False).tolist())
    begins = random.choice([0, 0, 300_000, 9_000_000], workers).tolist()
    if random.integers(10) == 0:
        begins[random.integers(workers)] = None
    return Scheduled(
        operation,
        own,
        list(sizes) if merge is Merge.HOST else [None] * workers,
        frozenset(absent if carries and random.integers(3) == 0 else ()),
        begins,
    )


RATES = st.sampled_from([10**9, 3 * 10**9, 10**10, 7 * 10**9])
DELAYS = st.sampled_from([0, 1, 50_000, 1_000_000])
LINKS = st.builds(LinkSpec, RATES, DELAYS, st.sampled_from([300, 2_000, 1 << 20]))
LARGE_LINKS = st.builds(LinkSpec, RATES, DELAYS, st.sampled_from([2_000, 1 << 20]))  # hold a unit's results
SEEDS = st.integers(0, 2**32)  # of what need not shrink
WORKERS = st.sampled_from([2, 3, 4, 6, 1])
POLICY = st.sampled_from(range(len(POLICIES)))
SOON = st.integers(0, 60_000_000) | st.sampled_from([0, 1_000_000, 10_000_000])  # while plans are busy
BURSTS = st.builds(
    Burst, st.sampled_from([0.02, 0.3, 1.0]), st.sampled_from([0.1, 0.5, 1.0]), st.sampled_from([0.0, 0.1])
)
CHANGES = (
    *("cut", "restore", "restore", "flush", "set_rate", "set_rate", "set_rate"),
    *("clear", "crash", "pause", "pause"),
)
LATE_FATES = (Fate.DUPLICATE, Fate.REORDER)  # the only ones with a delay
SUMS = (Merge.ADD, Merge.TABLE_ADD)
MERGES = [merge for merge in Merge if merge in MERGEABLE]
FRAME = Frame("test", elements=4, overhead_bytes=40)


class Words(NamedTuple):
    """One segment of all workers."""

    merge: Merge
    by_worker: list[NDArray[Any]]  # empty: the worker is absent
    table: NDArray[np.int32] | None = None
    has_floats: bool = False  # to be sent where a sum overflows
    lane_bits: int = 32  # of sums
    absent_words: int = 0  # words of the others, where some are absent

    @property
    def size(self) -> int:
        """Words of a worker, or those that it would have."""
        return self.absent_words or self.by_worker[0].size

    def without(self, absent: Collection[int]) -> Words:
        """The same, but that some workers have nothing to contribute."""
        words = [own[:0] if worker in absent else own for worker, own in enumerate(self.by_worker)]
        return self._replace(by_worker=words, absent_words=self.size)


@dataclass(frozen=True)
class Exchange:
    """One stream per worker: what is sent, and how long each worker waits before it starts."""

    segments: list[Words]
    is_scaled: bool
    waits_ps: list[int]


class Change(NamedTuple):
    """Something done to the engine in the middle of a plan."""

    time_ps: int
    name: str  # of the engine's method
    arguments: tuple[int, ...]  # of `reroute`: links


@dataclass(frozen=True)
class Plan:
    """A network, its traffic, chance and accidents."""

    network: Network
    seed: int
    jobs: list[tuple[Job, list[Exchange]]]  # a job's exchanges follow each other
    flows: list[tuple[int, Flow]]  # start, flow
    rules: list[Rule] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    operations: list[Scheduled] = field(default_factory=list)


def nodes(network: Network, *, is_host: bool) -> list[int]:
    return [node for node in range(len(network.nodes)) if network.is_host[node] == is_host]


def with_loopbacks(network: Network, link: LinkSpec) -> Network:
    """The same network with one more link per switch, behind all others: to itself."""
    own = np.array(nodes(network, is_host=False), np.int32)
    return replace(
        network,
        link_names=(*network.link_names, *(f"{network.nodes[node]} loopback" for node in own)),
        link_source=np.append(network.link_source, own),
        link_target=np.append(network.link_target, own),
        rate_bps=np.append(network.rate_bps, np.full(own.size, link.rate_bps)),
        delay_ps=np.append(network.delay_ps, np.full(own.size, link.delay_ps)),
        buffer_bytes=np.append(network.buffer_bytes, np.full(own.size, link.buffer_bytes)),
    )


@st.composite
def stars(draw: st.DrawFn, links: st.SearchStrategy[LinkSpec] = LINKS) -> Network:
    """One switch; the last link is its loopback."""
    graph = star(draw(st.integers(2, 5)), draw(links))
    return with_loopbacks(compile_network(graph), draw(links))


@st.composite
def fabrics(draw: st.DrawFn, links: st.SearchStrategy[LinkSpec] = LINKS) -> Network:
    """Leaves and spines; the last links are the switches' loopbacks."""
    leaves, spines = draw(st.sampled_from([2, 3, 1])), draw(st.integers(1, 2))
    graph = leaf_spine(leaves, spines, 2, draw(links), draw(links))
    return with_loopbacks(compile_network(graph), draw(links))


def networks(links: st.SearchStrategy[LinkSpec] = LINKS) -> st.SearchStrategy[Network]:
    """A star or a leaf-spine fabric; the last links are the switches' loopbacks."""
    return st.sampled_from([fabrics, fabrics, stars]).flatmap(lambda make: make(links))


class Wanted(NamedTuple):
    """What a job must be or may be."""

    may_scale: bool = True
    must_scale: bool = False
    must_branch: bool = False  # where the network has two switches
    may_count: bool = False  # in lanes of 4 bits, which adders that wrap add
    table_bits: int = 32  # of the lanes that tables lift codes to
    must_sum: bool = False  # in narrow lanes


@st.composite
def trees(
    draw: st.DrawFn, network: Network, workers: int, *, is_flat: bool, must_branch: bool = False
) -> dict[str, Any]:
    """Fields of a job that say where its switches are: all points on different switches, none childless."""
    random = np.random.default_rng(draw(SEEDS))
    switches = [int(node) for node in random.permutation(nodes(network, is_host=False))]
    first_loopback = len(network.link_names) - len(switches)
    has_loopbacks = draw(st.booleans())

    def loopback(switch: int) -> int:
        return first_loopback + sorted(switches).index(switch) if has_loopbacks else -1

    count_max = 0 if is_flat else min(len(switches) - 1, workers)
    counts = list(range(count_max, 0, -1))
    count = draw(st.sampled_from(counts if must_branch and counts else [*counts, 0]))
    parents = [int(random.integers(number + 1)) for number in range(count)]  # of the points 1, 2 …
    ends = [point for point in range(count + 1) if point not in parents]
    homes = random.permutation([*ends, *random.integers(count + 1, size=workers - len(ends))])
    return {
        "switch": switches[0],
        "loopback_link": loopback(switches[0]),
        "branches": tuple(
            Branch(switch, parent, loopback(switch), route=int(random.integers(-3, 1000)))
            for switch, parent in zip(switches[1:], parents, strict=False)
        ),
        "homes": tuple(map(int, homes)) if count else (),
    }


def integers(random: np.random.Generator, size: int) -> NDArray[np.int32]:
    """Words of any size, or small, or near the ends of int32."""
    small = random.integers(-9, 10, size, dtype=np.int32)
    match random.integers(3):
        case 0:
            return small
        case 1:
            return random.integers(-(2**31), 2**31, size, dtype=np.int32)
    ends = random.choice(np.array([-(2**31), -(2**31) + 9, 2**31 - 10, 2**31 - 9], np.int64), size)
    return np.clip(ends + small, -(2**31), 2**31 - 1).astype(np.int32)


def words(random: np.random.Generator, size: int, merge: Merge) -> NDArray[Any]:
    if merge is Merge.FLOAT_ADD:
        scale = random.choice([1e-3, 1.0, 1e38])
        return (random.standard_normal(size) * scale).clip(-3e38, 3e38).astype(np.float32)
    if merge in (Merge.ADD, Merge.MAX):
        return integers(random, size)
    return random.integers(0, 2**32, size, dtype=np.uint32)


def uneven_floats(random: np.random.Generator, size: int) -> NDArray[np.float32]:
    """Floats whose exponents differ from packet to packet, so that each worker decides some of them."""
    runs = np.repeat(2.0 ** random.integers(-9, 10, -(-size // FRAME.elements)), FRAME.elements)
    return (random.standard_normal(size) * runs[:size] * 10.0 ** random.integers(-3, 3)).astype(np.float32)


@st.composite
def some_absent(draw: st.DrawFn, words: Words) -> Words:
    """Now and then, some workers or all have nothing to contribute."""
    workers = range(len(words.by_worker))
    if draw(st.integers(0, 2)):
        return words
    return words.without(draw(st.just(set(workers)) | st.sets(st.sampled_from(workers), min_size=1)))


@st.composite
def exchanges(draw: st.DrawFn, workers: int, wanted: Wanted) -> Exchange:
    """One to three segments of any merge, with lanes of some width, or one of floats with block exponents."""
    random = np.random.default_rng(draw(SEEDS))
    waits_ps = [int(wait_ps) for wait_ps in random.choice([0, 0, 100_000, 9_000_000], workers)]
    if wanted.may_scale and (wanted.must_scale or draw(st.integers(0, 2)) == 0):
        size = draw(st.integers(1, 60))
        floats = [uneven_floats(random, size) for _ in range(workers)]
        return Exchange([draw(some_absent(Words(Merge.ADD, floats)))], True, waits_ps)
    segments = []
    for _ in range(draw(st.integers(1, 3))):
        merge = draw(st.sampled_from([*SUMS] if wanted.must_sum else MERGES))
        size = draw(st.integers(1, 40))
        lane_bits = wanted.table_bits
        table = integers(random, 16) >> 32 - lane_bits if merge is Merge.TABLE_ADD else None
        if merge is Merge.ADD:
            widths = [16, 8] if wanted.must_sum else [32, 32, 16, 8]
            lane_bits = int(random.choice([*widths, 4] if wanted.may_count else widths))
        elif merge is not Merge.TABLE_ADD:
            lane_bits = 32
        own = [words(random, size, merge) for _ in range(workers)]
        segments.append(draw(some_absent(Words(merge, own, table, lane_bits=lane_bits))))
    return Exchange(segments, False, waits_ps)


@st.composite
def jobs(
    draw: st.DrawFn, network: Network, slot_base: int, programs: Sequence[ProgramSpec], wanted: Wanted
) -> tuple[Job, list[Exchange]]:
    """A job with one or two exchanges, under one of these programs."""
    program = draw(st.sampled_from(programs))
    is_timed = program is TIMED
    hosts = nodes(network, is_host=True)
    random = np.random.default_rng(draw(SEEDS))
    workers = [int(host) for host in random.permutation(hosts)[: draw(WORKERS)]]
    unit_packets = 1 if is_timed else draw(st.sampled_from([1, 1, 2, 3]))
    extra = draw(st.integers(0, 4))
    overflow = draw(st.sampled_from(Overflow))
    table_bits = draw(st.sampled_from([8, 16] if wanted.must_sum else [32, 8, 16]))
    wanted = wanted._replace(
        may_scale=wanted.may_scale and not is_timed,
        may_count=overflow is Overflow.WRAP,
        table_bits=table_bits,
    )
    makes = exchanges(len(workers), wanted)
    streams = draw(st.lists(makes, min_size=1, max_size=2))
    job = Job(
        hosts=tuple(workers),
        slot_base=slot_base,
        unit_packets=unit_packets,
        sender=Sender(
            window=unit_packets * draw(st.integers(1, 5)),
            frame=replace(FRAME, first_bytes=extra, last_bytes=2 * extra),
            timeout_ps=draw(st.sampled_from([3_000_000, 20_000_000])),
            first_timeout_ps=draw(st.sampled_from([3_000_000, 50_000_000])),
            timeout_max_ps=40_000_000,
            waits_for_loss=draw(st.booleans()),
        ),
        routes=tuple(map(int, random.integers(-3, 1000, size=len(workers)))),
        program=program,
        overflow=overflow,
        slot_timer_ps=draw(st.sampled_from([500_000, 4_000_000, 30_000_000])) if is_timed else 0,
        lanes=table_bits // 4
        if any(each.merge is Merge.TABLE_ADD for one in streams for each in one.segments)
        else 1,
        **draw(trees(network, len(workers), is_flat=is_timed, must_branch=wanted.must_branch)),
    )
    if draw(st.booleans()):
        able = draw(st.sets(st.sampled_from(nodes(network, is_host=False))))
        job = with_splits(network, job, able.__contains__)
    return job, streams


@st.composite
def atp_jobs(draw: st.DrawFn, network: Network) -> tuple[Job, list[Exchange]]:
    """A job of ATP with one or two exchanges, on few entries."""
    hosts = nodes(network, is_host=True)
    random = np.random.default_rng(draw(SEEDS))
    chosen = [int(host) for host in random.permutation(hosts)]
    workers = chosen[1 : 1 + draw(WORKERS)]
    window_max = draw(st.integers(1, 6))
    has_floats = draw(st.booleans())
    streams = []
    for _ in range(draw(st.integers(1, 2))):
        sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=2))
        segments = [
            Words(Merge.ADD, [integers(random, size) for _ in workers], has_floats=has_floats)
            for size in sizes
        ]
        streams.append(
            Exchange(segments, False, [int(wait) for wait in random.choice([0, 0, 9_000_000], len(workers))])
        )
    switch = draw(st.sampled_from(nodes(network, is_host=False)))
    loopback = network.link_names.index(f"{network.nodes[switch]} loopback")
    extra = draw(st.integers(0, 2))
    job = Job(
        hosts=tuple(workers),
        switch=switch,
        slot_base=0,
        unit_packets=1,
        sender=Sender(
            window=draw(st.integers(1, window_max)),
            policy=draw(POLICY),
            ecn_bytes=draw(st.sampled_from([0, 100, 10_000])),
            frame=replace(FRAME, first_bytes=extra, last_bytes=2 * extra),
            timeout_ps=draw(st.sampled_from([2_000_000, 9_000_000])),
            first_timeout_ps=draw(st.sampled_from([3_000_000, 20_000_000])),
            timeout_max_ps=40_000_000,
            waits_for_loss=draw(st.booleans()),
        ),
        routes=tuple(map(int, random.integers(-3, 1000, size=len(workers)))),
        loopback_link=draw(st.sampled_from([-1, loopback])),
        program=ATP,
        overflow=Overflow.STICKY,
        server=AtpServer(
            host=chosen[0],
            entries=draw(st.sampled_from([window_max, window_max + 2, 50])),
            window_max=window_max,
            route=draw(st.integers(0, 1000)),
        ),
    )
    return job, streams


@st.composite
def flows(draw: st.DrawFn, network: Network) -> tuple[int, Flow]:
    source, target = draw(st.permutations(nodes(network, is_host=True)))[:2]
    window = draw(st.integers(1, 12))
    sent = np.arange(draw(st.integers(0, 120)), dtype=np.int32) * 7919
    flow = Flow(
        source=source,
        target=target,
        words_count=sent.size,
        words=sent,
        received=sent,  # replaced by each run's own
        sender=Sender(
            frame=Frame("flow", 4, 30, first_bytes=3, last_bytes=1, ack_bytes=20),
            window=window,
            timeout_ps=draw(st.sampled_from([2_000_000, 30_000_000])),
            waits_for_loss=draw(st.booleans()),
            ack_every=draw(st.integers(1, window)),
            policy=draw(POLICY),
            ecn_bytes=draw(st.sampled_from([-1, 0, 100, 10_000])),
        ),
        route=draw(st.integers(-3, 1000)),
        key=draw(st.integers(0, 2**64 - 1)),
        ack_route=draw(st.none() | st.integers(-3, 1000)),
    )
    return draw(st.sampled_from([0, 0, 300_000, 5_000_000])), flow


@st.composite
def rules(draw: st.DrawFn, network: Network, fates: Sequence[Fate] = tuple(Fate)) -> Rule:
    """A fault of one of these kinds on some links, permanently or for a while."""
    fate = draw(st.sampled_from(fates))
    from_ps = draw(st.just(0) | SOON)
    return Rule(
        fate=fate,
        probability=draw(st.sampled_from([0.0, 0.02, 0.3, 0.3, 1.0])),
        links=tuple(draw(st.sets(st.integers(0, len(network.link_names) - 1), min_size=1))),
        delay_ps=draw(st.sampled_from([0, 1, 200_000, 3_000_000])) if fate in LATE_FATES else 0,
        from_ps=from_ps,
        until_ps=draw(st.just(NEVER_PS) | st.integers(from_ps, from_ps + 40_000_000)),
        burst=draw(BURSTS) if fate is Fate.BURST_LOSS else None,
    )


@st.composite
def changes(draw: st.DrawFn, network: Network) -> Change:
    """An accident, or an end to one."""
    name = draw(st.sampled_from(CHANGES))
    time_ps = draw(SOON)
    if name in ("cut", "restore", "flush", "set_rate"):
        link = draw(st.integers(0, len(network.link_names) - 1))
        return Change(time_ps, name, (link, draw(RATES)) if name == "set_rate" else (link,))
    node = draw(st.sampled_from(nodes(network, is_host=name != "clear")))
    return Change(time_ps, name, (node, time_ps + draw(SOON)) if name == "pause" else (node,))


@st.composite
def failures(draw: st.DrawFn, network: Network) -> list[Change]:
    """Now and then some links fail and perhaps return; routes leave them out later, or sooner, or never."""
    if draw(st.booleans()):
        return []
    links = draw(st.sets(st.integers(0, len(network.link_names) - 1), min_size=1, max_size=4))
    told = [Change(draw(SOON), name, (link,)) for link in links for name in ("cut", "kill", "restore")]
    if network.policy.can_reroute:
        told += [Change(draw(SOON), "reroute", failed) for failed in (tuple(links), ())]
    times_ps = sorted(change.time_ps for change in told)
    order = sorted(told, key=lambda change: ("cut", "kill", "reroute", "restore").index(change.name))
    return [change._replace(time_ps=time_ps) for change, time_ps in zip(order, times_ps, strict=True)]


@st.composite
def abandoned(draw: st.DrawFn, made: Sequence[tuple[Job, list[Exchange]]]) -> list[Change]:
    """Now and then a job of slots without timers is given up."""
    numbers = [number for number, (job, _) in enumerate(made) if job.program.is_all_or_nothing]
    if not numbers or draw(st.integers(0, 2)):
        return []
    return [Change(draw(SOON), "abandon", (draw(st.sampled_from(numbers)),))]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Anything goes: some of these plans never end."""
    network = draw(networks())
    struck = draw(st.lists(rules(network), max_size=4))
    may_scale = not any(rule.fate in LATE_FATES for rule in struck)  # a wrong exponent leaves int32
    every = [program for program in runnable().values() if program is not ATP]
    bases = draw(st.sampled_from([[0], [0], [0, 20], []]))
    atp = draw(st.lists(atp_jobs(network), max_size=2))
    made = [*(draw(jobs(network, base, every, Wanted(may_scale))) for base in bases), *atp]
    accidents = [*draw(st.lists(changes(network), max_size=6)), *draw(failures(network))]
    return Plan(
        network,
        draw(st.integers(0, 2**63)),
        made,
        draw(st.lists(flows(network), max_size=3)),
        struck,
        [*accidents, *draw(abandoned(made))],
    )


@st.composite
def lossy_plans(draw: st.DrawFn) -> Plan:
    """Some packets are lost, some come twice: every stream and flow ends, and nothing is wrong."""
    network = draw(networks(LARGE_LINKS))
    links = tuple(range(len(network.link_names)))
    rates = st.sampled_from([0.0, 0.005, 0.02])
    fates = (Fate.LOSS, Fate.CORRUPTION, Fate.DUPLICATE)
    programs = [SWITCHML, SWITCHML, TIMED]
    return Plan(
        network,
        draw(st.integers(0, 2**63)),
        [draw(jobs(network, base, programs, Wanted())) for base in draw(st.sampled_from([[0], [0, 20]]))],
        draw(st.lists(flows(network), max_size=2)),
        [Rule(fate, draw(rates), links) for fate in fates],
    )
