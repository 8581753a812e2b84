"""Slots that answer with what they have when they have waited too long (stragglers).

After Trio-ML (Yang et al., SIGCOMM 2022: timer threads emit partial results of aged blocks) and Canary (De
Sensi et al., FGCS 2024: best-effort timeouts). A packet carries the *turn* of its slot, how many units were
completed there before; a slot has a row for even turns and one for odd ones.

    turn of the packet  row emitted  this worker  values     verdict
    newer               –            –            overwrite  COMPLETE if n = 1, else CONSUMED; a timer starts
    same                no           new          merge      COMPLETE if all n, else CONSUMED
    same                no           seen         read       DROPPED
    same                yes          in it        read       ANSWER: it has lost the result
    same                yes          not in it    read       LATE: too late to be added; it gets the result
    older               –            –            read       EXPIRED: the row has gone on; there is no result

The timer of a row that is not emitted emits it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.compiled import inlined
from netfold.switch.registers import (
    ANSWER,
    COMPLETE,
    CONSUMED,
    DROPPED,
    EXPIRED,
    LATE,
    MERGE,
    OVERWRITE,
    READ,
)


@inlined
def process_packet(slots: NDArray[Any], row: int, worker: int, workers: int, turn: int) -> tuple[int, int]:
    """Take one packet through the switch; returns its verdict and what its words do to the values."""
    slot = slots[row]
    bit = np.uint32(1) << np.uint32(worker)
    if turn < slot.turn:
        return EXPIRED, READ
    if turn == slot.turn:
        is_seen = slot.bitmap & bit != 0
        if slot.is_emitted:
            return (ANSWER if is_seen else LATE), READ
        if is_seen:
            return DROPPED, READ
        slot.bitmap |= bit
        action = MERGE
    else:
        slot.turn = turn
        slot.bitmap = bit
        slot.is_emitted = 0
        action = OVERWRITE
    full = np.uint32((np.uint64(1) << np.uint64(workers)) - np.uint64(1))
    if slot.bitmap != full:
        return CONSUMED, action
    slot.is_emitted = 1
    return COMPLETE, action
