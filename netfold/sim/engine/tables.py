"""The engine's tables: the rows of each, and the world that holds all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine.congestion_policies import MEMORY
from netfold.sim.engine.engine_data import SEGMENTS_MAX, Sender
from netfold.sim.engine.memory_access import LINE_BYTES, in_lines, view_of
from netfold.switch.programs.atp import Entries, new_entries
from netfold.switch.registers import Registers, new_registers
from netfold.topologies.routing import Steering

# Row types of the engine's tables; indices are −1 where there is none.


CLOCK = np.dtype(
    [
        ("now_ps", "i8"),
        ("order", "i8"),
        ("events", "i8"),
        ("packet_hops", "i8"),
        ("progress", "i8"),  # units completed and flow packets received in order
        ("seed", "u8"),
        ("heap_count", "i8"),
        ("packet_free", "i8"),  # head of the list of free packet rows
        ("packet_free_count", "i8"),
        ("payload_free_count", "i8"),
        ("done_count", "i8"),
        ("log_count", "i8"),
        ("is_logging", "i8"),
        ("is_keyed", "i8"),  # whether packets need keys: there are faults
        ("links_count", "i8"),  # rows of the links table: links, then their priority lanes
        ("at", "i8"),  # address of the tables' descriptors (`heap.py`)
        ("handlers", "i8"),  # address of the addresses of handlers that are compiled apart (`loop.py`)
        ("unfinished", "i8"),  # calls of these that have begun and not ended
        ("overflowed_link", "i8"),  # + 1: a link whose backlog overflows the clock; 0: none
        ("policy", "i8"),  # `PLAIN` and so on
        ("groups_count", "i8"),  # groups of switches, for detours
        ("gap_ps", "i8"),  # a flow has a new flowlet after a longer pause
        ("hosts_count", "i8"),
        ("attention", "i8"),  # whether something is done, or there are transfers in the queue
        ("queue_head", "i8"),  # transfers that may go on: the row of their schedule, and their number
        ("queue_tail", "i8"),
        # What a transfer lacks to go on: 0 nothing, −1 rows of flows, buffers of a row + 1.
        ("short_of", "i8"),
        ("busy_until_ps", "i8"),  # end of the last merge that has begun
        ("flows_count", "i8"),  # opened so far
        ("flow_free", "i8"),  # head of the list of rows of closed flows
        ("lost_ps", "i8"),  # last time that a packet or a register was lost, or a packet struck; −1: never
    ],
    align=True,
)

HEAP = np.dtype([("time_ps", "i8"), ("order", "i8"), ("what", "i8")], align=True)

# One row per node, then one per host whose work takes time: its card, between that and its wire.
NODE = np.dtype(
    [
        ("home", "i4"),  # counted from the first switch: of a host, itself of a switch; card: their number
        ("link", "i4"),  # host: the wire to it; switch: its first link to another switch; card: the wire out
        ("degree", "i4"),  # switch: links to other switches; card: −1 − the link that receives
        ("first_set", "i4"),  # switch: row of `sets`; host: the link its packets leave on; card: its host
    ],
    align=True,
)

# A link has two rows. The second is for its acknowledgements ("lane") and uses only the fields marked so. A
# packet that arrives needs the first cache line, one that is put on the link the first two.
LINK = in_lines(
    [
        ("target", "i4"),  # lane too, and the two below
        ("head", "i4"),  # packets queued or in flight, oldest first
        ("tail", "i4"),
        ("wire", "i4"),  # packet that was on the wire when the rate changed last; see `wire_order`
        ("shift_ps", "i8"),  # `links.due_ps`; lane: always 0
        ("begun_order", "i8"),
        ("delivered_packets", "i8"),
        ("delivered_bytes", "i8"),
        ("sent_packets", "i8"),
        ("sent_bytes", "i8"),
        ("free_at_ps", "i8"),  # all that is queued has left by then; lane: all acknowledgements
        ("byte_ps", "i8"),  # time of one byte where that is a whole number and all there is, else 0
        ("delay_ps", "i8"),
        ("buffer_ps", "i8"),  # longest backlog, as time on the wire; DOWN: the link is down (lane too)
        ("ecn_ps", "i8"),  # backlog from which on packets are marked; NEVER: none
        ("rules", "u8"),  # bit per rule that names the link
        ("busy_ps", "i8"),
        ("backlog_ps_max", "i8"),  # the largest at the present rate; the next field: at earlier rates
        ("backlog_bytes_max", "i8"),
        ("lost_packets", "i8"),
        ("lost_bytes", "i8"),
        ("dropped_packets", "i8"),
        ("dropped_bytes", "i8"),
        ("rate_bps", "i8"),
        ("packet_ps", "i8"),  # more for every packet, and for the first one of a message: a host's work
        ("message_ps", "i8"),
        ("buffer_bytes", "i8"),  # 0: no limit
        ("ecn_bytes", "i8"),  # −1: no marks
        ("queued_bytes", "i8"),  # while the link is down
        ("begun", "i4"),  # the last packet known to have begun, where it is still in line
        ("is_dead", "i4"),  # down, and drops what is put on it
        ("begun_leaves_ps", "i8"),
        ("wire_order", "i8"),  # order of the packet `wire`; −1: none
        ("wire_work", "i8"),  # what was left of it: bits · 10^12
        ("changed_ps", "i8"),
    ]
)

RULE = np.dtype(
    [
        ("threshold", "u8"),  # probability times 2^64
        ("from_ps", "i8"),
        ("until_ps", "i8"),
        ("delay_ps", "i8"),
        ("struck", "i8"),
        ("fate", "i8"),
        # BURST_LOSS
        ("chain", "i8"),  # row of `chains`
        ("threshold_good", "u8"),  # the good state's; `threshold` is the bad state's
        ("to_bad", "u8"),  # probabilities times 2^64 of changing the state
        ("to_good", "u8"),
        ("starts_bad", "u8"),
    ],
    align=True,
)

# One row per (rule of BURST_LOSS, link).
CHAIN = np.dtype([("packets", "i8"), ("is_bad", "i8")], align=True)

# 128 bytes: two cache lines, and in the first what a hop needs. ATP: slot is the unit's place in the window,
# version the entry, transmission the proposed one.
PACKET = np.dtype(
    [
        ("arrive_ps", "i8"),
        ("order", "i8"),
        ("words", "i8"),  # address of its words in the sender's buffer; of a result, in the receiver's
        ("next", "i4"),  # behind it on its link, in the free list, or in a list of early results
        ("target", "i4"),  # node
        ("link", "i4"),  # it is on, or was last
        ("size_bytes", "i4"),
        ("owner", "i4"),  # stream row or flow row
        ("route", "i4"),  # picks among equal ways: see `topologies/ecmp.py`
        ("unit", "i4"),  # unit of a stream; sequence number of a flow
        ("part", "i4"),  # packet within the unit; ACK: cumulative sequence
        ("transmission", "i4"),  # flows: transmission number; streams: PSN
        ("kind", "i1"),
        ("struck", "i1"),  # its outcome on arrival: LOST, or the rule that delays it + 1
        ("hop", "i2"),
        ("key", "u8"),
        ("table", "i8"),  # TABLE_ADD: address of the table that lifts its words, 0 if they are lanes
        ("serial", "i4"),  # number of the stream or flow that owner row then held
        ("attempt", "i4"),
        ("payload", "i4"),  # row of the payload table holding its words, or −1
        ("words_count", "i4"),
        ("slot", "i4"),
        ("version", "i4"),  # slots with timers: generation
        ("receiver", "i4"),  # results: child, or one of the constants below
        ("point", "i4"),  # the point where it is added up, or that it leaves from
        ("bits", "u4"),  # workers it holds, as a bitmap: none in jobs of more than `MEMBERS_MAX`
        ("copy", "u4"),  # the copy of a packet that it is or follows from; 0: none
        ("merge", "i1"),  # number of merge and lanes (`registers.number_of`), like those of other rows
        ("exponent", "i1"),
        ("child", "i1"),  # the child of the point that sent it
        ("is_marked", "i1"),  # ECN
        ("workers", "i2"),  # how many it holds; 0: it is a header, or the result of an expired unit
        ("flags", "i2"),  # ATP
    ],
    align=True,
)

# One row per (job, switch of its tree): "point" in aggregation-streams.md.
POINT = np.dtype(
    [
        ("job", "i4"),
        ("switch", "i4"),
        ("parent", "i4"),  # row, −1: the root
        ("index", "i4"),  # its number in its job: 0 is the root
        ("child", "i4"),  # its index at its parent
        ("children_count", "i4"),
        ("first_child", "i4"),  # row
        ("first_receiver", "i4"),  # row of `children`: who gets a copy of a result for all
        ("receivers_count", "i4"),
        ("loopback_link", "i4"),
        ("register_base", "i4"),  # its switch's slots begin there
        ("route", "i4"),
        # counters
        ("packets", "i8"),
        ("discarded", "i8"),
        ("results", "i8"),
        ("partials", "i8"),
        ("answers", "i8"),
        ("duplicates_dropped", "i8"),
        ("stale_results", "i8"),
        ("timed_out", "i8"),
        ("late", "i8"),
        ("expired", "i8"),
        ("overflowed_words", "i8"),
        ("collisions", "i8"),
        ("evictions", "i8"),
        ("server_packets", "i8"),
        ("requests", "i8"),
        ("installed", "i8"),
        ("forwarded", "i8"),
        ("acknowledged", "i8"),
    ],
    align=True,
)
POINT_COUNTERS = POINT.names[POINT.names.index("packets") :] if POINT.names else ()

# A child of a point, or a receiver of its results: two of the three are −1.
CHILD = np.dtype([("stream", "i4"), ("point", "i4"), ("split", "i4")], align=True)

# One row per (job, split of its results): "split" in aggregation-streams.md.
SPLIT_ROW = np.dtype(
    [
        ("job", "i4"),
        ("switch", "i4"),
        ("index", "i4"),  # its number in its job
        ("route", "i4"),
        ("first_receiver", "i4"),  # row of `children`
        ("receivers_count", "i4"),
        ("packets", "i8"),  # counter: results that it has split
    ],
    align=True,
)

# How somebody sends (`interface.Sender`), in the rows of jobs, schedules, and whoever sends.
SENDER = np.dtype(
    [
        ("timeout_ps", "i8"),
        ("first_timeout_ps", "i8"),
        ("timeout_max_ps", "i8"),
        ("window", "i4"),  # packets
        ("ack_every", "i4"),
        ("waits_for_loss", "i4"),
        ("policy", "i4"),
        ("elements", "i4"),  # of its frame, as the rest: words per packet
        ("overhead_bytes", "i4"),
        ("first_bytes", "i4"),
        ("last_bytes", "i4"),
        ("ack_bytes", "i4"),
    ],
    align=True,
)

JOB = np.dtype(
    [
        ("workers_count", "i4"),
        ("first_stream", "i4"),  # row of worker 0
        ("first_point", "i4"),  # row of the root
        ("points_count", "i4"),
        ("program", "i4"),
        ("overflow", "i4"),
        ("slot_base", "i4"),
        ("window", "i4"),  # units
        ("unit_packets", "i4"),
        ("lanes", "i4"),  # TABLE_ADD: result words per word sent
        ("server", "i4"),  # ATP: row, −1 without
        ("slot_timer_ps", "i8"),
        ("sender", SENDER),
    ],
    align=True,
)

# The first columns of streams and of flows: a sender's window and timer (`sender.py`).
SENDING: list[tuple[str, Any]] = [
    ("sender", SENDER),
    ("serial", "i4"),  # number of the stream or flow that the row holds, or held last
    ("is_open", "i4"),
    ("job", "i4"),
    ("host", "i4"),
    ("first_link", "i4"),  # the link that packets of its host leave on
    ("target", "i4"),  # node
    ("route", "i4"),  # picks among equal ways
    ("units_count", "i4"),  # units that it sends; in a flow, packets
    ("window", "i4"),  # units that may be outstanding, now and at most
    ("window_max", "i4"),
    ("base", "i4"),  # all units before are acknowledged
    ("next", "i4"),  # all units before were sent
    ("transmissions", "i4"),
    ("deadline_ps", "i8"),
    ("armed_ps", "i8"),  # what its timer is set to; NEVER, and the next −1: it is not
    ("armed_order", "i8"),
    ("entry_ps", "i8"),  # time of the row's entry in the heap, and its order; −1: it has none
    ("entry_order", "i8"),
    ("timeouts", "i8"),
    ("retransmitted_packets", "i8"),
    *MEMORY,
]

STREAM = np.dtype(
    [
        *SENDING,
        ("worker", "i4"),
        ("point", "i4"),  # row
        ("child", "i4"),  # its index there
        ("segments_count", "i4"),
        ("completed_count", "i4"),
        ("blocks_count", "i4"),  # scaled streams, else 0
        ("lead", "i4"),
        ("early_head", "i4"),  # early results, oldest first
        ("early_tail", "i4"),
        ("exponents", "i8"),  # address, int8
        ("agreed", "i8"),  # address, int8
        ("timeout_ps", "i8"),  # it may grow
        ("timeouts_threshold", "i8"),
        ("stale_results", "i8"),
        ("resent", "i4"),  # ATP
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
        ("expected_psn", "i4"),  # PSN of the next result packet
        ("switch_expected_psn", "i4"),  # the switch's front end for this worker and queue pair
        ("switch_psn", "i4"),  # next result packet
        (
            "version",
            "i4",
        ),  # version of the unit that is, or will be, outstanding; slots with timers: generation
        ("pad", "i4"),
        ("sent_ps", "i8"),  # the last time that the unit was sent
    ],
    align=True,
)

SEGMENT = np.dtype(
    [
        ("words", "i8"),
        ("result", "i8"),
        ("shared", "i8"),  # shared results, address or 0; the next two are then set
        ("seen", "i8"),  # marks by result packet: whether the shared result holds it
        ("own", "i8"),  # marks by result packet: whether this worker's words differ, and are in its result
        ("words_count", "i8"),
        ("table", "i8"),  # address or 0, as the rest below
        ("holders", "i8"),
        ("floats", "i8"),
        ("is_float", "i8"),
        ("members", "i8"),
        ("first_unit", "i4"),  # counted without the lead
        ("merge", "i4"),
        ("workers", "i4"),  # 0: its worker is absent
        ("bits", "u4"),  # its worker's, of `packet.bits`
        ("all_bits", "u4"),  # all workers', of `packet.bits`
        ("is_partial", "i4"),  # some result packet lacks a worker: `members` is written for each from then on
    ],
    align=True,
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

HOST = np.dtype([("away_until_ps", "i8")], align=True)  # NEVER: it has crashed

DONE = np.dtype([("what", "i4"), ("row", "i4"), ("serial", "i4"), ("pad", "i4")], align=True)
DONE_STREAM, DONE_FLOW, DONE_WORKER, DONE_ASKS = range(4)
"""What is done; the last: a merge is to be carried out."""


# Row types of the tables for ATP.


# One row per (stream, unit modulo the largest window).
PLACE = np.dtype(
    [
        ("transmission", "i4"),
        ("attempt", "i4"),
        ("acknowledged", "i4"),
        ("entry", "i4"),
        ("sent_ps", "i8"),
    ],
    align=True,
)

# The parameter server, one row per job.
SERVER = np.dtype(
    [
        ("host", "i4"),
        ("switch", "i4"),
        ("loopback_link", "i4"),
        ("route", "i4"),
        ("entry_base", "i4"),  # its switch's entries begin there
        ("entries", "i4"),
        ("window_max", "i4"),
        ("proposals", "i8"),  # candidates tried so far
    ],
    align=True,
)

# A server's state of a stream. Rows 2 · server + parity of the stream's number; addresses.
SUM = np.dtype(
    [
        ("serial", "i4"),
        ("has_floats", "i4"),
        ("got", "i8"),  # uint32 (units,)
        ("state", "i8"),  # int8 (units,): flags
        ("replies", "i8"),  # int32 (units,)
        ("proposal", "i8"),  # int32 (units,)
        ("words", "i8"),  # int32 (units, elements)
        ("units_count", "i8"),
    ],
    align=True,
)


# Row types of the tables for flows.


FLOW = in_lines(
    [
        *SENDING,
        ("key", "u8"),
        ("words", "i8"),  # address, 0 if only counted
        ("received", "i8"),
        ("words_count", "i8"),
        ("target_link", "i4"),  # the link that acknowledgements leave on
        ("ack_route", "i4"),
        ("backoff", "i4"),
        ("expected", "i4"),  # receiver
        ("unacknowledged", "i4"),
        ("is_delivered", "i4"),
        ("is_marked", "i4"),  # whether a packet was, since the last acknowledgement
        ("lost_packets", "i4"),  # sprayed packets that are marked as `MISSING` in `flights`
        ("newest", "i4"),  # receiver: the latest transmission that has arrived
        ("reordered_packets", "i8"),
        ("spurious_retransmissions", "i8"),
        ("schedule", "i4"),  # row of the schedule that it is of, and the transfer that it carries; −1: none
        ("transfer", "i4"),
        ("next_free", "i4"),  # row, of one that is closed
        ("opened_ps", "i8"),
        ("flowlet_ps", "i8"),  # when the last packet was steered, and how many flowlets ended before it
        ("flowlets", "i8"),
        ("ack_flowlet_ps", "i8"),
        ("ack_flowlets", "i8"),
    ]
)

MISSING = -1  # `acknowledged` of a sprayed packet that is lost

# One row per (flow, sequence number modulo window).
FLIGHT = np.dtype(
    [("transmission", "i4"), ("attempt", "i4"), ("acknowledged", "i4"), ("received", "i4")], align=True
)


# Row types of schedules that are under way. But for `SCHEDULE`, a schedule has tables of its own.


# One row per schedule that is open; `number` is the engine's.
SCHEDULE = np.dtype(
    [
        ("number", "i4"),
        ("is_open", "i4"),
        ("job", "i4"),
        ("workers_count", "i4"),
        ("chunks", "i4"),
        ("transfers_count", "i4"),
        ("operation", "i8"),  # its number in keyed draws
        ("seed", "u8"),
        ("processed", "i4"),  # transfers
        ("unfinished", "i4"),  # workers
        # addresses: what follows from the schedule alone, …
        ("planned", "i8"),
        ("waiters", "i8"),
        ("roots", "i8"),
        # … what changes, …
        ("transfers", "i8"),
        ("cells", "i8"),
        ("parties", "i8"),
        ("lanes", "i8"),
        ("lane_names", "i8"),  # of operations that share windows: the lane in `lanes` of each lane; else 0
        ("left", "i8"),  # of joint operations: those that each rank has yet to finish; else 0
        ("joint", "i4"),  # the number of joint operations together
        ("lanes_count", "i4"),
        ("merge", "i4"),  # number of the merge; or `COUNTED`, `ASKED`
        # … and the words
        ("ends", "i8"),  # the chunks' first words, by chunk
        ("result", "i8"),
        ("table", "i8"),  # TABLE_ADD: of codes
        ("merge_ps", "i8"),  # 0: merges take no time
        ("lane_bits", "i4"),
        ("lifted_words", "i4"),  # merged words for each word of a worker
        ("scratch_bytes", "i8"),  # size of one buffer
        ("scratch_free", "i8"),  # address of a buffer, whose first word is that of the next; 0: none
        ("scratch_next", "i8"),  # the part of the last block that was never used
        ("scratch_end", "i8"),
        ("scratch_count", "i8"),  # free buffers
        ("sender", SENDER),  # of its flows
    ],
    align=True,
)
COUNTED, ASKED = -1, -2  # no words are carried; they are merged by whoever opened the schedule

# A transfer as the schedule has it.
PLANNED = np.dtype(
    [
        ("source", "i4"),
        ("target", "i4"),
        ("first", "i4"),
        ("count", "i4"),
        ("step", "i8"),
        ("first_waiter", "i8"),  # its first in `waiters`, by number; they end where the next transfer's begin
        ("merges", "i4"),
        ("lane", "i4"),
        ("follows", "i4"),
        ("first_follower", "i4"),
        ("next_follower", "i4"),  # another one that follows the same transfer
        ("channel", "i4"),  # the connection of its source and target
    ],
    align=True,
)

# A transfer under way.
TRANSFER = np.dtype(
    [
        ("link", "i8"),  # the next in the engine's queue, or of those that arrived before their worker began
        ("behind", "i8"),  # the next in its lane, as in `link`
        ("waits", "i4"),  # transfers that it still waits for
        ("stage", "i4"),
        ("packets", "i4"),
        ("pad", "i4"),
    ],
    align=True,
)
# Stages of a transfer. READY, LANE_HEAD, ARRIVED and DUE are in the engine's queue; HELD_BACK has arrived.
WAITING, READY, IN_LANE, LANE_HEAD, SENT, ARRIVED, HELD_BACK, MERGING, DUE, PROCESSED = range(10)

# What a worker holds of a chunk.
CELL = np.dtype(
    [
        ("address", "i8"),
        ("words", "i4"),
        ("workers", "i4"),  # workers that contributed to it
        ("held", "i4"),  # workers that it stands for, absent ones included
        ("state", "i2"),
        ("is_lifted", "i2"),  # TABLE_ADD: it holds lanes
    ],
    align=True,
)
OWN, SCRATCH, FINAL, GIVEN = range(4)  # states of a cell: a worker's words, a buffer, the result, nothing

# A worker of a schedule.
PARTY = np.dtype(
    [
        ("arrived_head", "i8"),  # before it has begun
        ("arrived_tail", "i8"),
        ("host", "i4"),
        ("rank", "i4"),  # its rank in its job
        ("has_begun", "i4"),
        ("left", "i4"),  # transfers to it that are not processed
        ("asks", "i4"),  # whoever opened the schedule says when its merges end
        ("first_root", "i4"),  # transfers of it that wait for none; they end where the next worker's begin
    ],
    align=True,
)

# The transfers that wait in a lane, as in `TRANSFER.link`, and its packets.
LANE = np.dtype([("head", "i8"), ("tail", "i8"), ("outstanding", "i8")], align=True)

planned_at, transfers_at = view_of(PLANNED), view_of(TRANSFER)
cells_at, parties_at, lanes_at = view_of(CELL), view_of(PARTY), view_of(LANE)


# The engine's tables: structured arrays, one row per link, packet, stream, flow.
#
# Rows are read as records in compiled code (`links[i].free_at_ps`), so a packet is one or two cache lines.
# Every table is allocated by the caller; kernels never allocate. Indices are −1 where there is none.


Table = NDArray[Any]  # a structured array

NEVER = np.iinfo(np.int64).max

# Kinds of packets, in groups of handlers (`loop.py`): those of the event loop come first.
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

STEERED = -5  # a flow's packet on its way to a switch that steers it; its slot is its target after that

# How the network's policy steers packets between hosts.
PLAIN, DETOURED, SPRAYED, ADAPTIVE, FLOWLETS, UGAL = map(int, Steering)

# What a heap entry stands for: `what` is its kind and, in the low 32 bits, a row.
ARRIVAL = 0  # a link or its priority lane
KIND_SHIFT = 32
STREAM_TIMER = 1 << 32
FLOW_TIMER = 2 << 32
HELD = 3 << 32  # a packet that waits for its host
SLOT_TIMER = 4 << 32  # a row of the registers
DELAYED = 5 << 32  # a packet that is not in line on its link
MERGED = 6 << 32  # a transfer of a schedule; the schedule's row is in the bits above
ROW = (1 << 32) - 1
SCHEDULE_BITS = 40  # below the schedule's row
LATE = 1 << 62  # added to the order of events that come after all others of their instant

# Requests to the handlers that are compiled apart. The first ones are the kinds of heap entries.
STREAM_EXPIRES, FLOW_EXPIRES, HELD_ARRIVES, SLOT_EXPIRES, DELAYED_ARRIVES, MERGE_ENDS = (
    kind >> KIND_SHIFT for kind in (STREAM_TIMER, FLOW_TIMER, HELD, SLOT_TIMER, DELAYED, MERGED)
)
APPLY_FAULTS, LEAVE_LINE = FOR_FAULTS = 7, 8
LIFT, ADD_LANES = FOR_LANES = 9, 10
UPDATE_SLOT_TIMER, SEND_EMPTY_RESULT = FOR_TIMED_SLOTS = 11, 12
RESEND_UNIT, PARENT_RESULT, WRITE_LOG = 13, 14, 15
AT_SWITCH, AT_SERVER, AT_WORKER, ATP_TIMER = FOR_ATP = 16, 17, 18, 19
GO_ON, DELIVERED, BEGIN, ANSWER = FOR_SCHEDULES = 20, 21, 22, 23
EMIT, RARE_ARRIVES = FOR_RESULTS = 24, 25
MERGE_WITHOUT_OVERFLOW = 26
STEER, ON_STEERED = FOR_STEERING = 27, 28

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
    hosts: Table
    """One row per node."""
    packets: Table
    payloads: NDArray[np.int32]  # (rows, elements)
    payload_uses: NDArray[np.int32]  # (rows,) packets that refer to the row
    payload_free: NDArray[np.int32]  # stack of free rows
    nodes: Table
    choice: NDArray[np.uint16]  # this and the next two: `topologies.routing.Tables`
    sets: NDArray[np.int32]
    ports: NDArray[np.uint16]
    groups: NDArray[np.int32]  # this and the next two: `topologies.routing.Detours`
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
    flow_counts: NDArray[np.int64]
    """(jobs, 3) Packets of closed flows that were sent again, overtaken, and sent again in vain."""
    schedules: Table
    done: Table
    log: Table


def write_sender(row: Any, sender: Sender) -> None:
    """Fill a row's `sender`."""
    for name in SENDER.names or ():
        row.sender[name] = getattr(sender.frame if hasattr(sender.frame, name) else sender, name)


