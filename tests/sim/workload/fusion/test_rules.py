"""Every rule of fusion against plain Python, and what is said of partitions that do not fit."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.fusion.one import ONE_BUCKET
from netfold.sim.workload.fusion.partition import AsGiven
from netfold.sim.workload.fusion.rule import FusionError
from netfold.sim.workload.fusion.size import BySize
from netfold.sim.workload.layers import Layer

sizes = st.lists(st.integers(1, 50), min_size=1, max_size=30)
NAMED = [
    Layer(name, 10 * (index + 1), (index + 1) / 4) for index, name in enumerate(["fc2", "fc1", "conv", "2"])
]
LISTED = "layers, in gradient-ready order: 0 is 'fc2', 1 is 'fc1', 2 is 'conv', 3 is '2'"


def layers_of(elements: list[int]) -> list[Layer]:
    return [Layer(f"p{index}", size, (index + 1) / len(elements)) for index, size in enumerate(elements)]


def by_size(elements: list[int], bucket_bytes: int) -> list[list[int]]:
    """Close a bucket with the layer that fills it."""
    buckets: list[list[int]] = [[]]
    for index in range(len(elements)):
        buckets[-1].append(index)
        if 4 * sum(elements[one] for one in buckets[-1]) >= bucket_bytes and index + 1 < len(elements):
            buckets.append([])
    return buckets


@given(sizes, st.integers(1, 400))
def test_by_size_a_bucket_closes_with_the_layer_that_fills_it(elements: list[int], bucket_bytes: int) -> None:
    """Of the other rules one has a bucket for each layer, and one has one for all."""
    rule, layers = BySize(bucket_bytes), layers_of(elements)

    assert [list(members) for members in rule.partition(layers)] == by_size(elements, bucket_bytes)
    assert rule.full_elements(layers) == min(sum(elements), -(-bucket_bytes // 4))
    assert NoFusion().partition(layers) == tuple((index,) for index in range(len(elements)))
    assert NoFusion().full_elements(layers) == max(elements)
    assert ONE_BUCKET.partition(layers) == (tuple(range(len(elements))),)
    assert ONE_BUCKET.full_elements(layers) == sum(elements)


def test_just_inside_and_just_outside_a_size() -> None:
    limits = {79: 3, 80: 3, 81: 2, 160: 2, 161: 1}
    found = {size: len(BySize(size).partition(layers_of([20, 20, 1]))) for size in limits}

    assert found == limits


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
    with pytest.raises(FusionError) as caught:
        AsGiven(buckets).partition(NAMED)

    assert (caught.value.key, caught.value.message, caught.value.hint) == ("buckets", message, hint)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
