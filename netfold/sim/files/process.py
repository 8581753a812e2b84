"""What a process may do: one run at a time, and none after a fork that has left threads behind.

A fork has the memory of its parent, and one thread. The threads of polars, once started, are missing in it,
and polars would wait for them for ever. (Processes that `netfold.sweep` starts are spawned: they begin anew.)
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from pathlib import Path

from netfold.errors import RunError

_THREADS = Path("/proc/self/task")  # of Linux, with their names
_POLARS = re.compile(r"polars-\d")


class _State:
    """Of this process."""

    def __init__(self) -> None:
        self.run_lock = threading.RLock()
        self.had_threads = False  # polars' threads ran at the last fork
        self.lacks_threads = False  # it is a fork of a process with such threads

    def look(self) -> None:
        """Before a fork, in the process that forks."""
        self.had_threads = _has_threads()

    def begin(self) -> None:
        """After a fork, in the new process."""
        self.run_lock = threading.RLock()  # another thread may have had it, which is not here
        self.lacks_threads = self.lacks_threads or self.had_threads


_state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_state.look, after_in_child=_state.begin)


def _has_threads() -> bool:
    """Whether polars has started its threads; where that cannot be seen, whether it is imported."""
    names = []
    for thread in _THREADS.glob("*/comm"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            names.append(thread.read_text("utf-8", "replace"))
    return any(map(_POLARS.match, names)) if names else "polars" in sys.modules


def require_threads() -> None:
    """Refuse to work in a fork that would hang.

    Raises
    ------
    RunError
        This process was forked from one in which polars had run.
    """
    if _state.lacks_threads:
        raise RunError(
            "this process was forked from one that had used netfold or polars: their threads are missing",
            "start it with multiprocessing.get_context('spawn') or 'forkserver', or use netfold.sweep",
        )


def one_run() -> contextlib.AbstractContextManager[object]:
    """The lock of this process's runs: they share PyTorch's generator and settings, which decide results.

    Raises
    ------
    RunError
        As `require_threads`.
    """
    require_threads()
    return _state.run_lock
