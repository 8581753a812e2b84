"""What arrives, and when: merges on every kind of schedule, and the event simulation of the papers."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.host_merge import replay
from netfold.homomorphic.merge import merge_all
from netfold.homomorphic.message import Merge, Message
from netfold.sim.workload.devices.device import Device
from netfold.sim.workload.devices.kinds.fixed import FixedDevice, NoDevice
from tests.examples import examples
from tests.reference.collectives.hosts import leaves
from tests.reference.collectives.programs import Kind
from tests.sim.collectives.schedules.cases import (
    Case,
    cases,
    exchanged,
    flat,
    hierarchy,
    on,
    tree_network,
    wire_of,
)
from tests.sim.exchanges import FRAME, INTEGER_MERGES, messages_of
from tests.sim.host_codecs import Cascade, Union, cascade_encoded, to_list
from tests.sim.scenes import Exchanged, small_star


@examples(25)
@given(data=st.data(), merge=st.sampled_from([*INTEGER_MERGES, Merge.TABLE_ADD]))
def test_every_worker_gets_the_merge_of_all(data: st.DataObject, merge: Merge) -> None:
    case = data.draw(cases())
    loss = data.draw(st.sampled_from([0.0, 0.02]), label="loss")
    messages = messages_of(merge, case.workers, case.size)
    pauses = [[data.draw(st.integers(0, 10**9))] for _ in messages]
    start = case.started(timeout_ps=10**8, seed=data.draw(st.integers(1, 99)))
    done = Exchanged(small_star(case.workers), start, loss).run([[(one,)] for one in messages], pauses)

    expected = merge_all(merge, [one.words for one in messages], table=messages[0].table)
    for ((merged,),) in done.received:
        assert expected.dtype == merged.words.dtype
        assert expected.tolist() == merged.words.tolist()
        assert (case.workers, None, False) == (merged.workers, merged.present, merged.is_mixed)


@examples(20)
@given(data=st.data())
def test_absent_workers_pass_on_what_arrives(data: st.DataObject) -> None:
    case = data.draw(cases(sizes=(7, 200)))
    messages = messages_of(Merge.ADD, case.workers, case.size)
    absent = data.draw(st.sets(st.integers(0, case.workers - 1)), label="absent")
    sent = [
        replace(one, words=one.words[:0], absent_words=case.size) if rank in absent else one
        for rank, one in enumerate(messages)
    ]
    done = exchanged(case, small_star(case.workers), sent)

    present = [rank not in absent for rank in range(case.workers)]
    expected = np.zeros(case.size, np.int32)
    for rank in np.flatnonzero(present):
        expected += messages[rank].words
    for ((merged,),) in done.received:
        assert expected.tolist() == merged.words.tolist()
        assert merged.workers == sum(present)
        assert all(present) if merged.present is None else merged.present.tolist() == present


@examples(20)
@given(data=st.data(), is_union=st.booleans())
def test_codecs_merge_parts_of_any_length_hop_by_hop(data: st.DataObject, is_union: bool) -> None:
    """Lists of unequal length, even empty ones, and cascaded signs, whose result depends on the order."""
    case = data.draw(cases(sizes=(64,)))
    random = np.random.default_rng(case.workers)
    if is_union:
        merge, words = Union(300), []
        for rank in range(case.workers):
            gradient = random.standard_normal(300).astype(np.float32)
            chosen = np.sort(random.choice(300, 20 * (rank % 3), replace=False))
            words.append(to_list(gradient, chosen))
    else:
        merge = Cascade()  # type: ignore[assignment]
        words = [
            cascade_encoded(random.standard_normal(300).astype(np.float32), np.float32(rank + 1))
            for rank in range(case.workers)
        ]
    done = exchanged(
        case, small_star(case.workers), [Message(one, Merge.HOST, "x", host_merge=merge) for one in words]
    )

    order = done.collective.merge_orders(0, 0)[0, 0]
    right = replay(merge, words, order)
    for ((merged,),) in done.received:
        assert right.tolist() == merged.words.tolist()
        assert merged.workers == case.workers


@pytest.mark.parametrize("seed", range(3))
def test_signs_are_one_random_workers_bits(seed: int) -> None:
    """Bits that all agree on survive; every worker's bits survive equally often, in uneven groups too."""
    size = 7000
    case = [
        flat(Kind("halving_doubling"), 7, size),
        flat(Kind("tree", pieces=3), 6, size),
        hierarchy([[0, 1], [2, 3, 4, 5], [6]], Kind("tree"), Kind("halving_doubling"), size, 2),
    ][seed]
    messages = messages_of(Merge.SIGN, case.workers, size)
    done = exchanged(case, small_star(case.workers), messages)

    words = done.received[0][0][0].words
    assert {words.tobytes()} == {merged.words.tobytes() for ((merged,),) in done.received}
    bits = np.array([np.unpackbits(one.words.view(np.uint8)) for one in messages])
    kept = np.unpackbits(words.view(np.uint8))
    assert np.all(kept[bits.all(axis=0)] == 1)
    assert np.all(kept[~bits.any(axis=0)] == 0)
    expected = 1 / case.workers + (1 - 1 / case.workers) / 2
    agreement = (bits == kept).mean(axis=1)
    assert agreement == pytest.approx([expected] * case.workers, abs=5 * 0.5 / np.sqrt(32 * size))


