"""LayerFusion against every division, and the greedy rules against plain readings of what is published."""

from __future__ import annotations

import random
import time

import pytest

from netfold.sim.workload.fusion.costs import Cost, Costs, Stages, predict
from netfold.sim.workload.fusion.layer_fusion import LayerFusion
from netfold.sim.workload.fusion.mg_wfbp import MgWfbp
from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.fusion.omgs import Omgs
from netfold.sim.workload.fusion.one import ONE_BUCKET
from netfold.sim.workload.fusion.rule import Fusion
from netfold.sim.workload.fusion.size import BySize
from netfold.sim.workload.layers import Layer
from tests.examples import nightly, scaled
from tests.reference.systems import layer_fusion as reference
from tests.sim.workload.fusion import drawn

EXACT = 1e-9  # of a step: sums of floats in another order
MS = 10**9


def step_ps(rule: Fusion, layers: list[Layer], costs: Costs) -> float:
    return predict(layers, rule.partition(layers), costs).step_ps


def others(costs: Costs) -> list[Fusion]:
    """The rules that LayerFusion is compared with."""
    sizes = [BySize(1000), BySize(40_000), BySize(25 << 20)]
    return [NoFusion(), ONE_BUCKET, *sizes, MgWfbp(costs=costs), Omgs(costs=costs)]


def test_the_optimum_is_that_of_all_divisions() -> None:
    """200 instances of up to 11 layers, 1 at least; half of them with an encoding that is not linear."""
    draw = random.Random(1)
    for number in range(scaled(200)):
        count = draw.randint(1, 11) if number % 10 == 0 else draw.randint(1, 8)
        layers = drawn.layers(draw, count)
        costs = drawn.costs(draw, sorts=number % 2 == 1, decodes=number % 3 > 0)

        found = LayerFusion(costs=costs).partition(layers)

        assert [index for group in found for index in group] == list(range(count))
        assert all(group for group in found)
        expected = reference.best(
            drawn.backward(layers, costs), drawn.sizes(layers), drawn.plain_stages(costs), costs.forward_ps
        )
        assert predict(layers, found, costs).step_ps == pytest.approx(expected, rel=EXACT)
        assert all(step_ps(rule, layers, costs) >= expected * (1 - EXACT) for rule in others(costs))


def test_the_prediction_is_that_of_the_machines_event_by_event() -> None:
    draw = random.Random(7)
    for _ in range(scaled(100)):
        layers, costs = drawn.layers(draw, draw.randint(1, 30)), drawn.costs(draw, sorts=draw.random() < 0.5)
        cuts = sorted(draw.sample(range(1, len(layers)), draw.randint(0, len(layers) - 1)))
        ends = [*cuts, len(layers)]

        expected = reference.step(
            ends,
            drawn.backward(layers, costs),
            drawn.sizes(layers),
            drawn.plain_stages(costs),
            costs.forward_ps,
        )

        found = predict(layers, drawn.partition_of(ends), costs)
        assert found.step_ps == pytest.approx(expected, rel=EXACT)
        shuffled = list(drawn.partition_of(ends))
        draw.shuffle(shuffled)
        assert predict(layers, tuple(shuffled), costs) == found


@pytest.mark.parametrize("count", [40, 120])
def test_many_layers_against_prefixes_and_numbers_of_groups(count: int) -> None:
    """The dynamic program over (prefix, groups), which holds for linear costs without decoding."""
    draw = random.Random(count)
    for _ in range(3):
        layers, costs = drawn.layers(draw, count), drawn.costs(draw, decodes=False)
        stages = costs.stages
        expected = costs.forward_ps + reference.best_linear(
            drawn.backward(layers, costs),
            drawn.sizes(layers),
            (stages.encode.start_ps, stages.encode.element_ps),
            (stages.network.start_ps, stages.network.element_ps),
        )

        assert step_ps(LayerFusion(costs=costs), layers, costs) == pytest.approx(expected, rel=EXACT)


@nightly  # of a processor that nobody else uses
def test_three_hundred_layers_take_a_second() -> None:
    draw = random.Random(300)
    instances = [(drawn.layers(draw, 300), drawn.costs(draw)) for _ in range(4)]
    started = time.process_time()
    for layers, costs in instances:
        LayerFusion(costs=costs).partition(layers)

    assert time.process_time() - started < 4 * 1.5


@pytest.mark.parametrize("sorts", [False, True])
def test_the_greedy_rules_are_the_published_ones(sorts: bool) -> None:
    draw = random.Random(3)
    merged = 0
    for _ in range(scaled(100)):
        layers, costs = drawn.layers(draw, draw.randint(1, 40)), drawn.costs(draw, sorts=sorts)
        backward, sizes, stages = drawn.backward(layers, costs), drawn.sizes(layers), costs.stages
        encode, network, _ = drawn.plain_stages(costs)

        waiting = drawn.ends(MgWfbp(costs=costs).partition(layers))
        saving = drawn.ends(Omgs(costs=costs).partition(layers))

        start, per_element = stages.network.start_ps, stages.network.element_ps
        assert waiting == reference.mg_wfbp(backward, sizes, start, per_element)
        assert saving == reference.omgs(backward, sizes, encode, network)
        merged += (1 < len(waiting) < len(layers)) + (1 < len(saving) < len(layers))
    assert merged > 35  # most instances are neither layer-wise nor one bucket


def test_a_greedy_rule_can_lose_and_the_optimum_cannot() -> None:
    """Ten-gigabit Ethernet as published for 8 workers: 0.52 ms to start, 3.44 ms for a million elements.

    Merging b into a saves a start, but then the network is busy when c is ready.
    """
    layers = [Layer("a", 10**6, 0.01), Layer("b", 10, 0.1), Layer("c", 10**6, 1.0)]
    costs = Costs(0, 4 * MS, Stages(Cost(), Cost(5.2e8, 4 * 860.0)))

    greedy, best = MgWfbp(costs=costs), LayerFusion(costs=costs)

    assert greedy.partition(layers) == ((0, 1), (2,))
    assert best.partition(layers) == ((0,), (1, 2))
    assert step_ps(greedy, layers, costs) == pytest.approx((0.4 + 2 * (0.52 + 3.44)) * MS, rel=1e-4)
    assert step_ps(best, layers, costs) == pytest.approx((4 + 0.52 + 3.44) * MS, rel=1e-4)


def test_the_authors_code_never_asks_about_the_first_two_layers() -> None:
    """What is different here: a first layer that is ready long before the second goes alone."""
    backward, sizes = [1.0, 1000.0], [10, 10]
    free, network = (lambda n: 0.0), (lambda n: 1.0 + n)

    assert reference.omgs(backward, sizes, free, network, asks_about_the_first=False) == [2]
    assert reference.omgs(backward, sizes, free, network) == [1, 2]
