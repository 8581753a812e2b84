"""How hot code is compiled.

Two things keep calls cheap, measured on the packet engine (`make bench`, W1, packet-hops/s). Kernels are
compiled without Numba's runtime: they may not allocate, and in return tables are passed without reference
counting (0.8 M with it, 8 M without). Helpers are compiled into their callers, because a real call passes
every table field by field (8 M before, 30 M after).

Compiled code is kept on disk (see below). Numba takes a quarter of a second to import and the hashes some
milliseconds. Both wait for the first use of a kernel, so a command that only reads a scenario pays for none.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, partial
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, TypeVar, cast

from netfold.kernels.compile_progress import wait_for_others

# Where compiled code is kept on disk.
#
# Numba checks only the file of a function, not the functions that it calls, so after an edit or an upgrade
# it could run stale code. Therefore the code of a module is kept in a folder that is named by a hash of its
# source and of all sources of netfold that it imports, directly or not. An edit compiles again what depends
# on it, and nothing else.


_ROOT = Path(__file__).parents[1]
"""Folder of the package netfold."""
_KEPT = 4  # folders of earlier sources of a module to keep
_IMPORT = re.compile(
    r"^\s*from\s+(netfold[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)|^\s*import\s+(netfold[\w.]*)", re.M
)
_NAME = re.compile(r"\w+")


def folder_of(module: str) -> Path | None:
    """The folder for the code of a loaded module, made if need be; None if it cannot be written."""
    try:
        base = Path(os.environ.get("NUMBA_CACHE_DIR") or _user_cache() / "kernels")
        folder = base / f"{module}-{_hash(module)}"
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            _remove_stale(base, module)
        if os.access(folder, os.W_OK):  # Numba writes a file to try
            return folder
        _say_unkept(f"{base} cannot be written")
    except (OSError, RuntimeError) as error:  # a RuntimeError: there is no home
        _say_unkept(str(error))
    return None


@cache
def _say_unkept(why: str) -> None:
    print(
        f"compiled kernels cannot be kept: {why}; each process compiles its own, which takes a minute. "
        "Set NETFOLD_CACHE to a folder that can be written",
        file=sys.stderr,
    )


def _remove_stale(base: Path, module: str) -> None:
    folders = sorted(base.glob(f"{module}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for stale in folders[_KEPT + 1 :]:
        shutil.rmtree(stale, ignore_errors=True)


def _user_cache() -> Path:
    if "NETFOLD_CACHE" in os.environ:
        return Path(os.environ["NETFOLD_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "netfold"


@cache
def _hash(module: str) -> str:
    digest = hashlib.sha256(os.environ.get("NUMBA_BOUNDSCHECK", "").encode())  # bounds checks are other code
    for name in sorted(imported_by(module)):
        digest.update(f"{name}\0{_source(name)}\0".encode())
    return digest.hexdigest()[:16]


def imported_by(module: str) -> set[str]:
    """A module and all modules of netfold that its source imports, directly or not.

    Of a package that is imported its own source counts, and that of the modules which that one imports.
    """
    modules: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in modules and _source(name):
            modules.add(name)
            waiting += _imports(_source(name))
    return modules


@cache
def _imports(source: str) -> list[str]:
    """Modules of netfold that a source may import: each name that it imports may be one."""
    modules = []
    for base, names, plain in _IMPORT.findall(source):
        modules.append(base or plain)
        modules += [f"{base}.{name}" for name in _NAME.findall(names) if base]
    return modules


@cache
def _source(name: str) -> str:
    """The source of a module; empty if there is no such module, or if it is not a file."""
    package, *parts = name.split(".")
    stem = _ROOT.joinpath(*parts)
    loaded = getattr(sys.modules.get(name), "__file__", None)
    places = [stem.with_suffix(".py"), stem / "__init__.py"] if package == "netfold" and parts else []
    for path in [*places, *([Path(loaded)] if loaded else [])]:
        if path.is_file():
            return path.read_text("utf-8")
    return ""


_OPTIONS: dict[str, Any] = {"nopython": True, "nogil": True, "_nrt": False}

F = TypeVar("F", bound=Callable[..., Any])
_waiting: list[_Deferred] = []  # all that nobody has used
_lock = RLock()
_compiled_for_calls: list[object] = []  # compiled code lives as long as its object


class _Deferred:
    """A stand-in for a kernel, until Python uses it or anything is compiled.

    Most kernels are only called by others, in whose kept code they are. What is made replaces its stand-in
    in netfold's modules that know it by its name, so their later calls have no detour.
    """

    def __init__(self, function: Callable[..., Any], make: Callable[[Any], Any]) -> None:
        self._function, self._make = function, make
        self._made: Any = None
        self.__doc__, self.__name__ = function.__doc__, function.__name__

    def __call__(self, *arguments: Any) -> Any:
        return self._real()(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name == "_numba_type_":  # Numba asks, so it compiles what calls this
            _make_all()
        elif name.startswith("__"):  # copy and inspect ask for attributes that functions lack
            raise AttributeError(name)
        return getattr(self._real(), name)

    def _real(self) -> Any:
        with _lock:
            if self._made is None:
                self.make()
                _waiting.remove(self)
                for name, module in list(sys.modules.items()):
                    held = getattr(module, "__dict__", {}) if name.startswith("netfold.") else {}
                    if held.get(self.__name__) is self:
                        held[self.__name__] = self._made
        return self._made

    def make(self) -> None:
        self._made = self._make(self._function)


def _make_all() -> None:
    """Make all kernels, in the order of their definitions: the compiler wants those that a function calls."""
    with _lock:
        if not _waiting:
            return
        for deferred in _waiting:
            deferred.make()
        _waiting.clear()
        for module in list(sys.modules.values()):
            module_names = vars(module) if isinstance(module, ModuleType) else {}
            for name, value in list(module_names.items()):
                if type(value) is _Deferred:
                    module_names[name] = value._made


def _defer(function: F, make: Callable[[F], Any]) -> F:
    deferred = _Deferred(function, make)
    with _lock:
        _waiting.append(deferred)
    return cast(F, deferred)


def _jit(function: Any, **more: Any) -> Any:
    from netfold.kernels.dispatchers import Kernel, keep  # late: it imports Numba

    made: Any = Kernel(function, {}, _OPTIONS | more)
    keep(made, function, folder_of(function.__module__), _make_all)
    return made


def kernel(function: F) -> F:
    # The function may not allocate.
    return _defer(function, _jit)


def inlined(function: F) -> F:
    return _defer(function, partial(_jit, forceinline=True))


def intrinsic(function: Callable[..., Any]) -> Any:
    """Numba's `intrinsic`, for code that only LLVM can express; import `types` and `ir` inside."""

    def make(plain: Callable[..., Any]) -> Any:
        from numba.extending import intrinsic as made

        return made(plain)

    return _defer(function, make)


