"""MG-WFBP: merge a gradient with the next one if that costs less than the start of a message.

Shi, Chu and Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD Algorithms", INFOCOM
2019; the conditions are those of the authors' code (github.com/HKBU-HPML/MG-WFBP). Published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from netfold.sim.workload.fusion.costs import Costs
from netfold.sim.workload.fusion.rule import Fusion, Partition
from netfold.sim.workload.fusion.weighing import Weighing, WeighingSection
from netfold.sim.workload.layers import Layer


@dataclass(frozen=True)
class MgWfbp(Weighing):
    """Greedy, from the first gradient that is ready to the last. It knows backward and network alone.

    A bucket whose message would begin at S takes in the next layer, ready at R, if R < S, so that the message
    has to wait anyway, or if R − S is less than the start of a message. Then R is before the message's end,
    for which the authors' code asks too.
    """

    title: ClassVar[str] = "MG-WFBP"

    def divide(self, layers: Sequence[Layer], costs: Costs) -> Partition:
        """Greedy merging."""
        network = costs.stages.network
        groups, elements = [[0]], layers[0].elements
        free_ps = 0.0  # when the network has carried all buckets before
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


class MgWfbpSection(WeighingSection):
    """MG-WFBP (greedy): layers are merged while waiting costs less than the start of a message."""

    kind: Literal["mg_wfbp"] = "mg_wfbp"

    def rule(self) -> Fusion:
        """The rule."""
        return MgWfbp(self.given)
