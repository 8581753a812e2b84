"""Rates of passes over a gradient, and the ratios between them that netfold is held to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from unittest import mock

from netfold.kernels.compiled import VARIABLE

BLOCK_ELEMENTS = 4096
REPEATS = 9

Work = Callable[[int, int], object]


class Bar(NamedTuple):
    """What a load is held to: this many times the rate of another, in the same run."""

    beside: str
    least: float


class Load(NamedTuple):
    """A pass over the elements from `begin` to `end` of a gradient."""

    name: str
    work: Work
    is_divisible: bool = True  # into ranges of whole blocks, for threads
    compressed_bytes: int | None = None  # of the whole gradient
    read_bytes: int = 0  # of an element, of a load that reads and writes next to nothing
    bar: Bar | None = None
    divides_itself: bool = False  # among NETFOLD_THREADS

    def speed(self, rate: float) -> float:
        """What is compared with other loads: the bytes that it reads, if it only reads, or else the rate."""
        return rate * (self.read_bytes or 4) / 4


def rate(load: Load, elements: int, pool: ThreadPoolExecutor | None = None) -> float:
    """Bytes of float32 per second, the best of some runs; on two threads if there is a pool, else on one."""
    ranges, threads, run = [(0, elements)], 1, map
    if pool and load.divides_itself:
        threads = 2
    elif pool and load.is_divisible:
        middle = elements // 2 // BLOCK_ELEMENTS * BLOCK_ELEMENTS
        ranges, run = [(0, middle), (middle, elements)], pool.map
    seconds = []
    with mock.patch.dict(os.environ, {VARIABLE: str(threads)}):
        load.work(0, elements)  # compiles
        for _ in range(REPEATS):
            started = time.perf_counter()
            list(run(lambda one: load.work(*one), ranges))
            seconds.append(time.perf_counter() - started)
    return 4 * elements / min(seconds)


def held(loads: Iterable[Load], rates: Mapping[str, float]) -> list[tuple[str, str, str, str, str]]:
    """Of each load with a bar: its name, the other's, the ratio it is held to, that measured, ok or below."""
    named = {load.name: load for load in loads}
    rows = []
    for load in named.values():
        if load.bar is not None:
            beside, least = load.bar
            ratio = load.speed(rates[load.name]) / named[beside].speed(rates[beside])
            is_held = "ok" if ratio >= least else "below"
            rows.append((load.name, beside.strip(), f"{least:g} ×", f"{ratio:.2f} ×", is_held))
    return rows
