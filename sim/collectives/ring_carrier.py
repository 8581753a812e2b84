"""How long a ring takes for messages, for codecs that choose by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netfold.homomorphic.codec import Carrier
from netfold.sim.engine.interface import Frame
from netfold.sim.plan.idle_network import Traffic, one_way_ps
from netfold.sim.units import PS_PER_S
from netfold.sim.workload.device import Device, memory_bps
from netfold.topologies.routing import Network

_SAMPLE_BYTES = 10**9


@dataclass(frozen=True, kw_only=True)
class RingCarrier(Carrier):
    """Each message of an operation waits for the one before it."""

    def plain_ps(self, messages: Sequence[int]) -> int:
        """See `Carrier`."""
        return sum(self.latency_ps + self.words_ps(words) for words in messages if words)


def ring_carrier(network: Network, traffic: Traffic, frame: Frame, device: Device) -> RingCarrier:
    """A ring: 2 (n − 1) hops one after the other, each with an n-th of the words; half of them merge it."""
    workers = len(traffic.ways)
    hops = 2 * (workers - 1)
    packet_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
    links = [(link, count) for link, count in traffic.load.items() if count]
    rate_bps = min((int(network.rate_bps[link]) / count for link, count in links), default=float(PS_PER_S))
    header_bytes = packet_bytes - 4 * frame.elements  # a message's last packet is no longer than it must be
    packet_ps = 8 * packet_bytes * PS_PER_S / rate_bps
    merge_ps = device.work_ps(2 * _SAMPLE_BYTES, _SAMPLE_BYTES) / _SAMPLE_BYTES * 4 * frame.elements
    round_ps = hops * packet_ps + (workers - 1) * merge_ps  # of a packet from every worker
    return RingCarrier(
        latency_ps=max(1, hops * one_way_ps(network, traffic, header_bytes)),
        rate_bps=max(1, round(32 * workers * frame.elements / max(1.0, round_ps) * PS_PER_S)),
        memory_bps=memory_bps(device),
    )
