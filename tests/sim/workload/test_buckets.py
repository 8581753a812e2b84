"""How layers of a gradient become buckets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.round import Tensor
from netfold.sim.errors import DataError
from netfold.sim.workload.buckets import Cutter, bucket_count, fuse, fused, pieces_of
from netfold.sim.workload.draws import keyed, shards
from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.fusion.partition import AsGiven
from netfold.sim.workload.fusion.rule import Partition
from netfold.sim.workload.fusion.size import BySize
from netfold.sim.workload.layers import layers_of, placed

sizes = st.lists(st.integers(1, 50), min_size=1, max_size=30)


def tensors_of(sizes: list[int], layers: list[str] | None = None) -> tuple[Tensor, ...]:
    """Tensors p0, p1 … of these sizes; without layers each is one of its own."""
    own = layers or [f"layer{index}" for index in range(len(sizes))]
    return placed(
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
    buckets, _ = fused(tensors_of([1, 1, 9, 1]), BySize(12))

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
    buckets = fused(vector, BySize(20), shares).buckets

    assert [bucket.elements for bucket in buckets] == [5, 5]
    assert [bucket.ready_share for bucket in buckets] == ([0.75, 0.75] if shares else [0.5, 1.0])


@given(st.integers(1, 300), st.integers(1, 400))
def test_a_vector_is_cut_into_equal_pieces(elements: int, size_bytes: int) -> None:
    vector = (Tensor("gradient", (elements,), ""),)
    pieces = pieces_of(vector, BySize(size_bytes))
    size = -(-size_bytes // 4)

    whole, rest = divmod(elements, size)
    assert [piece.elements for piece in pieces] == [size] * whole + [rest] * (rest > 0)
    assert [bucket.elements for bucket in fused(vector, BySize(size_bytes)).buckets] == [
        piece.elements for piece in pieces
    ]
    assert bucket_count(vector, BySize(size_bytes)) == len(pieces)


@pytest.mark.parametrize("tensor", [Tensor("table", (30, 1), "table"), Tensor("table", (3, 10), "")])
def test_a_table_is_never_cut_and_a_vector_only_by_a_rule_of_size(tensor: Tensor) -> None:
    vector = (Tensor("gradient", (30,), ""),)

    assert [bucket.elements for bucket in fused((tensor,), BySize(4)).buckets] == [30]
    assert fused(vector, NoFusion()).members == fused(vector, AsGiven(((0,),))).members == ((0,),)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**70))
def test_shards_share_all_samples_evenly(samples: int, workers: int, seed: int) -> None:
    if workers > samples:
        with pytest.raises(DataError) as caught:
            shards(samples, workers, seed)

        assert (
            f"{workers} workers cannot share {samples} samples\n  use at most {samples} workers, or more data"
        ) == str(caught.value)
        return
    parts = shards(samples, workers, seed)

    assert list(range(samples)) == sorted(np.concatenate(parts).tolist())
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_keyed_numbers_depend_on_every_part_of_the_key() -> None:
    keys = [(1, "a", 2, 3), (2, "a", 2, 3), (1, "b", 2, 3), (1, "a", 3, 2), (1, "a", 2, 4)]
    drawn = [int(keyed(*key).integers(2**62)) for key in keys]

    assert len(keys) == len(set(drawn))
    assert drawn == [int(keyed(*key).integers(2**62)) for key in keys]
