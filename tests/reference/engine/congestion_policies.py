"""Congestion policies in plain Python: docs/explanation/engine/flows-and-schedules.md."""

from __future__ import annotations

from netfold.sim.engine.engine_data import Sender

BACKOFF_MAX = 6  # a timeout grows at most 64-fold
INCREASE_BYTES = 1500


class Fixed:
    """A window that does not change; `room` is the largest that its sender may have."""

    def __init__(self, sender: Sender, room: int) -> None:
        self.sender = sender
        self.room = room
        self.frame_bytes = sender.frame.overhead_bytes + 4 * sender.frame.elements
        self.window_bytes = min(sender.window, room) * self.frame_bytes

    @property
    def window(self) -> int:
        """Packets that may be outstanding."""
        return self.window_bytes // self.frame_bytes

    def opened(self) -> None:
        """A stream or flow begins."""

    def acknowledged(self, first: int, last: int, is_marked: bool) -> None:
        """These are acknowledged; what may be sent is sent next, and told by `sent_up_to`."""

    def sent_up_to(self, end: int) -> None:
        """All before `end` have been sent."""

    def timeout_ps(self, timeout_ps: int, copies: int) -> int:
        """How long to wait for what is sent again, the `copies`-th time in a row."""
        return min(timeout_ps * 2 ** min(copies, BACKOFF_MAX), self.sender.timeout_max_ps)


class Aimd(Fixed):
    """ATP's: additive increase, multiplicative decrease, once a window."""

    ended_by: int | None = None
    """The unit that has just ended a window, before the next has been sent."""

    def opened(self) -> None:
        self.end = self.window - 1

    def acknowledged(self, first: int, last: int, is_marked: bool) -> None:
        if not first <= self.end <= last:
            return
        changed = self.window_bytes // 2 if is_marked else self.window_bytes + INCREASE_BYTES
        least, most = self.sender.ack_every * self.frame_bytes, self.room * self.frame_bytes
        self.window_bytes = sorted([least, changed, most])[1]
        self.ended_by = last

    def sent_up_to(self, end: int) -> None:
        if self.ended_by is not None:
            self.end, self.ended_by = max(end - 1, self.ended_by + 1), None


POLICIES: list[type[Fixed]] = [Fixed, Aimd]
