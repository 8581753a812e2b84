"""The format of a run folder's JSON files, version 3: what readers can rely on, and errors in words.

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
from types import GenericAlias
from typing import Annotated, Any, get_args, get_type_hints

import polars as pl
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model

from netfold.errors import DataError, shown
from netfold.sim.plan.plan import Reference
from netfold.sim.results.breakdown import BreakdownPart
from netfold.sim.results.metrics import METRICS, Metric
from netfold.sim.results.records import (
    CheckRecord,
    FaultRecord,
    LinkRecord,
    NodeRecord,
    NoteRecord,
    PhaseRecord,
    RoundRecord,
    SeriesRecord,
    StepRecord,
    TimePart,
)
from netfold.sim.results.summary import PATTERN

FORMAT = 3
_RENAMED = {
    1: "the metric and column 'exact' are two: 'bit_exact' and 'merges_verified'",
    2: "the verdict 'stuck' is 'stalled', and 'redo' (label, kind of notes, 'redo_messages') is 'fallback'",
}
"""What was renamed since a format."""
_FOUND_CHARACTERS = 60
"""Characters of a wrong value that an error shows."""
_DEPTH_MAX = 64
"""Levels of nested mappings and lists; netfold writes about ten."""
_DAMAGED = "the folder is damaged or was changed: run the scenario again"


# The forms of a run folder's JSON files: what each key holds. Other keys are ignored. Those of records and of
# metrics are derived from them.


Count = Annotated[int, Field(ge=0, lt=2**63)]
Finite = Annotated[float, Field(ge=-1e300, le=1e300)]
Number = Annotated[float, Field(ge=0, le=1e300)]
Verdict = Annotated[str, Field(pattern=PATTERN)]
_CHECKED: dict[Any, Any] = {int: Count, float: Number, int | None: Count | None, float | None: Number | None}


def form(**kinds: Any) -> Any:
    """The form of a mapping: by key its type, or `[type]` for a list; or that and its default."""

    def member(value_type: Any, default: Any = ...) -> tuple[Any, Any]:
        return (GenericAlias(list, (value_type[0],)) if isinstance(value_type, list) else value_type), default

    members: dict[str, Any] = {
        name: member(*kind) if isinstance(kind, tuple) else member(kind) for name, kind in kinds.items()
    }
    return create_model("Form", __config__=ConfigDict(strict=True, allow_inf_nan=False), **members)


def form_of(record: type, **others: Any) -> Any:
    """The form of a record: numbers are not negative, unless `others` say so."""
    hints = get_type_hints(record)
    kinds = {member.name: _CHECKED.get(hints[member.name], hints[member.name]) for member in fields(record)}
    return form(**(kinds | others))


def _metric_kind(metric: Metric, part: Any) -> Any:
    """What a summary may hold of a metric."""
    several: dict[str, Any] = {
        "breakdown": GenericAlias(list, (part,)),
        "codec_choice": dict[str, Count],
        "links_used": GenericAlias(dict, (str, form(used=Count, links=Count))),
    }
    plain: dict[type, Any] = {
        int: Annotated[int, Field(ge=int(metric.least), lt=2**63)],
        float: Annotated[float, Field(ge=metric.least, le=1e300)],
    }
    value_type = several.get(metric.name) or plain.get(metric.unit.type, metric.unit.type)
    value_type = value_type | None if metric.may_be_none else value_type
    return (value_type, None) if metric.may_be_missing else value_type


def _variant_form() -> Any:
    """The form of a variant of a summary, or of one of its jobs."""
    part = form_of(BreakdownPart, time_us=Finite, share=Finite | None)
    stage = form(start_us=Number, element_us=Number, sort_us=Number)
    costs = form(
        forward_us=Number,
        backward_us=Number,
        samples=Count,
        fit_error=Number | None,
        stages=GenericAlias(dict, (str, stage)),
    )
    fused = form(layers=[str], elements=Count, encoded_us=Number, arrived_us=Number)
    fusion = form(rule=str, layers=Count, predicted_iteration_time_us=Number, costs=costs, buckets=[fused])
    stay = form(admission=str, admitted_us=Number | None, end_us=Number | None, hosts=[str], fallback=bool)
    slot = form(
        **dict.fromkeys(("switch", "last_event", "why", "advice"), str),
        **dict.fromkeys(("slot", "version", "stream", "unit"), int),
        **{"waiting": [int], "missing": [str], "age_ps": Count},
    )
    message = form(source=str, target=str, age_ps=Count, why=str, advice=str)
    diagnosis = form(slots=[slot], slots_count=Count, messages=[message], messages_count=Count, idle=[str])
    spread = GenericAlias(dict, (str, GenericAlias(list, (Finite,))))
    score = form(steps=Count, time_us=Number, score=Finite, range=([Finite], []))
    axis: Any = Annotated[GenericAlias(list, (str,)), Field(min_length=2, max_length=2)]  # key, value
    return form(
        name=str,
        verdict=Verdict,
        checks=[form(name=str, verdict=Verdict, detail=str)],
        metrics=form(**{metric.name: _metric_kind(metric, part) for metric in METRICS}),
        references=[form_of(Reference)],
        switches=[dict[str, Any]],
        bounds=[form_of(TimePart)],
        is_uncompressed=bool,
        replays_times=bool,
        setup=(dict[str, dict[str, Any] | list[dict[str, Any]]], {}),
        diagnosis=(diagnosis, {}),  # left out: not stalled
        compute=(str, ""),  # left out: compute takes time, or an older netfold did not say
        trace=(str, ""),  # the traceback of a codec that raised
        stay=(stay | None, None),  # left out: the job is not one that comes and goes
        fusion=(fusion, {}),  # left out: nobody asked
        axes=([axis], []),  # left out: variants are no grid
        scores=([score], []),  # left out: nothing is tested
        chance=(Finite | None, None),
        predictions=([GenericAlias(list, (Number,))], []),  # [bytes, µs]; left out: nothing is predicted
        seeds=([Count], []),  # left out: run with the scenario's alone
        spread=(spread, {}),
    )


@cache
def _forms() -> dict[str, TypeAdapter[Any]]:
    """The forms by the file's name; made when a file is read, as a run only writes."""
    spread = form(mean=Number, p95=Number, max=Number)
    jobs = form(
        spread=(dict[str, Any], {}),
        **dict.fromkeys(("variant", "admission"), str),
        **dict.fromkeys(("jobs", "finished", "waited", "fallbacks", "overlapping"), Count),
        **dict.fromkeys(("makespan_us", "fairness"), Number | None),
        **dict.fromkeys(("completion_time_us", "waiting_us", "slowdown"), spread | None),
    )
    read_file = form(path=str, kept=(bool, True), bytes=Count, sha256=str)
    answer = form(
        **dict.fromkeys(("group", "question", "text", "details"), str),
        **{key: [str] for key in ("winners", "next")},
        **dict.fromkeys(("value", "next_value", "times_baseline"), Finite | None),
        baseline=str | None,
        has_learned=bool,
    )
    summary = form(
        scenario=str,
        baseline=(str | None, None),  # the variant that the scenario names
        question=(str | None, None),  # what the scenario asks
        answer=([answer], []),
        description=(str, ""),
        chosen=([str], []),
        seeds=([Count], []),
        repeats=([form(name=str, seed=Count, verdict=Verdict, metrics=dict[str, Any])], []),
        unfinished=([str], []),  # variants that were not run to their end
        inputs=([read_file], []),
        seed=Count,
        sets=[str],
        verdict=Verdict,
        variants=Annotated[GenericAlias(list, (_variant_form(),)), Field(min_length=1)],
        jobs=([jobs], []),
        warnings=[str],
        injected=[form_of(FaultRecord)],
        approximations=[str],
        tables=dict[str, str],  # SHA-256 of each, by the file's name
    )
    kinds: dict[str, Any] = {
        "summary.json": summary,
        "checks.json": GenericAlias(list, (form_of(CheckRecord, verdict=Verdict),)),
        "run.json": form(version=str),
    }
    return {name: TypeAdapter(kind) for name, kind in kinds.items()}