def _unchanged(container: Any) -> Any:
    return container


# Marks a tuple for a compiled loop over values of different types.
literal_unroll: Any = _defer(_unchanged, lambda plain: _numba().literal_unroll)


def address_of(function: Callable[..., None], signature: Any) -> int:
    """Compile a function for calls by address; it is cached with the kernels, so it is never stale."""
    from netfold.kernels.dispatchers import callback, keep  # late: it imports Numba

    wait_for_others(function)
    compiled = callback(function, signature, _nrt=False)
    keep(compiled, function, folder_of(function.__module__), _make_all)
    compiled.compile()
    _compiled_for_calls.append(compiled)
    return int(compiled.address)


class Handlers:
    """Functions of integers that compiled code calls by number; each is compiled when it is first called.

    Compiled code finds a function's address at its numbers in a table at `address`. Until a function is
    compiled, that is the address of a stand-in in Python, which has it compiled and calls it.
    """

    def __init__(self, numbers: Mapping[Callable[..., None], Sequence[int]], parameters: int) -> None:
        self._functions = {number: function for function in numbers for number in numbers[function]}
        self._numbers, self._parameters = numbers, parameters
        self._kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * parameters)
        self._stand_ins = {number: self._kind(partial(self._call, number)) for number in self._functions}
        self._table = (ctypes.c_int64 * (max(self._functions) + 1))()
        for number, stand_in in self._stand_ins.items():
            self._table[number] = ctypes.cast(stand_in, ctypes.c_void_p).value or 0
        self._is_compiled = dict.fromkeys(self._functions, False)
        self._failure: BaseException | None = None

    @property
    def address(self) -> int:
        return ctypes.addressof(self._table)

    def compile(self, number: int) -> None:
        """Compile a function now, unless it is compiled."""
        if self._is_compiled[number]:
            return
        types: Any = _numba().types
        function = self._functions[number]
        address = address_of(function, types.void(*[types.int64] * self._parameters))
        for request in self._numbers[function]:
            self._table[request], self._is_compiled[request] = address, True

    def _call(self, number: int, *arguments: int) -> None:
        try:
            self.compile(number)
        except BaseException as failure:  # nothing can be raised through compiled code
            self._failure = failure
        else:
            self._kind(self._table[number])(*arguments)

    def raise_failure(self) -> None:
        """Raise what has kept a function that was called from being compiled, an interrupt for example."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def _numba() -> Any:
    import numba

    return numba


# A thread pool for work on ranges of tiles or blocks.
#
# Kernels release Python's lock (`compiled`), so one runs on each core. Each part of the work must write
# separate words. Then results are the same for any number of threads.


VARIABLE = "NETFOLD_THREADS"

_is_part = threading.local()  # has `here` while the thread works on a part


def threads_count() -> int:
    """Number of threads: NETFOLD_THREADS, or one per core.

    Raises
    ------
    ValueError
        The variable is not a whole number of at least 1.
    """
    cores = os.cpu_count() or 1
    text = os.environ.get(VARIABLE, str(cores))
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ValueError(
            f"{VARIABLE} is {text!r}: must be a whole number of at least 1; "
            f"leave it out for one thread on each of {cores} cores"
        )
    return int(text)


def in_parallel(work: Callable[[int, int], None], count: int) -> None:
    """Call `work(first, last)` on ranges that cover `range(count)`, one for each thread.

    The sizes of ranges differ by at most one, and none is empty. The caller's thread takes the first. Within
    a part, `in_parallel` calls `work(0, count)` directly.

    Raises
    ------
    Exception
        The exception of the first range that failed, after all ranges have ended.
    """
    parts = min(1 if hasattr(_is_part, "here") else threads_count(), count)
    if parts <= 1:
        if count > 0:
            work(0, count)
        return
    ends = [count * part // parts for part in range(parts + 1)]
    pool = _pool_of(threads_count() - 1, os.getpid())
    futures = [pool.submit(_on_part, work, *ends[part : part + 2]) for part in range(1, parts)]
    try:
        _on_part(work, *ends[:2])
    finally:
        wait(futures)
    for future in futures:
        future.result()


def _on_part(work: Callable[[int, int], None], first: int, last: int) -> None:
    _is_part.here = True
    try:
        work(first, last)
    finally:
        del _is_part.here


@cache
def _pool_of(threads: int, process: int) -> ThreadPoolExecutor:
    # Threads do not survive a fork, so a child process has another pool.
    return ThreadPoolExecutor(threads, thread_name_prefix="netfold")
