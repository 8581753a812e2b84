"""The buckets of codecs: whole layers, the model's last one first; and the thread that runs their rounds."""

from __future__ import annotations

import gc
import threading
import time

import pytest
import torch
from torch import nn

from netfold.sim.errors import DataError
from netfold.torch.fifo import Fifo
from netfold.torch.layout import Layout, different, make_layout, named
from netfold.torch.state import State


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2), nn.Linear(2, 2))


def layout(bucket_bytes: int, has_names: bool = True) -> tuple[nn.Sequential, Layout]:
    module = model()
    parameters = list(module.parameters())
    names = named(module.named_parameters()) if has_names else {}
    return module, make_layout(parameters, names, bucket_bytes)


def names_of(found: Layout) -> list[list[str]]:
    return [[tensor.name for tensor in bucket.tensors] for bucket in found.buckets]


def test_layers_are_in_the_order_of_backward_and_never_split() -> None:
    """By the parameters' names, whatever order they come in."""
    module, found = layout(1)
    parameters = list(module.parameters())[::-1]

    assert names_of(found) == [[f"{layer}.bias", f"{layer}.weight"] for layer in (4, 3, 1, 0)]
    assert names_of(make_layout(parameters, named(module.named_parameters()), 1)) == names_of(found)
    with pytest.raises(DataError, match=r"a parameter of shape \(8, 8\) that `parameters` does not name"):
        make_layout(parameters[::-1], named(module[3].named_parameters()), 1)
    with pytest.raises(DataError, match=r"torch\.distributed is not ready"):
        State("packed")
    scale = nn.Parameter(torch.tensor(1.0))
    found = make_layout([scale], {}, 1)
    assert found.places[scale].tensor.elements == 1
    assert found.described == [["tensor0 scalar"]]


@pytest.mark.parametrize(
    ("bucket_bytes", "sizes"),
    [
        (24, [6, 18, 16, 72]),  # layer 4 has 24 bytes: full
        (25, [6 + 18, 16, 72]),  # not full: with layer 3 it is
        (65, [6 + 18, 16 + 72]),  # the norm has 64 bytes
        (4 * 112, [112]),
        (4 * 112 + 1, [112]),
    ],
)
def test_a_bucket_is_full_from_a_size_on(bucket_bytes: int, sizes: list[int]) -> None:
    _, found = layout(bucket_bytes)

    assert [bucket.elements for bucket in found.buckets] == sizes


def test_every_parameter_has_a_place_of_its_own() -> None:
    module, found = layout(25)
    taken = [
        (place.bucket, element)
        for place in found.places.values()
        for element in range(place.tensor.place.start, place.tensor.place.stop)
    ]

    assert list(found.places) != []
    assert {id(one) for one in found.places} == {id(one) for one in module.parameters()}
    assert all(place.tensor.shape == tuple(one.shape) for one, place in found.places.items())
    assert len(taken) == len(set(taken)) == 112


def test_without_names_a_matrix_begins_a_layer() -> None:
    """The norm's vectors follow the first matrix."""
    _, found = layout(1, has_names=False)

    assert [[tensor.shape for tensor in bucket.tensors] for bucket in found.buckets] == [
        [(2,), (2, 2)],
        [(2,), (2, 8)],
        [(8,), (8,), (8,), (8, 8)],
    ]


def test_differences_are_named() -> None:
    assert different([["a 2"], ["b 3"]], [["a 2"], ["b 3"]]) == ""
    assert different([["a 2"], ["b 3"]], [["a 2"], ["b 4"]]) == "bucket 1 has b 4 there, b 3 here"
    assert different([["a 2"]], [["a 2"], ["b 4"]]) == "bucket 1 has b 4 there, no tensors here"
    long = [[*"abcde"]]
    assert different([["f"]], long) == "bucket 0 has a, b, c and 2 more there, f here"


def test_jobs_are_done_in_their_order() -> None:
    """The thread ends with its owner."""
    fifo, done = Fifo("test"), list[int]()
    for number in range(50):
        fifo.submit(lambda number=number: (time.sleep(0.001 * (number % 3)), done.append(number)))  # type: ignore[misc]
    fifo.drain()

    assert done == list(range(50))
    fifo.close()
    fifo.drain()
    fifo.submit(lambda: done.append(50))
    assert done[-1] == 50
    own = Fifo("test of an owner")
    own.submit(lambda: None)
    own.drain()
    (thread,) = (one for one in threading.enumerate() if one.name == "test of an owner")
    del own
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
