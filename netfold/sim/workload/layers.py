"""Layers: tensors of a gradient that are never split between buckets.

Names of tensors as PyTorch writes them say the layer: all up to the last dot. In a list of shapes without
names, a tensor of two or more dimensions begins a layer, and the vectors after it (its bias, a norm's
parameters) belong to it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from netfold.homomorphic.message import Tensor

FLOAT_BYTES = 4
ELEMENTS_MAX = 2**53
"""Most elements of all tensors: the largest whole number that YAML gives exactly."""

Shape = tuple[int, ...]

_DIMENSION = r"[1-9][0-9]{0,14}"
SHAPE_PATTERN = rf"([^=,\s]+=)?{_DIMENSION}(x{_DIMENSION})*"
_EXAMPLE = "a tensor is written 128x64, or with its name fc1.weight=128x64"


class Layer(NamedTuple):
    """A layer of a model, as rules of fusion see it."""

    name: str
    elements: int
    ready_share: float
    """Share of the backward pass after which all its gradients are ready, in (0, 1]."""
    backward_flops: int = 0
    """Operations of the backward pass since the layer before was ready; 0: not counted."""
    members: tuple[int, ...] = ()
    """Its tensors, as places in the list that it was made of."""


def tensor_of(name: str, shape: Shape) -> Tensor:
    # PyTorch's style: "conv1.weight" is a tensor of the layer "conv1".
    return Tensor(name, shape, name.rpartition(".")[0] or name)


def place_tensors(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """The tensors one after another: each starts where the one before ends."""
    all_tensors = tuple(tensors)
    starts = accumulate((tensor.elements for tensor in all_tensors), initial=0)
    return tuple(tensor._replace(start=start) for tensor, start in zip(all_tensors, starts, strict=False))


def layers_of(
    tensors: Sequence[Tensor], flops: Sequence[int] = (), ready_shares: Sequence[float] = ()
) -> tuple[Layer, ...]:
    """The layers of tensors, in the order in which their last gradient is ready.

    Where it is not known, `ready_share` is the share of gradient elements up to a layer's last tensor. It
    approximates the backward pass by a constant rate of gradient bytes (embedding tables really take less
    time per byte, convolutions more). A tensor without a layer is one of its own.

    Tensors are in gradient-ready order. `flops` are the operations of the backward pass until each of them is
    ready, `ready_shares` its share after which they are, as measured; empty: not known.
    """
    members: dict[str, list[int]] = {}
    for index, tensor in enumerate(tensors):
        members.setdefault(tensor.layer or tensor.name, []).append(index)
    stops = list(accumulate(tensor.elements for tensor in tensors))
    layers, done = [], 0
    for name, indices in sorted(members.items(), key=lambda item: item[1][-1]):
        elements = sum(tensors[index].elements for index in indices)
        until = flops[indices[-1]] if flops else 0
        share = ready_shares[indices[-1]] if ready_shares else stops[indices[-1]] / stops[-1]
        layers.append(Layer(name, elements, share, until - done, tuple(indices)))
        done = until
    return tuple(layers)


def read_tensors(items: Sequence[str | int]) -> tuple[Tensor, ...]:
    """Tensors as a user writes them: 128x64 or 128, or with names fc1.weight=128x64.

    Raises
    ------
    ValueError
        An item is no shape, a name appears twice, only some have names, or there are too many elements; a
        hint is on the second line.
    """
    names: list[str] = []
    shapes: list[Shape] = []
    for item in items:
        text = str(item)
        if isinstance(item, bool) or not re.fullmatch(SHAPE_PATTERN, text):
            raise ValueError(f"cannot read the tensor {text!r}\n{_EXAMPLE}")
        name, _, shape = text.rpartition("=")
        names.append(name)
        shapes.append(tuple(map(int, shape.split("x"))))
    if (elements := sum(map(math.prod, shapes))) > ELEMENTS_MAX:
        raise ValueError(f"the tensors have {elements:,} elements\nuse {ELEMENTS_MAX:,} at most")
    return named_tensors(names, shapes) if any(names) else unnamed_tensors(shapes)


def named_tensors(names: Sequence[str], shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
    if not all(names):
        index = next(index for index, name in enumerate(names) if not name)
        shape = "x".join(map(str, shapes[index]))
        raise ValueError(f"the tensor {shape} has no name, others have one\nname all tensors, or none")
    if twice := next((name for index, name in enumerate(names) if name in names[:index]), None):
        raise ValueError(f"the name {twice!r} appears twice\ngive each tensor a name of its own")
    return place_tensors(map(tensor_of, names, shapes))


def unnamed_tensors(shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
    """Tensors `tensor0`, `tensor1` … of the layers `layer0`, `layer1` …, one after another."""
    tensors, layer = [], -1
    for index, shape in enumerate(shapes):
        layer += len(shape) > 1 or index == 0
        tensors.append(Tensor(f"tensor{index}", shape, f"layer{layer}"))
    return place_tensors(tensors)


def given_tensors(shapes: Mapping[str, Shape] | Sequence[Shape | str | int] | str) -> tuple[Tensor, ...]:
    # Shapes by name, shapes, or texts as `read_tensors` reads them.
    if isinstance(shapes, Mapping):
        return read_tensors([f"{name}={_text(shape)}" for name, shape in shapes.items()])
    items: Sequence[Shape | str | int] = shapes.split(",") if isinstance(shapes, str) else shapes
    return read_tensors([_text(item) if isinstance(item, tuple | list) else item for item in items])


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def is_vector(tensors: Sequence[Tensor]) -> bool:
    # Nothing is known of its layers.
    return len(tensors) == 1 and len(tensors[0].shape) == 1


def elements_of(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.elements for tensor in tensors)


# Profiles of models: the layers of a gradient, and when in a backward pass each was ready, as measured.
#
# A profile is a JSON file:
#
#     {"description": "ResNet-50, …", "layers": [["fc", 2049000, 1.902], ["layer4.2.conv3", 1052672, 3.47],
#     …]}
#
# Each layer is its name, its elements, and the milliseconds from the start of the backward pass until its
# last gradient was ready; layers are in that order. Only the shares of the time count: a device says how
# long the pass takes.


_PROFILE_EXAMPLE = (
    'a layer is written ["fc", 2049000, 1.902]: name, elements, milliseconds until it was ready'
)
LAYERS_MAX = 10_000
_MS_MAX = 10**9  # 11 days
_SHOWN = 60  # characters of a wrong layer, in an error


def read_profile(text: str, shrink: int = 1) -> tuple[tuple[Tensor, ...], tuple[float, ...]]:
    """The layers of a model, one tensor each, in gradient-ready order; elements are divided by `shrink`.

    With the share of the backward pass after which each is ready, in (0, 1]; the last is 1.

    Raises
    ------
    ValueError
        The text is no profile; a hint is on the second line.
    """
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"is not JSON\n{_PROFILE_EXAMPLE}") from None
    rows = parsed.get("layers") if isinstance(parsed, dict) else None
    if not isinstance(rows, list) or not 0 < len(rows) <= LAYERS_MAX:
        raise ValueError(f"has no list 'layers' of 1 to {LAYERS_MAX} layers\n{_PROFILE_EXAMPLE}")
    names: set[str] = set()
    before_ms, tensors, times_ms = 0.0, [], []
    for index, row in enumerate(rows):
        name, elements, ready_ms = _layer(index, row)
        if name in names:
            raise ValueError(f"layer {index}: the name {name!r} appears twice\ngive each layer its own name")
        if ready_ms < before_ms:
            raise ValueError(
                f"layer {index}: {name!r} is ready at {ready_ms:g} ms, before the layer before it\n"
                "list layers in the order in which they are ready"
            )
        names.add(name)
        tensors.append(Tensor(name, (-(-elements // shrink),), name))
        times_ms.append(ready_ms)
        before_ms = ready_ms
    if sum(tensor.elements for tensor in tensors) > ELEMENTS_MAX:
        raise ValueError(f"its layers have too many elements\nuse {ELEMENTS_MAX:,} at most")
    if times_ms[0] <= 0:
        raise ValueError(f"layer 0: {tensors[0].name!r} is ready at 0 ms\nuse the time after which it is")
    return place_tensors(tensors), tuple(time_ms / times_ms[-1] for time_ms in times_ms)


def _layer(index: int, row: Any) -> tuple[str, int, float]:
    """Name, elements and time of a layer of the file."""
    is_layer = isinstance(row, list) and len(row) == 3 and not any(isinstance(cell, bool) for cell in row)
    if is_layer:
        name, elements, ready_ms = row
        is_layer = isinstance(name, str) and name != "" and isinstance(elements, int) and elements > 0
        is_layer = is_layer and isinstance(ready_ms, int | float) and 0 <= ready_ms <= _MS_MAX
    if not is_layer:
        raise ValueError(f"layer {index}: cannot read {json.dumps(row)[:_SHOWN]}\n{_PROFILE_EXAMPLE}")
    return name, elements, float(ready_ms)
