"""Time that switches take for messages, for codecs that choose by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netfold.homomorphic.codec import Carrier, MessageSize
from netfold.sim.engine.interface import Job
from netfold.sim.plan.idle_network import Window, full_window_trip_ps, host_bound, job_traffic, wire_bound
from netfold.sim.workload.device_model import Device, memory_bps
from netfold.topologies.network import Network
from netfold.units import PS_PER_S


@dataclass(frozen=True, kw_only=True)
class WindowCarrier(Carrier):
    """A carrier of windows: messages of an operation follow each other in whole units, without gaps."""

    window_words: int
    sends_exponents_ahead: bool  # one window ahead, of messages with one block per unit

    def time_ps(self, operation: Sequence[MessageSize]) -> int:
        """Time of an operation; exponents sent ahead cost no extra round trip."""
        are_ahead = all(size.block_elements == self.unit_elements for size in operation)
        if not (self.sends_exponents_ahead and are_ahead):
            return super().time_ps(operation)
        return sum(self._scaled_ps(self._padded(size.words)) for size in operation if size.words)

    def plain_ps(self, messages: Sequence[int]) -> int:
        """Time of messages with these numbers of words, as one stream."""
        return self._stream_ps(sum(self._padded(words) for words in messages))

    def _padded(self, words: int) -> int:
        return -(-words // self.unit_elements) * self.unit_elements

    def _scaled_ps(self, words: int) -> int:
        """The first values follow the window's exponents, and not before the first of these are back."""
        ahead_ps = self.words_ps(min(words, self.window_words))
        return max(self._trip_ps, ahead_ps) + self._stream_ps(words)

    def _stream_ps(self, words: int) -> int:
        """Window after window; each except the last waits for its first answer or for the link."""
        if not words:
            return 0
        full = -(-words // self.window_words) - 1
        full_ps = max(self._trip_ps, self.words_ps(self.window_words))
        return full * full_ps + self.latency_ps + self.words_ps(words - full * self.window_words)

    @property
    def _trip_ps(self) -> int:
        """Round trip of one unit."""
        return self.latency_ps + self.words_ps(self.unit_elements)


def window_carrier(network: Network, trees: Sequence[Job], device: Device) -> WindowCarrier:
    """The carrier of a job on switches: its round trip without words, and its busiest link's rate."""
    job = trees[0]
    frame = job.frame
    packet_bytes = frame.wire_bytes(job.lanes * frame.elements, first=True, last=True)
    trip_ps = full_window_trip_ps(network, job_traffic(network, *trees), Window(frame, 1, packet_bytes))
    bounds = (wire_bound(network, *trees), host_bound(network, *trees))
    words_per_s = min(one.elements_per_s for one in bounds if one is not None)
    return WindowCarrier(
        unit_elements=job.unit_packets * frame.elements,
        latency_ps=max(1, round(trip_ps - PS_PER_S * frame.elements / words_per_s)),
        rate_bps=max(1, round(32 * words_per_s)),
        memory_bps=memory_bps(device),
        window_words=len(trees) * job.slots_count * frame.elements,
        sends_exponents_ahead=job.program.has_exponents_ahead,
    )
