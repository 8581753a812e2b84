"""Streaming aggregation on a network that loses nothing, after SHARP (Graham et al., ISC 2020).

Nothing is sent twice, so a slot needs one version only and is free as soon as it is complete.

    bitmap before  this child  values     bitmap after            verdict
    zero           new         overwrite  {child}; empty if n = 1  COMPLETE if n = 1, else CONSUMED
    non-zero       new         merge      gains it; empty if all   COMPLETE if all n, else CONSUMED
    non-zero       seen        read       unchanged                DROPPED: only after a fault
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.compiled import inlined
from netfold.switch.registers import COMPLETE, CONSUMED, DROPPED, MERGE, OVERWRITE, READ


@inlined
def process_packet(
    slots: NDArray[Any], row: int, child: int, children: int, exponent: int
) -> tuple[int, int]:
    """Take one packet through the switch; returns its verdict and what its words do to the values."""
    slot = slots[row]
    bit = np.uint32(1) << np.uint32(child)
    before = slot.bitmap
    if before & bit:
        return DROPPED, READ
    slot.bitmap = before | bit
    slot.exponent = exponent if before == 0 else max(slot.exponent, exponent)
    action = OVERWRITE if before == 0 else MERGE
    full = np.uint32((np.uint64(1) << np.uint64(children)) - np.uint64(1))
    if slot.bitmap != full:
        return CONSUMED, action
    slot.bitmap = np.uint32(0)
    return COMPLETE, action
