"""Words at an address: how compiled handlers reach gradient buffers of many sizes without copying them.

The engine's face (`engine.Engine`) keeps every array alive and checks its type, size and layout before it hands out the address.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj
from numpy.typing import NDArray


def address_of(array: NDArray[Any]) -> int:
    """Address of an array's first element."""
    return int(array.ctypes.data)


if config.DISABLE_JIT:

    def words_at(address: int, count: int) -> NDArray[np.int32]:
        """`count` int32 words at `address`, as a view."""
        return np.frombuffer((ctypes.c_int32 * count).from_address(address), np.int32)

    def floats_at(address: int, count: int) -> NDArray[np.float32]:
        """`count` float32 words at `address`, as a view."""
        return np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)

    def bytes_at(address: int, count: int) -> NDArray[np.int8]:
        """`count` int8 at `address`, as a view."""
        return np.frombuffer((ctypes.c_int8 * count).from_address(address), np.int8)

else:

    def _view(item: types.Type, item_bytes: int) -> Any:
        """Make an intrinsic (address, count) → array view that owns nothing."""

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
