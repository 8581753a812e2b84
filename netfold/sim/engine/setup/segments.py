"""Check a worker's segments and write them into its stream's row."""

from __future__ import annotations

from typing import Any

import numpy as np

from netfold.homomorphic.message import (
    COUNTER_BITS,
    MERGEABLE,
    WORD_BITS,
    Merge,
    check_lanes,
    words_per_word,
)
from netfold.sim.engine.interface import SEGMENTS_MAX, Overflow, Segment, all_bits
from netfold.sim.engine.setup.allocate import check_words
from netfold.sim.engine.tables.addresses import address_of
from netfold.sim.engine.tables.world import World
from netfold.switch.program import ProgramSpec
from netfold.switch.registers import number_of


def write_segments(
    world: World, program: ProgramSpec, row: int, segments: list[Segment], is_scaled: bool
) -> int:
    """Fill a stream's segments; returns how many units they take."""
    job = world.jobs[world.streams[row].job]
    unit_words = int(job.unit_packets * job.elements)
    if not 1 <= len(segments) <= SEGMENTS_MAX:
        raise ValueError(f"a stream has 1 to {SEGMENTS_MAX} segments, found {len(segments)}")
    if any(segment.merge not in MERGEABLE for segment in segments):
        raise ValueError("GATHER cannot be merged by switches")
    if len({(segment.floats is None, segment.is_float is None) for segment in segments}) > 1:
        raise ValueError("either all segments of a stream have floats to fall back to, or none has")
    units = 0
    for index, segment in enumerate(segments):
        _check_lanes(segment, job, is_whole=is_scaled or program.has_server)
        lanes = words_per_word(segment.merge, segment.lane_bits)
        segment_units = -(-segment.size // unit_words)
        check_words(segment.words, np.float32 if is_scaled else None)
        check_words(segment.result, None, lanes * segment.size)
        entry = world.segments[row, index]
        entry.words, entry.result = address_of(segment.words), address_of(segment.result)
        entry.words_count, entry.first_unit = segment.size, units
        entry.merge = number_of(segment.merge, segment.lane_bits)
        entry.workers, entry.is_partial = 0 if segment.is_absent else 1, 0
        bits = all_bits(int(job.workers_count))
        entry.all_bits = bits
        entry.bits = 0 if segment.is_absent else bits & 1 << int(world.streams[row].worker)
        _write_extras(entry, segment, program, segment_units)
        _write_by_packet(entry, segment, segment_units * int(job.unit_packets))
        units += segment_units
    if units == 0:
        raise ValueError("a stream carries at least one word")
    return units


def _check_lanes(segment: Segment, job: Any, *, is_whole: bool) -> None:
    """Check the lanes of a segment against its table, its job and its adders."""
    bits = segment.lane_bits
    check_lanes(segment.merge, bits, segment.table)
    if is_whole and bits != WORD_BITS:
        raise ValueError(f"scaled streams and programs with a server add whole words, found {bits}-bit lanes")
    if bits == COUNTER_BITS and job.overflow != Overflow.WRAP:
        raise ValueError(f"lanes of {bits} bits need adders that wrap")
    if segment.merge is Merge.TABLE_ADD and words_per_word(segment.merge, bits) != job.lanes:
        raise ValueError(
            f"TABLE_ADD in lanes of {bits} bits gives {words_per_word(segment.merge, bits)} words for each, "
            f"the job has {job.lanes}"
        )


def _write_extras(entry: Any, segment: Segment, program: ProgramSpec, units: int) -> None:
    """Check and write the fields that only some merges and programs need."""
    entry.table = entry.holders = entry.floats = entry.is_float = 0
    if segment.is_absent and segment.words.size:
        raise ValueError(f"an absent worker has no words, found {segment.words.size}")
    if segment.is_absent and not program.carries_absence:
        raise ValueError(f"{program.name} cannot carry the header of an absent worker")
    if segment.merge is Merge.TABLE_ADD:
        if segment.table is None:
            raise ValueError("TABLE_ADD needs the table that lifts its codes")
        check_words(segment.table, np.int32, 16)
        entry.table = address_of(segment.table)
    if program.has_timers:
        if segment.holders is None:
            raise ValueError("slots with timers need room for the holders of each result")
        check_words(segment.holders, np.uint32, units)
        entry.holders = address_of(segment.holders)
    if (segment.floats is None) != (segment.is_float is None):
        raise ValueError("floats and is_float go together")
    if program.has_server and segment.merge is not Merge.ADD:
        raise ValueError("a program with a server merges only by ADD")
    if segment.floats is not None and segment.is_float is not None:
        check_words(segment.floats, np.float32, segment.words.size)
        if segment.is_float.dtype != np.uint8 or segment.is_float.shape != (units,):
            raise ValueError(f"is_float must be uint8 of shape ({units},)")
        entry.floats, entry.is_float = address_of(segment.floats), address_of(segment.is_float)


def _write_by_packet(entry: Any, segment: Segment, packets: int) -> None:
    """Check and write the addresses of what is written by result packet: contributors, shared results."""
    entry.shared = entry.seen = entry.own = entry.members = 0
    if segment.members is not None:
        if segment.members.dtype != np.uint32 or segment.members.shape != (packets, 2):
            raise ValueError(f"members must be uint32 of shape ({packets}, 2)")
        entry.members = address_of(segment.members)
    if (segment.shared is None) != (segment.own is None):
        raise ValueError("shared and own go together")
    if segment.shared is None or segment.own is None:
        return
    check_words(segment.shared.words, segment.result.dtype.type, segment.result.size)
    for marks in (segment.shared.seen, segment.own):
        if marks.dtype != np.uint8 or marks.shape != (packets,):
            raise ValueError(f"seen and own must be uint8 of shape ({packets},)")
    entry.shared = address_of(segment.shared.words)
    entry.seen, entry.own = address_of(segment.shared.seen), address_of(segment.own)
