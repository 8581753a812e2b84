"""The event queue against Python's own heap."""

from __future__ import annotations

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.kernels.compiled import kernel
from netfold.sim.engine.tables.heap import drop_top, push, replace_top
from netfold.sim.engine.tables.rows import HEAP
from netfold.sim.engine.tables.world import Table, records

TIMES = st.one_of(st.integers(0, 3), st.integers(0, np.iinfo(np.int64).max))


@kernel
def _push(heap: Table, count: int, time_ps: int, order: int) -> None:
    push(heap, count, time_ps, order, -order)


@kernel
def _replace(heap: Table, count: int, time_ps: int, order: int) -> None:
    replace_top(heap, count, time_ps, order, -order)


@kernel
def _drop(heap: Table, count: int) -> None:
    drop_top(heap, count)


@given(st.lists(st.one_of(st.none(), st.tuples(st.booleans(), TIMES)), max_size=80))
def test_the_first_entry_is_always_the_one_that_comes_first(steps: list[tuple[bool, int] | None]) -> None:
    # A step drops the first entry (None), or adds one: in the place of the first, or beside all others.
    heap, expected = records(len(steps) + 1, HEAP), list[tuple[int, int]]()
    for order, step in enumerate(steps, 1 << 40):
        count = len(expected)
        if step is None:
            if count > 0:
                _drop(heap, count)
                heapq.heappop(expected)
        elif step[0] and count > 0:
            _replace(heap, count, step[1], order)
            heapq.heapreplace(expected, (step[1], order))
        else:
            _push(heap, count, step[1], order)
            heapq.heappush(expected, (step[1], order))
        if expected:
            first = heap[0]
            assert (int(first.time_ps), int(first.order)) == expected[0]
            assert first.what == -first.order
