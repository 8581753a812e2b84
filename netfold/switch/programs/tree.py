"""Streaming aggregation on a lossless network, after SHARP (Graham et al., ISC 2020).

No packet is sent twice, so a slot needs only one version and is released when its aggregation completes.

    bitmap before  this child  values     bitmap after            verdict
    zero           new         overwrite  {child}; empty if n = 1  COMPLETE if n = 1, else CONSUMED
    non-zero       new         merge      gains it; empty if all   COMPLETE if all n, else CONSUMED
    non-zero       seen        read       unchanged                DROPPED: only after a fault

Absent workers: as in `switchml.py`. SHARP's packets are unpublished; that its slots can do this is assumed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.compiled import inlined
from netfold.kinds import register
from netfold.switch.program import (
    ROCE_1024,
    ROCE_2048,
    Demand,
    Machine,
    Program,
    ProgramSpec,
    Register,
    bitmap_words,
    contributors,
    fold_rows,
    pairs_of_values,
)
from netfold.switch.registers import CHILDREN_MAX, COMPLETE, CONSUMED, DROPPED, MERGE, OVERWRITE, READ


@inlined
def process_packet(
    slots: NDArray[Any], row: int, child: int, children: int, exponent: int
) -> tuple[int, int]:
    """Take one packet through the switch; returns its verdict and the action of its words."""
    slot = slots[row]
    bit = np.uint64(1) << np.uint64(child)
    before = slot.bitmap
    if before & bit:
        return DROPPED, READ
    slot.bitmap = before | bit
    slot.exponent = exponent if before == 0 else max(slot.exponent, exponent)
    action = OVERWRITE if before == 0 else MERGE
    full = ~np.uint64(0) >> np.uint64(CHILDREN_MAX - children)
    if slot.bitmap != full:
        return CONSUMED, action
    slot.bitmap = np.uint64(0)
    return COMPLETE, action


def _layout(spec: ProgramSpec, demand: Demand) -> Program:
    """A slot is released when its aggregation completes; for lossless networks (SHARP, COM-HPC 2016)."""
    per_pass, pipes = fold_rows(demand)
    members = contributors(demand, demand.slots, after="bitmap")
    registers = (
        Register("bitmap", demand.slots, 32, count=bitmap_words(demand)),
        Register("counter", demand.slots, 32, after=("bitmap",)),
        *members,
        pairs_of_values(
            demand, per_pass, demand.slots, after=("counter", *(member.name for member in members))
        ),
    )
    return Program(spec, demand, registers, per_pass, pipes)


# SHARP's packet format is unpublished: netfold uses RoCE's headers, and 2048 B as in an outstanding operation
# of the Quantum generation.
TREE = register(
    ProgramSpec(
        name="tree",
        title="the tree program",
        summary="one version, a lossless network (SHARP)",
        machine=Machine.TREE,
        layout=_layout,
        released=Demand(workers=8, slots=16, words=512),
        needs_lossless=True,
        fits_fixed=True,
        frames=(ROCE_1024, ROCE_2048),
        frame="roce-2048",
        more_words=(64,),
        may_be_tree=True,
        children_max=CHILDREN_MAX,
        versions=1,
        reopened_by=frozenset({"duplicate"}),  # without retransmissions no packet overtakes its copy
    )
)
