"""All rules of fusion, and the keys that choose one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import AfterValidator, Field

from netfold.sim.keys.fields import Size
from netfold.sim.workload.fusion.layer_fusion import LayerFusionSection
from netfold.sim.workload.fusion.mg_wfbp import MgWfbpSection
from netfold.sim.workload.fusion.none import NoneSection
from netfold.sim.workload.fusion.omgs import OmgsSection
from netfold.sim.workload.fusion.one import OneSection
from netfold.sim.workload.fusion.partition import PartitionSection
from netfold.sim.workload.fusion.rule import FusionSection
from netfold.sim.workload.fusion.size import SizeSection
from netfold.units import SIZE

SECTIONS: tuple[type[FusionSection], ...] = (
    NoneSection,
    OneSection,
    SizeSection,
    PartitionSection,
    MgWfbpSection,
    OmgsSection,
    LayerFusionSection,
)

if TYPE_CHECKING:
    AnyFusion = FusionSection
else:
    AnyFusion = Annotated[Union[SECTIONS], Field(discriminator="kind")]  # noqa: UP007 (as many as there are)


def _only_without_fusion(size_bytes: int | None) -> int | None:
    """Refuse the short form beside the long one; loading writes it out where it is alone."""
    if size_bytes is not None:
        size = SIZE.format(size_bytes)
        raise ValueError(
            f"bucket and fusion are both given\nbucket: {size} is short for fusion: {{kind: size, "
            f"bytes: {size}}}: leave out one"
        )
    return size_bytes


ShortFusion = Annotated[Size | None, AfterValidator(_only_without_fusion)]
