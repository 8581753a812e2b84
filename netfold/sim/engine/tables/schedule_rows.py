"""Row types of schedules that are under way. But for `SCHEDULE`, a schedule has tables of its own."""

from __future__ import annotations

import numpy as np

from netfold.sim.engine.tables.addresses import view_of

# One row per schedule that is open; `number` is the engine's.
SCHEDULE = np.dtype(
    [
        ("number", "i4"),
        ("is_open", "i4"),
        ("job", "i4"),
        ("workers_count", "i4"),
        ("chunks", "i4"),
        ("transfers_count", "i4"),
        ("operation", "i8"),  # in keyed draws
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
        ("lanes_count", "i4"),
        ("merge", "i4"),  # number of the merge; or `COUNTED`, `ASKED`
        # … and the words
        ("ends", "i8"),  # where the chunks begin
        ("result", "i8"),
        ("table", "i8"),  # TABLE_ADD: of codes
        ("merge_ps", "i8"),  # 0: merges take no time
        ("lane_bits", "i4"),
        ("lifted_words", "i4"),  # merged words for each word of a worker
        ("scratch_bytes", "i8"),  # of one buffer
        ("scratch_free", "i8"),  # address of a buffer, whose first word is that of the next; 0: none
        ("scratch_next", "i8"),  # the part of the last block that was never used
        ("scratch_end", "i8"),
        ("scratch_count", "i8"),  # free buffers
        # flows
        ("timeout_ps", "i8"),
        ("window", "i4"),
        ("ack_every", "i4"),
        ("elements", "i4"),
        ("overhead_bytes", "i4"),
        ("first_bytes", "i4"),
        ("last_bytes", "i4"),
        ("ack_bytes", "i4"),
        ("waits_for_loss", "i4"),
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
        ("first_waiter", "i8"),  # in `waiters`, by number; they end where those of the next transfer begin
        ("merges", "i4"),
        ("lane", "i4"),
        ("follows", "i4"),
        ("first_follower", "i4"),
        ("next_follower", "i4"),  # another one that follows the same transfer
        ("channel", "i4"),  # of its source and target
    ],
    align=True,
)

# A transfer under way.
TRANSFER = np.dtype(
    [
        ("link", "i8"),  # the next in the engine's queue, or of those that arrived before their worker began
        ("behind", "i4"),  # the next in its lane
        ("waits", "i4"),  # transfers that it still waits for
        ("stage", "i4"),
        ("packets", "i4"),
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
        ("workers", "i4"),  # that contributed to it
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
        ("rank", "i4"),  # in its job
        ("has_begun", "i4"),
        ("left", "i4"),  # transfers to it that are not processed
        ("asks", "i4"),  # whoever opened the schedule says when its merges end
        ("first_root", "i4"),  # transfers of it that wait for none; they end where the next worker's begin
    ],
    align=True,
)

LANE = np.dtype([("outstanding", "i4"), ("head", "i4"), ("tail", "i4"), ("pad", "i4")], align=True)

planned_at, transfers_at = view_of(PLANNED), view_of(TRANSFER)
cells_at, parties_at, lanes_at = view_of(CELL), view_of(PARTY), view_of(LANE)
