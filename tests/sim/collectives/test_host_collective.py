"""What every collective between hosts promises, by oracles in plain Python: words, lengths, loss, absence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Request
from netfold.homomorphic.merge import MERGEABLE, Hop, Merge, Merged, float_add_words, replay
from netfold.homomorphic.message import Message
from netfold.sim.collectives.collective import OperationId
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import Fate, Rule, losses
from netfold.sim.network.fabric import Fabric
from tests.examples import examples
from tests.reference.codecs.digits import right_merge
from tests.reference.switch.merging import words_per_word
from tests.sim.exchanges import (
    FRAME,
    Network,
    assert_fair_signs,
    draw_pauses,
    gathering,
    messages_of,
    ring,
    scaled_messages,
    serving,
    switch,
    torus,
)
from tests.sim.host_codecs import Cascade, Memory, Union, cascade_encoded, from_list, to_list
from tests.sim.scenes import Exchanged, Started, job_plan, only, small_star

ELEMENTS = 200
SERVERS = 3


def carriers(workers: int, **changes: Any) -> dict[str, Started]:
    """Collectives between hosts on a star with hosts for three servers."""
    beside = partial(serving, beside=True)
    of_rings = {name: one for name, one in changes.items() if name not in ("server", "chunk_words")}
    return {
        "ring": ring(workers, FRAME, **of_rings),
        "torus": torus(workers, **of_rings),
        "all_gather": gathering(workers, **changes),
        "one server": serving(workers, 1, **changes),
        "servers": serving(workers, SERVERS, **changes),
        "beside": beside(workers, workers, **changes),
        "beside some": beside(workers, -(-workers // 2), **changes),
    }


GATHERING = ("all_gather", "one server", "servers", "beside", "beside some")
RINGS = ("ring", "torus")
NAMES = (*RINGS, *GATHERING)


def exchanged(
    start: Started, messages: Sequence[Message], loss: float = 0.0, seed: int = 1, pauses: Any = None
) -> list[Merged]:
    """What every worker receives of one message."""
    done = Exchanged(small_star(len(messages) + SERVERS), start, loss, seed)
    found = done.run([[(one,)] for one in messages], pauses and [[pause] for pause in pauses])
    return [one for ((one,),) in found.received]


def lists_of(sizes: Sequence[int], seed: int = 0) -> list[Any]:
    """A sparse list of each worker; a size may be 0."""
    random = np.random.default_rng(seed)
    found = []
    for size in sizes:
        gradient = random.standard_normal(ELEMENTS).astype(np.float32)
        found.append(to_list(gradient, np.sort(random.choice(ELEMENTS, size, replace=False))))
    return found


def gathered_messages(words: Sequence[Any]) -> list[Message]:
    return [Message(one, Merge.GATHER, "largest") for one in words]


@pytest.mark.parametrize("name", NAMES)
def test_signs_are_merged_into_one_random_workers_bits(name: str) -> None:
    workers, size = 5, 1500
    messages = messages_of(Merge.SIGN, workers, size)

    assert_fair_signs(messages, exchanged(carriers(workers, chunk_words=64)[name], messages), stretches=4)


@pytest.mark.parametrize("name", GATHERING)
@pytest.mark.parametrize("workers", [1, 2, 7])
def test_gathered_lengths_may_differ_and_be_zero(name: str, workers: int) -> None:
    random = np.random.default_rng(workers)
    for sizes in (
        [0] * workers,
        [rank * 17 % 60 for rank in range(workers)],
        [0] * (workers - 1) + [ELEMENTS],
    ):
        words = lists_of(sizes, int(random.integers(1000)))
        for merged in exchanged(carriers(workers)[name], gathered_messages(words)):
            assert [part.tobytes() for part in merged.parts] == [one.tobytes() for one in words]
            assert merged.words.size == 0
            there = [one.size > 0 for one in words]
            assert sum(there) == merged.workers
            assert there == ([True] * workers if merged.present is None else merged.present.tolist())


def test_parts_of_a_codecs_own_merge_take_as_much_as_so_many_integers() -> None:
    """Two parts of 150 signs, each a scale, a number and 5 words of bits."""
    words = cascade_encoded(np.ones(300, np.float32), np.float32(1))
    both = (
        Message(words, Merge.HOST, "signs", host_merge=Cascade()),
        Message(np.ones(2 * 7, np.int32), Merge.ADD, "values"),
    )
    own, integers = (Exchanged(small_star(2), ring(2, FRAME)).run([[(one,)]] * 2) for one in both)

    assert own.engine.link_counters() == integers.engine.link_counters()


def chained(merge: Any, parts: Sequence[Any], keys: Sequence[int]) -> Any:
    """Parts merged one after the other, as `Hop` counts them."""
    words = parts[0]
    for workers, (part, key) in enumerate(zip(parts[1:], keys, strict=True), start=1):
        words = merge.merge(words, part, Hop(workers, 1, key))
    return words


@pytest.mark.parametrize("name", [name for name in NAMES if name != "torus"])  # see its own tests
@pytest.mark.parametrize("workers", [2, 7])
def test_cascaded_signs_are_merged_in_the_order_of_the_hops(name: str, workers: int) -> None:
    """Round the ring from each segment's worker on; by rank where all gather; by arrival at servers."""
    random, merge = np.random.default_rng(workers), Cascade()
    words = [
        cascade_encoded(random.standard_normal(300).astype(np.float32), np.float32(random.uniform(0.5, 2)))
        for _ in range(workers)
    ]
    messages = [Message(one, Merge.HOST, "signs", host_merge=merge) for one in words]
    arrival = [(rank + 1) % workers for rank in range(workers)]  # of each worker, among all
    done = Exchanged(small_star(workers + SERVERS), carriers(workers)[name])
    done.run([[(one,)] for one in messages], [[5 * 10**7 * turn] for turn in arrival])
    order = done.collective.merge_orders(0, 0)[0, 0]

    count = {"ring": workers, "servers": 3, "beside": workers, "beside some": -(-workers // 2)}.get(name, 1)
    by_arrival = sorted(range(workers), key=lambda rank: arrival[rank])
    parts = [merge.split(one, count) if count > 1 else [one] for one in words]
    merged = []
    for part in range(count):
        ranks = [(part + hop) % workers for hop in range(workers)] if name == "ring" else by_arrival
        ranks = list(range(workers)) if name == "all_gather" else ranks
        keys = [hop.key for hop in order[part]]
        assert len(set(keys)) == workers - 1  # every merge has its own
        merged.append(chained(merge, [parts[rank][part] for rank in ranks], keys))
    right = merge.join(merged) if count > 1 else merged[0]
    assert right.tolist() == replay(merge, words, order).tolist()
    for ((found,),) in done.received:
        assert right.tolist() == found.words.tolist()
        assert workers == found.workers
    assert done.collective.merge_orders(0, 0) == {}


def run_rounds(
    start: Started, lists: Sequence[Sequence[Any]], buckets: int, loss: float
) -> tuple[Any, list[Any]]:
    """Rounds of gathered lists, `lists[round][worker]`, taking turns of buckets; received[worker][round]."""
    environment, workers = simpy.Environment(), len(lists[0])
    network = small_star(workers + SERVERS)
    engine = Engine(network, 1, losses([loss] * len(network.link_names)))
    collective = start(environment, Fabric(environment, engine))
    received: list[list[Merged]] = [[] for _ in range(workers)]

    def work(worker: int) -> Any:
        for number, words in enumerate(lists):
            message = Message(words[worker], Merge.GATHER, "largest")
            key = OperationId(number // buckets, number % buckets, 0)
            (merged,) = yield from collective.exchange(worker, (message,), key)
            received[worker].append(merged)

    environment.run(environment.all_of([environment.process(work(worker)) for worker in range(workers)]))
    return collective, received


@pytest.mark.parametrize("name", GATHERING)
@pytest.mark.parametrize("loss", [0.0, 0.03])
def test_a_servers_part_answers_every_worker_with_the_same_bits_wherever_it_runs(
    name: str, loss: float
) -> None:
    workers, buckets = 4, 2
    lists = [lists_of([0, 30, 20, 50], seed) for seed in range(6)]
    start = carriers(workers, server=lambda: Memory(ELEMENTS))[name]
    collective, received = run_rounds(start, lists, buckets, loss)

    alone = Memory(ELEMENTS)
    for number, words in enumerate(lists):
        right = alone.merge(words, Request(number // buckets, number % buckets, 0, "largest"))
        for worker in range(workers):
            assert right.tobytes() == received[worker][number].words.tobytes()
            assert received[worker][number].parts == ()
    asked = sorted(request for one in collective.servers for request in one.asked)
    assert asked == sorted((workers if name == "all_gather" else 1) * alone.asked)


@pytest.mark.parametrize("name", GATHERING)
def test_servers_stop_and_resume_with_the_same_bytes(name: str) -> None:
    workers, buckets = 3, 2
    lists = [lists_of([10, 0, 40], seed) for seed in range(6)]
    make = carriers(workers, server=lambda: Memory(ELEMENTS))[name]
    _, whole = run_rounds(make, lists, buckets, 0.0)
    first, _ = run_rounds(make, lists[:4], buckets, 0.0)
    states = [one.state() for one in first.servers]

    def resumed(environment: simpy.Environment, fabric: Fabric) -> Any:
        collective = make(environment, fabric)
        for server, state in zip(collective.servers, states, strict=True):
            server.restore(state)
        return collective

    _, rest = run_rounds(resumed, lists[4:], buckets, 0.0)

    assert any(state for state in states)
    for worker in range(workers):
        for before, after in zip(whole[worker][4:], rest[worker], strict=True):
            assert before.words.tobytes() == after.words.tobytes()


@pytest.mark.slow
@given(data=st.data())
@examples(10, at_night=2)
def test_all_of_it_survives_loss_duplicates_and_reordering(data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, 9), label="workers")
    name = data.draw(st.sampled_from(NAMES), label="collective")
    kinds = [merge for merge in Merge if name not in RINGS or merge is not Merge.GATHER]
    operations = data.draw(
        st.lists(
            st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 70)), min_size=1, max_size=3),
            max_size=3,
        )
    )
    window, ack_every = data.draw(st.sampled_from([(1, 1), (4, 2), (512, 16)]), label="window")
    pauses = data.draw(st.lists(st.integers(0, 3 * 10**9), min_size=9, max_size=9), label="pauses_ps")
    seed = data.draw(st.integers(0, 1000), label="seed")
    changes = {"window": window, "ack_every": ack_every, "timeout_ps": 10**8}
    start = carriers(workers, **changes)[name]

    sent: list[list[tuple[Message, ...]]] = [[] for _ in range(workers)]
    for number, operation in enumerate(operations):
        columns = [
            _messages(merge, workers, size, 100 * number + part)
            for part, (merge, size) in enumerate(operation)
        ]
        for rank in range(workers):
            sent[rank].append(tuple(column[rank] for column in columns))
    network = small_star(workers + SERVERS)
    links = tuple(range(len(network.link_names)))
    rules = (
        Rule(Fate.LOSS, 0.03, links),
        Rule(Fate.DUPLICATE, 0.05, links, delay_ps=10**6),
        Rule(Fate.REORDER, 0.05, links, delay_ps=2 * 10**6),
    )
    run = Exchanged(network, start, seed=seed, rules=rules).run(
        sent, [[pauses[rank]] * len(operations) for rank in range(workers)]
    )
    for number, operation in enumerate(operations):
        for part in range(len(operation)):
            column = [sent[rank][number][part] for rank in range(workers)]
            found = [run.received[rank][number][part] for rank in range(workers)]
            for merged in found:
                assert_right(column, merged)
            assert len({merged.words.tobytes() for merged in found}) == 1


def _messages(merge: Merge, workers: int, size: int, seed: int) -> list[Message]:
    if merge not in (Merge.HOST, Merge.GATHER):
        return messages_of(merge, workers, size, seed)
    lists = lists_of([size * (rank % 3) for rank in range(workers)], seed)
    host_merge = Union(ELEMENTS) if merge is Merge.HOST else None
    return [Message(words, merge, "x", host_merge=host_merge) for words in lists]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_kept_of_messages_that_all_have(name: str) -> None:
    workers = 4
    columns = [_messages(merge, workers, 40, 1) for merge in (Merge.ADD, Merge.HOST, Merge.SIGN)]
    columns += [_messages(Merge.GATHER, workers, 40, 1)] if name not in RINGS else []
    done = Exchanged(small_star(workers + SERVERS), carriers(workers)[name])
    done.run([[tuple(column[rank] for column in columns)] * 2 for rank in range(workers)])

    found: Any = done.collective
    assert set(found.merge_orders(0, 0)) == {(0, 1), (1, 1)}
    assert found.merge_orders(0, 0) == {}
    for kept in ("_open", "_orders", "_arrivals", "_inboxes"):
        assert not getattr(found, kept, {}), kept
    assert found.share() == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_buckets_in_flight_at_the_same_time_are_not_mixed_up(name: str) -> None:
    """Workers interleave two buckets in different orders; operations are told apart by their keys."""
    workers = 4
    environment = simpy.Environment()
    network = small_star(workers + SERVERS)
    collective = carriers(workers)[name](environment, Fabric(environment, Engine(network, 1)))
    received: dict[tuple[int, int], Merged] = {}
    columns = [messages_of(Merge.ADD, workers, 300, bucket) for bucket in range(2)]

    def work(worker: int, bucket: int) -> Any:
        yield environment.timeout(100 * ((worker + bucket) % 2))
        message, key = columns[bucket][worker], OperationId(0, bucket, 0)
        (received[worker, bucket],) = yield from collective.exchange(worker, (message,), key)

    places = [(worker, bucket) for worker in range(workers) for bucket in range(2)]
    environment.run(environment.all_of([environment.process(work(*place)) for place in places]))
    for worker, bucket in places:
        assert right_merge(columns[bucket]).words == received[worker, bucket].words.tolist()
    assert collective.share() == 0.0


MERGES = sorted(MERGEABLE, key=lambda merge: merge.number)
SWITCHES = ("switch", "messages")


def without(messages: Sequence[Message], absent: set[int]) -> list[Message]:
    return [
        replace(one, words=one.words[:0], absent_words=one.words.size)
        if rank in absent and one.words.size
        else one
        for rank, one in enumerate(messages)
    ]


def in_lanes(data: st.DataObject, messages: list[Message]) -> list[Message]:
    """Sums in lanes of some width, and a table with values that fit them."""
    widths = {Merge.ADD: [32, 16, 8, 4], Merge.TABLE_ADD: [32, 16, 8]}.get(messages[0].merge, [32])
    bits = data.draw(st.sampled_from(widths), label="lane_bits")
    table = None if messages[0].table is None else messages[0].table >> 32 - bits
    return [replace(one, lane_bits=bits, table=table) for one in messages]


def assert_right(messages: Sequence[Message], merged: Merged) -> None:
    """One worker's result, against plain Python's integers, or by what holds of lists, floats, signs."""
    first, size = messages[0], messages[0].size
    are_lists = first.merge in (Merge.GATHER, Merge.HOST)  # empty ones are sent too
    present = [one for one in messages if are_lists or not one.is_absent]
    words: Any = [one.words for one in present]
    if not are_lists:
        assert merged.workers == len(present)
        assert not merged.is_mixed
        named = [True] * len(messages) if merged.present is None else merged.present.tolist()
        assert named == [not one.is_absent for one in messages]
    if not present:
        word = -(2**31) if first.merge is Merge.MAX else 0
        assert merged.words.tolist() == [word] * (words_per_word(first.merge, first.lane_bits) * size)
        if first.scaling is not None:
            assert merged.exponents is not None
            assert set(merged.exponents.tolist()) == {-128}
        return
    match first.merge:
        case Merge.GATHER:
            assert [part.tobytes() for part in merged.parts] == [one.tobytes() for one in words]
        case Merge.HOST:
            assert sorted(set().union(*map(from_list, words))) == sorted(from_list(merged.words))
        case Merge.SIGN:
            assert not (merged.words & ~np.bitwise_or.reduce(words)).any()
            assert not (np.bitwise_and.reduce(words) & ~merged.words).any()
        case Merge.FLOAT_ADD:
            wide = np.array(words, np.float64)
            error = np.abs(wide.sum(axis=0) - merged.words)
            assert (error <= (len(present) - 1) * 2.0**-24 * np.abs(wide).sum(axis=0)).all()
        case _:
            right = right_merge(present)
            assert merged.words.tolist() == right.words
            assert right.exponents is None or merged.exponents is not None
            if merged.exponents is not None:
                assert merged.exponents.tolist() == right.exponents


STARTS: dict[str, Callable[[int], Started]] = {
    "ring": lambda workers: ring(workers, FRAME),
    "torus": torus,
    "switch": lambda workers: switch(workers, FRAME, slots=4, unit_packets=1),
    "messages": lambda workers: switch(workers, FRAME, slots=4, unit_packets=2),
    "all_gather": gathering,
    "servers": lambda workers: serving(workers, SERVERS),
    "beside": lambda workers: serving(workers, workers, beside=True),
}


@pytest.mark.parametrize("start", STARTS)
@examples(8, at_night=2)
@given(data=st.data())
def test_any_workers_absent(start: str, data: st.DataObject) -> None:
    """Several messages at once, each with other absentees and lanes of its own; packets are lost.

    Workers begin at other times.
    """
    workers = data.draw(st.integers(1, 6))
    kinds = [merge for merge in MERGES if start not in SWITCHES or merge is not Merge.TABLE_ADD]
    columns = []
    for part in range(data.draw(st.integers(1, 3))):
        merge, size = data.draw(st.sampled_from(kinds)), data.draw(st.integers(1, 90))
        whole = in_lanes(data, messages_of(merge, workers, size, seed=part))
        absent = data.draw(st.sets(st.integers(0, workers - 1)) | st.just(set(range(workers))))
        columns.append(without(whole, absent))
    network = Network(STARTS[start](workers), data.draw(st.sampled_from([0.0, 0.05])))
    pauses = draw_pauses(data)[:workers]

    exchanged = Exchanged(
        small_star(workers + SERVERS), network.start, network.loss, seed=data.draw(st.integers(0, 99))
    )
    rows = [tuple(column[worker] for column in columns) for worker in range(workers)]
    exchanged.run([[row] for row in rows], [[pause] for pause in pauses])
    for (answers,) in exchanged.received:
        for column, merged in zip(columns, answers, strict=True):
            assert_right(column, merged)


@pytest.mark.parametrize("absent", [{0}, {1, 2}, {0, 1, 2}])
@pytest.mark.parametrize("size", [1, 16, 100])
def test_exponents_that_are_sent_ahead(absent: set[int], size: int) -> None:
    messages = without(scaled_messages(3, size, 16, seed=1), absent)
    exchanged = Exchanged(small_star(3), switch(3, FRAME, slots=4, unit_packets=1))
    assert exchanged.collective.pipelines(messages[0])
    exchanged.run([[(one,)] for one in messages])

    for ((merged,),) in exchanged.received:
        assert_right(messages, merged)


@pytest.mark.parametrize("absent", [set(), {0}, {1, 3}, {0, 1, 3}, {0, 1, 2, 3}])
def test_the_bytes_of_a_ring(absent: set[int]) -> None:
    """Chunk i starts at worker i: it is a header until it has passed a worker that is there."""
    workers, words = 4, 12
    messages = without(messages_of(Merge.ADD, workers, workers * words), absent)
    exchanged = Exchanged(small_star(workers), ring(workers, FRAME)).run([[(one,)] for one in messages])

    hops = 2 * (workers - 1)
    carrying = 0
    for chunk in range(workers):
        holders = [(chunk + hop) % workers not in absent for hop in range(workers)]
        carrying += sum(any(holders[: hop + 1]) for hop in range(hops))
    exchanged.engine.run(10**12)  # the last acknowledgements arrive
    one_way = workers * hops * (FRAME.overhead_bytes + FRAME.ack_bytes) + carrying * 4 * words
    assert sum(counters["sent_bytes"] for counters in exchanged.engine.link_counters()) == 2 * one_way
    for ((merged,),) in exchanged.received:
        assert_right(messages, merged)


@pytest.mark.parametrize(("workers", "bitmap_bytes"), [(32, 4), (33, 8)])
def test_the_first_packet_of_a_message_says_who_contributed(
    tmp_path: Path, workers: int, bitmap_bytes: int
) -> None:
    """Where workers may be absent; RoCE's first packet has 16 B more than the others without it."""
    training = "workload={kind: training, model: mlp, batch: 2, steps: 2}"
    sets = (f"workers={workers}", "topology.hosts=33", training, "codec={kind: sasg_summed}")
    frame = job_plan(only(tmp_path, *sets, "collective={kind: ring}")).collective.sender.frame

    assert (frame.overhead_bytes, frame.first_bytes) == (82, 16 + bitmap_bytes)


def test_a_lone_worker_s_words_pass_unchanged() -> None:
    """Negative zeros and quiet numbers too: nothing is added to them."""
    words = np.array([-0.0, np.nan, -np.inf, 1e-45] * 4, np.float32)
    messages = without([Message(words, Merge.FLOAT_ADD, "values")] * 4, {0, 1, 3})
    for start in (ring(4, FRAME), switch(4, FRAME, slots=4, unit_packets=1)):
        exchanged = Exchanged(small_star(4), start).run([[(one,)] for one in messages])
        for ((merged,),) in exchanged.received:
            assert merged.words.tobytes() == words.tobytes()
    zero = words.copy()
    float_add_words(zero, np.zeros_like(words))
    assert zero.tobytes() != words.tobytes()  # as adding a zero would


@pytest.mark.parametrize("start", STARTS)
def test_signs_weigh_as_the_workers_that_are_there(start: str) -> None:
    """One of two voters among six has ones: half of the bits survive."""
    size = 2048
    ones, zeros = np.full(size, 2**32 - 1, np.uint32), np.zeros(size, np.uint32)
    whole = [Message(ones if rank == 4 else zeros, Merge.SIGN, "signs") for rank in range(6)]
    messages = without(whole, {0, 2, 3, 5})
    exchanged = Exchanged(small_star(6 + SERVERS), STARTS[start](6)).run([[(one,)] for one in messages])

    for ((merged,),) in exchanged.received:
        share = int(np.bitwise_count(merged.words).sum()) / (32 * size)
        assert abs(share - 0.5) < 5 * 0.5 / (32 * size) ** 0.5
        assert merged.workers == 2


def test_a_ring_names_any_number_of_workers() -> None:
    """More than the bits of a word, absent ones on both sides of its end."""
    messages = without(messages_of(Merge.ADD, 40, 50), {0, 32})
    exchanged = Exchanged(small_star(40), ring(40)).run([[(one,)] for one in messages])

    for ((merged,),) in exchanged.received:
        assert_right(messages, merged)


def test_chunks_that_disagree_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker 1 is told of one chunk that a worker fewer contributed."""
    right = Engine.contributors

    def forgetting(self: Engine, number: int, worker: int) -> Any:
        found = right(self, number, worker).copy()
        found[2] -= worker == 1
        return found

    monkeypatch.setattr(Engine, "contributors", forgetting)
    messages = without(messages_of(Merge.ADD, 4, 40), {2})
    exchanged = Exchanged(small_star(4), ring(4, FRAME)).run([[(one,)] for one in messages])

    mixed = [merged.is_mixed for ((merged,),) in exchanged.received]
    assert mixed == [False, True, False, False]
