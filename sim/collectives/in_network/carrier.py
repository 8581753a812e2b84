"""What codecs that choose by it are told of a network whose switches add up."""

from __future__ import annotations

from netfold.homomorphic.codec import Carrier
from netfold.sim.collectives.carrier import memory_gbps
from netfold.sim.engine.interface import Job, Program
from netfold.sim.plan.idle_network import Window, full_window_trip_ps, job_traffic, wire_bound
from netfold.sim.units import PS_PER_S
from netfold.sim.workload.device import Device
from netfold.topologies.routing import Network

_PS_PER_US = 10**6


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
        memory_gbps=memory_gbps(device),
        padded_words=unit_words,
        window_words=job.slots_count * frame.elements,
        has_exponents_ahead=job.program is Program.SWITCHML,
    )
