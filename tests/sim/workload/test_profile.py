"""Profiles of layers: what is read, and what is said of files that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from netfold.sim.workload.layers import layers_of
from netfold.sim.workload.profile import read_profile
from tests.sim.workload.fusion import drawn

LAYERS = [["fc", 1001, 0.5], ["conv2", 30, 2.0], ["conv1", 7, 4.0]]


def text(layers: Any) -> str:
    return json.dumps({"description": "three layers", "layers": layers})


def test_layers_in_the_order_in_which_they_are_ready() -> None:
    found = read_profile(text(LAYERS))

    assert [(one.name, one.shape, one.layer, one.start) for one in found.tensors] == [
        ("fc", (1001,), "fc", 0),
        ("conv2", (30,), "conv2", 1001),
        ("conv1", (7,), "conv1", 1031),
    ]
    assert found.ready_shares == (0.125, 0.5, 1.0)
    layers = layers_of(found.tensors, ready_shares=found.ready_shares)
    assert [(one.name, one.elements, one.ready_share) for one in layers] == [
        ("fc", 1001, 0.125),
        ("conv2", 30, 0.5),
        ("conv1", 7, 1.0),
    ]


def test_without_times_a_layer_is_ready_after_its_share_of_elements() -> None:
    found = layers_of(read_profile(text(LAYERS)).tensors)

    assert [one.ready_share for one in found] == [1001 / 1038, 1031 / 1038, 1.0]


@pytest.mark.parametrize(("shrink", "elements"), [(1, [1001, 30, 7]), (10, [101, 3, 1]), (2000, [1, 1, 1])])
def test_smaller_layers_are_rounded_up(shrink: int, elements: list[int]) -> None:
    found = read_profile(text(LAYERS), shrink)

    assert [one.elements for one in found.tensors] == elements
    assert found.ready_shares == (0.125, 0.5, 1.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "has no list 'layers' of 1 to 10000 layers"),
        (text([]), "has no list 'layers'"),
        (text([["a", 1, 1.0]] * 10_001), "has no list 'layers'"),
        (text([["a", 1]]), 'layer 0: cannot read ["a", 1]'),
        (text([["a", 1, 1.0], ["b", 0, 2.0]]), 'layer 1: cannot read ["b", 0, 2.0]'),
        (text([["a", 1.5, 1.0]]), "layer 0: cannot read"),
        (text([["", 1, 1.0]]), "layer 0: cannot read"),
        (text([["a", 1, -1.0]]), "layer 0: cannot read"),
        ('{"layers": [["a", 1, 1e999]]}', "layer 0: cannot read"),
        (text([["a", 1, 10**400]]), "layer 0: cannot read"),
        (text([["a", 1, 1.0], ["a", 1, 2.0]]), "layer 1: the name 'a' appears twice"),
        (text([["a", 1, 2.0], ["b", 1, 1.0]]), "layer 1: 'b' is ready at 1 ms, before the layer before it"),
        (text([["a", 1, 0.0], ["b", 1, 1.0]]), "layer 0: 'a' is ready at 0 ms"),
        (text([["a", 2**53 + 1, 1.0]]), "its layers have too many elements"),
    ],
)
def test_what_is_no_profile_is_reported(content: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_profile(content)

    found, _, hint = str(caught.value).partition("\n")
    assert message in found
    assert hint


@pytest.mark.parametrize(
    ("name", "layers", "elements"),
    [("resnet50", 54, 25_557_032), ("vgg19", 19, 143_667_240), ("bert-qa", 76, 108_893_186)],
)
def test_the_profiles_that_come_with_netfold(name: str, layers: int, elements: int) -> None:
    """As many weights as the models have: torchvision's two, and BERT-base with two outputs."""
    found = drawn.measured(name)

    assert len(found) == layers
    assert sum(one.elements for one in found) == elements
    shares = [one.ready_share for one in found]
    assert shares == sorted(shares)
    assert shares[-1] == 1