# What an error says, by pydantic's type of error.
_RULES = {
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "list_type": "must be a list",
    "too_short": "must not be empty",
    "string_type": "must be text",
    "string_pattern_mismatch": "must be pass, approximate: N entries, stalled or fail",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "finite_number": "must be finite",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "less_than": "must be less than {lt}",
}


def parse(path: str, name: str, content: bytes) -> Any:
    """Plain data of the run folder's JSON file of this name; errors call the file `path`.

    Raises
    ------
    DataError
        It is not JSON, has another format, or something in it is missing or has the wrong type.
    """
    try:
        parsed = json.loads(content, parse_constant=_refuse_constant)
    except RecursionError:
        raise DataError(f"{path}: damaged: nested too deep", _DAMAGED) from None
    except ValueError as error:  # UnicodeDecodeError is one
        raise DataError(f"{path}: damaged: {error}", _DAMAGED) from error
    _require_plain(path, parsed)
    if name == "summary.json":
        _require_format(path, parsed)
    try:
        _forms()[name].validate_python(parsed)
    except ValidationError as error:
        raise _in_words(path, error) from None
    return parsed


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
                and any("\ud800" <= character <= "\udfff" for character in value)
            ):
                raise DataError(
                    f"{path}: damaged: holds text that is not Unicode: {ascii(value)[:60]}", _DAMAGED
                )
        level = below
    if level:
        raise DataError(f"{path}: damaged: nested too deep", _DAMAGED)


def _require_format(path: str, found: object) -> None:
    if not isinstance(found, dict):
        raise DataError(f"{path}: must be a mapping, found {_shorten(found)}", _DAMAGED)
    version = found.get("format")
    if version is None and "variants" in found:
        raise DataError(
            f"{path}: has no format version: an older netfold wrote it",
            f"this netfold reads format {FORMAT}: run the scenario again, or use the version in run.json",
        )
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise DataError(f"{path}: format: must be {FORMAT}, found {_shorten(version)}", _DAMAGED)
    if version < FORMAT:
        older = f"{path}: has format {version}, an older netfold wrote it: this one reads format {FORMAT}"
        renamed = "; ".join(f"since format {since}, {_RENAMED[since]}" for since in range(version, FORMAT))
        raise DataError(f"{older}; {renamed}", "run the scenario again, or use the version in run.json")
    if version > FORMAT:
        raise DataError(
            f"{path}: has format {_shorten(version)}, a newer netfold wrote it: "
            f"this one reads format {FORMAT}",
            "use the netfold version in run.json or a newer one, or run the scenario again with this one",
        )


def _in_words(path: str, error: ValidationError) -> DataError:
    """The first error with its place, and the number of further ones."""
    details = error.errors(include_url=False)
    first = details[0]
    location = ".".join(map(str, first["loc"]))
    limits = {
        name: f"{limit:g}" for name, limit in first.get("ctx", {}).items() if isinstance(limit, int | float)
    }
    rule = _RULES.get(first["type"], first["msg"]).format(**limits)
    what = "is missing" if first["type"] == "missing" else f"{rule}, found {_shorten(first['input'])}"
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return DataError(f"{path}: {location}{': ' if location else ''}{what}{more}", _DAMAGED)


def _shorten(value: object) -> str:
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
    "series": SeriesRecord,
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
