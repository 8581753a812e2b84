"""Slots with a deadline: they answer with a partial sum if they wait too long for stragglers.

After Trio-ML (Yang et al., SIGCOMM 2022: timer threads emit partial results of aged blocks) and Canary (De
Sensi et al., FGCS 2024: best-effort timeouts). A packet carries the *generation* of its slot, the
number of units completed there before; a slot has a row for even generations and one for odd ones.

    its generation  row emitted  this worker  values     verdict
    newer           –            –            overwrite  COMPLETE if n = 1, else CONSUMED; a timer starts
    same            no           new          merge      COMPLETE if all n, else CONSUMED
    same            no           seen         read       DROPPED
    same            yes          in it        read       ANSWER: it has lost the result
    same            yes          not in it    read       LATE: too late to be added; it gets the result
    older           –            –            read       EXPIRED: the row has a newer generation; no result

The timer of a row that is not emitted emits it.

Absent workers: as in `switchml.py`. Their headers count in the bitmap, so a row that has all packets is
complete; the holders in its result are those whose words it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import Merge
from netfold.kernels.compiled import inlined
from netfold.kinds import register
from netfold.switch.program import (
    UDP_256,
    UDP_1024,
    Demand,
    Machine,
    Program,
    ProgramOption,
    ProgramSpec,
    Register,
    Timeouts,
    contributors,
    fold_rows,
    pairs_of_values,
)
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
def process_packet(
    slots: NDArray[Any], row: int, worker: int, workers: int, generation: int
) -> tuple[int, int]:
    """Take one packet through the switch; returns its verdict and the action of its words."""
    slot = slots[row]
    bit = np.uint64(1) << np.uint64(worker)
    if generation < slot.generation:
        return EXPIRED, READ
    if generation == slot.generation:
        is_seen = slot.bitmap & bit != 0
        if slot.is_emitted:
            return (ANSWER if is_seen else LATE), READ
        if is_seen:
            return DROPPED, READ
        slot.bitmap |= bit
        action = MERGE
    else:
        slot.generation = generation
        slot.bitmap = bit
        slot.is_emitted = 0
        action = OVERWRITE
    full = (np.uint64(1) << np.uint64(workers)) - np.uint64(1)
    if slot.bitmap != full:
        return CONSUMED, action
    slot.is_emitted = 1
    return COMPLETE, action


def _layout(spec: ProgramSpec, demand: Demand) -> Program:
    per_pass, pipes = fold_rows(demand)
    rows = spec.versions * demand.slots
    members = contributors(demand, rows, after="emitted")
    registers = (
        Register("generation", rows, 32),
        Register("bitmap", rows, 32, after=("generation",)),
        Register("deadline", rows, 64, lanes=2, after=("generation",)),
        Register("emitted", rows, 8, after=("bitmap",)),
        *members,
        pairs_of_values(demand, per_pass, rows, after=("emitted", *(member.name for member in members))),
    )
    return Program(spec, demand, registers, per_pass, pipes)


def _is_waiting(slots: Any) -> Any:
    return (slots.generation >= 0) & (slots.is_emitted == 0)


TIMED = register(
    ProgramSpec(
        name="timed",
        title="the timed program",
        summary="slots that answer with a partial sum when a timer expires (Trio-ML)",
        machine=Machine.TIMED,
        layout=_layout,
        released=Demand(workers=8, slots=512, words=64),
        has_timers=True,
        merges=frozenset({Merge.ADD, Merge.FLOAT_ADD}),
        frames=(UDP_256, UDP_1024),
        frame="udp-1024",
        timeouts=Timeouts(usual_ps=10 * 10**9),
        is_waiting=_is_waiting,
        options=(
            ProgramOption(
                "slot_timer",
                "time",
                None,
                "longest time that a slot waits for workers before it answers with a partial sum; required.",
                missing="needs a slot timer",
                example="1ms",
                zero="must be more than 0\na slot that does not wait aggregates nothing",
            ),
        ),
    )
)
