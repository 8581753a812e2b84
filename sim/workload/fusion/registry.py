"""All rules of fusion."""

from __future__ import annotations

from netfold.sim.workload.fusion.layer import LayerSection
from netfold.sim.workload.fusion.one import OneSection
from netfold.sim.workload.fusion.partition import PartitionSection
from netfold.sim.workload.fusion.rule import FusionSection
from netfold.sim.workload.fusion.size import SizeSection

SECTIONS: tuple[type[FusionSection], ...] = (SizeSection, LayerSection, OneSection, PartitionSection)
