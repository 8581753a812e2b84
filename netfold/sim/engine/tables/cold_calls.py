"""How compiled handlers reach the tables and each other, off the hot path.

An argument of a compiled function is passed field by field, and a `World` has some two hundred fields. A
kernel that Python calls keeps its tables' descriptors in its stack frame, at `clock[0].at`; what it calls
gets that address and reads them from there. It is valid until the kernel returns.

Numba compiles all callees of a function into it once more. Rare handlers are therefore compiled apart, and
called through an address too (`call_cold`; `cold_handlers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from netfold.sim.engine.tables.world import World, empty_world

_WORLD_TYPE = numba.typeof(empty_world())


@intrinsic
def _store_tables(_typing: Any, world: Any) -> Any:
    """Copy the tables' descriptors to the frame of the calling kernel; returns their address."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, context.get_value_type(world))
        builder.store(arguments[0], place)
        return builder.ptrtoint(place, ir.IntType(64))

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
    _typing: Any, _handler: Any, _at: Any, _what: Any, _row: Any, _first: Any, _second: Any
) -> Any:
    """Call a handler by its address: call_cold(handler, at, what, row, first, second)."""
    integer = ir.IntType(64)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [integer] * 5)
        builder.call(builder.inttoptr(arguments[0], function.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


store_tables: Callable[[World], int] = cast(Any, _store_tables)
world_at: Callable[[int], World] = cast(Any, _world_at)
call_cold: Callable[[int, int, int, int, int, int], None] = cast(Any, _call_cold)
