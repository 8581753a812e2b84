"""Congestion policies: how a sender's window and timeout react to what happens to its packets.

A sender's record names its policy by its number in `POLICIES`. The engine tells it of events by the functions
below: each does what the sender's policy does then. Units are those of a stream, or packets of a flow. What
a policy remembers is in the columns `MEMORY` of the sender's row.

fixed
    The window does not change.
aimd
    ATP's. Once a window, when its last unit is acknowledged (flows-and-schedules.md).

`tests/reference/engine/congestion_policies.py` says the same in plain Python.
"""

from __future__ import annotations

from typing import Any

from netfold.kernels.compiled import inlined

POLICIES = ("fixed", "aimd")
FIXED, AIMD = range(len(POLICIES))

MEMORY = [
    ("window_bytes", "i8"),  # of which `window` is as many whole frames
    ("window_end", "i4"),  # the unit that ends the window when it is acknowledged
    ("is_new_window", "i4"),  # whether units that are sent now belong to a window that has just begun
]

BACKOFF_MAX = 6  # how often a timeout doubles at most
INCREASE_BYTES = 1500
"""What a window grows by, after one without marks."""


@inlined
def on_open(sender: Any, window_bytes: int) -> None:
    """A stream or a flow begins, with a window of so many bytes."""
    set_window(sender, window_bytes)
    sender.window_end = sender.window - 1
    sender.is_new_window = 0


@inlined
def on_send(sender: Any, unit: int) -> None:
    """A unit is sent for the first time."""
    if sender.sender.policy == AIMD and sender.is_new_window:
        sender.window_end = max(sender.window_end, unit)


@inlined
def on_ack(sender: Any, first: int, last: int) -> None:
    """Units from `first` to `last` are acknowledged, without a mark; then what the window allows is sent."""
    if sender.sender.policy == AIMD and ends_window(sender, first, last):
        set_window(sender, sender.window_bytes + INCREASE_BYTES)


@inlined
def on_mark(sender: Any, first: int, last: int) -> None:
    """Units are acknowledged, and a queue on their way was long."""
    if sender.sender.policy == AIMD and ends_window(sender, first, last):
        set_window(sender, sender.window_bytes // 2)


@inlined
def on_timeout(sender: Any, timeout_ps: int, copies: int) -> int:
    """What was sent is sent again, for the `copies`-th time in a row; returns how long to wait for it."""
    return int(min(timeout_ps << min(copies, BACKOFF_MAX), sender.sender.timeout_max_ps))


@inlined
def ends_window(sender: Any, first: int, last: int) -> bool:
    """Whether a window ends with one of these units; the next one ends with the last that is sent now."""
    sender.is_new_window = int(first <= sender.window_end <= last)
    if sender.is_new_window:
        sender.window_end = max(sender.next - 1, last + 1)
    return bool(sender.is_new_window)


@inlined
def set_window(sender: Any, size_bytes: int) -> None:
    """Set a window: one that is acknowledged before it is full, and that the sender has room for."""
    frame = frame_bytes(sender)
    least_bytes, most_bytes = sender.sender.ack_every * frame, sender.window_max * frame
    sender.window_bytes = min(max(size_bytes, least_bytes), most_bytes)
    sender.window = sender.window_bytes // frame


@inlined
def frame_bytes(sender: Any) -> int:
    # What a packet counts in its sender's window.
    return int(sender.sender.overhead_bytes + 4 * sender.sender.elements)
