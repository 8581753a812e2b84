"""A binary heap of (time, order): the next event first. One entry per busy link and per armed timer."""

from __future__ import annotations

from homomorphic.compiled import inlined
from sim.engine.state import Table


@inlined
def push(heap: Table, count: int, time_ps: int, order: int, what: int) -> None:
    """Add an entry to a heap of `count` entries; the caller counts."""
    hole = count
    while hole > 0:
        parent = (hole - 1) >> 1
        above = heap[parent]
        if above.time_ps < time_ps or (above.time_ps == time_ps and above.order < order):
            break
        heap[hole].time_ps = above.time_ps
        heap[hole].order = above.order
        heap[hole].what = above.what
        hole = parent
    heap[hole].time_ps = time_ps
    heap[hole].order = order
    heap[hole].what = what


@inlined
def replace_top(heap: Table, count: int, time_ps: int, order: int, what: int) -> None:
    """Put an entry in the place of the first one of a heap of `count` entries."""
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= count:
            break
        if child + 1 < count:
            left, right = heap[child], heap[child + 1]
            is_tied = right.time_ps == left.time_ps
            is_right = (right.time_ps < left.time_ps) | (is_tied & (right.order < left.order))
            child += is_right  # without a jump, which a processor would guess
        below = heap[child]
        if time_ps < below.time_ps or (time_ps == below.time_ps and order < below.order):
            break
        heap[hole].time_ps = below.time_ps
        heap[hole].order = below.order
        heap[hole].what = below.what
        hole = child
    heap[hole].time_ps = time_ps
    heap[hole].order = order
    heap[hole].what = what


@inlined
def drop_top(heap: Table, count: int) -> None:
    """Remove the first entry of a heap of `count` entries; the caller counts."""
    last = heap[count - 1]
    replace_top(heap, count - 1, last.time_ps, last.order, last.what)
