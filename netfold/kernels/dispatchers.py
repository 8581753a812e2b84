"""Numba's compiler, told to do less: a first run takes a third of the time, and a ninth of the disk.

By default Numba optimises every function, translates it to machine code and stores it, with all that it
calls, even where only compiled functions call it: those are linked with it, and then optimised and translated
as a whole once more. Here only functions that Python calls are. And Numba compiles a function again for every
type of integer that a caller happens to pass. Here compiled functions pass signed integers as int64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numba.core.caching
import numba.core.ccallback
import numba.core.codegen
import numba.core.compiler
import numba.core.dispatcher
import numba.core.registry
import numba.core.sigutils
from numba import types

from netfold.kernels.compile_progress import note, wait_for_others

CORE: Any = numba.core
CONFIG: Any = numba.config
"""What Numba's classes and settings are has no types."""


def _called_by(function: Any) -> set[object]:
    """A function, and all that it calls, directly or not."""
    seen, waiting = set[Any](), [function]
    while waiting:
        caller = waiting.pop()
        if caller not in seen:
            seen.add(caller)
            called = [caller.__globals__.get(name) for name in caller.__code__.co_names]
            waiting += [each.py_func for each in called if isinstance(each, Kernel)]
    return seen


class Kernel(CORE.registry.CPUDispatcher):
    """A compiled function. Python calls it; compiled functions that call it have it in them."""

    @cached_property
    def _part(self) -> Any:
        return _Part(self.py_func, {}, self.targetoptions, _PartPipeline)

    def compile(self, sig: Any) -> Any:
        wait_for_others(self.py_func)
        return super().compile(sig)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        keywords = {name: _widen(kind) for name, kind in kws.items()}
        return self._part.get_call_template(tuple(map(_widen, args)), keywords)

    def get_overload(self, sig: Any) -> Any:
        return self._part.get_overload(sig)


def _widen(integer: Any) -> Any:
    # Unsigned integers stay: wrapping and right shifts depend on their size.
    is_signed = isinstance(integer, types.Integer | types.IntegerLiteral) and getattr(integer, "signed", True)
    return types.int64 if is_signed else integer


class _Part(CORE.registry.CPUDispatcher):
    """A function that is linked into the functions that call it, and neither called by Python nor stored."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        super().__init__(function, *arguments)
        options = self.targetoptions | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        self._compiler = _PartCompiler(function, self.targetdescr, options, {}, _PartPipeline)

    def add_overload(self, cres: Any) -> None:
        self.overloads[tuple(cres.signature.args)] = cres


class _PartCompiler(CORE.dispatcher._FunctionCompiler):
    def _customize_flags(self, flags: Any) -> Any:
        flags.no_compile = True
        return flags

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        # Callers look it up by its entry point, which it lacks: an object of its own stands for it.
        note(self.py_func, _called_by(self.py_func))
        result = super()._compile_core(args, return_type)._replace(entry_point=object())
        self.targetdescr.target_context.insert_user_function(
            result.entry_point, result.fndesc, [result.library]
        )
        return result


class _PartPipeline(CORE.compiler.Compiler):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), "part")


class _PartLibrary(CORE.codegen.JITCodeLibrary):
    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


def callback(function: Any, signature: Any, **options: Any) -> Any:
    return CORE.ccallback.CFunc(function, CORE.sigutils.normalize_signature(signature), {}, options)


def keep(compiled: Any, function: Any, folder: Path | None, before: Callable[[], None]) -> None:
    """Keep the code of a kernel or a callback in a folder, if there is one.

    `before()` is called where there is no such code yet, before it is compiled.
    """
    if folder is None:
        compiled._cache = _Unkept(before)
    else:
        CONFIG.CACHE_DIR = str(folder)
        compiled._cache = _Kept(function, before)


class _Kept(CORE.caching.FunctionCache):
    """Compiled code on disk. To load it takes nothing that only the compiler needs.

    Numba sets the compiler up first, and imports a fifth of a second of modules. It also does so before it
    compiles.
    """

    def __init__(self, function: Any, before: Callable[[], None]) -> None:
        super().__init__(function)
        self._before = before

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        with self._guard_against_spurious_io_errors():
            loaded = self._load_overload(sig, target_context)
            if loaded is not None:
                return loaded
        self._before()
        return None


class _Unkept(CORE.caching.NullCache):
    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before

    def load_overload(self, sig: Any, target_context: Any) -> None:
        self._before()
