"""How hot code is compiled.

Two things keep calls cheap, measured on the packet engine (`make bench`, W1, packet-hops/s). Kernels are
compiled without Numba's runtime: they may not allocate, and in return tables are passed without reference
counting (0.8 M with it, 8 M without). Helpers are compiled into their callers, because a real call passes
every table field by field (8 M before, 30 M after).

Compiled code is kept on disk (`cache.py`). Numba takes a quarter of a second to import and the hashes some
milliseconds. Both wait for the first use of a kernel, so a command that only reads a scenario pays for none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from threading import RLock
from types import ModuleType
from typing import Any, TypeVar, cast

from netfold.kernels.cache import folder_of

_OPTIONS: dict[str, Any] = {"nopython": True, "nogil": True, "_nrt": False}

F = TypeVar("F", bound=Callable[..., Any])
_waiting: list[_Deferred] = []  # compiled together at the first use of any
_lock = RLock()
_state = {"is_ready": False}
_compiled_for_calls: list[object] = []  # compiled code lives as long as its object


class _Deferred:
    """A stand-in for a kernel, until any kernel is used.

    The first use makes all kernels, in the order of their definitions. They replace their stand-ins in all
    modules, so later calls have no detour.
    """

    def __init__(self, function: Callable[..., Any], make: Callable[[Any], Any]) -> None:
        self._function, self._make = function, make
        self._made: Any = None
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    def __call__(self, *arguments: Any) -> Any:
        return self._real()(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and inspect ask for attributes that functions lack
            raise AttributeError(name)
        return getattr(self._real(), name)  # Numba itself asks for `_numba_type_`

    def _real(self) -> Any:
        _make_all()
        return self._made

    def make(self) -> None:
        """Make Numba's dispatcher for the function."""
        self._made = self._make(self._function)


def _make_all() -> None:
    with _lock:
        if _state["is_ready"]:
            return
        for deferred in _waiting:
            deferred.make()
        _state["is_ready"] = True
        for module in list(sys.modules.values()):
            held = vars(module) if isinstance(module, ModuleType) else {}
            for name, value in list(held.items()):
                if type(value) is _Deferred:
                    held[name] = value._made
        _waiting.clear()


def _defer(function: F, make: Callable[[F], Any]) -> F:
    with _lock:
        if _state["is_ready"]:
            return cast(F, make(function))
        deferred = _Deferred(function, make)
        _waiting.append(deferred)
        return cast(F, deferred)


def _has_cache(function: Callable[..., Any]) -> bool:
    """Whether code is kept; if so, that of the next function is kept beside that of its module."""
    folder = folder_of(function.__module__)
    if folder is not None:
        _numba().config.CACHE_DIR = str(folder)
    return folder is not None


def _jit(function: Any, **more: Any) -> Any:
    return _numba().jit(cache=_has_cache(function), **_OPTIONS, **more)(function)


def kernel(function: F) -> F:
    """Compile a function that does not allocate."""
    return _defer(function, _jit)


def inlined(function: F) -> F:
    """Compile a function that does not allocate into its callers."""
    return _defer(function, partial(_jit, forceinline=True))


def intrinsic(function: Callable[..., Any]) -> Any:
    """Numba's `intrinsic`, for code that only LLVM can express; import `types` and `ir` inside."""

    def make(plain: Callable[..., Any]) -> Any:
        from numba.extending import intrinsic as made

        return made(plain)

    return _defer(function, make)


def _unchanged(container: Any) -> Any:
    """Mark a tuple for a compiled loop over values of different types."""
    return container


literal_unroll: Any = _defer(_unchanged, lambda plain: _numba().literal_unroll)


def address_of(function: Callable[..., None], signature: Any) -> int:
    """Compile a function for calls by address; it is cached with the kernels, so it is never stale."""
    _make_all()
    compiled = _numba().cfunc(signature, cache=_has_cache(function), _nrt=False)(function)
    _compiled_for_calls.append(compiled)
    return int(compiled.address)


def _numba() -> Any:
    import numba

    return numba
