"""Device files: what a processor was measured to do, as `netfold calibrate` writes it.

A JSON object; sizes are operations or bytes, times nanoseconds, both rising within a list:

    {"format": "netfold device 1", "name": "…", "threads": 1, "launch_ns": 2100,
     "arithmetic": {"matmul": [[16384, 900], …], "convolution": […], "convolution_backward": […]},
     "memory": [[4096, 150], …],
     "codec": {"launch_ns": 3000, "arithmetic": […], "memory": […]}}

A kernel of PyTorch takes `launch_ns`, its memory traffic and its arithmetic, each by a line between points:
a core does one after the other, so their times add up. `codec` has the rates of encoding and decoding, whose
traffic codecs count themselves. Other keys say how it was measured, and are not read.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from netfold.sim.workload.devices.cost import KINDS
from netfold.sim.workload.devices.roofline import Curve, RooflineDevice

FORMAT = "netfold device 1"
_HINT = "netfold calibrate writes a device file of this machine"
_PS_PER_NS, _NS_MAX = 1000, 10**15  # 11 days
POINTS_MAX = 1000  # of a list


def read_device(text: str) -> RooflineDevice:
    """The device in a file.

    Raises
    ------
    ValueError
        The text is no device file; a hint is on the second line.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"is not JSON\n{_HINT}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"is no device file: its 'format' must be {FORMAT!r}\n{_HINT}")
    arithmetic, codec = found.get("arithmetic"), found.get("codec")
    if not isinstance(arithmetic, dict) or not isinstance(codec, dict):
        raise ValueError(f"'arithmetic' and 'codec' must be objects\n{_HINT}")
    name = found.get("name")
    if not isinstance(name, str):
        raise ValueError(f"'name' must be text\n{_HINT}")
    return RooflineDevice(
        name=name,
        arithmetic=tuple((kind, _curve(arithmetic.get(kind), f"arithmetic.{kind}")) for kind in KINDS),
        memory=_curve(found.get("memory"), "memory"),
        operator_ps=_ps(found.get("launch_ns"), "launch_ns"),
        codec_arithmetic=_curve(codec.get("arithmetic"), "codec.arithmetic"),
        codec_memory=_curve(codec.get("memory"), "codec.memory"),
        launch_ps=_ps(codec.get("launch_ns"), "codec.launch_ns"),
        is_serial=True,
    )


def _curve(found: Any, key: str) -> Curve:
    """The points of a list, in picoseconds."""
    if not isinstance(found, list) or not 0 < len(found) <= POINTS_MAX:
        raise ValueError(f"{key!r} must be a list of 1 to {POINTS_MAX} points [size, nanoseconds]\n{_HINT}")
    points = []
    for point in found:
        if not isinstance(point, list) or len(point) != 2 or not _is_size(point[0]):
            raise ValueError(f"{key!r}: a point is written [size, nanoseconds], found {point!r:.40}\n{_HINT}")
        points.append((point[0], _ps(point[1], key)))
    for one, other in pairwise(points):
        if not (one[0] < other[0] and one[1] <= other[1]):
            raise ValueError(f"{key!r}: sizes must rise, and times not fall, from point to point\n{_HINT}")
    if points[-1][1] <= 0:
        raise ValueError(f"{key!r}: the largest size must take some time\n{_HINT}")
    return Curve(tuple(points))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63


def _ps(value: Any, key: str) -> int:
    """Nanoseconds of a file as picoseconds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _NS_MAX:
        raise ValueError(
            f"{key!r}: a time is a number of nanoseconds, 0 to {_NS_MAX:g}, found {value!r:.40}\n{_HINT}"
        )
    return int(value * _PS_PER_NS + 0.5)
