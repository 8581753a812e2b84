"""Tensors are put into buckets: by size, by rules that weigh costs, by a rule of a user."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netfold.errors import DataError, OptionError
from netfold.homomorphic.message import Tensor
from netfold.sim.workload.fusion import (
    ONE_BUCKET,
    AsGiven,
    BySize,
    Cutter,
    Fusion,
    NoFusion,
    Partition,
    bucket_count,
    fuse,
    fuse_tensors,
    pieces_of,
)
from netfold.sim.workload.fusion_rules import Costs, LayerFusion, MgWfbp, Omgs, _Rest, predict
from netfold.sim.workload.layers import Layer, layers_of, place_tensors
from netfold.sim.workload.workload import keyed, shards
from netfold.sim.workload.workload_keys import Training
from tests.examples import scaled
from tests.reference.systems import layer_fusion as reference
from tests.sim.workload import fusion_drawn as drawn

sizes = st.lists(st.integers(1, 50), min_size=1, max_size=30)


def tensors_of(sizes: list[int], layers: list[str] | None = None) -> tuple[Tensor, ...]:
    """Tensors p0, p1 … of these sizes; without layers each is one of its own."""
    own = layers or [f"layer{index}" for index in range(len(sizes))]
    return place_tensors(
        Tensor(f"p{index}", (size, 1), layer)
        for index, (size, layer) in enumerate(zip(sizes, own, strict=True))
    )


@st.composite
def partitioned(draw: st.DrawFn) -> tuple[tuple[Tensor, ...], Partition]:
    """Tensors of a few layers, which may lie apart, and any partition of the layers."""
    elements = draw(sizes)
    layers = [f"l{draw(st.integers(0, 7))}" for _ in elements]
    tensors = tensors_of(elements, layers)
    owners = [draw(st.integers(0, 3)) for _ in set(layers)]
    partition = [tuple(index for index, one in enumerate(owners) if one == owner) for owner in set(owners)]
    return tensors, tuple(draw(st.permutations(partition)))


@given(partitioned())
def test_buckets_hold_every_tensor_once_and_no_layer_twice(
    case: tuple[tuple[Tensor, ...], Partition],
) -> None:
    """A bucket is ready with its last tensor, and has its part of the gradient in their order."""
    tensors, partition = case
    buckets, members = fuse(tensors, layers_of(tensors), partition)
    elements = sum(tensor.elements for tensor in tensors)
    flat = np.arange(elements, dtype=np.float32)
    sources = {tensor.name: flat[tensor.place] for tensor in tensors}

    assert sorted(place for own in members for place in own) == list(range(len(tensors)))
    owners = {(tensor.layer, bucket.index) for bucket in buckets for tensor in bucket.tensors}
    assert len(owners) == len({tensor.layer for tensor in tensors})
    assert list(range(len(buckets))) == [bucket.index for bucket in buckets]
    assert [0, *(bucket.stop for bucket in buckets)] == [*(bucket.start for bucket in buckets), elements]
    for bucket, own, part in zip(buckets, members, Cutter(tensors, members).cut(flat), strict=True):
        assert [tensor.name for tensor in bucket.tensors] == [tensors[place].name for place in own]
        assert part.tolist() == np.concatenate([sources[tensor.name] for tensor in bucket.tensors]).tolist()
        stops = [tensor.place.stop for tensor in bucket.tensors]
        assert [*(tensor.start for tensor in bucket.tensors), bucket.elements] == [0, *stops]
        assert bucket.ready_share == sum(tensor.elements for tensor in tensors[: max(own) + 1]) / elements
    shares = [bucket.ready_share for bucket in buckets]
    assert (sorted(shares), shares[-1]) == (shares, 1.0)


def test_names_say_first_and_last_tensor() -> None:
    buckets, _ = fuse_tensors(tensors_of([1, 1, 9, 1]), BySize(12))

    assert [bucket.name for bucket in buckets] == ["p0..p2", "p3"]
    assert [bucket.ready_share for bucket in buckets] == [11 / 12, 1.0]


def test_neighbours_are_cut_as_views_and_others_as_copies() -> None:
    tensors = tensors_of([2, 3, 1])
    flat = np.arange(6, dtype=np.float32)
    views = Cutter(tensors, ((0, 1), (2,)))
    copies = Cutter(tensors, ((1,), (0, 2)))
    first, second = views.cut(flat)
    third, fourth = copies.cut(flat)
    flat += 10

    assert (first.tolist(), second.tolist()) == ([10, 11, 12, 13, 14], [15])
    assert (third.tolist(), fourth.tolist()) == ([12, 13, 14], [0, 1, 5])
    assert (views.copies, copies.copies) == (False, True)


@pytest.mark.parametrize("shares", [(), (0.75,)])
def test_pieces_of_a_vector_are_ready_when_it_is_where_that_is_known(shares: tuple[float, ...]) -> None:
    """One all-reduce of a trace has a time; without one, gradients come at an even rate."""
    vector = (Tensor("all-reduce", (10,), "all-reduce"),)
    buckets, _ = fuse_tensors(vector, BySize(20), shares)

    assert [bucket.elements for bucket in buckets] == [5, 5]
    assert [bucket.ready_share for bucket in buckets] == ([0.75, 0.75] if shares else [0.5, 1.0])


@given(st.integers(1, 300), st.integers(1, 400))
def test_a_vector_is_cut_into_equal_pieces(elements: int, size_bytes: int) -> None:
    vector = (Tensor("gradient", (elements,), ""),)
    pieces = pieces_of(vector, BySize(size_bytes))
    size = -(-size_bytes // 4)

    whole, rest = divmod(elements, size)
    expected = [size] * whole + [rest] * (rest > 0)
    assert [piece.elements for piece in pieces] == expected
    assert [bucket.elements for bucket in fuse_tensors(vector, BySize(size_bytes))[0]] == expected
    assert bucket_count(vector, BySize(size_bytes)) == len(pieces)


@pytest.mark.parametrize("tensor", [Tensor("table", (30, 1), "table"), Tensor("table", (3, 10), "")])
def test_a_table_is_never_cut_and_a_vector_only_by_a_rule_of_size(tensor: Tensor) -> None:
    vector = (Tensor("gradient", (30,), ""),)

    assert [bucket.elements for bucket in fuse_tensors((tensor,), BySize(4))[0]] == [30]
    for rule in (NoFusion(), AsGiven(((0,),))):
        _, members = fuse_tensors(vector, rule)
        assert members == ((0,),)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**70))
def test_shards_share_all_samples_evenly(samples: int, workers: int, seed: int) -> None:
    if workers > samples:
        with pytest.raises(DataError) as caught:
            shards(samples, workers, seed)

        hint = f"use at most {samples} workers, or more data"
        assert str(caught.value) == f"{workers} workers cannot share {samples} samples\n  {hint}"
        return
    parts = shards(samples, workers, seed)

    assert list(range(samples)) == sorted(np.concatenate(parts).tolist())
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_keyed_numbers_depend_on_every_part_of_the_key() -> None:
    keys = [(1, "a", 2, 3), (2, "a", 2, 3), (1, "b", 2, 3), (1, "a", 3, 2), (1, "a", 2, 4)]
    drawn = [int(keyed(*key).integers(2**62)) for key in keys]

    assert len(keys) == len(set(drawn))
    assert drawn == [int(keyed(*key).integers(2**62)) for key in keys]


NAMED = [
    Layer(name, 10 * (index + 1), (index + 1) / 4) for index, name in enumerate(["fc2", "fc1", "conv", "2"])
]
LISTED = "layers, in gradient-ready order: 0 is 'fc2', 1 is 'fc1', 2 is 'conv', 3 is '2'"


def even_layers(elements: list[int]) -> list[Layer]:
    return [Layer(f"p{index}", size, (index + 1) / len(elements)) for index, size in enumerate(elements)]


def by_size(elements: list[int], bucket_bytes: int) -> list[list[int]]:
    buckets: list[list[int]] = [[]]
    for index in range(len(elements)):
        buckets[-1].append(index)
        if 4 * sum(elements[one] for one in buckets[-1]) >= bucket_bytes and index + 1 < len(elements):
            buckets.append([])
    return buckets


@example([20, 20, 1], 79)
@example([20, 20, 1], 80)
@example([20, 20, 1], 81)
@example([20, 20, 1], 160)
@example([20, 20, 1], 161)
@given(sizes, st.integers(1, 400))
def test_by_size_a_bucket_closes_with_the_layer_that_fills_it(elements: list[int], bucket_bytes: int) -> None:
    """Of the other rules one has a bucket for each layer, and one has one for all."""
    rule, layers = BySize(bucket_bytes), even_layers(elements)

    assert [list(members) for members in rule.partition(layers)] == by_size(elements, bucket_bytes)
    assert rule.full_elements(layers) == min(sum(elements), -(-bucket_bytes // 4))
    assert NoFusion().partition(layers) == tuple((index,) for index in range(len(elements)))
    assert NoFusion().full_elements(layers) == max(elements)
    assert ONE_BUCKET.partition(layers) == (tuple(range(len(elements))),)
    assert ONE_BUCKET.full_elements(layers) == sum(elements)


@pytest.mark.parametrize(
    ("buckets", "partition"),
    [
        ((("fc2", "conv"), ("fc1", "2")), ((0, 2), (1, 3))),
        (((0, 2), (1, 3)), ((0, 2), (1, 3))),
        (((3, "fc2"), ("conv",), (1,)), ((0, 3), (2,), (1,))),
        (((0, 1, 2, 3),), ((0, 1, 2, 3),)),
    ],
)
def test_a_given_partition(buckets: tuple[tuple[str | int, ...], ...], partition: object) -> None:
    assert AsGiven(buckets).partition(NAMED) == partition


@pytest.mark.parametrize(
    ("buckets", "message", "hint"),
    [
        ((("fc2", "fc1"), ("conv",)), "layer '2' in no bucket", "name every layer once"),
        ((("fc2",),), "layers 'fc1', 'conv', '2' in no bucket", "name every layer once"),
        (((0, 1, 2, 3), ("conv",)), "the layer 'conv' is in the buckets 0 and 1", LISTED),
        (((0, 1, 2, 3, "fc2"),), "the layer 'fc2' is twice in bucket 0", LISTED),
        ((("conf", 0, 1, 3),), "there is no layer 'conf'", f"did you mean 'conv'? {LISTED}"),
        (((0, 1, 2, 3, 4),), "there is no layer 4, the last of 4 is 3", LISTED),
        (((0, 1, 2, 3, -1),), "there is no layer -1, the last of 4 is 3", LISTED),
    ],
)
def test_a_partition_that_does_not_fit_is_reported(
    buckets: tuple[tuple[str | int, ...], ...], message: str, hint: str
) -> None:
    with pytest.raises(OptionError) as caught:
        AsGiven(buckets).partition(NAMED)

    assert (caught.value.key, caught.value.message, caught.value.hint) == ("buckets", message, hint)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


EXACT = 1e-9  # of a step: sums of floats in another order


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
        expected = reference.best(*drawn.plain(layers, costs), costs.forward_ps)
        assert predict(layers, found, costs).step_ps == pytest.approx(expected, rel=EXACT)
        assert all(step_ps(rule, layers, costs) >= expected * (1 - EXACT) for rule in others(costs))


def test_the_prediction_is_that_of_the_machines_event_by_event() -> None:
    draw = random.Random(7)
    for _ in range(scaled(100)):
        layers, costs = drawn.layers(draw, draw.randint(1, 30)), drawn.costs(draw, sorts=draw.random() < 0.5)
        cuts = sorted(draw.sample(range(1, len(layers)), draw.randint(0, len(layers) - 1)))
        ends = [*cuts, len(layers)]

        expected = reference.step(ends, *drawn.plain(layers, costs), costs.forward_ps)

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
        backward, sizes, _ = drawn.plain(layers, costs)
        encode, network = (astuple(cost)[:2] for cost in (costs.stages.encode, costs.stages.network))
        expected = costs.forward_ps + reference.best_linear(backward, sizes, encode, network)

        assert step_ps(LayerFusion(costs=costs), layers, costs) == pytest.approx(expected, rel=EXACT)


def test_what_is_left_takes_a_start_and_every_layer_alone_at_least() -> None:
    """The bound by which LayerFusion leaves plans out: a lower one is right too, and takes far longer."""
    draw = random.Random(7)
    for _ in range(20):
        layers, costs = drawn.layers(draw, 6), drawn.costs(draw)
        rest = _Rest.of(layers, costs)
        for cost, least in ((costs.stages.encode, rest.encode), (costs.stages.network, rest.network)):
            alone = [cost.ps(layer.elements) - cost.start_ps for layer in layers]
            expected = [cost.start_ps + sum(alone[first:]) for first in range(6)]
            assert least.tolist() == pytest.approx([*expected, 0.0])


@pytest.mark.parametrize("sorts", [False, True])
def test_the_greedy_rules_are_the_published_ones(sorts: bool) -> None:
    draw = random.Random(3)
    merged = 0
    for _ in range(scaled(100)):
        layers, costs = drawn.layers(draw, draw.randint(1, 40)), drawn.costs(draw, sorts=sorts)
        backward, sizes, (encode, network, _) = drawn.plain(layers, costs)

        waiting = drawn.ends(MgWfbp(costs=costs).partition(layers))
        saving = drawn.ends(Omgs(costs=costs).partition(layers))

        start, per_element, _ = astuple(costs.stages.network)
        assert waiting == reference.mg_wfbp(backward, sizes, start, per_element)
        assert saving == reference.omgs(backward, sizes, encode, network)
        merged += (1 < len(waiting) < len(layers)) + (1 < len(saving) < len(layers))
    assert merged > 35  # most instances are neither layer-wise nor one bucket


BATCH = 4


@dataclass(frozen=True)
class ByWork(Fusion):
    """Layers whose backward pass takes few operations wait for the next one."""

    least_flops: int

    def partition(self, layers: Sequence[Layer]) -> Partition:
        """Close a bucket after enough operations."""
        buckets: list[list[int]] = [[]]
        for index, layer in enumerate(layers):
            if sum(layers[one].backward_flops for one in buckets[-1]) >= self.least_flops > 0 and buckets[-1]:
                buckets.append([])
            buckets[-1].append(index)
            assert layer.elements > 0
            assert 0 < layer.ready_share <= 1
        return tuple(map(tuple, buckets))


@pytest.mark.parametrize(
    ("least_flops", "layers"),
    [
        # The last layer of the perceptron takes two products of batch · 128 · 10, the first one of 64 · 128.
        (2 * 2 * BATCH * 128 * 10, [["2"], ["0"]]),
        (2 * 2 * BATCH * 128 * 10 + 1, [["2", "0"]]),
    ],
)
def test_a_rule_sees_the_work_of_layers(least_flops: int, layers: list[list[str]]) -> None:
    rule = ByWork(least_flops)
    workload = Training("mlp", batch=BATCH, learning_rate=0.1, fusion=rule).workload(2, 1)

    found = [list(dict.fromkeys(tensor.layer for tensor in bucket.tensors)) for bucket in workload.buckets]
    assert found == layers
    gradient = workload.gradients(0)[1]
    assert [part.size for part in gradient] == [bucket.elements for bucket in workload.buckets]
    assert np.isfinite(np.concatenate(gradient)).all()
