"""What codecs that choose by it are told of the network that carries them."""

from __future__ import annotations

from homomorphic.codec import Adaptable, Carrier, Codec
from sim.engine.model import Frame, Job
from sim.units import PS_PER_S
from sim.wiring import Traffic, Window, full_window_trip_ps, job_traffic, one_way_ps, wire_bound
from sim.workload.device import Device
from topologies.routing import Network

_PS_PER_US = 10**6
_SAMPLE_BYTES = 10**9


def fitted(codec: Codec, carrier: Carrier) -> Codec:
    """The codec, with what it takes from the network."""
    return codec.carried_by(carrier) if isinstance(codec, Adaptable) else codec


def switch_carrier(network: Network, job: Job, device: Device) -> Carrier:
    """A job on its switches: the round trip of a packet, and the rate of its busiest link."""
    frame = job.frame
    packet_bytes = frame.wire_bytes(job.lanes * frame.elements, first=True, last=True)
    trip_ps = full_window_trip_ps(network, job_traffic(network, job), Window(frame, 1, packet_bytes))
    rate_gbps = wire_bound(network, job).elements_per_s * 32 / 1e9
    return Carrier(job.unit_packets * frame.elements, trip_ps / _PS_PER_US, rate_gbps, _memory_gbps(device))


def ring_carrier(network: Network, traffic: Traffic, frame: Frame, device: Device) -> Carrier:
    """A ring: 2 (n − 1) hops one after the other, each with an n-th of the words."""
    workers = len(traffic.ways)
    hops = 2 * (workers - 1)
    packet_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
    links = [(link, count) for link, count in traffic.load.items() if count]
    rate_bps = min((int(network.rate_bps[link]) / count for link, count in links), default=float(PS_PER_S))
    share = hops / workers if hops else 1.0
    return Carrier(
        latency_us=max(1, hops * one_way_ps(network, traffic, packet_bytes)) / _PS_PER_US,
        rate_gbps=rate_bps * 4 * frame.elements / packet_bytes / share / 1e9,
        memory_gbps=_memory_gbps(device),
    )


def _memory_gbps(device: Device) -> float | None:
    """Rate at which a worker's device passes over memory; None if that takes no time."""
    time_ps = device.work_ps(_SAMPLE_BYTES, 0)
    return 8 * _SAMPLE_BYTES * PS_PER_S / time_ps / 1e9 if time_ps else None
