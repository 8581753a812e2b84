"""ATP's aggregators: hashed entries that jobs share, best effort, with eviction to a parameter server.

As in the released program (in-ATP/ATP, `p4ml.p4`, `registers.p4`; Lao et al., NSDI 2021) on one level. The
hardware handles a packet in two halves, in two linked entries; here they are one.

    entry holds      packet   its bit  count after  values           verdict
    nothing or own   normal   new      below n      overwrite / add  CONSUMED
    nothing or own   normal   new      n            overwrite / add  FORWARD_COMPLETE with all sums
    own              normal   seen     below n      –                DROPPED
    own              normal   seen     n            –                FORWARD_ANSWER with all sums
    own              resend   any      –            add if new       FORWARD_EVICT with what there is; freed
    nothing          resend   –        –            –                COLLIDED (forwarded as it is)
    another's        any      –        –            –                COLLIDED (forwarded as it is)

The server's acknowledgement frees a complete entry. Sums are sticky (see `switch.registers`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import Merge
from netfold.kernels.compiled import inlined
from netfold.kinds import register
from netfold.switch.program import (
    VALUES,
    Demand,
    Format,
    Machine,
    Program,
    ProgramOption,
    ProgramSpec,
    Register,
    Timeouts,
)
from netfold.switch.registers import add_sticky

WORDS_PER_PASS = 31

CONSUMED, FORWARD_COMPLETE, FORWARD_ANSWER, FORWARD_EVICT, DROPPED, COLLIDED = 0, 1, 2, 3, 4, 5
FREE = 0

ENTRY = np.dtype(
    [
        ("identity", "i8"),  # FREE, or its owner: job, stream and unit
        ("bitmap", "u4"),
        ("count", "i4"),
        ("is_marked", "i4"),
        ("pad", "i4"),
        ("last_ps", "i8"),
    ],
    align=True,
)


class Entries(NamedTuple):
    """All aggregators of all switches."""

    rows: NDArray[Any]  # (entries,) ENTRY
    values: NDArray[np.int32]  # (entries, words)


def new_entries(count: int, words: int) -> Entries:
    """Free entries of `words` words each."""
    return Entries(np.zeros(count, ENTRY).view(np.recarray), np.zeros((count, words), np.int32))


@inlined
def process_packet(
    entries: Entries,
    row: int,
    identity: int,
    bits: np.uint32,
    workers: int,
    is_resend: bool,
    words: NDArray[np.int32],
) -> tuple[int, int]:
    """Take one packet through the switch; returns its verdict and how many words overflowed.

    A forwarded packet carries the entry's values and bitmap: the caller copies them, then frees an evicted
    entry.
    """
    entry = entries.rows[row]
    if entry.identity != identity and (is_resend or entry.identity != FREE):
        return COLLIDED, 0
    before = entry.bitmap
    is_new = (bits & ~before) != 0
    overflowed = 0
    values = entries.values[row, : words.size]
    if is_new and before == 0:
        for i in range(words.size):
            values[i] = words[i]
    elif is_new:
        overflowed = add_sticky(values, words)
    entry.identity = identity
    entry.bitmap = before | bits
    if is_resend:
        return FORWARD_EVICT, overflowed
    if is_new:
        entry.count += 1
        return (FORWARD_COMPLETE if entry.count == workers else CONSUMED), overflowed
    return (FORWARD_ANSWER if entry.count == workers else DROPPED), 0


@inlined
def free(entries: Entries, row: int) -> None:
    """Free an entry; its congestion mark stays for its next owner, as in the released program."""
    entry = entries.rows[row]
    entry.identity = FREE
    entry.bitmap = np.uint32(0)
    entry.count = 0


@inlined
def acknowledge(entries: Entries, row: int, identity: int) -> None:
    """The server's acknowledgement of a sum: free the entry, if it still holds that sum."""
    if entries.rows[row].identity == identity:
        free(entries, row)
        entries.rows[row].is_marked = 0


def _layout(spec: ProgramSpec, demand: Demand) -> Program:
    """As released (p4src/): a slot is an aggregator, which takes one entry per pass.

    62 words take two passes of 31; the second pass uses other entries of the same registers.
    """
    per_pass = min(demand.words_per_pass or WORDS_PER_PASS, demand.words)
    repeats = -(-demand.words // per_pass)
    entries = repeats * demand.slots
    registers = (
        Register("id", entries, 32),
        Register("bitmap", entries, 32, after=("id",)),
        Register("ecn", entries, 32, after=("id",)),
        Register("counter", entries, 32, after=("bitmap",)),
        Register(VALUES, entries, 32, after=("counter",), count=per_pass),
    )
    return Program(spec, demand, registers, per_pass, repeats=repeats, reply_passes=repeats, resubmits=True)


ATP = register(
    ProgramSpec(
        name="atp",
        title="ATP",
        summary="hashed entries, and a server for collisions",
        machine=Machine.ATP,
        layout=_layout,
        released=Demand(workers=8, slots=20_000, words=62),
        merges=frozenset({Merge.ADD}),
        adder_bits=(32,),  # its server looks for int32 words at the limit
        overflow="sticky",
        only_overflow="keeps words at the limit, where its server sees them",
        frames=(Format("atp", 62, 14 + 20 + 14 + 12),),  # Ethernet, IPv4, ATP's header and trailer
        frame="atp",
        timeouts=Timeouts(usual_ps=200 * 10**6, first_ps=50 * 10**9, doubles=False),  # p4ml_manager.cc
        has_server=True,
        carries_absence=False,  # its parser takes the words of every packet; entries count packets alone
        reopened_by=frozenset({"duplicate", "reorder", "reboot"}),
        options=(
            ProgramOption(
                "server",
                "text",
                "auto",
                "host of the parameter server; auto takes the first without a worker.",
            ),
            ProgramOption("entries", "count", 20_000, "aggregators of the switch, shared by all jobs on it."),
            ProgramOption(
                "ecn_threshold",
                "size",
                "80KB",
                "a packet is marked if this much waits at a switch port.",
            ),
            ProgramOption("adaptive", "flag", True, "whether marked packets shrink the window."),
        ),
    )
)
