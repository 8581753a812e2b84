"""The 2-D torus against its twin in plain Python: who sends what to whom, and how it is merged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.host_merge import replay
from netfold.homomorphic.merge import keep_threshold, merge_all
from netfold.homomorphic.message import Hop, Merge, Merged, Message
from netfold.sim.collectives import host_messages
from netfold.sim.collectives.host_messages import HostCollective, MessageExchange
from netfold.sim.collectives.torus_2d.grid import Grid, squarest
from tests.examples import examples
from tests.reference.systems import torus_2d as twin
from tests.sim.exchanges import (
    INTEGER_MERGES,
    Network,
    assert_all_right,
    draw_pauses,
    exchange_all,
    messages_of,
    torus,
)
from tests.sim.host_codecs import Cascade, cascade_encoded
from tests.sim.scenes import Exchanged, small_star

EVEN = ((2, 2), (4,) * 4, (5,) * 3)
UNEVEN = ((4, 4, 3), (3, 2), (4, 3), (3, 3, 2, 2), (2, 1))
LINES = ((1,), (2,), (5,), (1, 1), (1, 1, 1, 1))
GRIDS = (*EVEN, *UNEVEN, *LINES)


def carried(messages: Sequence[Message], rows: int, **changes: Any) -> Exchanged:
    workers = len(messages)
    start = torus(workers, rows, **changes)
    return Exchanged(small_star(workers), start).run([[(one,)] for one in messages])


@pytest.mark.parametrize("lengths", GRIDS)
def test_workers_stand_in_rows_whose_lengths_differ_by_one_at_most(lengths: tuple[int, ...]) -> None:
    grid = Grid.of(sum(lengths), len(lengths))

    assert grid.lengths == lengths
    assert [grid.worker(*spot) for spot in grid.spots] == list(range(sum(lengths)))
    assert [list(map(grid.spots.__getitem__, row)) for row in twin.ranks(lengths)] == [
        [(row, position) for position in range(length)] for row, length in enumerate(lengths)
    ]


def test_the_squarest_grid() -> None:
    """Rows of equal length if there is a divisor; a prime is cut by its root."""
    rows = {1: 1, 2: 1, 3: 1, 4: 2, 5: 2, 6: 2, 7: 2, 8: 2, 9: 3, 11: 3, 12: 3, 13: 3, 16: 4, 64: 8, 512: 16}
    assert {workers: squarest(workers) for workers in rows} == rows


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("lengths", GRIDS)
def test_parts_are_those_of_the_definition(lengths: tuple[int, ...], host: bool) -> None:
    grid, parts = Grid.of(sum(lengths), len(lengths)), twin.parts_of(lengths, host)
    cut = grid.equal if host else grid.words

    assert cut.parts == len(parts)
    size = 840 * len(lengths)
    assert cut.ends(size) == [*(part.start * size for part in parts), size]
    for number, part in enumerate(parts):
        segment, row = divmod(number, len(lengths))
        in_rows, down = twin.chains(part, lengths)
        assert row == part.number == down[-1]
        assert [chain[-1] for chain in in_rows] == cut.column(segment)
        assert [chain[0] for chain in in_rows] == cut.roots(segment)


class Sent:
    """Notes every chunk that workers send of messages whose words are the numbers of their places."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chunks: list[tuple[int, int, tuple[int, ...], int]] = []
        send = HostCollective.send

        def noted(
            collective: HostCollective,
            worker: int,
            to: int,
            operation: MessageExchange,
            step: int,
            chunk: Merged,
        ) -> None:
            self.chunks.append((worker, to, tuple(chunk.words.tolist()), chunk.workers))
            send(collective, worker, to, operation, step, chunk)

        monkeypatch.setattr(HostCollective, "send", noted)


