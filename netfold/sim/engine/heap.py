"""A heap of (time, order): the next event first. One entry per busy link and per armed timer.

Every entry has four below it: half the levels of a binary heap, each of which waits for the cache (LaMarca
and Ladner, ACM JEA 1, 1996).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from netfold.kernels.compiled import inlined
from netfold.sim.engine.memory_access import natural
from netfold.sim.engine.tables import Table, World, empty_world

THIRD_END = 85  # places of the root and three levels


@intrinsic
def _is_before(_typing: Any, _time: Any, _order: Any, _other_time: Any, _other_order: Any) -> Any:
    """Whether (time, order) comes before another: one comparison of 128 bits, without a jump to guess.

    Orders are never negative.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)

        def key(time: Any, order: Any) -> Any:
            high = builder.shl(builder.sext(time, wide), wide(64))
            return builder.or_(high, builder.zext(order, wide))

        return builder.icmp_signed("<", key(*arguments[:2]), key(*arguments[2:]))

    return types.boolean(*[types.int64] * 4), generate


is_before: Callable[[int, int, int, int], bool] = cast(Any, _is_before)


@inlined
def push(heap: Table, count: int, time_ps: int, order: int, what: int) -> None:
    """Add an entry to a heap of `count` entries; the caller counts."""
    hole = natural(count)
    while hole > 0:
        parent = natural((hole - 1) >> 2)
        if is_before(heap[parent].time_ps, heap[parent].order, time_ps, order):
            break
        move(heap, parent, hole)
        hole = parent
    heap[hole].time_ps = time_ps
    heap[hole].order = order
    heap[hole].what = what


@inlined
def replace_top(heap: Table, count: int, time_ps: int, order: int, what: int) -> int:
    """Put an entry in the place of the first one of a heap of `count` entries.

    The hole goes down to the last level, and the entry up from there: a link's next event nearly always
    belongs far below. Returns the place of the third level that an entry has moved up to; with entries below
    it, so have its ancestors been filled.
    """
    hole, last, third = 0, 4, 0
    while last < count:
        left = last - 3 + is_earlier(heap, last - 2, last - 3)
        right = last - 1 + is_earlier(heap, last, last - 1)
        child = left + (right - left) * is_earlier(heap, right, left)
        move(heap, child, hole)
        hole, last = child, 4 * child + 4
        third = child if child < THIRD_END else third
    if last - 3 < count:
        child = last - 3
        for other in range(last - 2, count):
            child += (other - child) * is_earlier(heap, other, child)
        move(heap, child, hole)
        hole = child
    push(heap, hole, time_ps, order, what)
    return int(third)


@inlined
def is_earlier(heap: Table, position: int, other: int) -> bool:
    """Whether the entry at a place comes before another."""
    first, second = heap[natural(position)], heap[natural(other)]
    return is_before(first.time_ps, first.order, second.time_ps, second.order)


@inlined
def drop_top(heap: Table, count: int) -> None:
    """Remove the first entry of a heap of `count` entries; the caller counts."""
    last = heap[count - 1]
    replace_top(heap, count - 1, last.time_ps, last.order, last.what)


@inlined
def move(heap: Table, source: int, target: int) -> None:
    """Copy an entry to another place."""
    source, target = natural(source), natural(target)
    heap[target].time_ps = heap[source].time_ps
    heap[target].order = heap[source].order
    heap[target].what = heap[source].what


# How compiled handlers reach the tables and each other, off the hot path.
#
# An argument of a compiled function is passed field by field, and a `World` has some two hundred fields. A
# kernel that Python calls keeps its tables' descriptors in its stack frame, at `clock[0].at`; what it calls
# gets that address and reads them from there. It is valid until the kernel returns.
#
# Numba compiles all callees of a function into it once more. Rare handlers are therefore compiled apart, and
# called through an address in a table, too (`call_cold`; `loop.py`).


_WORLD_TYPE = numba.typeof(empty_world())


@intrinsic
def _store_tables(_typing: Any, world: Any) -> Any:
    """Copy the tables' descriptors to the frame of the calling kernel; returns their address."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = cgutils.alloca_once(builder, context.get_value_type(world))
        builder.store(arguments[0], pointer)
        return builder.ptrtoint(pointer, ir.IntType(64))

    return types.int64(world), generate


@intrinsic
def _world_at(_typing: Any, _address: Any) -> Any:
    """The tables whose descriptors lie at an address."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = context.get_value_type(_WORLD_TYPE).as_pointer()
        return builder.load(builder.inttoptr(arguments[0], pointer))

    return _WORLD_TYPE(types.int64), generate


@intrinsic
def _call_cold(
    _typing: Any, _handlers: Any, _at: Any, _what: Any, _row: Any, _first: Any, _second: Any
) -> Any:
    """Call the handler of a request: call_cold(handlers, at, what, row, first, second)."""
    integer = ir.IntType(64)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [integer] * 5)
        handlers = builder.inttoptr(arguments[0], function.as_pointer().as_pointer())
        builder.call(builder.load(builder.gep(handlers, [arguments[2]])), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


store_tables: Callable[[World], int] = cast(Any, _store_tables)
world_at: Callable[[int], World] = cast(Any, _world_at)
call_cold: Callable[[int, int, int, int, int, int], None] = cast(Any, _call_cold)
