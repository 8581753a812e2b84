"""Random schedules and operations: any that `check_schedule` accepts, on a few hosts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Frame
from netfold.sim.engine.schedule import NONE, Schedule
from netfold.sim.engine.schedules.operation import Operation
from netfold.topologies.routing import Network
from tests.reference.switch.merging import words_per_word
from tests.sim.engine.checked_schedule import check_schedule
from tests.sim.engine.plans.plans import MERGES, SEEDS, integers, nodes, words

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
        """The operation with a result of its own."""
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
    """An operation on some hosts of a network."""
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
        frame=Frame("scheduled", 4, 30, first_bytes=extra, last_bytes=2 * extra, ack_bytes=20),
        window=window,
        timeout_ps=draw(st.sampled_from([2_000_000, 30_000_000])),
        waits_for_loss=draw(st.booleans()),
        ack_every=draw(st.integers(1, window)),
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