@pytest.mark.parametrize("lengths", [lengths for lengths in GRIDS if sum(lengths) > 1])
def test_every_transfer_is_that_of_the_twin(
    monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...]
) -> None:
    """MAX of equal words leaves them as they are, so a chunk's words say which parts it carries."""
    workers, rows = sum(lengths), len(lengths)
    size = lcm(*lengths) * rows * 2
    places = np.arange(size, dtype=np.int32)
    sent = Sent(monkeypatch)
    carried([Message(places, Merge.MAX, "x") for _ in range(workers)], rows)

    parts = twin.parts_of(lengths)
    first = {int(part.start * size): number for number, part in enumerate(parts)}
    ends = [int(part.end * size) for part in parts]
    found: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for sender, receiver, words, held in sent.chunks:
        assert list(words) == list(range(words[0], words[-1] + 1))
        at = words[0]
        while at <= words[-1]:
            part = first[at]
            found[sender].append((receiver, part, held))
            at = ends[part]
        assert at == words[-1] + 1  # whole parts
    expected: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for one in twin.transfers(lengths):
        expected[one.sender].append((one.receiver, one.part, one.workers))
    assert found == expected  # in the order of the steps


@pytest.mark.parametrize("lengths", [lengths for lengths in GRIDS if sum(lengths) > 1])
def test_every_word_is_sent_as_often_as_on_a_ring(
    monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...]
) -> None:
    workers, size = sum(lengths), 97
    sent = Sent(monkeypatch)
    carried(messages_of(Merge.ADD, workers, size), len(lengths))

    assert sum(len(words) for _, _, words, _ in sent.chunks) == 2 * (workers - 1) * size
    assert len(twin.transfers(lengths)) == 2 * (workers - 1) * len(twin.parts_of(lengths))


@pytest.mark.parametrize("merge", [*INTEGER_MERGES, Merge.TABLE_ADD])
@pytest.mark.parametrize("lengths", GRIDS)
def test_every_worker_gets_the_merge_of_all(lengths: tuple[int, ...], merge: Merge) -> None:
    workers = sum(lengths)
    for size in (0, 1, workers - 1, workers, 500):
        messages = messages_of(merge, workers, size, seed=size)
        expected = merge_all(merge, [one.words for one in messages], table=messages[0].table)
        for ((merged,),) in carried(messages, len(lengths)).received:
            assert expected.dtype == merged.words.dtype
            assert expected.tolist() == merged.words.tolist()
            assert (workers, None, False) == (merged.workers, merged.present, merged.is_mixed)


@pytest.mark.parametrize("lengths", GRIDS)
@pytest.mark.parametrize("size", [1, 101])
def test_floats_are_added_in_the_order_of_the_schedule(lengths: tuple[int, ...], size: int) -> None:
    messages = messages_of(Merge.FLOAT_ADD, sum(lengths), size)
    expected = twin.float_sums([one.words for one in messages], lengths)

    received = carried(messages, len(lengths)).received
    for ((merged,),) in received:
        assert expected.tobytes() == merged.words.tobytes()
    assert len({id(merged.words) for ((merged,),) in received}) == 1  # one array for all


@examples(25)
@given(data=st.data())
def test_it_survives_loss_and_stragglers(data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, 8), label="workers")
    rows = data.draw(st.integers(1, workers), label="rows")
    merges = st.sampled_from([*INTEGER_MERGES, Merge.TABLE_ADD])
    sizes = st.sampled_from([0, 1, 3, 100, 400])
    operations = data.draw(
        st.lists(st.lists(st.tuples(merges, sizes), min_size=1, max_size=3), min_size=1, max_size=2)
    )
    window, ack_every = data.draw(st.sampled_from([(1, 1), (4, 2), (512, 16)]))
    start = torus(workers, rows, window=window, ack_every=ack_every, timeout_ps=10**8)
    network = Network(start, loss=0.03, seed=data.draw(st.integers(0, 1000)))

    assert_all_right(exchange_all(workers, operations, network, draw_pauses(data)))


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
