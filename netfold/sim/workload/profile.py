"""Profiles of models: the layers of a gradient, and when in a backward pass each was ready, as measured.

A profile is a JSON file:

    {"description": "ResNet-50, …", "layers": [["fc", 2049000, 1.902], ["layer4.2.conv3", 1052672, 3.47], …]}

Each layer is its name, its elements, and the milliseconds from the start of the backward pass until its last
gradient was ready; layers are in that order. Only the shares of the time count: a device says how long the
pass takes.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from netfold.homomorphic.round import Tensor
from netfold.sim.workload.layers import ELEMENTS_MAX, placed

_EXAMPLE = 'a layer is written ["fc", 2049000, 1.902]: name, elements, milliseconds until it was ready'
LAYERS_MAX = 10_000
_MS_MAX = 10**9  # 11 days
_SHOWN = 60  # characters of a wrong layer, in an error


class LayerProfile(NamedTuple):
    """The layers of a model, one tensor each, in gradient-ready order."""

    tensors: tuple[Tensor, ...]
    ready_shares: tuple[float, ...]  # of the backward pass, in (0, 1]; the last is 1


def read_profile(text: str, shrink: int = 1) -> LayerProfile:
    """Read a profile; elements are divided by `shrink`, and rounded up.

    Raises
    ------
    ValueError
        The text is no profile; a hint is on the second line.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"is not JSON\n{_EXAMPLE}") from None
    rows = found.get("layers") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not 0 < len(rows) <= LAYERS_MAX:
        raise ValueError(f"has no list 'layers' of 1 to {LAYERS_MAX} layers\n{_EXAMPLE}")
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
    return LayerProfile(placed(tensors), tuple(one / times_ms[-1] for one in times_ms))


def _layer(index: int, row: Any) -> tuple[str, int, float]:
    """Name, elements and time of a layer of the file."""
    is_layer = isinstance(row, list) and len(row) == 3 and not any(isinstance(one, bool) for one in row)
    if is_layer:
        name, elements, ready_ms = row
        is_layer = isinstance(name, str) and name != "" and isinstance(elements, int) and elements > 0
        is_layer = is_layer and isinstance(ready_ms, int | float) and 0 <= ready_ms <= _MS_MAX
    if not is_layer:
        raise ValueError(f"layer {index}: cannot read {json.dumps(row)[:_SHOWN]}\n{_EXAMPLE}")
    return name, elements, float(ready_ms)
