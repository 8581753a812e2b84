"""Layers of tensors, and tensors as users write them."""

from __future__ import annotations

import numpy as np
import pytest

from netfold.homomorphic.round import Tensor
from netfold.sim.workload.layers import given_tensors, layers_of, placed, read_tensors


def test_names_say_the_layer_up_to_their_last_dot() -> None:
    found = read_tensors(["body.0.conv.weight=8x3x3x3", "body.0.conv.bias=8", "scale=4", "fc.weight=10x8"])

    assert [(one.name, one.shape, one.layer, one.start) for one in found] == [
        ("body.0.conv.weight", (8, 3, 3, 3), "body.0.conv", 0),
        ("body.0.conv.bias", (8,), "body.0.conv", 216),
        ("scale", (4,), "scale", 224),
        ("fc.weight", (10, 8), "fc", 228),
    ]


def test_without_names_a_matrix_begins_a_layer_and_vectors_follow() -> None:
    found = read_tensors([5, "128x64", 128, "128", "10x128", "10"])

    assert [one.layer for one in found] == ["layer0", "layer1", "layer1", "layer1", "layer2", "layer2"]
    assert [one.name for one in found] == [f"tensor{index}" for index in range(6)]
    assert [one.start for one in found] == [0, 5, 8197, 8325, 8453, 9733]


def test_python_may_give_shapes_texts_and_mappings() -> None:
    texts = given_tensors("128x64,128,10x128,10")

    assert given_tensors([(128, 64), (128,), "10x128", 10]) == texts
    assert given_tensors([np.empty((128, 64)).shape, [128], "10x128", np.int64(10)]) == texts  # type: ignore[list-item]  # they work too
    assert given_tensors({"a.weight": (2, 3), "a.bias": (2,)}) == read_tensors(["a.weight=2x3", "a.bias=2"])


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (
            ["128x"],
            "cannot read the tensor '128x'\na tensor is written 128x64, or with its name fc1.weight=128x64",
        ),
        (["0x3"], "cannot read the tensor '0x3'"),
        ([0], "cannot read the tensor '0'"),
        ([True], "cannot read the tensor 'True'"),
        (["3 x 4"], "cannot read the tensor '3 x 4'"),
        (["=3"], "cannot read the tensor '=3'"),
        (["3,4"], "cannot read the tensor '3,4'"),
        (
            [f"{2**30}x{2**23}", 1],
            "the tensors have 9,007,199,254,740,993 elements\nuse 9,007,199,254,740,992 at most",
        ),
        (["a=3", "a=4"], "the name 'a' appears twice\ngive each tensor a name of its own"),
        (["a=3", "4x5"], "the tensor 4x5 has no name, others have one\nname all tensors, or none"),
    ],
)
def test_wrong_tensors_are_reported(items: list[str | int], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_tensors(items)

    assert str(caught.value).startswith(message)


def test_as_many_elements_as_there_may_be() -> None:
    """A product beyond 64 bits must not become a small number, which would pass for little memory."""
    (found,) = read_tensors([f"{2**30}x{2**23}"])

    assert found.elements == 2**53
    assert Tensor("w", (2**33, 2**32), "").elements == 2**65
    assert (Tensor("w", (), "").elements, Tensor("w", (3, 0), "").elements) == (1, 0)


def test_layers_come_in_the_order_of_their_last_tensor() -> None:
    tensors = placed(
        [
            Tensor("d.bias", (4,), "tied"),
            Tensor("c", (2, 3), "c"),
            Tensor("a", (5,), ""),
            Tensor("e", (3, 3), "tied"),
        ]
    )
    first, second, third = layers_of(tensors, flops=(10, 30, 30, 70))

    assert (first.name, first.elements, first.members, first.ready_share) == ("c", 6, (1,), 10 / 24)
    assert (second.name, second.elements, second.members, second.ready_share) == ("a", 5, (2,), 15 / 24)
    assert (third.name, third.elements, third.members, third.ready_share) == ("tied", 13, (0, 3), 1.0)
    assert [layer.backward_flops for layer in (first, second, third)] == [30, 0, 40]
    assert [layer.backward_flops for layer in layers_of(tensors)] == [0, 0, 0]
