"""Count-Sketch: every element adds its signed value to one counter in each of several rows.

Charikar, Chen, Farach-Colton, "Finding frequent items in data streams", ICALP 2002. Row j has its own hashes:

    counter_j(i) = (start_j(i // lanes) + i mod lanes) mod columns,     sign_j(i) = ±1

An estimate of element i is the median over rows of sign_j(i) times its counter. With an odd number of rows it
is right on average. In each row its variance is at most (‖v‖² − v_i²) / columns.

What is ours: `lanes` neighbours share a start, so they have neighbouring counters. One hash serves them
all, and memory is read by lines. Two elements of different blocks share a counter with a probability of 1 /
columns, as with independent hashes, because a start may be any counter; two of the same block never do.
Every element has its own sign in every row. So means and variances are those of independent hashes. What
differs: where two blocks meet, many of their elements do.

A start and the signs are the two halves of one SplitMix64, a bijection that mixes all bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.compiled import inlined, kernel
from netfold.homomorphic.kernels.keyed import mix_plain, splitmix64
from netfold.homomorphic.kernels.threads import in_parallel
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.sketch.hashing import scaled

LANES = 32  # that share a hash; as many as there are signs in half of it
_TASK_BLOCKS = 1 << 13  # of a thread's task
_AT_A_TIME = 1 << 11  # elements

_ONE, _HALF = np.uint64(1), np.uint64(32)


class Rows(NamedTuple):
    """The rows of a sketch; the same at all workers."""

    columns: int
    lanes: int  # LANES, or 1 where rows are shorter than that
    keys: NDArray[np.uint64]  # (rows,)

    @property
    def counters(self) -> int:
        """Counters of the whole sketch."""
        return self.columns * self.keys.size


def make_rows(rows: int, columns: int, key: int) -> Rows:
    """Rows whose hashes depend on a key and on the number of the row."""
    keys = np.array([mix_plain(key, row) for row in range(rows)], np.uint64)
    return Rows(columns, LANES if columns >= LANES else 1, keys)


def count(rows: Rows, values: Gradient) -> Gradient:
    """The sketch of some values, `(rows · columns,)`, row by row."""
    sketch = np.zeros((rows.keys.size, rows.columns + rows.lanes - 1), np.float32)

    def add(first: int, last: int) -> None:
        for row in range(first, last):
            add_row(rows.keys[row], rows.columns, rows.lanes, values, sketch[row])

    in_parallel(add, rows.keys.size)
    # Blocks that begin in the last counters have run over the end: those lanes belong to the first counters.
    beyond = sketch[:, rows.columns :]
    with np.errstate(over="ignore", invalid="ignore"):  # as in the kernel; the caller looks at the counters
        sketch[:, : rows.lanes - 1] += beyond
    return np.ascontiguousarray(sketch[:, : rows.columns]).reshape(-1)


def estimate(rows: Rows, sketch: Gradient, elements: int) -> Gradient:
    """The medians of all elements, `(elements,)`, from a sketch of finite counters."""
    table = sketch.reshape(rows.keys.size, rows.columns)
    table = np.concatenate([table, table[:, : rows.lanes - 1]], axis=1)
    estimates = np.empty(elements, np.float32)
    task = _TASK_BLOCKS * rows.lanes

    def write(first: int, last: int) -> None:
        own = np.empty((rows.keys.size, _AT_A_TIME), np.float32)
        write_medians(rows, table, first * task // rows.lanes, estimates[first * task : last * task], own)

    in_parallel(write, -(-elements // task))
    return estimates


@inlined
def _start_of(bits: np.uint64, columns: int) -> np.uint64:
    """The counter of a block's first lane."""
    start: np.uint64 = scaled(bits >> _HALF, np.uint64(columns))
    return start


@inlined
def _sign_of(bits: np.uint64, lane: int) -> np.float32:
    """The sign of one lane, from the low half of a hash."""
    bit = (np.uint32(bits) >> np.uint32(lane)) & np.uint32(1)
    return np.float32(1) - np.float32(bit << np.uint32(1))


@kernel
def add_row(key: np.uint64, columns: int, lanes: int, values: Gradient, row: Gradient) -> None:
    """Add signed values to one row, which has `lanes` − 1 counters more than columns."""
    whole = values.size // LANES if lanes == LANES else 0
    first = np.uint64(0)
    for block in range(whole):
        bits = splitmix64(key + np.uint64(block))
        start = _start_of(bits, columns)
        for lane in range(LANES):
            counter = start + np.uint64(lane)
            row[counter] += values[first + np.uint64(lane)] * _sign_of(bits, lane)
        first += np.uint64(LANES)
    for i in range(LANES * whole, values.size):
        bits = splitmix64(key + np.uint64(i // lanes))
        lane = i % lanes
        row[_start_of(bits, columns) + np.uint64(lane)] += values[i] * _sign_of(bits, lane)


@kernel
def write_medians(
    rows: Rows, table: NDArray[np.float32], first_block: int, estimates: Gradient, own: NDArray[np.float32]
) -> None:
    """Write the medians of the elements from a block on.

    `table` has `lanes` − 1 counters more than columns in each row: its first ones again. The scratch `own` is
    `(rows, any number of whole blocks)`: so much is written at a time, and stays in the cache.
    """
    size = own.shape[1]
    for begin in range(0, estimates.size, size):
        part = estimates[begin : begin + size]
        block = first_block + begin // rows.lanes
        for row in range(own.shape[0]):
            _read_row(rows.keys[row], rows.columns, rows.lanes, table[row], block, own[row])
        for turn in range(own.shape[0]):  # odd-even transposition: sorts all columns at once
            for row in range(turn % 2, own.shape[0] - 1, 2):
                _exchange(own[row], own[row + 1])
        median = own[own.shape[0] // 2]
        for i in range(part.size):
            part[i] = median[i]


@kernel
def _read_row(
    key: np.uint64, columns: int, lanes: int, row: Gradient, first_block: int, signed: Gradient
) -> None:
    """Write one row's estimates of whole blocks."""
    if lanes == 1:
        for i in range(signed.size):
            bits = splitmix64(key + np.uint64(first_block + i))
            signed[i] = row[_start_of(bits, columns)] * _sign_of(bits, 0)
        return
    first = np.uint64(0)
    for block in range(signed.size // LANES):
        bits = splitmix64(key + np.uint64(first_block + block))
        start = _start_of(bits, columns)
        for lane in range(LANES):
            signed[first + np.uint64(lane)] = row[start + np.uint64(lane)] * _sign_of(bits, lane)
        first += np.uint64(LANES)


@kernel
def _exchange(low: Gradient, high: Gradient) -> None:
    """Exchange the elements that are in descending order."""
    for i in range(low.size):
        a, b = low[i], high[i]
        low[i] = a if a < b else b
        high[i] = b if a < b else a
