"""How far compiling has come, and what another process compiles meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

COMPILING = "compiling kernels, once"

_done: set[object] = set()
_known: set[object] = set()
_observers: list[Callable[[int, int], None]] = []
_elsewhere: dict[str, Callable[[], None]] = {}


@contextmanager
def observed(tell: Callable[[int, int], None]) -> Iterator[None]:
    """Whenever a function is compiled, call tell(done, known): how many are, and are known to be needed."""
    _observers.append(tell)
    try:
        yield
    finally:
        _observers.remove(tell)


def note(function: object, called: set[object]) -> None:
    """A function is compiled into others; `called` are all that it calls, itself included."""
    _done.add(function)
    _known.update(called)
    for tell in _observers:
        tell(*counts())


def counts() -> tuple[int, int]:
    return len(_done), len(_known)


@contextmanager
def elsewhere(prefix: str, wait: Callable[[], None]) -> Iterator[None]:
    """Another process compiles what modules with this prefix hold; `wait()` returns when it has ended."""
    _elsewhere[prefix] = wait
    try:
        yield
    finally:
        _elsewhere.pop(prefix, None)


def wait_for_others(module: str) -> None:
    """Wait until no other process compiles kernels of a module."""
    for prefix in [prefix for prefix in _elsewhere if module.startswith(prefix)]:
        _elsewhere.pop(prefix)()
