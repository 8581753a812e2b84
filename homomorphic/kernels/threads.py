"""Work on ranges of tiles or blocks, shared by threads that stay for the next time.

Kernels leave Python's lock alone (`compiled`), so as many run at once as there are cores. Whoever shares work
here lets each part write words of its own: results are then the same for any number of threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache

VARIABLE = "NETFOLD_THREADS"

_is_part = threading.local()  # has `here` where the thread works on a part already


def threads_count() -> int:
    """Threads that share work: NETFOLD_THREADS, or one per core.

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
    """Call `work(first, last)` on ranges that together are `range(count)`, one for each thread.

    Ranges are of equal size, give or take one, and none is empty. The caller's thread takes the first. Within
    a part, `in_parallel` calls `work(0, count)` there and then.

    Raises
    ------
    Exception
        What `work` raised on the first range that failed, once all have ended.
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
    """The pool of a process; threads do not survive a fork, so the child has another one."""
    return ThreadPoolExecutor(threads, thread_name_prefix="netfold")
