"""Words at an address: how compiled handlers reach gradient buffers of many sizes without copying them.

The engine's face (`engine.Engine`) keeps every array alive while its address is in use, and checks type, size
and layout before it hands the address out.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj
from numpy.typing import NDArray


def address_of(array: NDArray[Any]) -> int:
    """Address of an array's first element."""
    return int(array.ctypes.data)


def _view(item: types.Type, item_bytes: int) -> Any:
    """Make an intrinsic (address, count) → 1-D array view that owns nothing; for compiled code only."""

    @intrinsic
    def view(_typing: Any, address: Any, count: Any) -> Any:
        array_type = types.Array(item, 1, "C")

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
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


words_at = _view(types.int32, 4)
floats_at = _view(types.float32, 4)
bytes_at = _view(types.int8, 1)
