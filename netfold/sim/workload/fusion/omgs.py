"""OMGS-SGD: merge a gradient with the next one if the network saves more than the device loses.

Shi et al., "Communication-Efficient Distributed Deep Learning with Merged Gradient Sparsification on GPUs",
INFOCOM 2020; the condition is that of the authors' code (github.com/HKBU-HPML/OMGS-SGD). Published. Their
code puts the first two layers together without asking; here they are asked about as all others are.
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
class Omgs(Weighing):
    """Greedy, from the first gradient that is ready to the last. It knows backward, encoding and network.

    A bucket that is encoded at R and whose message would begin at S takes in the next layer if the extra
    wait, its backward + encode(both) − encode(one) − encode(other) − (S − R), is less than what the network
    saves, network(one) + network(other) − network(both).
    """

    title: ClassVar[str] = "OMGS-SGD"

    def divide(self, layers: Sequence[Layer], costs: Costs) -> Partition:
        """Greedy merging."""
        encode, network = costs.stages.encode, costs.stages.network
        groups, elements = [[0]], layers[0].elements
        device_ps = layers[0].ready_share * costs.backward_ps  # when the bucket's backward has ended
        free_ps = 0.0  # when the network has carried all buckets before
        for index, layer in enumerate(layers[1:], start=1):
            both = elements + layer.elements
            backward_ps = (layer.ready_share - layers[index - 1].ready_share) * costs.backward_ps
            encoded_ps = device_ps + encode.ps(elements)
            start_ps = max(free_ps, encoded_ps)
            encode_ps = encode.ps(both) - encode.ps(elements) - encode.ps(layer.elements)
            saved_ps = network.ps(elements) + network.ps(layer.elements) - network.ps(both)
            if backward_ps + encode_ps - (start_ps - encoded_ps) < saved_ps:
                groups[-1].append(index)
                device_ps, elements = device_ps + backward_ps, both
            else:
                groups.append([index])
                free_ps = start_ps + network.ps(elements)
                device_ps, elements = encoded_ps + backward_ps, layer.elements
        return tuple(map(tuple, groups))


class OmgsSection(WeighingSection):
    """OMGS-SGD (greedy): layers are merged while the network saves more than the device loses."""

    kind: Literal["omgs"] = "omgs"

    def rule(self) -> Fusion:
        """The rule."""
        return Omgs(self.given)
