"""The terminal's table of a run: one line per variant, and notes below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from netfold.sim.report import words
from netfold.sim.report.answer.bounds import short
from netfold.sim.report.answer.ranking import fastest_line
from netfold.sim.report.fitting import FittingTable
from netfold.sim.report.jobs.lines import lines
from netfold.sim.report.warnings import warnings
from netfold.sim.results.summary import NO_COMPUTE
from netfold.sim.results.verdicts import kind

SHARE_MIN = 0.005  # of the aggregation time: only the report shows smaller parts
BOUND_LABEL = "wire bound"  # how the label of a computed bound begins
_RATIO_COLUMN = 3  # belongs to the column left of it


def results_table(summary: Mapping[str, Any], more_notes: Sequence[str] = ()) -> Table:
    """Table of a run's `summary.json`; ratios are to its first variant; `more_notes` are of `run.json`."""
    variants = summary["variants"]
    first_rate = variants[0]["metrics"]["aggregation_elements_per_s"]
    bounded = any(variant.get("bounds") for variant in variants)
    trained = any(words.has_trained(variant["metrics"]) for variant in variants)
    tested = any(words.is_tested(variant["metrics"]) for variant in variants)
    aimed = any(words.has_target(variant["metrics"]) for variant in variants)
    computed = any(variant["metrics"].get("compute_time_us") for variant in variants)
    notes = [
        *_without_compute(variants),
        f"aggregation: mean per step; {'iteration: whole steps; ' if computed else ''}× first: elements/s "
        f"over that of {variants[0]['name']}; wire/worker: sent by one worker, mean per step; compression: "
        "dense float32 bytes over the payload of one worker",
        *([line] if (line := fastest_line(variants)) else []),
        *_time_shares(variants),
        *_codec_events(variants),
        *lines(summary.get("jobs", [])),
        *_published(variants),
        *_fused(variants),
        *_workers_held(variants),
        *_injected(summary["injected"]),
        *(f"note: {text}" for text in (*warnings(summary), *more_notes)),
    ]
    title = f"{summary['scenario']}, seed {summary['seed']}"
    table = FittingTable(title, notes, pairs=(_RATIO_COLUMN + computed,))
    table.add_column("variant")
    iteration = ["iteration"] if computed else []
    for heading in ("aggregation", *iteration, "elements/s", "× first", "wire/worker", "compression"):
        table.add_column(heading, justify="right")
    for heading in (
        "exact",
        *(["training loss"] if trained else []),
        *(["held-out data"] if tested else []),
        *(["target"] if aimed else []),
        *(["bound by"] if bounded else []),
        "verdict",
    ):
        table.add_column(heading)
    for variant in variants:
        metrics = variant["metrics"]
        rate = metrics["aggregation_elements_per_s"]
        table.add_row(
            Text(variant["name"]),  # not str: brackets in a name are no markup
            words.time(metrics["aggregation_time_us"]),
            *([words.time(metrics["iteration_time_us"])] if computed else []),
            words.scaled(rate, ""),
            words.times(words.ratio(rate, first_rate)),
            words.scaled(metrics["wire_bytes_up_per_worker"], "B"),
            words.times(metrics["compression_ratio"]),
            words.exact(metrics),
            *([words.training_loss(metrics)] if trained else []),
            *([words.held_out_score(metrics)] if tested else []),
            *([words.to_target(metrics)] if aimed else []),
            *([Text(short(variant.get("bounds", ())))] if bounded else []),
            verdict_text(variant["verdict"]),
        )
    return table


def _without_compute(variants: list[dict[str, Any]]) -> list[str]:
    """A line that names the variants whose times are the network's alone."""
    names = [variant["name"] for variant in variants if variant["metrics"].get("compute_time_us") == 0]
    if not names:
        return []
    which = "" if len(names) == len(variants) else f" in {', '.join(names)}"
    return [
        f"{NO_COMPUTE}{which}: a step takes as long as its aggregation; with a device, such as "
        "device: a100, compute takes time"
    ]


def _published(variants: list[dict[str, Any]]) -> list[str]:
    """A line for every published figure; only the report shows bounds."""
    return [
        f"{entry['label']} for {variant['name']}: {words.scaled(entry['elements_per_s'], '')} elements/s, "
        f"{entry['source']}"
        for variant in variants
        for entry in variant["references"]
        if not entry["label"].startswith(BOUND_LABEL)
    ]


def _fused(variants: list[dict[str, Any]]) -> list[str]:
    """A line for every variant whose step was predicted from the buckets that its layers are in."""
    return [
        f"fusion of {variant['name']} ({variant['fusion']['rule']}): "
        f"{words.counted(variant['fusion']['layers'], 'layer')} in "
        f"{words.counted(len(variant['fusion']['buckets']), 'bucket')}; a step was predicted to take "
        f"{words.time(metrics['predicted_iteration_time_us'])}, and takes "
        f"{words.time(metrics['iteration_time_us'])}"
        for variant in variants
        if "fusion" in variant
        for metrics in [variant["metrics"]]
    ]


def _workers_held(variants: list[dict[str, Any]]) -> list[str]:
    """A line for every variant in which some result does not hold all workers."""
    return [
        f"{variant['name']}: workers held, {metrics['workers_held_min']} at least, "
        f"{words.digits(metrics['workers_held_mean'])} of {metrics['workers']} on average"
        for variant in variants
        if words.lacks_workers(metrics := variant["metrics"])
    ]


def _codec_events(variants: list[dict[str, Any]]) -> list[str]:
    """A line for every variant whose codec reported notes."""
    return [
        f"{variant['name']}: {events}"
        for variant in variants
        if (events := words.codec_events(variant["metrics"]))
    ]


def _time_shares(variants: list[dict[str, Any]]) -> list[str]:
    """A line for every variant whose aggregation time has more than one part."""
    lines = []
    for variant in variants:
        shares: dict[str, float] = {}
        for row in words.parts(variant["metrics"]):
            name = row["label"] if row["phase"] == "network" else row["phase"]
            shares[name] = shares.get(name, 0.0) + (row["share"] or 0.0)
        shown = [name for name, share in shares.items() if share >= SHARE_MIN]
        if len(shown) > 1:
            text = ", ".join(f"{name} {100 * shares[name]:.0f} %" for name in shown)
            lines.append(f"time of {variant['name']}: {text}")
    return lines


def _injected(entries: list[dict[str, Any]]) -> list[str]:
    """A line for every fault."""
    return [
        f"injected into {entry['variant']}: {entry['kind']} on {entry['where']}, {words.injected(entry)}"
        for entry in entries
    ]


def verdict_text(verdict: str) -> Text:
    """The verdict in its colour."""
    styles = {"pass": "green", "approximate": "bold cyan", "stuck": "bold yellow"}
    return Text(verdict, style=styles.get(kind(verdict), "bold red"))
