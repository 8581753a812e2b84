"""Layers and costs that are drawn, and the same as the plain reference takes them."""

from __future__ import annotations

import math
import random
from itertools import pairwise

from netfold.sim.workload.fusion import Partition
from netfold.sim.workload.fusion_rules import Cost, Costs, Stages
from netfold.sim.workload.layers import Layer, layers_of, read_profile
from tests import ROOT
from tests.reference.systems.layer_fusion import Time

PROFILES_FOLDER = ROOT / "scenarios" / "systems" / "profiles"


def layers(draw: random.Random, count: int) -> list[Layer]:
    """Sizes over four decades, and backward times of any kind, some of them 0."""
    shares = sorted(draw.choice([draw.random(), 0.5]) for _ in range(count - 1))
    return [
        Layer(f"l{index}", draw.choice([1, 10, 100, 1000]) * draw.randint(1, 9), share)
        for index, share in enumerate([*shares, 1.0])
    ]


def cost(draw: random.Random, sorts: bool = False) -> Cost:
    """A cost that may be 0, mostly a start, or mostly in proportion."""
    return Cost(
        draw.choice([0.0, 1e3, 1e4, 1e5]),
        draw.choice([0.0, 1.0, 10.0, 100.0]),
        draw.choice([1.0, 10.0]) if sorts else 0.0,
    )


def costs(draw: random.Random, *, sorts: bool = False, decodes: bool = True) -> Costs:
    """Costs of passes and stages; with `sorts`, that of encoding is not linear."""
    stages = Stages(cost(draw, sorts), cost(draw), cost(draw) if decodes else Cost())
    return Costs(draw.randint(0, 1000), draw.choice([0, 10**5, 10**6]), stages)


def measured(name: str) -> list[Layer]:
    """The layers of a profile that comes with netfold."""
    tensors, ready_shares = read_profile((PROFILES_FOLDER / f"{name}.json").read_text("utf-8"))
    return list(layers_of(tensors, ready_shares=ready_shares))


def plain(found: list[Layer], given: Costs) -> tuple[list[float], list[int], tuple[Time, Time, Time]]:
    """Backward time and size of each layer, and the costs of the stages as functions, written down again."""

    def time(each: Cost) -> Time:
        return lambda n: each.start_ps + each.element_ps * n + each.sort_ps * n * math.log2(n)

    shares = [0.0, *(layer.ready_share for layer in found)]
    backward = [(after - before) * given.backward_ps for before, after in pairwise(shares)]
    stages = time(given.stages.encode), time(given.stages.network), time(given.stages.decode)
    return backward, [layer.elements for layer in found], stages


def ends(partition: Partition) -> list[int]:
    """The last layers of the groups, from 1 on."""
    return [group[-1] + 1 for group in partition]


def partition_of(found: list[int]) -> Partition:
    return tuple(tuple(range(first, last)) for first, last in pairwise([0, *found]))
