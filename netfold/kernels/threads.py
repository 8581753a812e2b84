"""A thread pool for work on ranges of tiles or blocks.

Kernels release Python's lock (`compiled`), so one runs on each core. Each part of the work must write
separate words. Then results are the same for any number of threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

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
    """The pool of a process; threads do not survive a fork, so a child process has another pool."""
    return ThreadPoolExecutor(threads, thread_name_prefix="netfold")
