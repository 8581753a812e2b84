"""SwitchML's aggregation pool on one pipeline: what the switch does with one packet.

As in the released program (p4lang/p4app-switchML, `bitmap_checker`, `workers_counter`, `processor`,
`exponents`). Bitmap, counter, values and exponent are separate registers, as in hardware: after a fault
they can disagree, and then what leaves the switch is wrong. Per slot there are two versions; a worker's
packet for one version clears its bit in the other, which is how a slot is made ready again without a
control plane.

    bitmap before  this worker  counter  values     counter after  verdict
    zero           new          0        overwrite  n − 1          CONSUMED
    zero           new          c > 0    overwrite  c − 1          COMPLETE if c = 1, else CONSUMED   (1)
    non-zero       new          c > 0    merge      c − 1          COMPLETE if c = 1, else CONSUMED
    non-zero       new          0        merge      n − 1          CONSUMED                           (1)
    non-zero       seen         0        read       0              ANSWER: complete, repeat the result
    non-zero       seen         c > 0    read       c              DROPPED: not complete yet

(1) bitmap and counter disagree: only after a fault.

With one worker the counter is bypassed: new is COMPLETE, seen is ANSWER. Values merge as 32-bit
two's-complement ADD that wraps, as OR, or as signed MAX; exponents by signed 8-bit MAX, the first writer
overwriting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from homomorphic.compiled import inlined
from homomorphic.merge import add_words, max_words, or_words

CONSUMED, COMPLETE, ANSWER, DROPPED = 0, 1, 2, 3
ADD, OR, MAX = 0, 1, 2

WORKERS_MAX = 32  # one 32-bit bitmap word


class Registers(NamedTuple):
    """Register arrays. Row `2 · slot + version`; the other version of a row is `row ^ 1`."""

    bitmap: NDArray[np.uint32]  # (rows,)
    counter: NDArray[np.int32]  # (rows,)
    exponent: NDArray[np.int32]  # (rows,) values of an int8
    values: NDArray[np.int32]  # (rows, elements)


def new_registers(slots: int, elements: int) -> Registers:
    """Cleared registers for `slots` slots, two versions each, of `elements` words."""
    rows = 2 * slots
    return Registers(
        bitmap=np.zeros(rows, np.uint32),
        counter=np.zeros(rows, np.int32),
        exponent=np.zeros(rows, np.int32),
        values=np.zeros((rows, elements), np.int32),
    )


@inlined
def mark_worker(bitmap: NDArray[np.uint32], row: int, worker: int) -> bool:
    """Set the worker's bit in this version, clear it in the other; returns whether it was set before."""
    bit = np.uint32(1) << np.uint32(worker)
    was_set = bool(bitmap[row] & bit)
    bitmap[row] |= bit
    bitmap[row ^ 1] &= ~bit
    return was_set


@inlined
def count_worker(counter: NDArray[np.int32], row: int, workers: int, is_new: bool) -> int:
    """Count a new packet down to zero, or look whether the slot is complete; returns the verdict."""
    if workers == 1:
        return COMPLETE if is_new else ANSWER
    count = counter[row]
    if not is_new:
        return ANSWER if count == 0 else DROPPED
    counter[row] = workers - 1 if count == 0 else count - 1
    return COMPLETE if count == 1 else CONSUMED


@inlined
def process_packet(
    registers: Registers,
    row: int,
    worker: int,
    workers: int,
    merge: int,
    exponent: int,
    words: NDArray[np.int32],
) -> int:
    """Take one packet through the pipeline; returns the verdict. `words` may be shorter than the register."""
    is_first = registers.bitmap[row] == 0
    is_new = not mark_worker(registers.bitmap, row, worker)
    verdict = count_worker(registers.counter, row, workers, is_new)
    if not is_new:
        return verdict
    values = registers.values[row, : words.size]
    if is_first:
        for i in range(words.size):
            values[i] = words[i]
        registers.exponent[row] = exponent
        return verdict
    if merge == ADD:
        add_words(values, words)
    elif merge == OR:
        or_words(values, words)
    else:
        max_words(values, words)
    registers.exponent[row] = max(registers.exponent[row], exponent)
    return verdict