BYTE_A_NS = 8 * 10**9  # bit/s of memory


class Timed(Exchanged):
    """Notes when each worker has its result."""

    def _work(self, worker: int, *rest: Any) -> Generator[simpy.Event, Any, None]:
        yield from super()._work(worker, *rest)
        self.ends_ps[worker] = int(self.environment.now)

    def timed(self, messages: list[Message]) -> dict[int, int]:
        self.ends_ps: dict[int, int] = {}
        self.run([[(one,)] for one in messages])
        return self.ends_ps


def ends_of(case: Case, network: Any, window: int, ack_every: int, is_charged: bool) -> tuple[Any, Any]:
    """When each worker ends: by the oracle, and by the engine."""
    hosts = on(network, wire_of(FRAME, window, ack_every), case.size)
    device: Device = FixedDevice(0, 0, memory_bps=BYTE_A_NS) if is_charged else NoDevice()
    if is_charged:
        case.program(hosts, merge_ps=lambda words: 3 * 4 * words * 1000)
    else:
        case.program(hosts)
    hosts.links.run()
    for rank in range(case.workers):
        held = sorted(hosts.results[rank])
        assert sum(share.end - share.start for share, _ in held) == 1
        assert all(sorted(leaves(value)) == list(range(case.workers)) for _, value in held)
    messages = messages_of(Merge.ADD, case.workers, case.size)
    start = case.started(device, window=window, ack_every=ack_every)
    return hosts.done_ps, Timed(network, start).timed(messages)


@examples(30)
@given(data=st.data())
def test_every_worker_ends_when_the_programs_of_the_papers_do(data: st.DataObject) -> None:
    """On random trees of switches, with links of any rate, small windows, and merges that take time."""
    case = data.draw(cases(sizes=(1, 7, 200, 1500)))
    network = tree_network(data, case.workers)
    window, ack_every = data.draw(st.sampled_from([(4, 2), (40, 4), (512, 16)]))
    expected, found = ends_of(case, network, window, ack_every, data.draw(st.booleans(), label="charged"))

    assert found == expected


CASES = [
    *(flat(Kind("ring", channels=k, pieces=p), n, 960) for n in (2, 5, 8) for k, p in ((1, 1), (2, 2))),
    *(flat(Kind("halving_doubling"), n, 960) for n in (2, 3, 8, 11)),
    *(flat(Kind("tree", trees=t, pieces=p), n, 960) for n in (3, 8, 11) for t, p in ((1, 1), (2, 3))),
    hierarchy([[0, 1, 2, 3], [4, 5, 6, 7]], Kind("ring"), Kind("ring"), 960, 2),
    hierarchy([[0, 1, 2], [3, 4, 5, 6, 7]], Kind("tree"), Kind("halving_doubling"), 960, 3),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.workers}")
def test_equal_links_with_all_their_ties_end_at_the_same_time(case: Case) -> None:
    """A star on which everything happens at once: the order of one instant decides."""
    expected, found = ends_of(case, small_star(case.workers), 512, 16, is_charged=False)

    assert max(found.values()) == max(expected.values())


@examples(25)
@given(data=st.data())
def test_floats_are_added_in_the_order_of_the_programs(data: st.DataObject) -> None:
    """Bit for bit, word by word, as the nest of merges says that the oracle's workers end with."""
    case = data.draw(cases(sizes=(1, 37, 60)))
    network = tree_network(data, case.workers)
    hosts = on(network, wire_of(FRAME, 512, 16), case.size)
    case.program(hosts)
    hosts.links.run()
    messages = messages_of(Merge.FLOAT_ADD, case.workers, case.size)
    received = Exchanged(network, case.started()).run([[(one,)] for one in messages]).received

    expected = np.empty(case.size, np.float32)
    for share, value in hosts.results[0]:
        first, end = int(share.start * case.size), int(share.end * case.size)
        expected[first:end] = _added(value, [one.words[first:end] for one in messages])
    for ((merged,),) in received:
        assert expected.tobytes() == merged.words.tobytes()


def _added(value: Any, words: list[Any]) -> Any:
    if isinstance(value, int):
        return words[value]
    return np.asarray(_added(value[0], words) + _added(value[1], words), np.float32)
