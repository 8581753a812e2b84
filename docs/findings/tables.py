"""All tables of the page, in its order."""

from docs.findings import faults, floats, hashing, index, overflow, threshold

ALL = (
    hashing.TABLE,
    threshold.SUCCESS,
    threshold.ROUNDS,
    faults.COUNTERS,
    faults.MESSAGES,
    floats.TABLE,
    overflow.TABLE,
    index.TABLE,
)
