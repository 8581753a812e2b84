"""LayerFusion: the buckets with the least predicted time, found exactly.

Dai et al., "Sketch-fusion", JPDC 185, 2024, name "an optimal multi-layer fusion strategy without extra
hyper-parameters" and give no objective in what is public. Reconstructed: the objective is the model of
`costs.py` on measured costs, its minimum over all divisions into neighbours is found by dynamic programming.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.workload.fusion.costs import Cost, Costs, predict
from netfold.sim.workload.fusion.rule import Fusion, Partition
from netfold.sim.workload.fusion.weighing import Weighing, WeighingSection
from netfold.sim.workload.layers import Layer

Column = NDArray[np.float64]
_PROMISING = 64  # plans of each prefix that the first search keeps
_ROUNDING = 1e-11  # share of a step below which two times are the same: sums in another order differ


@dataclass(frozen=True)
class LayerFusion(Weighing):
    """The best division into neighbours, whatever the shape of the costs."""

    title: ClassVar[str] = "LayerFusion, reconstructed"

    def divide(self, layers: Sequence[Layer], costs: Costs) -> Partition:
        """Dynamic programming over prefixes of the layers."""
        return _best(layers, costs)


class _Plans(NamedTuple):
    """Divisions of prefixes of the layers, a row for each; none is worse than another of its prefix."""

    prefix: NDArray[np.int64]  # layers that it divides
    before: NDArray[np.int64]  # the row without its last bucket; -1: it has none
    device: Column  # when the device has encoded its last bucket (C)
    network: Column  # when the network has carried that (F)
    decoded: Column  # when all are decoded, if the device were free from the start
    decode: Column  # time of all decodings

    def extended(self, rows: NDArray[np.int64], more: _Plans) -> _Plans:
        """These, and some rows of others."""
        return _Plans(*(np.append(own, other[rows]) for own, other in zip(self, more, strict=True)))


class _Rest(NamedTuple):
    """What the layers after a prefix take at the least, in one bucket or several, by length of the prefix."""

    backward: Column
    encode: Column
    network: Column
    decode: Column
    last_network: float  # of the last bucket

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
        found: Column = np.maximum(np.maximum(device + plans.decode + self.decode[prefix], network), decoded)
        return found


def _best(layers: Sequence[Layer], costs: Costs) -> Partition:
    """The division whose step is predicted to be the shortest; of equal ones, one with few buckets.

    A prefix of the layers may be divided in many ways. What matters of one for the layers after it is when
    the device and the network are free, and what is left to decode: a way that is no better in any of these
    is dropped (Pareto set). With linear costs of encoding, the device's time depends only on the number of
    buckets, and the sets stay small: at most one plan for each number where decoding takes no time. A plan
    that cannot lead to a step as short as a known one is dropped too; a first search that keeps the most
    promising plans of each prefix finds that step.
    """
    known = predict(layers, _search(layers, costs, np.inf, _PROMISING), costs).step_ps
    return _search(layers, costs, known, None)


def _search(layers: Sequence[Layer], costs: Costs, known_ps: float, kept: int | None) -> Partition:
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
        if kept is not None and rows.size > kept:
            rows = rows[np.argsort(least_ps[rows], kind="stable")[:kept]]
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
    left = np.lexsort(times.T[::-1])  # by the device's time, then the network's …
    found = []
    while left.size:
        first, left = left[0], left[1:]
        found.append(rows[first])
        left = left[(times[left] < times[first] - slack).any(axis=1)]
    return np.array(found, np.int64)


class LayerFusionSection(WeighingSection):
    """LayerFusion (reconstructed): the division into neighbours with the least predicted time, exactly."""

    kind: Literal["layer_fusion"] = "layer_fusion"

    def rule(self) -> Fusion:
        """The rule."""
        return LayerFusion(self.given)
