"""Messages of random words, the collectives that carry them, and what must arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import simpy
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.block_floating_point import block_exponents
from netfold.homomorphic.codec import Server
from netfold.homomorphic.merge import Merge, Merged
from netfold.homomorphic.message import Message, Scaling
from netfold.sim.collectives.collective import Collective, RunContext
from netfold.sim.collectives.host_collective import HostPlan
from netfold.sim.collectives.host_messages import ScheduledRun
from netfold.sim.collectives.in_network.in_network_run import InNetwork
from netfold.sim.collectives.kinds.all_gather import AllGather, AllGatherRun
from netfold.sim.collectives.kinds.halving_doubling import HalvingDoubling
from netfold.sim.collectives.kinds.parameter_server import ParameterServer, ParameterServerRun, ServerPlan
from netfold.sim.collectives.kinds.ring import Ring
from netfold.sim.collectives.kinds.torus_2d import Torus2d, squarest
from netfold.sim.collectives.kinds.tree import Tree
from netfold.sim.engine.congestion_policies import BACKOFF_MAX
from netfold.sim.engine.engine_data import Condition, Frame, Job, Schedule, Sender
from netfold.sim.network.fabric import Fabric, HostTimes
from netfold.sim.plan.plan import frame_of
from netfold.sim.workload.devices import NoDevice
from tests.reference.codecs.digits import right_merge
from tests.sim.scenes import Exchanged, Started, small_star

TABLE = np.array([3 * code - 20 for code in range(16)], np.int32)
DTYPES: dict[Merge, type[np.generic]] = {
    Merge.ADD: np.int32,
    Merge.OR: np.uint32,
    Merge.MAX: np.int32,
    Merge.TABLE_ADD: np.uint32,
    Merge.SIGN: np.uint32,
}
INTEGER_MERGES = (Merge.ADD, Merge.OR, Merge.MAX)
FRAME = Frame("test", elements=16, overhead_bytes=36, ack_bytes=50)  # 100 B a packet
MakeServer = Callable[[], Server | None]


def no_server() -> None:
    return None


def words_of(merge: Merge, size: int, seed: int) -> NDArray[Any]:
    """Random words, of all 32 bits where the merge takes integers."""
    random = np.random.default_rng(seed)
    if merge is Merge.FLOAT_ADD:
        return (random.standard_normal(size) * 10.0 ** random.integers(-3, 4, size)).astype(np.float32)
    return random.integers(0, 2**32, size, dtype=np.uint32).view(DTYPES[merge])


def messages_of(merge: Merge, workers: int, size: int, seed: int = 0) -> list[Message]:
    table = TABLE if merge is Merge.TABLE_ADD else None
    return [
        Message(words_of(merge, size, 100 * seed + worker), merge, "values", table=table)
        for worker in range(workers)
    ]


def ring(workers: int, frame: Frame = frame_of("udp-256"), device: Any = None, **changes: int) -> Started:
    """Workers 0 … n − 1 on the first nodes."""
    options, seed = options_of(frame, changes)
    plan = HostPlan(kind="ring", collective=Ring(kind="ring"), **options)
    return lambda environment, fabric: ScheduledRun(
        plan, context_of(environment, fabric, workers, device, seed)
    )


def torus(workers: int, rows: int = 0, frame: Frame = FRAME, device: Any = None, **changes: int) -> Started:
    """Workers 0 … n − 1 in rows; by default nearly a square."""
    options, seed = options_of(frame, changes)
    collective = Torus2d(kind="torus_2d", rows=rows or squarest(workers))
    plan = HostPlan(kind="torus_2d", collective=collective, **options)
    return lambda environment, fabric: ScheduledRun(
        plan, context_of(environment, fabric, workers, device, seed)
    )


def gathering(
    workers: int, frame: Frame = FRAME, device: Any = None, server: MakeServer = no_server, **changes: int
) -> Started:
    """An all-gather of workers 0 … n − 1; a chunk is two packets unless `changes` say otherwise."""
    options, seed = options_of(frame, {"chunk_words": 2 * frame.elements, **changes})
    chunk = 4 * options.pop("chunk_words")
    plan = HostPlan(kind="all_gather", collective=AllGather(kind="all_gather", chunk=f"{chunk}B"), **options)

    def start(environment: simpy.Environment, fabric: Fabric) -> Collective:
        return AllGatherRun(plan, context_of(environment, fabric, workers, device, seed, server))

    return start


def serving(
    workers: int,
    servers: int,
    beside: bool = False,
    device: Any = None,
    server: MakeServer = no_server,
    frame: Frame = FRAME,
    **changes: int,
) -> Started:
    """Parameter servers on the nodes after the workers', or beside workers 0, 1, …"""
    options, seed = options_of(frame, {"chunk_words": 2 * frame.elements, **changes})
    nodes = range(servers) if beside else range(workers, workers + servers)
    owners = tuple(range(servers)) if beside else ()
    chunk = 4 * options.pop("chunk_words")
    collective = ParameterServer(kind="parameter_server", servers=servers, chunk=f"{chunk}B")
    places: dict[str, Any] = {"servers": tuple(nodes), "owners": owners, "collective": collective}
    plan = ServerPlan(kind="parameter_server", **places, **options)

    def start(environment: simpy.Environment, fabric: Fabric) -> Collective:
        return ParameterServerRun(plan, context_of(environment, fabric, workers, device, seed, server))

    return start


