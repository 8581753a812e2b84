"""Row types of the tables for flows."""

from __future__ import annotations

import numpy as np

from netfold.sim.engine.tables.lines import in_lines

FLOW = in_lines(
    [
        ("key", "u8"),
        ("words", "i8"),  # address, 0 if only counted
        ("received", "i8"),
        ("words_count", "i8"),
        ("timeout_ps", "i8"),
        ("deadline_ps", "i8"),
        ("armed_order", "i8"),
        ("armed_ps", "i8"),
        ("entry_ps", "i8"),  # of the row's entry in the heap, and its order; −1: it has none
        ("entry_order", "i8"),
        ("timeouts", "i8"),
        ("retransmitted_packets", "i8"),
        ("serial", "i4"),
        ("is_open", "i4"),
        ("source", "i4"),
        ("target", "i4"),
        ("source_link", "i4"),  # that packets of its source leave on, and those of its target
        ("target_link", "i4"),
        ("route", "i4"),  # picks among equal ways, and that of its acknowledgements
        ("ack_route", "i4"),
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
        ("is_delivered", "i4"),
        ("job", "i4"),
        ("tolerance", "i4"),  # transmissions by which others may overtake a packet that is not lost
        ("tolerance_step", "i4"),  # 0: paths are FIFO
        ("widens_from", "i4"),  # transmission from which on the tolerance may grow again
        ("newest", "i4"),  # receiver: the latest transmission that has arrived
        ("reordered_packets", "i8"),
        ("spurious_retransmissions", "i8"),
        ("schedule", "i4"),  # row of the schedule that it is of, and the transfer that it carries; −1: none
        ("transfer", "i4"),
        ("next_free", "i4"),  # row, of one that is closed
        ("waits_for_loss", "i4"),
        ("opened_ps", "i8"),
    ]
)

# One row per (flow, sequence number modulo window).
FLIGHT = np.dtype(
    [("transmission", "i4"), ("attempt", "i4"), ("acknowledged", "i4"), ("received", "i4")], align=True
)
