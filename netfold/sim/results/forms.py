"""What the forms of a run folder's JSON files are made of, and those of fusion, jobs and inputs."""

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


class JobTimes(Form):
    """Metrics of a job that comes and goes; other variants do not have them."""

    arrival_us: Number | None = None
    waiting_us: Number | None = None
    completion_time_us: Number | None = None
    alone_us: Number | None = None
    slowdown: Number | None = None


class Stay(Form):
    """When such a job was there, and where."""

    admission: str
    admitted_us: Number | None
    end_us: Number | None
    hosts: list[str]
    fallback: bool


class _Spread(Form):
    """A figure of several jobs."""

    mean: Number
    p95: Number
    max: Number


class Jobs(Form):
    """The jobs of a variant that come and go, all together."""

    variant: str
    admission: str
    jobs: Count
    finished: Count
    waited: Count
    fallbacks: Count
    makespan_us: Number | None
    completion_time_us: _Spread | None
    waiting_us: _Spread | None
    slowdown: _Spread | None
    overlapping: Count
    fairness: Number | None


class Input(Form):
    """A file that the scenario names."""

    path: str
    kept: bool = True  # a copy is in the folder
    bytes: Count
    sha256: str


class Injected(Form):
    """The effect of a fault."""

    variant: str
    fault: Count
    kind: str
    where: str
    extent: str
    count: Count
    counted: str
    first_ps: Count | None
