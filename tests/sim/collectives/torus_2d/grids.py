"""Grids of workers, and messages that are carried on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netfold.homomorphic.message import Message
from tests.sim.exchanges import torus
from tests.sim.scenes import Exchanged, small_star

EVEN = ((2, 2), (4,) * 4, (5,) * 3)
UNEVEN = ((4, 4, 3), (3, 2), (4, 3), (3, 3, 2, 2), (2, 1))
LINES = ((1,), (2,), (5,), (1, 1), (1, 1, 1, 1))
GRIDS = (*EVEN, *UNEVEN, *LINES)


def carried(messages: Sequence[Message], rows: int, **changes: Any) -> Exchanged:
    workers = len(messages)
    start = torus(workers, rows, **changes)
    return Exchanged(small_star(workers), start).run([[(one,)] for one in messages])
