"""Tables: groups of packets in the order that dispatch relies on, the event queue, checked addresses."""

from __future__ import annotations

import ast
import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config, njit

from netfold.homomorphic.kernels.compiled import kernel
from netfold.sim.engine.tables import world
from netfold.sim.engine.tables.addresses import natural
from netfold.sim.engine.tables.heap import drop_top, push, replace_top
from netfold.sim.engine.tables.rows import HEAP
from netfold.sim.engine.tables.world import Table, records
from tests import ROOT

GROUPS = (
    world.HOT_KINDS,
    (world.LOOP,),
    world.KINDS_AT_ATP_SWITCH,
    world.KINDS_AT_ATP_HOSTS,
    (world.SPLIT,),
)


def test_groups_cover_all_kinds_once() -> None:
    assert [kind for group in GROUPS for kind in group] == list(range(11))
    assert max(world.HOT_KINDS) == world.LAST_HOT_KIND


def test_packets_are_of_these_kinds_alone() -> None:
    """What some code gives a packet as its kind is in a group: a new kind has to be put into one."""
    given = {
        ast.unparse(node.value)
        for path in (ROOT / "sim/engine").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(".kind")
    }
    assert sorted(getattr(world, name) for name in given) == list(range(11))


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


def test_a_negative_index_is_told_where_bounds_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promise to the compiler elsewhere."""
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)

    @njit
    def taken(index: int) -> int:
        return natural(index)

    assert (taken(0), taken(7)) == (0, 7)
    with pytest.raises(IndexError, match=r"^a negative index$"):
        taken(-1)
