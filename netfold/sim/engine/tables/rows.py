"""Row types of the engine's tables; indices are −1 where there is none."""

from __future__ import annotations

import numpy as np

from netfold.sim.engine.tables.lines import in_lines

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
        ("at", "i8"),  # address of the tables' descriptors (`cold_calls.py`)
        ("rare", "i8"),  # addresses of handlers that are compiled apart (`cold_handlers.py`)
        ("atp", "i8"),
        ("unfinished", "i8"),  # calls of these that have begun and not ended
        ("overflowed_link", "i8"),  # + 1: a link whose backlog overflows the clock; 0: none
        ("policy", "i8"),  # `world.PLAIN` and so on
        ("groups_count", "i8"),  # of switches, for detours
        ("hosts_count", "i8"),
        ("attention", "i8"),  # whether something is done, or there are transfers in the queue
        ("queue_head", "i8"),  # transfers that may go on: the row of their schedule, and their number
        ("queue_tail", "i8"),
        ("schedules", "i8"),  # address of a handler
        # What a transfer lacks to go on: 0 nothing, −1 rows of flows, buffers of a row + 1.
        ("short_of", "i8"),
        ("busy_until_ps", "i8"),  # when the last merge ends that has begun
        ("flows_count", "i8"),  # opened so far
        ("flow_free", "i8"),  # head of the list of rows of closed flows
        ("lost_ps", "i8"),  # when a packet or a register was last lost, or a packet struck; −1: never
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
        ("shift_ps", "i8"),  # `link.due_ps`; lane: always 0
        ("begun_order", "i8"),
        ("delivered_packets", "i8"),
        ("delivered_bytes", "i8"),
        ("sent_packets", "i8"),
        ("sent_bytes", "i8"),
        ("free_at_ps", "i8"),  # when all that is queued has left; lane: all acknowledgements
        ("byte_ps", "i8"),  # time of one byte where that is a whole number and all there is, else 0
        ("delay_ps", "i8"),
        ("buffer_ps", "i8"),  # longest backlog, as time on the wire; DOWN: the link is down (lane too)
        ("ecn_ps", "i8"),  # backlog from which on packets are marked; NEVER: none
        ("rules", "u8"),  # bit per rule that names the link
        ("busy_ps", "i8"),
        ("backlog_ps_max", "i8"),  # at the present rate; at earlier ones: the next
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
        ("pad", "i4"),
        ("begun_leaves_ps", "i8"),
        ("wire_order", "i8"),  # of `wire`; −1: none
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
        ("threshold_good", "u8"),  # as `threshold`, which is that of the bad state
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
        ("route", "i4"),  # picks among equal ways: see `topologies/network.py`
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
        ("version", "i4"),  # slots with timers: turn
        ("receiver", "i4"),  # results: child, or one of the constants above
        ("point", "i4"),  # where it is added up, or leaves from
        ("bits", "u4"),  # workers it holds, as a bitmap: none in jobs of more than `MEMBERS_MAX`
        ("copy", "u4"),  # which copy of a packet it is or follows from; 0: of none
        ("merge", "i1"),  # number of merge and lanes (`arithmetic.number_of`), like those of other rows
        ("exponent", "i1"),
        ("child", "i1"),  # of the point, that sent it
        ("is_marked", "i1"),  # ECN
        ("workers", "i2"),  # how many it holds; 0: it is a header, or the result of an expired unit
        ("flags", "i2"),  # ATP
    ],
    align=True,
)

# One row per (job, switch of its tree): "point" in README.md.
POINT = np.dtype(
    [
        ("job", "i4"),
        ("switch", "i4"),
        ("parent", "i4"),  # row, −1: the root
        ("index", "i4"),  # in its job: 0 is the root
        ("child", "i4"),  # its index at its parent
        ("children_count", "i4"),
        ("first_child", "i4"),  # row
        ("first_receiver", "i4"),  # row of `children`: who gets a copy of a result for all
        ("receivers_count", "i4"),
        ("loopback_link", "i4"),
        ("register_base", "i4"),  # of its switch's slots
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

# One row per (job, split of its results): "split" in README.md.
SPLIT = np.dtype(
    [
        ("job", "i4"),
        ("switch", "i4"),
        ("index", "i4"),  # in its job
        ("route", "i4"),
        ("first_receiver", "i4"),  # row of `children`
        ("receivers_count", "i4"),
        ("packets", "i8"),  # counter: results that it has split
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
        ("elements", "i4"),  # words per packet
        ("lanes", "i4"),  # TABLE_ADD: result words per word sent
        ("overhead_bytes", "i4"),
        ("first_bytes", "i4"),
        ("last_bytes", "i4"),
        ("server", "i4"),  # ATP: row, −1 without
        ("waits_for_loss", "i4"),
        ("timeout_ps", "i8"),
        ("first_timeout_ps", "i8"),
        ("timeout_max_ps", "i8"),
        ("slot_timer_ps", "i8"),
    ],
    align=True,
)

STREAM = np.dtype(
    [
        ("job", "i4"),
        ("worker", "i4"),
        ("host", "i4"),
        ("route", "i4"),
        ("point", "i4"),  # row
        ("child", "i4"),  # its index there
        ("serial", "i4"),  # number of the open (or last) stream
        ("is_open", "i4"),
        ("segments_count", "i4"),
        ("units_count", "i4"),
        ("completed_count", "i4"),
        ("blocks_count", "i4"),  # scaled streams, else 0
        ("lead", "i4"),
        ("window", "i4"),  # units; of this stream
        ("first_link", "i4"),  # that packets of its host leave on
        ("pad", "i4"),
        ("early_head", "i4"),  # early results, oldest first
        ("early_tail", "i4"),
        ("exponents", "i8"),  # address, int8
        ("agreed", "i8"),  # address, int8
        ("timeout_ps", "i8"),
        ("armed_ps", "i8"),
        ("armed_order", "i8"),
        ("timeouts", "i8"),
        ("timeouts_threshold", "i8"),
        ("retransmitted_packets", "i8"),
        ("stale_results", "i8"),
        # ATP
        ("deadline_ps", "i8"),
        ("window_bytes", "i8"),
        ("base", "i4"),
        ("next", "i4"),
        ("resent", "i4"),
        ("window_end", "i4"),
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
        ("version", "i4"),  # of the unit that is, or will be, outstanding; slots with timers: turn
        ("pad", "i4"),
        ("sent_ps", "i8"),  # when it was last sent
    ],
    align=True,
)

SEGMENT = np.dtype(
    [
        ("words", "i8"),
        ("result", "i8"),
        ("shared", "i8"),  # shared results, address or 0; the next two are then set
        ("seen", "i8"),  # by result packet: whether the shared result holds it
        ("own", "i8"),  # by result packet: whether this worker received other words, which are in its result
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
DONE_STREAM, DONE_FLOW, DONE_WORKER, DONE_ASKS = range(
    4
)  # what is done; the last: a merge is to be carried out
