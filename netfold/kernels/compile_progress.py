"""How far compiling has come, and what another process compiles meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
def elsewhere(names: Sequence[str], wait: Callable[[], None]) -> Iterator[None]:
    """Another process compiles functions: `module.name` each; `wait()` returns when it has ended."""
    _elsewhere.update(dict.fromkeys(names, wait))
    try:
        yield
    finally:
        _forget(wait)


def _forget(wait: Callable[[], None]) -> None:
    for name in [name for name, waits in _elsewhere.items() if waits is wait]:
        del _elsewhere[name]


def wait_for_others(function: Callable[..., object]) -> None:
    """Wait until no other process compiles a function."""
    wait = _elsewhere.get(f"{function.__module__}.{function.__name__}")
    if wait is not None:
        _forget(wait)
        wait()
