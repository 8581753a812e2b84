"""Rules of fusion that weigh what buckets cost: costs, predictions, and the rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from netfold.errors import OptionError
from netfold.kernels.exp_log import LN2, logs
from netfold.kinds import register
from netfold.sim.keys import NO_KEY, Option, Time
from netfold.sim.workload.fusion import Fusion, NoFusion, Partition
from netfold.sim.workload.layers import FLOAT_BYTES, Layer

# What it costs to encode, send and decode a bucket, by its size, and the time of a step that follows.
#
# The device does the passes and, when a bucket's last gradient is ready, encodes it: one piece of work
# after the other. The network carries one bucket after the other. The device decodes when it has nothing
# else to do.
#
#     C_q = C_(q-1) + backward of its layers + encode(n_q)       C_0 = forward
#     F_q = max(F_(q-1), C_q) + network(n_q)
#     D_q = max(D_(q-1), F_q) + decode(n_q)                      D_0 = C_Q
#
# and the step ends with D_Q, or after the update of the weights that follows. The first two lines are the
# model of OMGS-SGD (Shi et al., INFOCOM 2020) and, with encode = 0, of MG-WFBP (Shi, Chu and Li, INFOCOM
# 2019).


Sizes = Sequence[float] | NDArray[Any]


@dataclass(frozen=True)
class Cost:
    """Time of one stage for a bucket of n elements: start + element · n + sort · n · log2(n), picoseconds."""

    start_ps: float = 0.0
    element_ps: float = 0.0
    sort_ps: float = 0.0

    def ps(self, elements: float) -> float:
        return float(self.all_ps(np.array([elements]))[0])

    def all_ps(self, elements: Sizes) -> NDArray[np.float64]:
        """Times for buckets of these sizes, one or more elements each, `(buckets,)`."""
        sizes = np.asarray(elements, np.float64)
        linear: NDArray[np.float64] = self.start_ps + self.element_ps * sizes
        return linear + self.sort_ps * sizes * (logs(sizes) / LN2) if self.sort_ps else linear


@dataclass(frozen=True)
class Stages:
    """The costs of the three stages of a bucket."""

    encode: Cost = Cost()
    """Time on the device, starts of kernels included."""
    network: Cost = Cost()
    """Time of the collective with this codec, from the first packet to the last."""
    decode: Cost = Cost()
    """Time on the device."""


class Sample(NamedTuple):
    """What one bucket took, alone on an idle network: the slowest worker's times."""

    elements: int
    encode_ps: int
    network_ps: int
    decode_ps: int


