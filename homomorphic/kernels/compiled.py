"""How hot code is compiled, said once.

Two things keep calls cheap, measured on the packet engine (`make bench`, W1, packet-hops/s). Kernels are
compiled without Numba's runtime: they may not allocate, and in return tables are passed without reference
counting (0.8 M with it, 8 M without). Helpers are compiled into their callers: a call that is left passes
every table field by field (8 M before, 30 M after).

Compiled code is cached on disk. Numba looks only at the file a function stands in, not at what it calls, so
after an edit or an upgrade it could run stale code; the cache folder is therefore named by a hash of all
kernel sources.

Numba takes a quarter of a second to import and the hash some milliseconds, so both wait until a kernel is
used: what only reads a scenario never pays for them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, TypeVar, cast

_KEPT = 4  # cache folders of earlier sources that are left alone


def _sources_hash() -> str:
    root = Path(__file__).parents[2]
    digest = hashlib.sha256(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())  # other code, other folder
    for folder in ("homomorphic", "switch", "sim/engine"):
        for source in sorted((root / folder).rglob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _use_cache_folder() -> None:
    base = Path(os.environ.get("NUMBA_CACHE_DIR") or _user_cache() / "kernels")
    folder = base / f"netfold-{_sources_hash()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted(base.glob("netfold-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return  # Numba then finds a place of its own
    for stale in others[_KEPT + 1 :]:
        shutil.rmtree(stale, ignore_errors=True)
    _numba().config.CACHE_DIR = str(folder)


def _user_cache() -> Path:
    if "NETFOLD_CACHE" in os.environ:
        return Path(os.environ["NETFOLD_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "netfold"


_OPTIONS: dict[str, Any] = {"nopython": True, "cache": True, "nogil": True, "_nrt": False}

F = TypeVar("F", bound=Callable[..., Any])
_waiting: list[_Deferred] = []  # made with the first that is used
_lock = RLock()
_state = {"is_ready": False}


class _Deferred:
    """A kernel before the first one is used: it stands in for what Numba makes of a function.

    When any is used, all are made, in the order of their definitions, and take the places of their stand-ins
    in the modules that hold them, so that code that calls them meets no detour.
    """

    def __init__(self, function: Callable[..., Any], make: Callable[[Any], Any]) -> None:
        self._function, self._make = function, make
        self._made: Any = None
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    def __call__(self, *arguments: Any) -> Any:
        return self._real()(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copying and inspecting ask for much that functions do not have
            raise AttributeError(name)
        return getattr(self._real(), name)  # Numba itself asks for `_numba_type_`

    def _real(self) -> Any:
        _make_all()
        return self._made

    def make(self) -> None:
        """Have Numba take the function."""
        self._made = self._make(self._function)


def _make_all() -> None:
    with _lock:
        if _state["is_ready"]:
            return
        _use_cache_folder()
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


def _jit(function: Any, **more: Any) -> Any:
    return _numba().jit(**_OPTIONS, **more)(function)


def kernel(function: F) -> F:
    """Compile a function that never allocates."""
    return _defer(function, _jit)


def inlined(function: F) -> F:
    """Compile a function that never allocates into its callers."""
    return _defer(function, partial(_jit, forceinline=True))


def intrinsic(function: Callable[..., Any]) -> Any:
    """Numba's decorator of that name, for what only LLVM can say; `types` and `ir` are imported inside."""

    def make(plain: Callable[..., Any]) -> Any:
        from numba.extending import intrinsic as made

        return made(plain)

    return _defer(function, make)


def _unchanged(container: Any) -> Any:
    """What a compiled loop over a tuple goes through, so that its values may be of different types."""
    return container


literal_unroll: Any = _defer(_unchanged, lambda plain: _numba().literal_unroll)


def _numba() -> Any:
    import numba

    return numba
