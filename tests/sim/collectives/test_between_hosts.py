"""What every collective between hosts promises, by oracles in plain Python: words, lengths, loss."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Request
from netfold.homomorphic.host_merge import replay
from netfold.homomorphic.message import Hop, Merge, Merged, Message
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Fate, Rule, losses
from netfold.sim.network.fabric import Fabric
from tests.examples import examples
from tests.reference.codecs.sums import right_merge
from tests.reference.switch.merging import words_per_word
from tests.sim.exchanges import (
    DTYPES,
    FRAME,
    INTEGER_MERGES,
    TABLE,
    gathering,
    ring,
    serving,
    torus,
    words_of,
)
from tests.sim.host_codecs import Cascade, Memory, Union, cascade_encoded, from_list, to_list
from tests.sim.scenes import Exchanged, Started, small_star

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
@pytest.mark.parametrize("merge", [*INTEGER_MERGES, Merge.TABLE_ADD])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_integers_are_merged_right(name: str, merge: Merge, workers: int) -> None:
    table = TABLE if merge is Merge.TABLE_ADD else None
    for size in (0, 1, workers - 1, 33, 500):
        messages = [
            Message(words_of(merge, size, 7 * size + rank), merge, "values", table=table)
            for rank in range(workers)
        ]
        for merged in exchanged(carriers(workers)[name], messages):
            assert right_merge(messages).words == merged.words.tolist()
            assert workers == merged.workers
            assert merged.present is None


@pytest.mark.parametrize("name", NAMES)
def test_floats_are_added_within_their_rounding_and_equal_everywhere(name: str) -> None:
    workers = 5
    messages = [
        Message(words_of(Merge.FLOAT_ADD, 333, rank), Merge.FLOAT_ADD, "x") for rank in range(workers)
    ]
    found = exchanged(carriers(workers)[name], messages)

    exact = np.sum([one.words.astype(np.float64) for one in messages], axis=0)
    allowed = (
        (workers - 1) * 2.0**-24 * np.sum([np.abs(one.words).astype(np.float64) for one in messages], axis=0)
    )
    for merged in found:
        assert np.all(np.abs(merged.words - exact) <= allowed)
        assert found[0].words.tobytes() == merged.words.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_signs_are_merged_into_one_random_workers_bits(name: str) -> None:
    workers, size = 5, 4000
    messages = [Message(words_of(Merge.SIGN, size, rank), Merge.SIGN, "signs") for rank in range(workers)]
    found = exchanged(carriers(workers, chunk_words=64)[name], messages)

    words = found[0].words
    assert all(merged.words.tobytes() == words.tobytes() for merged in found)
    bits = np.array([np.unpackbits(one.words.view(np.uint8)) for one in messages])
    kept = np.unpackbits(words.view(np.uint8))
    assert np.all(kept[bits.all(axis=0)] == 1)
    assert np.all(kept[~bits.any(axis=0)] == 0)
    agreement = (bits == kept).reshape(workers, 4, -1).mean(axis=2)  # fair in every stretch of the words
    expected = 1 / workers + (1 - 1 / workers) / 2
    assert np.all(np.abs(agreement - expected) < 5 * 0.5 / np.sqrt(8 * size))


@pytest.mark.parametrize("name", GATHERING)
@pytest.mark.parametrize("workers", range(1, 10))
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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", range(1, 10))
def test_the_union_of_sparse_lists_holds_every_entry_once(name: str, workers: int) -> None:
    for sizes in ([0] * workers, [rank * 13 % 50 for rank in range(workers)]):
        words = lists_of(sizes, workers)
        messages = [Message(one, Merge.HOST, "largest", host_merge=Union(ELEMENTS)) for one in words]
        found = exchanged(carriers(workers)[name], messages)

        columns: dict[int, list[float]] = {}
        for one in words:
            for index, value in from_list(one).items():
                columns.setdefault(index, []).append(float(value))
        for merged in found:
            union = from_list(merged.words)
            assert sorted(columns) == sorted(union)
            for index, values in columns.items():
                allowed = len(values) * 2.0**-24 * sum(map(abs, values))
                assert abs(float(union[index]) - sum(values)) <= allowed
            assert found[0].words.tobytes() == merged.words.tobytes()


def chained(merge: Any, parts: Sequence[Any], keys: Sequence[int]) -> Any:
    """Parts merged one after the other, as `Hop` counts them."""
    words = parts[0]
    for workers, (part, key) in enumerate(zip(parts[1:], keys, strict=True), start=1):
        words = merge.merge(words, part, Hop(workers, 1, key))
    return words


@pytest.mark.parametrize("name", [name for name in NAMES if name != "torus"])  # see its own tests
@pytest.mark.parametrize("workers", [2, 3, 7])
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
    (order,) = [done.collective.merge_orders(0, 0)[0, 0]]

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
            key = OperationPlace(number // buckets, number % buckets, 0)
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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("merge", [*INTEGER_MERGES, Merge.TABLE_ADD])
@pytest.mark.parametrize("absent", [(0,), (1, 3), (0, 1, 2), (0, 1, 2, 3)])
def test_absent_workers_add_nothing_and_are_named(name: str, merge: Merge, absent: tuple[int, ...]) -> None:
    workers, size = 4, 150
    table = TABLE if merge is Merge.TABLE_ADD else None
    messages = [
        Message(np.empty(0, DTYPES[merge]), merge, "x", table=table, absent_words=size)
        if rank in absent
        else Message(words_of(merge, size, rank), merge, "x", table=table)
        for rank in range(workers)
    ]
    for merged in exchanged(carriers(workers)[name], messages):
        there = [messages[rank] for rank in range(workers) if rank not in absent]
        nobody = [-(2**31) if merge is Merge.MAX else 0] * (words_per_word(merge, 32) * size)
        right = right_merge(there).words if there else nobody
        assert right == merged.words.tolist()
        assert workers - len(absent) == merged.workers
        assert merged.present is not None
        assert merged.present.tolist() == [rank not in absent for rank in range(workers)]


@given(data=st.data())
@examples(40)
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
            for rank in range(workers):
                _assert_right(column, run.received[rank][number][part])


def _messages(merge: Merge, workers: int, size: int, seed: int) -> list[Message]:
    if merge not in (Merge.HOST, Merge.GATHER):
        table = TABLE if merge is Merge.TABLE_ADD else None
        return [
            Message(words_of(merge, size, 100 * seed + rank), merge, "x", table=table)
            for rank in range(workers)
        ]
    lists = lists_of([size * (rank % 3) for rank in range(workers)], seed)
    host_merge = Union(ELEMENTS) if merge is Merge.HOST else None
    return [Message(words, merge, "x", host_merge=host_merge) for words in lists]


def _assert_right(column: Sequence[Message], merged: Merged) -> None:
    words = [one.words for one in column]
    match column[0].merge:
        case Merge.GATHER:
            assert [part.tobytes() for part in merged.parts] == [one.tobytes() for one in words]
        case Merge.HOST:
            union = set().union(*map(from_list, words))
            assert sorted(union) == sorted(from_list(merged.words))
        case Merge.FLOAT_ADD:
            doubles = np.array(words, np.float64)
            allowed = len(words) * 2.0**-24 * np.abs(doubles).sum(axis=0)
            assert np.all(np.abs(merged.words - doubles.sum(axis=0)) <= allowed)
        case Merge.SIGN:  # every bit is some worker's
            assert np.all(merged.words & ~np.bitwise_or.reduce(words) == 0)
            assert np.all(~merged.words & np.bitwise_and.reduce(words) == 0)
        case _:
            assert right_merge(column).words == merged.words.tolist()


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


def test_buckets_in_flight_at_the_same_time_are_not_mixed_up() -> None:
    """Workers interleave two buckets in different orders; operations are told apart by their keys."""
    workers = 4
    for name in NAMES:
        environment = simpy.Environment()
        network = small_star(workers + SERVERS)
        collective = carriers(workers)[name](environment, Fabric(environment, Engine(network, 1)))
        received: dict[tuple[int, int], Merged] = {}
        columns = [_messages(Merge.ADD, workers, 300, bucket) for bucket in range(2)]

        def work(
            worker: int,
            bucket: int,
            columns: Any = columns,
            received: Any = received,
            environment: Any = environment,
            collective: Any = collective,
        ) -> Any:
            yield environment.timeout(100 * ((worker + bucket) % 2))
            key = OperationPlace(0, bucket, 0)
            message = columns[bucket][worker]
            (received[worker, bucket],) = yield from collective.exchange(worker, (message,), key)

        places = [(worker, bucket) for worker in range(workers) for bucket in range(2)]
        environment.run(environment.all_of([environment.process(work(*place)) for place in places]))
        for worker, bucket in places:
            assert right_merge(columns[bucket]).words == received[worker, bucket].words.tolist()
        assert collective.share() == 0.0
