"""Memory access of compiled handlers: words at an address, indices without checks, prefetches.

Addresses give access to gradient buffers of many sizes without copies. `engine.Engine` keeps every array
alive while its address is in use, and checks type, size and layout before it stores the address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import config, from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from netfold.kernels.compiled import inlined


def address_of(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


def _view(item: types.Type, item_bytes: int) -> Any:
    """Make an intrinsic (address, count) → 1-D array view that owns nothing; for compiled code only."""

    @intrinsic
    def view(_typing: Any, address: Any, count: Any) -> Any:
        array_type = types.Array(item, 1, "C")

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            from numba.np import arrayobj  # late: only the compiler needs it

            array = arrayobj.make_array(array_type)(context, builder)
            size = context.get_constant(types.intp, item_bytes)
            arrayobj.populate_array(
                array,
                data=builder.inttoptr(arguments[0], array.data.type),
                shape=cgutils.pack_array(builder, [arguments[1]]),
                strides=cgutils.pack_array(builder, [size]),
                itemsize=size,
                meminfo=None,
            )
            return array._getvalue()

        return array_type(types.int64, types.int64), generate

    return view


def view_of(rows: np.dtype[Any]) -> Any:
    # An intrinsic (address, count) → table, for compiled code only.
    return _view(from_dtype(rows), rows.itemsize)


words_at = _view(types.int32, 4)
longs_at = _view(types.int64, 8)
floats_at = _view(types.float32, 4)
bytes_at = _view(types.int8, 1)
bits_at = _view(types.uint32, 4)


@intrinsic
def _prefetch_line(_typing: Any, address: Any) -> Any:
    """Prefetch the cache line at an address; it never faults and only affects time."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer_type = ir.IntType(8).as_pointer()
        i32 = ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [pointer_type, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0")
        pointer = builder.inttoptr(arguments[0], pointer_type)
        builder.call(function, [pointer, i32(0), i32(3), i32(1)])
        return _context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def _natural(_typing: Any, index: Any) -> Any:
    """An index that is never negative: the compiler then omits the code that counts from the end.

    Where bounds are checked (`make bounds`), a negative one is an IndexError.
    """

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        is_natural = builder.icmp_signed(">=", arguments[0], arguments[0].type(0))
        if cast(Any, config).BOUNDSCHECK:
            with builder.if_then(builder.not_(is_natural), likely=False):
                context.call_conv.return_user_exc(builder, IndexError, ("a negative index",))
            return arguments[0]
        function_type = ir.FunctionType(ir.VoidType(), [ir.IntType(1)])
        assume = cgutils.get_or_insert_function(builder.module, function_type, "llvm.assume")
        builder.call(assume, [is_natural])
        return arguments[0]

    return index(index), generate


@intrinsic
def _row_address(_typing: Any, table: Any, _row: Any) -> Any:
    """Address of a row of a table; the row may lie outside."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        from numba.np import arrayobj  # late, as above

        array = arrayobj.make_array(table)(context, builder, arguments[0])
        row_bytes = cgutils.unpack_tuple(builder, array.strides)[0]
        return builder.add(builder.ptrtoint(array.data, ir.IntType(64)), builder.mul(arguments[1], row_bytes))

    return types.int64(table, types.int64), generate


natural: Callable[[int], int] = cast(Any, _natural)
row_address: Callable[[Any, int], int] = cast(Any, _row_address)


@inlined
def prefetch(address: int, count: int) -> None:
    """Prefetch `count` 4-byte words."""
    for offset in range(0, 4 * count, 64):
        _prefetch_line(address + offset)  # type: ignore[call-arg]  # Numba passes the first one


@inlined
def prefetch_row(table: Any, row: int, count: int) -> None:
    # Row −1 does no harm.
    prefetch(row_address(table, row), count)


@inlined
def copy_words(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy all of `source` to the beginning of `target` (a slice assignment would allocate)."""
    for i in range(source.size):
        target[i] = source[i]


@inlined
def zero_words(target: NDArray[Any]) -> None:
    for i in range(target.size):
        target[i] = 0


# Rows that begin with a cache line of their own.


LINE_BYTES = 64


def in_lines(fields: list[tuple[str, Any]]) -> np.dtype[Any]:
    """A row of aligned fields that is as long as whole cache lines.

    In a table that begins with a line, no row then lies in a line more than it must.
    """
    row: np.dtype[Any] = np.dtype(cast(Any, fields), align=True)
    placed: Any = row.fields
    names = [name for name, _ in fields]
    return np.dtype(
        {
            "names": names,
            "formats": [row[name] for name in names],
            "offsets": [placed[name][1] for name in names],
            "itemsize": -(-row.itemsize // LINE_BYTES) * LINE_BYTES,
        },
        align=True,
    )
