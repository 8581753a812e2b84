"""The engine's tables: structured arrays, one row per link, packet, stream, flow.

Rows are read as records in compiled code (`links[i].free_at_ps`), so a packet is one or two cache lines.
Every table is allocated by the caller; kernels never allocate. Indices are −1 where there is none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from switch.programs.switchml import Registers

Table = NDArray[Any]  # a structured array

SEGMENTS_MAX = 8
NEVER = np.iinfo(np.int64).max

# What a packet is.
DATA, RESULT, FLOW_DATA, FLOW_ACK = 0, 1, 2, 3
ALL_WORKERS = -1  # a result's receiver before it is replicated

# What run() stopped for.
REACHED, COMPLETED, GROW = 0, 1, 2

CLOCK = np.dtype(
    [
        ("now_ps", "i8"),
        ("order", "i8"),
        ("events", "i8"),
        ("packet_hops", "i8"),
        ("progress", "i8"),  # units completed and flow packets received in order
        ("flow_retransmissions", "i8"),
        ("seed", "u8"),
        ("heap_count", "i8"),
        ("packet_free", "i8"),  # head of the list of free packet rows
        ("packet_free_count", "i8"),
        ("payload_free_count", "i8"),
        ("done_count", "i8"),
        ("log_count", "i8"),
        ("is_logging", "i8"),
        ("is_lossy", "i8"),
        ("links_count", "i8"),  # rows of the links table: links, then their priority lanes
        ("stream_base", "i8"),  # heap entries: lanes, then streams, then flows
        ("flow_base", "i8"),
    ],
    align=True,
)

HEAP = np.dtype([("time_ps", "i8"), ("order", "i8"), ("what", "i8")], align=True)

LINK = np.dtype(
    [
        ("free_at_ps", "i8"),
        ("rate_bps", "i8"),
        ("byte_ps", "i8"),  # time of one byte where that is a whole number, else 0
        ("delay_ps", "i8"),
        ("buffer_ps", "i8"),  # longest backlog, as time on the wire; NEVER: no limit
        ("loss", "u8"),  # probability times 2^64
        ("target", "i4"),
        ("head", "i4"),  # packets in flight, oldest first
        ("tail", "i4"),
        ("in_flight_packets", "i4"),
        ("in_flight_bytes", "i8"),
        ("sent_packets", "i8"),
        ("sent_bytes", "i8"),
        ("delivered_packets", "i8"),
        ("delivered_bytes", "i8"),
        ("lost_packets", "i8"),
        ("lost_bytes", "i8"),
        ("dropped_packets", "i8"),
        ("dropped_bytes", "i8"),
        ("busy_ps", "i8"),
        ("backlog_ps_max", "i8"),
    ],
    align=True,
)

PACKET = np.dtype(
    [
        ("arrive_ps", "i8"),
        ("order", "i8"),
        ("key", "u8"),
        ("words", "i8"),  # address of its words in the sender's buffer; of a result, in the receiver's
        ("next", "i4"),  # behind it on its link, or in the free list
        ("kind", "i4"),
        ("target", "i4"),  # node
        ("size_bytes", "i4"),
        ("route", "i4"),
        ("hop", "i4"),
        ("owner", "i4"),  # stream row or flow row
        ("serial", "i4"),  # number of the stream or flow that owner row then held
        ("unit", "i4"),  # unit of a stream; sequence number of a flow
        ("part", "i4"),  # packet within the unit; ACK: cumulative sequence
        ("attempt", "i4"),
        ("transmission", "i4"),  # flows: transmission number; streams: PSN
        ("payload", "i4"),  # row of the payload table holding its words, or −1
        ("words_count", "i4"),
        ("slot", "i4"),
        ("version", "i4"),
        ("merge", "i4"),
        ("exponent", "i4"),
        ("receiver", "i4"),  # results: worker, or ALL_WORKERS
    ],
    align=True,
)

JOB = np.dtype(
    [
        ("workers_count", "i4"),
        ("first_stream", "i4"),  # row of worker 0
        ("switch", "i4"),
        ("slot_base", "i4"),
        ("window", "i4"),  # units
        ("unit_packets", "i4"),
        ("elements", "i4"),  # words per packet
        ("overhead_bytes", "i4"),
        ("first_bytes", "i4"),
        ("last_bytes", "i4"),
        ("loopback_link", "i4"),
        ("register_base", "i4"),  # of its switch's slots
        ("timeout_ps", "i8"),
        ("first_timeout_ps", "i8"),
        ("timeout_max_ps", "i8"),
        ("packets", "i8"),  # counters of the switch program
        ("results", "i8"),
        ("answers", "i8"),
        ("duplicates_dropped", "i8"),
        ("discarded", "i8"),
    ],
    align=True,
)

STREAM = np.dtype(
    [
        ("job", "i4"),
        ("worker", "i4"),
        ("host", "i4"),
        ("route", "i4"),
        ("serial", "i4"),  # number of the open (or last) stream
        ("is_open", "i4"),
        ("segments_count", "i4"),
        ("units_count", "i4"),
        ("completed_count", "i4"),
        ("blocks_count", "i4"),  # scaled streams, else 0
        ("lead", "i4"),
        ("window", "i4"),  # units; of this stream
        ("exponents", "i8"),  # address, int8
        ("agreed", "i8"),  # address, int8
        ("timeout_ps", "i8"),
        ("armed_ps", "i8"),
        ("armed_order", "i8"),
        ("timeouts", "i8"),
        ("timeouts_threshold", "i8"),
        ("retransmitted_packets", "i8"),
        ("stale_results", "i8"),
    ],
    align=True,
)

# One row per (stream, window slot).
WINDOW = np.dtype(
    [
        ("deadline_ps", "i8"),
        ("unit", "i4"),  # outstanding unit, or −1
        ("attempt", "i4"),
        ("psn", "i4"),  # next to send
        ("parts", "i4"),  # result packets of the unit received in order
        ("expected_psn", "i4"),  # of the next result packet
        ("switch_expected_psn", "i4"),  # the switch's front end for this worker and queue pair
        ("switch_psn", "i4"),  # next result packet
        ("version", "i4"),  # of the unit that is, or will be, outstanding
    ],
    align=True,
)

SEGMENT = np.dtype(
    [
        ("words", "i8"),
        ("result", "i8"),
        ("words_count", "i8"),
        ("first_unit", "i4"),  # counted without the lead
        ("merge", "i4"),
    ],
    align=True,
)

FLOW = np.dtype(
    [
        ("key", "u8"),
        ("words", "i8"),  # address, 0 if only counted
        ("received", "i8"),
        ("words_count", "i8"),
        ("timeout_ps", "i8"),
        ("deadline_ps", "i8"),
        ("armed_order", "i8"),
        ("timeouts", "i8"),
        ("retransmitted_packets", "i8"),
        ("serial", "i4"),
        ("is_open", "i4"),
        ("source", "i4"),
        ("target", "i4"),
        ("route", "i4"),
        ("packets_count", "i4"),
        ("window", "i4"),
        ("ack_every", "i4"),
        ("elements", "i4"),
        ("overhead_bytes", "i4"),
        ("first_bytes", "i4"),
        ("last_bytes", "i4"),
        ("ack_bytes", "i4"),
        ("base", "i4"),
        ("next", "i4"),
        ("transmissions", "i4"),
        ("backoff", "i4"),
        ("expected", "i4"),  # receiver
        ("unacknowledged", "i4"),
        ("pad", "i4"),
    ],
    align=True,
)

# One row per (flow, sequence number modulo window).
FLIGHT = np.dtype(
    [("transmission", "i4"), ("attempt", "i4"), ("acknowledged", "i4"), ("received", "i4")], align=True
)

LOG = np.dtype(
    [
        ("time_ps", "i8"),
        ("order", "i8"),
        ("what", "i4"),
        ("where", "i4"),
        ("owner", "i4"),
        ("unit", "i4"),
        ("part", "i4"),
        ("attempt", "i4"),
    ],
    align=True,
)

DONE = np.dtype([("is_flow", "i4"), ("row", "i4"), ("serial", "i4"), ("pad", "i4")], align=True)


class World(NamedTuple):
    """Everything a handler may touch."""

    clock: Table  # (1,)
    heap: Table
    links: Table
    packets: Table
    payloads: NDArray[np.int32]  # (rows, elements)
    payload_uses: NDArray[np.int32]  # (rows,) packets that refer to the row
    payload_free: NDArray[np.int32]  # stack of free rows
    next_link: NDArray[np.int32]  # (nodes, nodes, ways)
    next_count: NDArray[np.int32]  # (nodes, nodes)
    jobs: Table
    streams: Table
    windows: Table  # (streams, window_max)
    segments: Table  # (streams, SEGMENTS_MAX)
    registers: Registers
    flows: Table
    flights: Table  # (flows, window_max)
    done: Table
    log: Table


def records(count: int | tuple[int, ...], dtype: np.dtype[Any]) -> Table:
    """A zeroed table whose rows can be read as records with or without compilation."""
    return np.zeros(count, dtype).view(np.recarray)