def options_of(frame: Frame, changes: dict[str, int]) -> tuple[dict[str, Any], int]:
    """The fields of a host plan, and the seed of the run."""
    options: dict[str, Any] = {"window": 512, "timeout_ps": 10**9, "ack_every": 16, **changes}
    seed = options.pop("seed", 1)
    sent = {name: options.pop(name) for name in list(options) if name in Sender.__dataclass_fields__}
    sender = Sender(frame, timeout_max_ps=sent["timeout_ps"] << BACKOFF_MAX, **sent)
    return options | {"sender": sender, "held_bytes": 0, "settled": {}}, seed


def context_of(
    environment: simpy.Environment,
    fabric: Fabric,
    workers: int,
    device: Any,
    seed: int,
    server: MakeServer = no_server,
) -> RunContext:
    hosts = HostTimes(environment, [Condition()] * workers)
    nodes = tuple(range(workers))
    return RunContext(environment, fabric, hosts, nodes, device or NoDevice(), seed, make_server=server)


def switch(workers: int, frame: Frame, slots: int, unit_packets: int) -> Started:
    """A job on the switch of a small star."""
    job = Job(
        hosts=tuple(range(workers)),
        switch=workers,
        slot_base=0,
        unit_packets=unit_packets,
        sender=Sender(frame, slots, 10**9, first_timeout_ps=10**9, timeout_max_ps=10**10),
        routes=(0,) * workers,
    )
    return lambda environment, fabric: InNetwork(fabric, [job])


def ring_schedule(workers: int, channels: int = 1, pieces: int = 1) -> Schedule:
    """That of a message in so many pieces a segment."""
    collective = Ring(kind="ring", channels=channels, chunk="4B")
    return collective.cut(workers, pieces * channels * workers).schedule


def halving_schedule(workers: int) -> Schedule:
    return HalvingDoubling(kind="halving_doubling").cut(workers).schedule


def tree_schedule(workers: int, trees: Literal[1, 2] = 2, pieces: int = 1) -> Schedule:
    """That of a message in so many pieces a tree."""
    return Tree(kind="tree", trees=trees, chunk="4B").cut(workers, pieces * trees).schedule


def torus_schedule(lengths: Sequence[int], by_codec: bool = False) -> Schedule:
    """That of rows of these lengths."""
    return Torus2d(kind="torus_2d", rows=len(lengths)).cut(sum(lengths), 0, by_codec).schedule


def assert_fair_signs(messages: Sequence[Message], received: Sequence[Merged], stretches: int = 1) -> None:
    """Bits that all agree on survive; every worker's survive equally often, in every stretch of the words."""
    workers, size, kept_words = len(messages), messages[0].words.size, received[0].words
    assert {kept_words.tobytes()} == {merged.words.tobytes() for merged in received}
    bits = np.array([np.unpackbits(message.words.view(np.uint8)) for message in messages])
    kept = np.unpackbits(kept_words.view(np.uint8))
    assert np.all(kept[bits.all(axis=0)] == 1)
    assert np.all(kept[~bits.any(axis=0)] == 0)
    agreement = (bits == kept).reshape(workers, stretches, -1).mean(axis=2)
    expected = 1 / workers + (1 - 1 / workers) / 2
    assert np.all(np.abs(agreement - expected) < 5 * 0.5 / np.sqrt(32 * size / stretches))


Operations = Sequence[Sequence[tuple[Merge | None, int]]]  # None: a scaled message


@dataclass(frozen=True)
class Network:
    """How the words get about: a collective, and what its links lose."""

    start: Started
    loss: float = 0.0
    seed: int = 1


@dataclass(frozen=True)
class Result:
    sent: list[list[tuple[Message, ...]]]
    exchanged: Exchanged


def scaled_messages(workers: int, size: int, block_elements: int, seed: int) -> list[Message]:
    gradients = [words_of(Merge.FLOAT_ADD, size, 100 * seed + worker) for worker in range(workers)]
    return [
        Message(
            gradient,
            Merge.ADD,
            "values",
            scaling=Scaling(block_exponents(gradient, block_elements, workers), block_elements, workers),
        )
        for gradient in gradients
    ]


def exchange_all(
    workers: int, operations: Operations, network: Network, pauses_ps: list[int], block_elements: int = 16
) -> Result:
    """Carry operations of random words; worker r waits `pauses_ps[r]` before each."""
    sent: list[list[tuple[Message, ...]]] = [[] for _ in range(workers)]
    for number, operation in enumerate(operations):
        columns = [
            scaled_messages(workers, size, block_elements, 10 * number + part)
            if merge is None
            else messages_of(merge, workers, size, 10 * number + part)
            for part, (merge, size) in enumerate(operation)
        ]
        for worker in range(workers):
            sent[worker].append(tuple(column[worker] for column in columns))
    pauses = [[pauses_ps[worker]] * len(operations) for worker in range(workers)]
    exchanged = Exchanged(small_star(workers), network.start, network.loss, network.seed)
    return Result(sent, exchanged.run(sent, pauses))


def draw_pauses(data: st.DataObject) -> list[int]:
    """Up to 3 ms each: several timeouts."""
    return data.draw(st.lists(st.integers(0, 3 * 10**9), min_size=8, max_size=8), label="pauses_ps")


def assert_all_right(result: Result) -> None:
    """Every word at every worker is the sum, union or maximum, by the independent account of it."""
    workers = len(result.sent)
    for number, operation in enumerate(result.sent[0]):
        for part, message in enumerate(operation):
            right = right_merge([result.sent[worker][number][part] for worker in range(workers)])
            for worker in range(workers):
                merged = result.exchanged.received[worker][number][part]
                assert merged.words.dtype == (np.uint32 if message.merge is Merge.OR else np.int32)
                assert right.words == merged.words.tolist()
                assert workers == merged.workers
                if message.scaling is not None:
                    assert right.exponents is not None
                    assert merged.exponents is not None
                    assert right.exponents == merged.exponents.tolist()
