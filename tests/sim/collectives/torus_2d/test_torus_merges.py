"""What is merged on the 2-D torus with weights, in an order, or not at all: SIGN, HOST, absent workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import pytest
import simpy

from netfold.homomorphic.host_merge import replay
from netfold.homomorphic.merge import keep_threshold
from netfold.homomorphic.message import Hop, Merge, Merged, Message
from netfold.sim.collectives import host_messages
from netfold.sim.collectives.host_messages import HostCollective, MessageExchange
from tests.reference.systems import torus_2d as twin
from tests.sim.collectives.torus_2d.grids import GRIDS, carried
from tests.sim.exchanges import messages_of, torus
from tests.sim.host_codecs import Cascade, cascade_encoded
from tests.sim.scenes import Exchanged, small_star

# SIGN: whose bit survives, exactly


def survivors(monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...]) -> list[list[Fraction]]:
    """The probability that each worker's bit survives, for every word of a run, by its own counts.

    Words are numbers in a list of such distributions; a merge of two makes a new one.
    """
    workers, size = sum(lengths), 3 * lcm(*lengths) * len(lengths)
    known = [[Fraction(int(rank == own)) for rank in range(workers)] for own in range(workers)]

    def merged(merge: Any, accumulated: Merged, arriving: Merged, *more: Any) -> Merged:
        held = accumulated.workers + arriving.workers
        if arriving.workers == 0:
            return replace(accumulated, workers=held)
        keep = Fraction(keep_threshold(accumulated.workers, arriving.workers), 2**32)
        numbers = []
        for p, q in zip(accumulated.words.tolist(), arriving.words.tolist(), strict=True):
            numbers.append(len(known))
            known.append([keep * a + (1 - keep) * b for a, b in zip(known[p], known[q], strict=True)])
        assert accumulated.present is not None
        assert arriving.present is not None
        present = accumulated.present | arriving.present
        return Merged(np.array(numbers, np.uint32), held, present=present)

    monkeypatch.setattr(host_messages, "combine", merged)
    messages = [Message(np.full(size, rank, np.uint32), Merge.SIGN, "signs") for rank in range(workers)]
    received = carried(messages, len(lengths)).received
    words = received[0][0][0].words.tolist()
    assert all(merged.words.tolist() == words for ((merged,),) in received)
    return [known[word] for word in words]


def is_fair(found: Sequence[Fraction]) -> bool:
    """Whether the surviving bit is 1 as often as the mean bit says, whichever bits are 1."""
    workers = len(found)
    return all(abs(one - Fraction(1, workers)) <= Fraction(workers, 2**32) for one in found)


@pytest.mark.parametrize("lengths", GRIDS)
def test_the_surviving_bit_is_that_of_a_uniformly_random_worker(
    monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...]
) -> None:
    found = survivors(monkeypatch, lengths)
    assert all(is_fair(one) for one in found)

    expected = []
    for part in twin.parts_of(lengths):
        share = twin.survival(twin.tree(part, lengths), sum(lengths))
        expected += [share] * int((part.end - part.start) * len(found))
    assert expected == found


@pytest.mark.parametrize("lengths", GRIDS)
def test_the_numbers_of_hops_are_weights_only_if_all_rows_are_equally_long(lengths: tuple[int, ...]) -> None:
    """The control: h / (h + 1) at the h-th hop of a ring."""
    trees = [twin.tree(part, lengths) for part in twin.parts_of(lengths)]
    fair = [is_fair(twin.survival(one, sum(lengths), twin.by_hops)) for one in trees]

    assert fair == [len(set(lengths)) == 1] * len(trees)


# HOST: merges of the codec


@pytest.mark.parametrize("lengths", [lengths for lengths in GRIDS if sum(lengths) > 1])
def test_cascaded_signs_are_merged_in_the_order_of_the_schedule(lengths: tuple[int, ...]) -> None:
    workers, random, merge = sum(lengths), np.random.default_rng(sum(lengths)), Cascade()
    words = [
        cascade_encoded(random.standard_normal(300).astype(np.float32), np.float32(random.uniform(0.5, 2)))
        for _ in range(workers)
    ]
    done = carried([Message(one, Merge.HOST, "signs", host_merge=merge) for one in words], len(lengths))
    order = done.collective.merge_orders(0, 0)[0, 0]

    plans = [twin.tree(part, lengths) for part in twin.parts_of(lengths, host=True)]
    pieces = [merge.split(one, len(plans)) for one in words]
    used: Counter[int] = Counter()

    def evaluated(plan: Any, part: int) -> Any:
        if not isinstance(plan, twin.Merge):
            return pieces[plan][part]
        hops = (twin.first(plan.arriving), twin.first(plan.own))
        (key,) = (hop.key for hop in order[part] if (hop.into, hop.taken) == hops)
        used[key] += 1
        accumulated, arriving = (evaluated(one, part) for one in (plan.arriving, plan.own))
        return merge.merge(accumulated, arriving, Hop(*twin.by_counts(plan), key))

    right = merge.join([evaluated(plan, part) for part, plan in enumerate(plans)])
    assert set(used.values()) == {1}  # every merge has a key of its own
    assert len(used) == len(plans) * (workers - 1)
    assert right.tolist() == replay(merge, words, order).tolist()
    for ((found,),) in done.received:
        assert right.tolist() == found.words.tolist()
        assert workers == found.workers
    assert done.collective.merge_orders(0, 0) == {}


def test_progress_counts_the_chunks_of_words_and_of_a_codecs_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    """All chunks of a message that has arrived everywhere were expected, in either cut."""
    shares: list[float] = []
    result = host_messages.Finished.joined

    def noted(finished: Any, *args: Any, **named: Any) -> Merged:
        shares.append(finished.received / (finished.expected or collective.chunks_count))
        return result(finished, *args, **named)

    monkeypatch.setattr(host_messages.Finished, "joined", noted)
    words = [cascade_encoded(np.ones(300, np.float32), np.float32(1)) for _ in range(11)]
    for messages in (
        messages_of(Merge.ADD, 11, 500),
        [Message(one, Merge.HOST, "signs", host_merge=Cascade()) for one in words],
    ):
        shares.clear()
        collective: Any = None

        def start(environment: Any, fabric: Any) -> Any:
            nonlocal collective
            collective = torus(11, 3)(environment, fabric)
            return collective

        Exchanged(small_star(11), start).run([[(one,)] for one in messages])
        assert shares == sorted(shares)
        assert shares[-1] == 1.0


def test_a_worker_says_where_it_stands() -> None:
    done = carried(messages_of(Merge.ADD, 11, 40), 3)
    place = host_messages.OperationPlace(2, 1, 0)

    told = done.collective.locate(9, place, 0, 5)
    assert told == (
        "message 0 of operation 0 of bucket 1 of step 2 on the torus, as worker 9 (row 2, column 1) got it"
    )


@pytest.mark.parametrize("lengths", [(2, 2), (3, 2), (4, 4, 3)])
def test_parts_that_disagree_on_who_contributed_are_told_by_all_who_hold_them(
    monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...]
) -> None:
    """Worker 0 forgets in its column that worker 1 contributed; its row gets these words from it.

    It gets them one step after their owner, so that of three rows one more has them from it.
    """
    receive, forgotten = HostCollective.receive, list[int]()

    def forgetful(
        self: HostCollective, worker: int, operation: MessageExchange, step: int
    ) -> Generator[simpy.Event, Any, Merged]:
        chunk: Merged = yield from receive(self, worker, operation, step)
        everyone = sum(lengths) - 1  # of those who are there
        if worker == 0 and chunk.workers == everyone and not forgotten:
            forgotten.append(step)
            assert chunk.present is not None
            present = chunk.present.copy()
            present[1] = False
            return replace(chunk, workers=everyone - 1, present=present)
        return chunk

    monkeypatch.setattr(HostCollective, "receive", forgetful)
    messages = messages_of(Merge.ADD, sum(lengths), 120)
    absent = replace(messages[2], words=messages[2].words[:0], absent_words=120)
    received = carried([*messages[:2], absent, *messages[3:]], len(lengths)).received

    assert forgotten
    mixed = [rank for rank, ((merged,),) in enumerate(received) if merged.is_mixed]
    assert mixed == list(range(sum(lengths[:-1])))