@dataclass(frozen=True)
class Costs:
    """All that rules weigh. The backward pass is divided as the simulated one is: see `pace`."""

    forward_ps: int
    backward_ps: int
    stages: Stages
    samples: tuple[Sample, ...] = ()
    """What the stages were fitted to; empty: they were given."""
    ready: tuple[tuple[str, float], ...] = ()
    """Share of backward after which each layer, by name, is ready on the device; empty: as layers say."""
    update_ps: int = 0
    """Time to update the weights, after all buckets."""

    def pace(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """Layers that are ready when the device has computed them, each not before the one before it."""
        ready_by_layer = dict(self.ready)
        shares = accumulate((ready_by_layer.get(layer.name, layer.ready_share) for layer in layers), max)
        return (
            tuple(layer._replace(ready_share=share) for layer, share in zip(layers, shares, strict=True))
            if ready_by_layer
            else tuple(layers)
        )

    @property
    def fit_error(self) -> float | None:
        """How far samples are from the costs, as a share of their time; all, and their stages, together."""
        if not self.samples:
            return None
        deviations = [abs(self.together_ps(sample.elements) - sum(sample[1:])) for sample in self.samples]
        return sum(deviations) / max(1, sum(sum(sample[1:]) for sample in self.samples))

    def together_ps(self, elements: float) -> float:
        """Time of the three stages of a bucket, one after the other."""
        stages = self.stages
        return stages.encode.ps(elements) + stages.network.ps(elements) + stages.decode.ps(elements)


class Prediction(NamedTuple):
    """The predicted time of a step, and of its buckets, in gradient-ready order."""

    step_ps: float
    encoded_ps: tuple[float, ...]
    """When the device has encoded each bucket."""
    arrived_ps: tuple[float, ...]
    """When the network has carried each bucket."""


def predict(layers: Sequence[Layer], partition: Partition, costs: Costs) -> Prediction:
    """Predict a step whose layers, in gradient-ready order, are divided like this.

    Buckets may hold any layers: they go in the order in which their last layers are ready.
    """
    stages, layers = costs.stages, costs.pace(layers)
    groups = sorted(partition, key=max)
    sizes = [sum(layers[index].elements for index in members) for members in groups]
    device_ps, network_ps, ready_ps = float(costs.forward_ps), 0.0, 0.0
    encoded, arrived = [], []
    for group, elements in zip(groups, sizes, strict=True):
        now_ps = layers[max(group)].ready_share * costs.backward_ps
        device_ps += now_ps - ready_ps + stages.encode.ps(elements)
        network_ps = max(network_ps, device_ps) + stages.network.ps(elements)
        ready_ps = now_ps
        encoded.append(device_ps)
        arrived.append(network_ps)
    step_ps = device_ps
    for arrived_ps, elements in zip(arrived, sizes, strict=True):
        step_ps = max(step_ps, arrived_ps) + stages.decode.ps(elements)
    return Prediction(step_ps + costs.update_ps, tuple(encoded), tuple(arrived))


# What is common to the rules that weigh costs: their keys, and where the costs come from.
#
# A run measures the costs of a job before its first step, unless the scenario gives them: see
# `sim/run/encoding_costs.py`.


_MILLION = 10**6


@dataclass(frozen=True)
class StageCost(Option):
    """Time of one stage of a bucket, by its size."""

    start_ps: Time = 0
    """Of any bucket."""
    per_megabyte_ps: Time = 0
    """For each 10^6 bytes of the dense gradient (4 bytes an element)."""
    sorting_ps: Time = 0
    """For each 10^6 elements, times the binary logarithm of the bucket's elements, as sorting takes."""

    def cost(self) -> Cost:
        # From megabytes and millions of elements to elements.
        return Cost(
            float(self.start_ps), self.per_megabyte_ps * FLOAT_BYTES / _MILLION, self.sorting_ps / _MILLION
        )


@dataclass(frozen=True)
class GivenCosts(Option):
    """The costs of a bucket; a stage that is left out takes no time."""

    encode: StageCost = StageCost()
    """Encoding, on the device."""
    network: StageCost = StageCost()
    """Sending, until the last worker has the result."""
    decode: StageCost = StageCost()
    """Decoding, on the device."""

    def stages(self) -> Stages:
        return Stages(self.encode.cost(), self.network.cost(), self.decode.cost())


@dataclass(frozen=True)
class Weighing(Fusion, ABC):
    """A rule that weighs costs. Until it has them it divides nothing."""

    given: Annotated[GivenCosts | None, Field(alias="costs")] = None
    """What encoding, sending and decoding a bucket cost; by default a warm-up of the run measures it."""
    costs: Costs | None = field(default=None, metadata=NO_KEY)

    @abstractmethod
    def divide(self, layers: Sequence[Layer], costs: Costs) -> Partition:
        """Divide layers, given in gradient-ready order, into neighbours: every layer is in one bucket."""

    def partition(self, layers: Sequence[Layer]) -> Partition:
        if self.costs is None:
            raise OptionError(
                "kind",
                f"{self.title} weighs what encoding and sending a bucket cost, which is not known here",
                "run it in a scenario, whose network and device measure it; or use size, one or none",
            )
        return self.divide(self.costs.pace(layers), self.costs)

    @property
    def outline(self) -> Fusion:
        return self if self.costs is not None else _Unmeasured()

    def with_costs(self, costs: Costs) -> Weighing:
        return replace(self, costs=costs)


@dataclass(frozen=True)
class _Unmeasured(NoFusion):
    """Any buckets: as many as layers, and one as large as all of them."""

    def full_elements(self, layers: Sequence[Layer]) -> int:
        return sum(layer.elements for layer in layers)


# MG-WFBP: merge a gradient with the next one if that costs less than the start of a message.
#
# Shi, Chu and Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD Algorithms", INFOCOM
# 2019; the conditions are those of the authors' code (github.com/HKBU-HPML/MG-WFBP). Published.


@register
@dataclass(frozen=True)
class MgWfbp(Weighing):
    """MG-WFBP (greedy): layers are merged while waiting costs less than the start of a message.

    It goes from the first gradient that is ready to the last, and knows backward and network alone. A bucket
    whose message would begin at S takes in the next layer, ready at R, if R < S, so that the message has to
    wait anyway, or if R − S is less than the start of a message. Then R is before the message's end, for
    which the authors' code asks too.
    """

    kind: ClassVar[str] = "mg_wfbp"
    title: ClassVar[str] = "MG-WFBP"

    def divide(self, layers: Sequence[Layer], costs: Costs) -> Partition:
        """Greedy merging."""
        network = costs.stages.network
        groups, elements = [[0]], layers[0].elements
        free_ps = 0.0  # time when the network has carried all buckets before
        ready_ps = layers[0].ready_share * costs.backward_ps
        for index, layer in enumerate(layers[1:], start=1):
            start_ps = max(free_ps, ready_ps)
            ready_ps = layer.ready_share * costs.backward_ps
            if ready_ps - start_ps < network.start_ps:
                groups[-1].append(index)
                elements += layer.elements
            else:
                groups.append([index])
                free_ps, elements = start_ps + network.ps(elements), layer.elements
        return tuple(map(tuple, groups))


# OMGS-SGD: merge a gradient with the next one if the network saves more than the device loses.
#
# Shi et al., "Communication-Efficient Distributed Deep Learning with Merged Gradient Sparsification on GPUs",
# INFOCOM 2020; the condition is that of the authors' code (github.com/HKBU-HPML/OMGS-SGD). Published. Their
# code puts the first two layers together without asking; here they are asked about as all others are.


@register
@dataclass(frozen=True)
class Omgs(Weighing):
    """OMGS-SGD (greedy): layers are merged while the network saves more than the device loses.

    It goes from the first gradient that is ready to the last, and knows backward, encoding and network. A
    bucket that is encoded at R and whose message would begin at S takes in the next layer if the extra wait,
    its backward + encode(both) − encode(one) − encode(other) − (S − R), is less than what the network saves,
    network(one) + network(other) − network(both).
    """

    kind: ClassVar[str] = "omgs"
    title: ClassVar[str] = "OMGS-SGD"

    def divide(self, layers: Sequence[Layer], costs: Costs) -> Partition:
        """Greedy merging."""
        encode, network = costs.stages.encode, costs.stages.network
        groups, elements = [[0]], layers[0].elements
        device_ps = layers[0].ready_share * costs.backward_ps  # time when the bucket's backward has ended
        free_ps = 0.0  # time when the network has carried all buckets before
        for index, layer in enumerate(layers[1:], start=1):
            joint_elements = elements + layer.elements
            backward_ps = (layer.ready_share - layers[index - 1].ready_share) * costs.backward_ps
            encoded_ps = device_ps + encode.ps(elements)
            start_ps = max(free_ps, encoded_ps)
            encode_ps = encode.ps(joint_elements) - encode.ps(elements) - encode.ps(layer.elements)
            saved_ps = network.ps(elements) + network.ps(layer.elements) - network.ps(joint_elements)
            if backward_ps + encode_ps - (start_ps - encoded_ps) < saved_ps:
                groups[-1].append(index)
                device_ps, elements = device_ps + backward_ps, joint_elements
            else:
                groups.append([index])
                free_ps = start_ps + network.ps(elements)
                device_ps, elements = encoded_ps + backward_ps, layer.elements
        return tuple(map(tuple, groups))


# LayerFusion: the buckets with the least predicted time, found exactly.
#
# Dai et al., "Sketch-fusion", JPDC 185, 2024, name "an optimal multi-layer fusion strategy without extra
# hyper-parameters" and give no objective in what is public. Reconstructed: the objective is the model of
# `Costs` on measured costs, its minimum over all divisions into neighbours is found by dynamic
# programming.


Column = NDArray[np.float64]
_PROMISING = 64  # plans of each prefix that the first search keeps
_ROUNDING = 1e-11  # share of a step below which two times are the same: sums in another order differ


@register
@dataclass(frozen=True)
class LayerFusion(Weighing):
    """LayerFusion (reconstructed): the division into neighbours with the least predicted time, exactly."""

    kind: ClassVar[str] = "layer_fusion"
    title: ClassVar[str] = "LayerFusion, reconstructed"

    def divide(self, layers: Sequence[Layer], costs: Costs) -> Partition:
        return _best(layers, costs)


class _Plans(NamedTuple):
    """Divisions of prefixes of the layers, a row for each; none is worse than another of its prefix."""

    prefix: NDArray[np.int64]
    """Layers that the plan divides."""
    before: NDArray[np.int64]
    """The row without its last bucket; -1: it has none."""
    device: Column
    """When the device has encoded the last bucket (C)."""
    network: Column
    """When the network has carried the last bucket (F)."""
    decoded: Column
    """When all buckets are decoded, if the device were free from the start."""
    decode: Column
    """Time of all decodings."""

    def extended(self, rows: NDArray[np.int64], more: _Plans) -> _Plans:
        return _Plans(*(np.append(column, other[rows]) for column, other in zip(self, more, strict=True)))


class _Rest(NamedTuple):
    """What the layers after a prefix take at the least, in one bucket or several, by length of the prefix."""

    backward: Column
    encode: Column
    network: Column
    decode: Column
    last_network: float
    """Time of the network for the last layer alone."""

    @classmethod
    def of(cls, layers: Sequence[Layer], costs: Costs) -> _Rest:
        """The bounds: one start, and the rest as if every layer were alone, which is the least."""
        sizes = np.array([layer.elements for layer in layers], np.float64)
        shares = np.array([0.0, *(layer.ready_share for layer in layers)])

        def least(cost: Cost) -> Column:
            alone = cost.all_ps(sizes) - cost.start_ps
            after = np.append(np.cumsum(alone[::-1])[::-1], 0.0)
            after[:-1] += cost.start_ps
            return after

        stages = costs.stages
        last = float(stages.network.ps(layers[-1].elements))
        backward = costs.backward_ps * (shares[-1] - shares)
        return cls(backward, least(stages.encode), least(stages.network), least(stages.decode), last)

    def step_ps(self, plans: _Plans, prefix: int) -> Column:
        """The least time of a step that begins with each of some plans of a prefix."""
        device = plans.device + self.backward[prefix] + self.encode[prefix]
        network = plans.network + self.network[prefix]
        if self.encode.size > prefix + 1:
            network = np.maximum(network, device + self.last_network)
        decoded = np.maximum(plans.decoded, plans.network) + self.decode[prefix]
        times: Column = np.maximum(np.maximum(device + plans.decode + self.decode[prefix], network), decoded)
        return times


def _best(layers: Sequence[Layer], costs: Costs) -> Partition:
    # Of equal divisions it is one with few buckets. What matters of a division of a prefix of the layers for
    # those after it is when the device and the network are free, and what is left to decode: one that is no
    # better in any of these is dropped (Pareto set). With linear costs of encoding, the device's time depends
    # only on the number of buckets, and the sets stay small: at most one plan for each number where decoding
    # takes no time. A plan that cannot lead to a step as short as a known one is dropped too; a first search
    # that keeps the most promising plans of each prefix finds that step.
    known = predict(layers, _search(layers, costs, np.inf, _PROMISING), costs).step_ps
    return _search(layers, costs, known, None)


def _search(layers: Sequence[Layer], costs: Costs, known_ps: float, plans_max: int | None) -> Partition:
    """The best division among those that begin with the kept plans, all by default, of each prefix."""
    elements = np.cumsum([0, *(layer.elements for layer in layers)]).astype(np.float64)
    ready_ps = costs.backward_ps * np.array([0.0, *(layer.ready_share for layer in layers)])
    plans, rest = _start(costs), _Rest.of(layers, costs)
    for prefix in range(1, len(layers) + 1):
        sizes = elements[prefix] - elements[plans.prefix]
        extended = _with_bucket(plans, costs, sizes, ready_ps[prefix] - ready_ps[plans.prefix])
        extended = extended._replace(prefix=np.full(sizes.size, prefix))
        least_ps = rest.step_ps(extended, prefix)
        rows = np.flatnonzero(least_ps <= known_ps * (1 + _ROUNDING))
        if plans_max is not None and rows.size > plans_max:
            rows = rows[np.argsort(least_ps[rows], kind="stable")[:plans_max]]
        plans = plans.extended(_pareto(extended, rows), extended)
    whole = np.flatnonzero(plans.prefix == len(layers))
    step_ps = np.maximum(plans.decoded, plans.device + plans.decode)[whole]
    row = int(whole[np.argmin(step_ps)])
    bounds = [len(layers)]
    while (row := int(plans.before[row])) >= 0:
        bounds.append(int(plans.prefix[row]))
    return tuple(tuple(range(first, last)) for last, first in zip(bounds[-2::-1], bounds[:0:-1], strict=True))


def _start(costs: Costs) -> _Plans:
    """The only division of no layers: forward has ended."""
    zero: Any = np.zeros(1)
    return _Plans(np.zeros(1, np.int64), np.full(1, -1), zero + costs.forward_ps, zero, zero, zero)


def _with_bucket(plans: _Plans, costs: Costs, elements: Column, backward_ps: Column) -> _Plans:
    """Every plan with one more bucket of so many elements, after so much more of backward."""
    stages = costs.stages
    decode = stages.decode.all_ps(elements)
    device = plans.device + backward_ps + stages.encode.all_ps(elements)
    network = np.maximum(plans.network, device) + stages.network.all_ps(elements)
    decoded = np.maximum(plans.decoded, network) + decode
    rows = np.arange(elements.size)
    return _Plans(plans.prefix, rows, device, network, decoded, plans.decode + decode)


def _pareto(plans: _Plans, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of some rows of plans of one prefix, those that none of the others equals or beats in everything."""
    times = np.stack([plans.device, plans.network, plans.decoded, plans.device + plans.decode], axis=1)[rows]
    slack = _ROUNDING * float(times.max(initial=0.0))
    left = np.lexsort(times.T[::-1])  # sorted by the device's time, then the network's …
    front = []
    while left.size:
        first, left = left[0], left[1:]
        front.append(rows[first])
        left = left[(times[left] < times[first] - slack).any(axis=1)]
    return np.array(front, np.int64)
