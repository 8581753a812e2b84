"""What codecs that choose by it are told of the network that carries them."""

from __future__ import annotations

from netfold.homomorphic.codec import Adaptable, Carrier, Codec
from netfold.sim.units import PS_PER_S
from netfold.sim.workload.device import Device

_SAMPLE_BYTES = 10**9


def fitted(codec: Codec, carrier: Carrier) -> Codec:
    """The codec, with what it takes from the network."""
    return codec.carried_by(carrier) if isinstance(codec, Adaptable) else codec


def memory_gbps(device: Device) -> float | None:
    """Rate at which a worker's device passes over memory; None if that takes no time."""
    time_ps = device.work_ps(_SAMPLE_BYTES, 0)
    return 8 * _SAMPLE_BYTES * PS_PER_S / time_ps / 1e9 if time_ps else None
