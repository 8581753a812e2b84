"""Several runs as if they were one: what a page and an answer about all of them are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from netfold.sim.report.columns import TableColumn
from netfold.sim.results.file_formats import TABLES
from netfold.sim.results.folder import RunFolder, first_seed
from netfold.sim.results.summary import worst


class SideBySide(NamedTuple):
    """What a page says of several runs beside their results."""

    runs: Sequence[RunFolder]
    notes: Sequence[str]
    """What makes them less comparable."""
    baseline: str
    columns: Sequence[TableColumn]
    """Of the table that sets runs against each other."""


_NAMED_IN = {"variants": "name", "jobs": "variant", "injected": "variant"}
"""The lists of a summary that name variants, and the key that does."""


def joined(runs: Sequence[RunFolder]) -> RunFolder:
    """One run with the variants of all: "ring/films" of the second is "ring of run 2/films".

    A grid has the number of the run as its first key. The baseline that the first run names stays the
    baseline. Tables are those of each run's first seed.
    """
    marked = [_marked(first_seed(run), number) for number, run in enumerate(runs, start=1)]
    first = marked[0]
    summaries = [run.summary for run in marked]
    questions = {summary.get("question") for summary in summaries}
    summary = {
        **{
            key: [entry for summary in summaries for entry in summary.get(key, ())]
            for key in (*_NAMED_IN, "warnings", "unfinished")
        },
        "sets": [],
        "question": questions.pop() if len(questions) == 1 else None,
        "scenario": ", ".join(dict.fromkeys(summary["scenario"] for summary in summaries)),
        "baseline": summaries[0].get("baseline"),
        "verdict": worst(summary["verdict"] for summary in summaries),
        "approximations": [
            *dict.fromkeys(line for summary in summaries for line in summary["approximations"])
        ],
    }
    tables: dict[str, Any] = {name: pl.concat([getattr(run, name) for run in marked]) for name in TABLES}
    checks = [check for run in marked for check in run.checks]
    return replace(first, summary=summary, checks=checks, **tables)


def _marked(run: RunFolder, number: int) -> RunFolder:
    """A run whose variants are named with its number."""

    def marked(name: str) -> str:
        variant, slash, job = name.partition("/")
        return f"{variant} of run {number}{slash}{job}"

    summary = run.summary
    entries = {
        list_name: [
            {**entry, key: marked(entry[key]), **({"axes": [["run", str(number)], *axes]} if axes else {})}
            for entry in summary.get(list_name, ())
            for axes in [entry.get("axes")]
        ]
        for list_name, key in _NAMED_IN.items()
    }
    names = {variant["name"] for variant in summary["variants"]}
    warnings = [warning.partition(": ") for warning in summary["warnings"]]
    changes: Mapping[str, Any] = {
        **entries,
        "baseline": marked(summary["baseline"]) if summary.get("baseline") else None,
        "unfinished": [marked(name) for name in summary.get("unfinished", ())],
        "warnings": [
            f"{marked(name) if name in names else name}{colon}{text}" for name, colon, text in warnings
        ],
    }
    tables: dict[str, Any] = {
        name: getattr(run, name).with_columns(
            pl.col("variant").str.replace("^[^/]*", f"${{0}} of run {number}")
        )
        for name in TABLES
    }
    checks = [{**check, "variant": marked(check["variant"])} for check in run.checks]
    return replace(run, summary={**summary, **changes}, checks=checks, **tables)
