"""The format of a run folder's JSON files, version 2: what readers can rely on, and errors in words.

`FORMAT` is in every `summary.json`. It goes up when something that readers rely on is renamed, is removed or
changes its meaning. An addition does not change it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from netfold.errors import DataError, shown
from netfold.sim.results.records import (
    FaultRecord,
    LinkRecord,
    NodeRecord,
    NoteRecord,
    PhaseRecord,
    RoundRecord,
    StepRecord,
)
from netfold.sim.results.summary import PATTERN

# What the forms of a run folder's JSON files are made of, and those of fusion, jobs and inputs.


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


class FusionRecord(Form):
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


class StayRecord(Form):
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


FORMAT = 2
_RENAMED = "since format 1, the metric and column 'exact' are two: 'bit_exact' and 'merges_verified'"
_FOUND_CHARACTERS = 60
"""Characters of a wrong value that an error shows."""
_DEPTH_MAX = 64
"""Levels of nested mappings and lists; netfold writes about ten."""
_DAMAGED = "the folder is damaged or was changed: run the scenario again"

Verdict = Annotated[str, Field(pattern=PATTERN)]


class _Part(Form):
    """A row of the breakdown."""

    phase: str
    label: str
    time_us: Finite
    share: Finite | None
    payload_bytes: Number


class _Metrics(JobTimes):
    steps: Count
    workers: Annotated[int, Field(ge=1, lt=2**63)]
    elements: Number | None
    aggregation_time_us: Number | None
    aggregation_elements_per_s: Number | None
    iteration_time_us: Number | None
    since_last_rank_us: Number | None
    predicted_iteration_time_us: Number | None = None
    compute_time_us: Number | None = None
    buckets: Count | None = None
    breakdown: list[_Part] | None
    payload_bytes_up: Number | None
    wire_bytes_up: Number | None
    wire_bytes_up_per_worker: Number | None
    wire_bytes_down: Number | None
    compression_ratio: Number | None
    payload_bytes_down: Number | None = None
    bits_per_element_up: Number | None = None
    bits_per_element_down: Number | None = None
    uploads: Count | None = None
    skips: Count | None = None
    packets: Count
    packet_hops: Count
    packets_lost: Count
    packets_dropped: Count
    packets_retransmitted: Count
    packets_reordered: Count | None = None
    packets_retransmitted_in_vain: Count | None = None
    passes: Count | None
    passes_per_result: Number | None
    overflowed_words: Count
    loopback_busy: Number | None
    bit_exact: bool | None
    merges_verified: bool | None
    max_abs_error: Number | None
    nmse: Number | None = None
    cosine: Finite | None = None
    max_error_over_bound: Number | None
    density: Number | None
    union_density: Number | None
    redo_messages: Count
    workers_held_min: Count | None
    workers_held_mean: Number | None
    decode_failures: Count
    forecast_misses: Count
    approximate_entries: Count
    infinite_entries: Count
    codec_choice: dict[str, Count] | None
    loss_first: Finite | None
    loss: Finite | None
    test_metric: str | None = None
    test_score: Finite | None = None
    target: Finite | None = None
    steps_to_target: Count | None = None
    time_to_target_us: Number | None = None
    bytes_to_target: Number | None = None


class _NamedCheck(Form):
    """A check of a variant of the summary."""

    name: str
    verdict: Verdict
    detail: str


class _Check(_NamedCheck):
    """A row of checks.json."""

    variant: str


class _Reference(Form):
    """A figure to show beside the results."""

    label: str
    elements_per_s: Number
    source: str


class _Slot(Form):
    """A slot that a stuck variant waits for."""

    switch: str
    slot: int
    version: int
    stream: int
    unit: int
    waiting: list[int]
    missing: list[str]
    age_ps: Count
    last_event: str
    why: str
    advice: str


class _Message(Form):
    """A message that a stuck variant waits for."""

    source: str
    target: str
    age_ps: Count
    why: str
    advice: str


class _Diagnosis(Form):
    """Why a variant is stuck."""

    slots: list[_Slot]
    slots_count: Count
    messages: list[_Message]
    messages_count: Count
    idle: list[str]


class _Bound(Form):
    """A part of the aggregation time, and what bounds it."""

    cause: str
    where: str
    stage: str
    time_us: Number
    share: Number
    busy: Number | None
    alike: Count
    following: str
    following_busy: Number | None
    hosts: Count
    faster: Number | None


class _Variant(Form):
    name: str
    verdict: Verdict
    checks: list[_NamedCheck]
    metrics: _Metrics
    references: list[_Reference]
    switches: list[dict[str, Any]]
    bounds: list[_Bound]
    is_uncompressed: bool
    replays_times: bool
    setup: dict[str, dict[str, Any] | list[dict[str, Any]]] = Field(default_factory=dict)
    diagnosis: _Diagnosis = Field(default_factory=dict)  # type: ignore[assignment]  # left out: not stuck
    compute: str = ""  # left out: compute takes time, or an older netfold did not say
    trace: str = ""
    """The traceback of a codec that raised."""
    stay: StayRecord | None = None  # left out: the job is not one that comes and goes
    fusion: FusionRecord = Field(default_factory=dict)  # type: ignore[assignment]  # left out: nobody asked


class _Summary(Form):
    scenario: str
    baseline: str | None = None  # the variant that the scenario names
    description: str = ""
    chosen: list[str] = Field(default_factory=list)
    unfinished: list[str] = Field(default_factory=list)  # variants that were not run to their end
    inputs: list[Input] = Field(default_factory=list)
    seed: Count
    sets: list[str]
    verdict: Verdict
    variants: Annotated[list[_Variant], Field(min_length=1)]
    jobs: list[Jobs] = Field(default_factory=list)
    warnings: list[str]
    injected: list[Injected]
    approximations: list[str]
    tables: dict[str, str]  # SHA-256 of each, by the file's name


class _Circumstances(Form):
    """run.json."""

    version: str


# What an error says, by pydantic's type of error.
_RULES = {
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "too_short": "must not be empty",
    "string_type": "must be text",
    "string_pattern_mismatch": "must be pass, approximate: N entries, stuck or fail",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "finite_number": "must be finite",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "less_than": "must be less than {lt}",
}
_FORMS: dict[str, TypeAdapter[Any]] = {
    "summary.json": TypeAdapter(_Summary),
    "checks.json": TypeAdapter(list[_Check]),
    "run.json": TypeAdapter(_Circumstances),
}


def metric_types() -> dict[str, type]:
    """The metrics of a variant that are one value, each with its type: int, float, bool or str."""
    found = {}
    for name, field in _Metrics.model_fields.items():
        kinds = [one for one in get_args(field.annotation) if one is not NoneType] or [field.annotation]
        kind = get_args(kinds[0])[0] if get_origin(kinds[0]) is Annotated else kinds[0]
        if kind in (int, float, bool, str):
            found[name] = kind
    return found


def parse(path: str, name: str, content: bytes) -> Any:
    """Plain data of the run folder's JSON file of this name; errors call the file `path`.

    Raises
    ------
    DataError
        It is not JSON, has another format, or something in it is missing or has the wrong type.
    """
    try:
        found = json.loads(content, parse_constant=_refuse_constant)
    except RecursionError:
        raise DataError(f"{path}: damaged: nested too deep", _DAMAGED) from None
    except ValueError as error:  # UnicodeDecodeError is one
        raise DataError(f"{path}: damaged: {error}", _DAMAGED) from error
    _require_plain(path, found)
    if name == "summary.json":
        _require_format(path, found)
    try:
        _FORMS[name].validate_python(found)
    except ValidationError as error:
        raise _in_words(path, error) from None
    return found


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def _require_plain(path: str, found: object) -> None:
    """Refuse what no form checks but would make a reader fail: deep nesting, and text that is not Unicode."""
    level = [found]
    for _ in range(_DEPTH_MAX):
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below += [*value.keys(), *value.values()]
            elif isinstance(value, list):
                below += value
            elif (
                isinstance(value, str)
                and not value.isascii()
                and any("\ud800" <= one <= "\udfff" for one in value)
            ):
                raise DataError(
                    f"{path}: damaged: holds text that is not Unicode: {ascii(value)[:60]}", _DAMAGED
                )
        level = below
    if level:
        raise DataError(f"{path}: damaged: nested too deep", _DAMAGED)


def _require_format(path: str, found: object) -> None:
    if not isinstance(found, dict):
        raise DataError(f"{path}: must be a mapping, found {_shown(found)}", _DAMAGED)
    version = found.get("format")
    if version is None and "variants" in found:
        raise DataError(
            f"{path}: has no format version: an older netfold wrote it",
            f"this netfold reads format {FORMAT}: run the scenario again, or use the version in run.json",
        )
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise DataError(f"{path}: format: must be {FORMAT}, found {_shown(version)}", _DAMAGED)
    if version < FORMAT:
        older = f"{path}: has format {version}, an older netfold wrote it: this one reads format {FORMAT}"
        raise DataError(f"{older}; {_RENAMED}", "run the scenario again, or use the version in run.json")
    if version > FORMAT:
        raise DataError(
            f"{path}: has format {_shown(version)}, a newer netfold wrote it: this one reads format {FORMAT}",
            "use the netfold version in run.json or a newer one, or run the scenario again with this one",
        )


def _in_words(path: str, error: ValidationError) -> DataError:
    """The first error with its place, and the number of further ones."""
    details = error.errors(include_url=False)
    first = details[0]
    place = ".".join(map(str, first["loc"]))
    limits = {
        name: f"{limit:g}" for name, limit in first.get("ctx", {}).items() if isinstance(limit, int | float)
    }
    rule = _RULES.get(first["type"], first["msg"]).format(**limits)
    what = "is missing" if first["type"] == "missing" else f"{rule}, found {_shown(first['input'])}"
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return DataError(f"{path}: {place}{': ' if place else ''}{what}{more}", _DAMAGED)


def _shown(value: object) -> str:
    """A value, shortened."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a whole number of {value.bit_length()} bits"
    text = shown(value)
    return text if len(text) <= _FOUND_CHARACTERS else f"{text[: _FOUND_CHARACTERS - 1]}…"


