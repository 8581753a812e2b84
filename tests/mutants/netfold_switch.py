"""The switch of deliberate faults; `tests.mutants` puts this file beside the packages of its copy.

NETFOLD_MUTANT is the number of the fault that is on, 0: none. Compiled code reads it from an address that is
bound when the code is loaded, like a symbol of a library: code from the cache, compiled in another process
with another fault, reads the switch of the process that runs it.

NUMBA_CACHE_LOCATOR_CLASSES may name `Locator` here: then a copy whose compiled code has no fault finds what
was compiled for the original.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from llvmlite import binding, ir
from numba import types
from numba.core.caching import UserProvidedCacheLocator
from numba.extending import intrinsic

SYMBOL = "netfold_mutant"

_which = ctypes.c_int64(int(os.environ.get("NETFOLD_MUTANT", "0")))
binding.add_symbol(SYMBOL, ctypes.addressof(_which))


def is_on(number: int) -> bool:
    """Whether a fault is on."""
    return _which.value == number


@intrinsic
def _is_on_compiled(_typing: Any, _number: Any) -> Any:
    """The same in compiled code."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        found = builder.module.globals.get(SYMBOL)
        if found is None:
            found = ir.GlobalVariable(builder.module, ir.IntType(64), SYMBOL)
            found.linkage = "external"
        return builder.icmp_signed("==", builder.load(found), arguments[0])

    return types.boolean(types.int64), generate


is_on_compiled: Callable[[int], bool] = cast(Any, _is_on_compiled)


class Locator(UserProvidedCacheLocator):
    """Looks for compiled code where NETFOLD_ORIGINAL, a folder, has kept that of the same file."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """The folder of a file's code, which Numba names after the file's path."""
        copied = Path(py_file).relative_to(Path(__file__).parent)
        original = str(Path(os.environ["NETFOLD_ORIGINAL"], copied))
        return cast(str, super().get_suitable_cache_subpath(original))  # type: ignore[no-untyped-call]
