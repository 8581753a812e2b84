"""What is common to the rules that weigh costs: their keys, and where the costs come from.

A run measures the costs of a job before its first step, unless the scenario gives them (`sim/run/costs/`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from netfold.sim.keys.fields import Time
from netfold.sim.keys.section import Section
from netfold.sim.workload.fusion.costs import Cost, Costs, Stages
from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.fusion.rule import Fusion, FusionError, FusionSection, Partition
from netfold.sim.workload.layers import FLOAT_BYTES, Layer

_MILLION = 10**6


@dataclass(frozen=True)
class Weighing(Fusion, ABC):
    """A rule that weighs costs. Until it has them it divides nothing."""

    given: Stages | None = None  # by the scenario; None: a run measures them
    costs: Costs | None = None

    @abstractmethod
    def divide(self, layers: Sequence[Layer], costs: Costs) -> Partition:
        """Divide layers, given in gradient-ready order, into neighbours: every layer is in one bucket."""

    def partition(self, layers: Sequence[Layer]) -> Partition:
        """Divide layers by the costs that the rule has.

        Raises
        ------
        FusionError
            It has none.
        """
        if self.costs is None:
            raise FusionError(
                "kind",
                f"{self.title} weighs what encoding and sending a bucket cost, which is not known here",
                "run it in a scenario, whose network and device measure it; or use size, one or none",
            )
        return self.divide(self.costs.paced(layers), self.costs)

    @property
    def outline(self) -> Fusion:
        """Itself; without costs every layer by itself, and a full bucket of all."""
        return self if self.costs is not None else _Unmeasured()

    def with_costs(self, costs: Costs) -> Weighing:
        """The same rule with costs."""
        return replace(self, costs=costs)


@dataclass(frozen=True)
class _Unmeasured(NoFusion):
    """Any buckets: as many as layers, and one as large as all of them."""

    def full_elements(self, layers: Sequence[Layer]) -> int:
        """Elements of all layers."""
        return sum(layer.elements for layer in layers)


class StageCost(Section):
    """Time of one stage of a bucket, by its size."""

    start: Time = 0
    """Of any bucket."""
    per_megabyte: Time = 0
    """For each 10^6 bytes of the dense gradient (4 bytes an element)."""
    sorting: Time = 0
    """For each 10^6 elements, times the binary logarithm of the bucket's elements, as sorting takes."""

    def cost(self) -> Cost:
        """In picoseconds and elements."""
        return Cost(float(self.start), self.per_megabyte * FLOAT_BYTES / _MILLION, self.sorting / _MILLION)


class GivenCosts(Section):
    """The costs of a bucket; a stage that is left out takes no time."""

    encode: StageCost = StageCost()
    """Encoding, on the device."""
    network: StageCost = StageCost()
    """Sending, until the last worker has the result."""
    decode: StageCost = StageCost()
    """Decoding, on the device."""

    def stages(self) -> Stages:
        """The costs of all stages."""
        return Stages(self.encode.cost(), self.network.cost(), self.decode.cost())


class WeighingSection(FusionSection, ABC):
    """The keys of a rule that weighs costs."""

    costs: GivenCosts | None = None
    """What encoding, sending and decoding a bucket cost; by default a warm-up of the run measures it."""

    @property
    def given(self) -> Stages | None:
        """The costs that the scenario gives."""
        return None if self.costs is None else self.costs.stages()
