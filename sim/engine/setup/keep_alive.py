"""Arrays whose addresses are in the engine's tables or in packets: they must not be collected."""

from __future__ import annotations

from collections import defaultdict, deque

from netfold.sim.engine.interface import Flow, Scaled, Segment


class Lent:
    """Keeps alive what is lent to the engine, as long as anything may look at it.

    A worker's packets travel in order, so when a stream is over none of the one before it is left (those of
    slots with timers own their words). A closed flow's packets are not looked into. A parameter server
    remembers two streams. Tables of TABLE_ADD are small and shared, and stay.
    """

    def __init__(self) -> None:
        self._latest: defaultdict[tuple[str, int], deque[object]] = defaultdict(lambda: deque(maxlen=2))
        self._tables: dict[int, object] = {}  # by identity

    def stream(self, row: int, segments: list[Segment], scaled: Scaled | None) -> None:
        """What a worker's next stream sends and receives."""
        self._latest["stream", row].append((segments, scaled))
        self._tables |= {id(one.table): one.table for one in segments if one.table is not None}

    def sums(self, job: int, arrays: list[object]) -> None:
        """What a job's server keeps of its next stream."""
        self._latest["sums", job].append(arrays)

    def flow(self, row: int, flow: Flow) -> None:
        """What the next flow in a row sends and receives."""
        self._latest["flow", row].append(flow)
