"""What is merged on the 2-D torus with weights, in an order, or not at all: SIGN, HOST, absent workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.host_merge import replay
from netfold.homomorphic.message import Hop, Merge, Message
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.torus_2d.grid import Grid
from netfold.sim.collectives.torus_2d.schedule import torus_schedule
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.schedule import Schedule
from tests.reference.systems import torus_2d as twin
from tests.sim.collectives.torus_2d.grids import GRIDS, carried
from tests.sim.engine.checked_schedule import check_schedule
from tests.sim.exchanges import messages_of, torus
from tests.sim.host_codecs import Cascade, cascade_encoded
from tests.sim.scenes import Exchanged, small_star

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


def test_a_worker_says_where_it_stands() -> None:
    done = carried(messages_of(Merge.ADD, 11, 40), 3)
    place = OperationPlace(2, 1, 0)

    told = done.collective.locate(9, place, 0, 5)
    assert told == (
        "message 0 of operation 0 of bucket 1 of step 2 on the torus, as worker 9 (row 2, column 1) got it"
    )


def test_parts_that_disagree_on_who_contributed_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One part says that a worker fewer is in it."""
    right = Engine.contributors

    def forgetful(self: Engine, number: int, worker: int) -> Any:
        found = right(self, number, worker).copy()
        found[3] -= 1
        return found

    messages = messages_of(Merge.ADD, 5, 120)
    sound = carried(messages, 2).received
    monkeypatch.setattr(Engine, "contributors", forgetful)
    told = carried(messages, 2).received

    assert not any(merged.is_mixed for ((merged,),) in sound)
    assert all(merged.is_mixed for ((merged,),) in told)
