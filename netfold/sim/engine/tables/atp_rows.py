"""Row types of the tables for ATP."""

from __future__ import annotations

import numpy as np

# One row per (stream, place in the window).
PLACE = np.dtype(
    [("entry", "i4"), ("attempt", "i4"), ("acknowledged", "i4"), ("pad", "i4"), ("sent_ps", "i8")], align=True
)

# The parameter server, one row per job.
SERVER = np.dtype(
    [
        ("host", "i4"),
        ("switch", "i4"),
        ("loopback_link", "i4"),
        ("route", "i4"),
        ("entry_base", "i4"),  # of its switch's entries
        ("entries", "i4"),
        ("window_max", "i4"),
        ("is_adaptive", "i4"),
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
