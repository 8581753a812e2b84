"""What codecs that choose by it are told of the network that carries them."""

from __future__ import annotations

from netfold.homomorphic.codec import Adaptable, Carrier, Codec
from netfold.sim.engine.interface import Frame, Job
from netfold.sim.plan.idle_network import (
    Traffic,
    Window,
    full_window_trip_ps,
    job_traffic,
    one_way_ps,
    wire_bound,
)
from netfold.sim.units import PS_PER_S
from netfold.sim.workload.device import Device
from netfold.topologies.routing import Network

_PS_PER_US = 10**6
_SAMPLE_BYTES = 10**9


def fitted(codec: Codec, carrier: Carrier) -> Codec:
    """The codec, with what it takes from the network."""
    return codec.carried_by(carrier) if isinstance(codec, Adaptable) else codec


def switch_carrier(network: Network, job: Job, device: Device) -> Carrier:
    """A job on its switches: the round trip beside the words' own time, and the rate of its busiest link."""
    frame, unit_words = job.frame, job.unit_packets * job.frame.elements
    packet_bytes = frame.wire_bytes(job.lanes * frame.elements, first=True, last=True)
    trip_ps = full_window_trip_ps(network, job_traffic(network, job), Window(frame, 1, packet_bytes))
    words_per_s = wire_bound(network, job).elements_per_s
    packet_ps = PS_PER_S * frame.elements / words_per_s
    return Carrier(
        unit_elements=unit_words,
        latency_us=max(1.0, trip_ps - packet_ps) / _PS_PER_US,
        rate_gbps=words_per_s * 32 / 1e9,
        memory_gbps=_memory_gbps(device),
        padded_words=unit_words,
        window_words=job.slots_count * frame.elements,
        has_exponents_ahead=job.program.has_exponents_ahead,
    )


def ring_carrier(network: Network, traffic: Traffic, frame: Frame, device: Device) -> Carrier:
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
    return Carrier(
        latency_us=max(1, hops * one_way_ps(network, traffic, header_bytes)) / _PS_PER_US,
        rate_gbps=32 * workers * frame.elements / max(1.0, round_ps) * PS_PER_S / 1e9,
        memory_gbps=_memory_gbps(device),
        is_streamed=False,
    )


def _memory_gbps(device: Device) -> float | None:
    """Rate at which a worker's device passes over memory; None if that takes no time."""
    time_ps = device.work_ps(_SAMPLE_BYTES, 0)
    return 8 * _SAMPLE_BYTES * PS_PER_S / time_ps / 1e9 if time_ps else None
