"""The least time of a call over repeats: what else the machine does only adds to it.

With one thread it is CPU time, in which waiting for a busy core does not count; with several it is wall time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

_BATCH_NS = 200_000  # calls are timed together until they take so long
_BATCHES_MIN, _BATCHES_MAX = 5, 60
_BUDGET_NS = 60_000_000  # of all batches of a call together, after the first few


def least_ns(call: Callable[[], object]) -> float:
    """Least time of a call, nanoseconds, of several batches of calls."""
    call()
    count, least = 1, _batch_ns(call, 1)
    while least < _BATCH_NS and count < 1 << 16:
        count *= 2
        least = _batch_ns(call, count)
    found, spent_ns = [least / count], 0.0
    while len(found) < _BATCHES_MIN or (spent_ns < _BUDGET_NS and len(found) < _BATCHES_MAX):
        took_ns = _batch_ns(call, count)
        found.append(took_ns / count)
        spent_ns += took_ns
    return min(found)


def _batch_ns(call: Callable[[], object], count: int) -> int:
    clock = time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns
    start_ns = clock()
    for _ in range(count):
        call()
    return clock() - start_ns
