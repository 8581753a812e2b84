"""The engine's tables: structured arrays, one row per link, packet, stream, flow.

Rows are read as records in compiled code (`links[i].free_at_ps`), so a packet is one or two cache lines.
Every table is allocated by the caller; kernels never allocate. Indices are −1 where there is none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine.interface import SEGMENTS_MAX
from netfold.sim.engine.tables import atp_rows, flow_rows, rows, schedule_rows
from netfold.sim.engine.tables.lines import LINE_BYTES
from netfold.switch.programs.atp import Entries, new_entries
from netfold.switch.registers import Registers, new_registers

Table = NDArray[Any]  # a structured array

NEVER = np.iinfo(np.int64).max

# Kinds of packets, in groups of handlers (`loop/arrivals.py`): those of the event loop come first.
DATA, RESULT, FLOW_DATA, FLOW_ACK = HOT_KINDS = 0, 1, 2, 3
LAST_HOT_KIND = HOT_KINDS[-1]
LOOP = 4  # a result or partial on its switch's loopback link
SPLIT = 10  # a result on its way to a split, which its `receiver` names
# ATP: from worker to switch, on its loopback, the server's answer; on to the server, its answer at workers.
ATP_DATA, ATP_LOOP, ATP_ACK = KINDS_AT_ATP_SWITCH = 5, 6, 7
ATP_FORWARD, ATP_RESULT = KINDS_AT_ATP_HOSTS = 8, 9

# Receivers of a result other than one child: all children, the parent point; a result on its way to a point.
ALL_CHILDREN, PARENT, TO_POINT = -1, -2, -3
VIA = -4  # a flow's packet on its way to an intermediate switch; its slot is its target after that

# How the network's policy steers packets between hosts.
PLAIN, SPRAYED, DETOURED = 0, 1, 2

# What a heap entry stands for: `what` is its kind and, in the low 32 bits, a row.
ARRIVAL = 0  # a link or its priority lane
STREAM_TIMER = 1 << 32
FLOW_TIMER = 2 << 32
HELD = 3 << 32  # a packet that waits for its host
SLOT_TIMER = 4 << 32  # a row of the registers
DELAYED = 5 << 32  # a packet that is not in line on its link
MERGED = 6 << 32  # a transfer of a schedule; the schedule's row is in the bits above
ROW = (1 << 32) - 1
SCHEDULE_BITS = 40  # below the schedule's row
LATE = 1 << 62  # added to the order of events that come after all others of their instant

# Requests to the handlers that are compiled apart.
APPLY_FAULTS, LIFT, UPDATE_SLOT_TIMER, SEND_EMPTY_RESULT = 0, 1, 2, 3
PARENT_RESULT, SINGLE, WRITE_LOG, LEAVE_LINE = 4, 5, 6, 7
ADD_LANES = 8
AT_SWITCH, AT_SERVER, AT_WORKER, ATP_TIMER = 0, 1, 2, 3
GO_ON, DELIVERED, MERGE_ENDS, BEGIN, ANSWER = 0, 1, 2, 3, 4

DOWN = -1  # a buffer that nothing fits in
LOST = -1  # struck: it keeps its place in line and is never delivered

# Why `run_until` returned.
REACHED, COMPLETED, GROW, PAUSED = 0, 1, 2, 3


class World(NamedTuple):
    """All tables that handlers read and write."""

    clock: Table  # (1,)
    heap: Table
    links: Table
    rules: Table
    chains: Table  # (rules of burst loss, links)
    hosts: Table  # by node
    packets: Table
    payloads: NDArray[np.int32]  # (rows, elements)
    payload_uses: NDArray[np.int32]  # (rows,) packets that refer to the row
    payload_free: NDArray[np.int32]  # stack of free rows
    nodes: Table
    choice: NDArray[np.uint16]  # this and the next two: `topologies.routing.tables.Tables`
    sets: NDArray[np.int32]
    ports: NDArray[np.uint16]
    groups: NDArray[np.int32]  # this and the next two: `topologies.routing.valiant.Detours`
    first_entry: NDArray[np.int64]
    entries_of_groups: NDArray[np.int32]
    jobs: Table
    points: Table
    children: Table
    splits: Table
    streams: Table
    windows: Table  # (streams, window_max)
    segments: Table  # (streams, SEGMENTS_MAX)
    registers: Registers
    entries: Entries
    servers: Table
    sums: Table  # (2 · servers,)
    used: NDArray[np.int8]  # (servers, entries_max) whether a job uses an entry, or was proposed it
    places: Table  # (streams, window_max)
    flows: Table
    flights: Table  # (flows, window_max)
    flow_counts: NDArray[
        np.int64
    ]  # (jobs, 3) of closed flows: packets sent again, overtaken, sent again in vain
    schedules: Table
    done: Table
    log: Table


def records(count: int | tuple[int, ...], dtype: np.dtype[Any]) -> Table:
    """A zeroed table whose rows can be read as records with or without compilation."""
    shape = (count,) if isinstance(count, int) else count
    size_bytes = int(np.prod(shape)) * dtype.itemsize
    block = np.zeros(size_bytes + LINE_BYTES, np.uint8)
    start = -block.ctypes.data % LINE_BYTES
    return block[start : start + size_bytes].view(dtype).reshape(shape).view(np.recarray)


def empty_world() -> World:
    """Tables without rows, except the clock."""
    return World(
        clock=records(1, rows.CLOCK),
        heap=records(0, rows.HEAP),
        links=records(0, rows.LINK),
        rules=records(0, rows.RULE),
        chains=records((0, 1), rows.CHAIN),
        hosts=records(0, rows.HOST),
        packets=records(0, rows.PACKET),
        payloads=np.zeros((0, 1), np.int32),
        payload_uses=np.zeros(0, np.int32),
        payload_free=np.zeros(0, np.int32),
        nodes=records(0, rows.NODE),
        choice=np.zeros((0, 0), np.uint16),
        sets=np.zeros((0, 2), np.int32),
        ports=np.zeros(0, np.uint16),
        groups=np.zeros(0, np.int32),
        first_entry=np.zeros(1, np.int64),
        entries_of_groups=np.zeros(0, np.int32),
        jobs=records(0, rows.JOB),
        points=records(0, rows.POINT),
        children=records(0, rows.CHILD),
        splits=records(0, rows.SPLIT),
        streams=records(0, rows.STREAM),
        windows=records((0, 1), rows.WINDOW),
        segments=records((0, SEGMENTS_MAX), rows.SEGMENT),
        registers=new_registers(0, 1),
        entries=new_entries(0, 1),
        servers=records(0, atp_rows.SERVER),
        sums=records(0, atp_rows.SUM),
        used=np.zeros((0, 1), np.int8),
        places=records((0, 1), atp_rows.PLACE),
        flows=records(0, flow_rows.FLOW),
        flights=records((0, 1), flow_rows.FLIGHT),
        flow_counts=np.zeros((1, 3), np.int64),
        schedules=records(0, schedule_rows.SCHEDULE),
        done=records(64, rows.DONE),
        log=records(0, rows.LOG),
    )
