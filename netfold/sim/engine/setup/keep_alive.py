"""References to arrays whose addresses are in the engine's tables or packets, against garbage collection."""

from __future__ import annotations

from collections import defaultdict, deque

from netfold.sim.engine.interface import Flow, Scaled, Segment


class KeepAlive:
    """Keeps references to pinned buffers as long as the engine may read or write them.

    A worker's packets travel in order, so when a stream has ended no packet of the previous one is left
    (packets for slots with timers carry copies). The engine ignores packets of a closed flow. A parameter
    server remembers two streams. Tables of TABLE_ADD are small and shared, and are never released.
    """

    def __init__(self) -> None:
        self._latest: defaultdict[tuple[str, int], deque[object]] = defaultdict(lambda: deque(maxlen=2))
        self._tables: dict[int, object] = {}  # by identity

    def stream(self, row: int, segments: list[Segment], scaled: Scaled | None) -> None:
        """Pin the buffers of a worker's next stream."""
        self._latest["stream", row].append((segments, scaled))
        self._tables |= {id(one.table): one.table for one in segments if one.table is not None}

    def sums(self, job: int, arrays: list[object]) -> None:
        """Pin the arrays of a job's server for its next stream."""
        self._latest["sums", job].append(arrays)

    def flow(self, row: int, flow: Flow) -> None:
        """Pin the buffers of the next flow in a row."""
        self._latest["flow", row].append(flow)