def records(count: int | tuple[int, ...], dtype: np.dtype[Any]) -> Table:
    """A zeroed table whose rows can be read as records with or without compilation."""
    shape = (count,) if isinstance(count, int) else count
    size_bytes = int(np.prod(shape)) * dtype.itemsize
    block = np.zeros(size_bytes + LINE_BYTES, np.uint8)
    start = -block.ctypes.data % LINE_BYTES
    return block[start : start + size_bytes].view(dtype).reshape(shape).view(np.recarray)


def enlarge(table: Table, count: int) -> Table:
    """A longer table that begins with the old rows."""
    larger = records(count, table.dtype)
    larger[: table.size] = table
    return larger


def empty_world() -> World:
    """Tables without rows, except the clock."""
    return World(
        clock=records(1, CLOCK),
        heap=records(0, HEAP),
        links=records(0, LINK),
        rules=records(0, RULE),
        chains=records((0, 1), CHAIN),
        hosts=records(0, HOST),
        packets=records(0, PACKET),
        payloads=np.zeros((0, 1), np.int32),
        payload_uses=np.zeros(0, np.int32),
        payload_free=np.zeros(0, np.int32),
        nodes=records(0, NODE),
        choice=np.zeros((0, 0), np.uint16),
        sets=np.zeros((0, 2), np.int32),
        ports=np.zeros(0, np.uint16),
        groups=np.zeros(0, np.int32),
        first_entry=np.zeros(1, np.int64),
        entries_of_groups=np.zeros(0, np.int32),
        jobs=records(0, JOB),
        points=records(0, POINT),
        children=records(0, CHILD),
        splits=records(0, SPLIT_ROW),
        streams=records(0, STREAM),
        windows=records((0, 1), WINDOW),
        segments=records((0, SEGMENTS_MAX), SEGMENT),
        registers=new_registers(0, 1),
        entries=new_entries(0, 1),
        servers=records(0, SERVER),
        sums=records(0, SUM),
        used=np.zeros((0, 1), np.int8),
        places=records((0, 1), PLACE),
        flows=records(0, FLOW),
        flights=records((0, 1), FLIGHT),
        flow_counts=np.zeros((1, 3), np.int64),
        schedules=records(0, SCHEDULE),
        done=records(64, DONE),
        log=records(0, LOG),
    )
