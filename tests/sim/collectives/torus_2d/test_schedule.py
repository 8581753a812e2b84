"""The 2-D torus against its twin in plain Python: who sends what to whom, and how it is merged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.host_merge import replay
from netfold.homomorphic.message import Hop, Merge, Message
from netfold.sim.collectives.torus_2d.grid import Grid, squarest
from netfold.sim.collectives.torus_2d.schedule import torus_schedule
from netfold.sim.engine.schedule import Schedule
from tests.examples import examples
from tests.reference.systems import torus_2d as twin
from tests.sim.engine.checked_schedule import check_schedule
from tests.sim.exchanges import (
    FRAME,
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

EVEN = ((2, 2), (5,) * 3)
UNEVEN = ((4, 4, 3), (3, 3, 2, 2), (2, 1))
LINES = ((1,), (5,), (1, 1, 1, 1))
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


def sent_parts(schedule: Schedule) -> dict[int, list[tuple[int, int, int]]]:
    """By sender, in order: the receiver, each part that it sends, and how many workers' words it holds."""
    held = [[1] * schedule.chunks for _ in range(schedule.workers)]
    found: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number in range(schedule.transfers):
        source, target = int(schedule.source[number]), int(schedule.target[number])
        first = int(schedule.first[number])
        for part in range(first, first + int(schedule.count[number])):
            found[source].append((target, part, held[source][part]))
            own = held[target][part] if schedule.merges[number] else 0
            held[target][part] = held[source][part] + own
    return found


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("lengths", [lengths for lengths in GRIDS if sum(lengths) > 1])
def test_every_transfer_is_that_of_the_twin(lengths: tuple[int, ...], host: bool) -> None:
    expected: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for one in twin.transfers(lengths, host):
        expected[one.sender].append((one.receiver, one.part, one.workers))
    assert sent_parts(torus_schedule(Grid(lengths), host)) == expected  # in the order of the steps


@pytest.mark.parametrize("lengths", [lengths for lengths in GRIDS if sum(lengths) > 1])
def test_every_word_is_sent_as_often_as_on_a_ring(lengths: tuple[int, ...]) -> None:
    workers, rows, size = sum(lengths), len(lengths), 97
    run = carried(messages_of(Merge.ADD, workers, size), rows)
    run.engine.run(10**15)  # acknowledgements
    to_hosts = [
        counters["delivered_bytes"]
        for counters, target in zip(run.engine.link_counters(), run.engine.network.link_target, strict=True)
        if target < workers
    ]
    sent = sent_words(Grid(lengths), size)
    packets = sum(max(1, -(-words // FRAME.elements)) for words in sent)
    acknowledged = sum(to_hosts) - 4 * 2 * (workers - 1) * size - packets * FRAME.overhead_bytes

    assert sum(sent) == 2 * (workers - 1) * size
    assert acknowledged % FRAME.ack_bytes == 0
    assert 0 < acknowledged // FRAME.ack_bytes <= packets
    assert len(twin.transfers(lengths)) == 2 * (workers - 1) * len(twin.parts_of(lengths))


def sent_words(grid: Grid, size: int) -> list[int]:
    """Words of each transfer of a message."""
    schedule, ends = torus_schedule(grid, False), np.array(grid.words.ends(size))
    found: list[int] = (ends[schedule.first + schedule.count] - ends[schedule.first]).tolist()
    return found


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


def trees_of(schedule: Schedule) -> list[Any]:
    """How each part is merged by a schedule: a rank, or a `Merge`; what all workers get in the end."""
    held = [list[Any](range(schedule.workers)) for _ in range(schedule.chunks)]
    for number in range(schedule.transfers):
        source, target = int(schedule.source[number]), int(schedule.target[number])
        first = int(schedule.first[number])
        for cells in held[first : first + int(schedule.count[number])]:
            own = cells[target]
            cells[target] = twin.Merge(cells[source], own, 0) if schedule.merges[number] else cells[source]
    for cells in held:
        assert all(cell is cells[0] for cell in cells)
    return [cells[0] for cells in held]


def is_fair(found: Sequence[Fraction]) -> bool:
    """Whether the surviving bit is 1 as often as the mean bit says, whichever bits are 1."""
    workers = len(found)
    return all(abs(one - Fraction(1, workers)) <= Fraction(workers, 2**32) for one in found)


@pytest.mark.parametrize("is_host", [False, True])
@pytest.mark.parametrize("lengths", GRIDS)
def test_the_surviving_bit_is_that_of_a_uniformly_random_worker(
    lengths: tuple[int, ...], is_host: bool
) -> None:
    check_schedule(torus_schedule(Grid(lengths), is_host))
    trees = trees_of(torus_schedule(Grid(lengths), is_host))
    found = [twin.survival(tree, sum(lengths)) for tree in trees]
    expected = [twin.tree(part, lengths) for part in twin.parts_of(lengths, is_host)]

    assert all(is_fair(one) for one in found)
    assert [twin.survival(tree, sum(lengths)) for tree in expected] == found


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


def test_progress_grows_from_nothing_to_all_while_a_message_is_carried() -> None:
    words = [cascade_encoded(np.ones(300, np.float32), np.float32(1)) for _ in range(11)]
    for messages in (
        messages_of(Merge.ADD, 11, 500),
        [Message(one, Merge.HOST, "signs", host_merge=Cascade()) for one in words],
    ):
        run = Exchanged(small_star(11), torus(11, 3))
        shares: list[float] = []

        def watch(run: Exchanged = run, shares: list[float] = shares) -> Any:
            while True:
                yield run.environment.timeout(200_000)
                shares.append(run.collective.share())

        run.environment.process(watch())
        run.run([[(one,)] for one in messages])
        assert shares == sorted(shares)
        assert shares[0] < 0.1
        assert shares[-1] > 0.8
        assert run.collective.share() == 0.0