# Records as Parquet: one table per record type, with the fields of the dataclass as columns.


TABLES: dict[str, type] = {
    "steps": StepRecord,
    "rounds": RoundRecord,
    "notes": NoteRecord,
    "phases": PhaseRecord,
    "links": LinkRecord,
    "faults": FaultRecord,
    "nodes": NodeRecord,
}

_COLUMN_TYPES: dict[Any, type[pl.DataType]] = {
    str: pl.String,
    str | None: pl.String,
    int: pl.Int64,
    int | None: pl.Int64,
    bool: pl.Boolean,
    bool | None: pl.Boolean,
    float: pl.Float64,
    float | None: pl.Float64,
}


@cache
def schema(record_type: type) -> pl.Schema:
    """Column names and types of the table of one record type."""
    hints = get_type_hints(record_type)
    return pl.Schema({field.name: _COLUMN_TYPES[hints[field.name]]() for field in fields(record_type)})


@cache
def nullable(record_type: type) -> set[str]:
    # Names of the columns that may hold nulls.
    return {name for name, hint in get_type_hints(record_type).items() if type(None) in get_args(hint)}


def frame(record_type: type, records: Sequence[Any]) -> pl.DataFrame:
    """The table of some records, possibly none."""
    return pl.DataFrame(
        {
            name: pl.Series(name, list(map(attrgetter(name), records)), dtype)
            for name, dtype in schema(record_type).items()
        }
    )


def plain_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """A table of what is one value in every row; what holds several, such as a breakdown, is left out."""
    several = {name for row in rows for name, value in row.items() if isinstance(value, dict | list | tuple)}
    plain = [{name: value for name, value in row.items() if name not in several} for row in rows]
    return pl.DataFrame(plain, infer_schema_length=None)


def to_parquet(record_type: type, records: Sequence[Any]) -> bytes:
    # The same records give the same bytes; there may be none.
    return parquet_bytes(frame(record_type, records))


def parquet_bytes(table: pl.DataFrame) -> bytes:
    """Parquet bytes of a table; the same table gives the same bytes."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd", compression_level=3, statistics=False)
    return buffer.getvalue()
