"""All rules of fusion."""

from __future__ import annotations

from netfold.sim.workload.fusion.layer_fusion import LayerFusionSection
from netfold.sim.workload.fusion.mg_wfbp import MgWfbpSection
from netfold.sim.workload.fusion.none import NoneSection
from netfold.sim.workload.fusion.omgs import OmgsSection
from netfold.sim.workload.fusion.one import OneSection
from netfold.sim.workload.fusion.partition import PartitionSection
from netfold.sim.workload.fusion.rule import FusionSection
from netfold.sim.workload.fusion.size import SizeSection

SECTIONS: tuple[type[FusionSection], ...] = (
    NoneSection,
    OneSection,
    SizeSection,
    PartitionSection,
    MgWfbpSection,
    OmgsSection,
    LayerFusionSection,
)
