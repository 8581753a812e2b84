"""What it costs to encode, send and decode a bucket, by its size, and the time of a step that follows.

The device does the passes and, when a bucket's last gradient is ready, encodes it: one piece of work after
the other. The network carries one bucket after the other. The device decodes when it has nothing else to do.

    C_q = C_(q-1) + backward of its layers + encode(n_q)       C_0 = forward
    F_q = max(F_(q-1), C_q) + network(n_q)
    D_q = max(D_(q-1), F_q) + decode(n_q)                      D_0 = C_Q

and the step ends with D_Q, or after the update of the weights that follows. The first two lines are the model
of OMGS-SGD (Shi et al., INFOCOM 2020) and, with encode = 0, of MG-WFBP (Shi, Chu and Li, INFOCOM 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.functions import LN2, logs
from netfold.sim.workload.fusion.rule import Partition
from netfold.sim.workload.layers import Layer

Sizes = Sequence[float] | NDArray[Any]


@dataclass(frozen=True)
class Cost:
    """Time of one stage for a bucket of n elements: start + element · n + sort · n · log2(n), picoseconds."""

    start_ps: float = 0.0
    element_ps: float = 0.0
    sort_ps: float = 0.0

    def ps(self, elements: float) -> float:
        """Time for a bucket of so many elements."""
        return float(self.all_ps(np.array([elements]))[0])

    def all_ps(self, elements: Sizes) -> NDArray[np.float64]:
        """Times for buckets of these sizes, one or more elements each, `(buckets,)`."""
        sizes = np.asarray(elements, np.float64)
        linear: NDArray[np.float64] = self.start_ps + self.element_ps * sizes
        return linear + self.sort_ps * sizes * (logs(sizes) / LN2) if self.sort_ps else linear


@dataclass(frozen=True)
class Stages:
    """The costs of the three stages of a bucket."""

    encode: Cost = Cost()  # on the device, starts of kernels included
    network: Cost = Cost()  # of the collective with this codec, from the first packet to the last
    decode: Cost = Cost()  # on the device


class Sample(NamedTuple):
    """What one bucket took, alone on an idle network: the slowest worker's times."""

    elements: int
    encode_ps: int
    network_ps: int
    decode_ps: int


@dataclass(frozen=True)
class Costs:
    """All that rules weigh. The backward pass is divided as the simulated one is: see `paced`."""

    forward_ps: int
    backward_ps: int
    stages: Stages
    samples: tuple[Sample, ...] = ()  # that the stages were fitted to; empty: they were given
    ready: tuple[tuple[str, float], ...] = ()
    """Share of backward after which each layer, by name, is ready on the device; empty: as layers say."""
    update_ps: int = 0  # of the weights, after all buckets

    def paced(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """Layers that are ready when the device has computed them, each not before the one before it."""
        known = dict(self.ready)
        shares = accumulate((known.get(layer.name, layer.ready_share) for layer in layers), max)
        return (
            tuple(layer._replace(ready_share=share) for layer, share in zip(layers, shares, strict=True))
            if known
            else tuple(layers)
        )

    @property
    def fit_error(self) -> float | None:
        """How far samples are from the costs, as a share of their time; all, and their stages, together."""
        if not self.samples:
            return None
        deviations = [abs(self.together_ps(one.elements) - sum(one[1:])) for one in self.samples]
        return sum(deviations) / max(1, sum(sum(one[1:]) for one in self.samples))

    def together_ps(self, elements: float) -> float:
        """Time of the three stages of a bucket, one after the other."""
        stages = self.stages
        return stages.encode.ps(elements) + stages.network.ps(elements) + stages.decode.ps(elements)


class Prediction(NamedTuple):
    """The predicted time of a step, and of its buckets, in gradient-ready order."""

    step_ps: float
    encoded_ps: tuple[float, ...]  # when the device has encoded each …
    arrived_ps: tuple[float, ...]  # … and the network has carried it


def predict(layers: Sequence[Layer], partition: Partition, costs: Costs) -> Prediction:
    """Predict a step whose layers, in gradient-ready order, are divided like this.

    Buckets may hold any layers: they go in the order in which their last layers are ready.
    """
    stages, layers = costs.stages, costs.paced(layers)
    groups = sorted(partition, key=max)
    sizes = [sum(layers[index].elements for index in own) for own in groups]
    device_ps, network_ps, ready_ps = float(costs.forward_ps), 0.0, 0.0
    encoded, arrived = [], []
    for own, elements in zip(groups, sizes, strict=True):
        now_ps = layers[max(own)].ready_share * costs.backward_ps
        device_ps += now_ps - ready_ps + stages.encode.ps(elements)
        network_ps = max(network_ps, device_ps) + stages.network.ps(elements)
        ready_ps = now_ps
        encoded.append(device_ps)
        arrived.append(network_ps)
    step_ps = device_ps
    for arrived_ps, elements in zip(arrived, sizes, strict=True):
        step_ps = max(step_ps, arrived_ps) + stages.decode.ps(elements)
    return Prediction(step_ps + costs.update_ps, tuple(encoded), tuple(arrived))
