"""What the forms of a run folder's JSON files are made of, and those of the fusion of layers."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0, lt=2**63)]
Finite = Annotated[float, Field(ge=-1e300, le=1e300)]
Number = Annotated[float, Field(ge=0, le=1e300)]


class Form(BaseModel):
    """A mapping whose keys have these types; other keys are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Stage(Form):
    """The cost of a stage of a bucket."""

    start_us: Number
    element_us: Number
    sort_us: Number


class _Costs(Form):
    """What the rules of fusion weighed."""

    forward_us: Number
    backward_us: Number
    samples: Count
    fit_error: Number | None
    stages: dict[str, _Stage]


class _Fused(Form):
    """A bucket, and when it was predicted to be encoded and to have arrived."""

    layers: list[str]
    elements: Count
    encoded_us: Number
    arrived_us: Number


class Fusion(Form):
    """Which layers were fused, and why."""

    rule: str
    layers: Count
    predicted_iteration_time_us: Number
    costs: _Costs
    buckets: list[_Fused]
