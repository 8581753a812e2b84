"""The terminal's table of a run: one line per variant, and notes below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from netfold.sim.report import words
from netfold.sim.report.answer.bounds import short
from netfold.sim.report.answer.ranking import answers, groups_of, legend, times_baseline
from netfold.sim.report.fitting import FittingTable
from netfold.sim.report.jobs.lines import lines
from netfold.sim.report.warnings import warnings
from netfold.sim.results.summary import NO_COMPUTE, kind

SHARE_MIN = 0.005  # of the aggregation time: only the report shows smaller parts
BOUND_LABEL = "wire bound"  # how the label of a computed bound begins
_RATIO_COLUMN = 3  # belongs to the column left of it
_LOSS = "; nmse: ‖decoded − true sum‖² over ‖true sum‖²; cosine: of the angle between them"


def results_table(summary: Mapping[str, Any], more_notes: Sequence[str] = ()) -> Table:
    """Table of a run's `summary.json`; ratios are within variants of equal workload.

    `more_notes` are of `run.json`.
    """
    variants = summary["variants"]
    groups = groups_of(variants, summary.get("baseline"))
    times = times_baseline(groups)
    bounded = any(variant["bounds"] for variant in variants)
    skewed = any(group.has_skew for group in groups)
    lossy = any(words.is_lossy(variant["metrics"]) for variant in variants)
    trained = any(words.has_trained(variant["metrics"]) for variant in variants)
    tested = any(words.is_tested(variant["metrics"]) for variant in variants)
    aimed = any(words.has_target(variant["metrics"]) for variant in variants)
    computed = any(variant["metrics"].get("compute_time_us") for variant in variants)
    notes = [
        *_without_compute(variants),
        f"aggregation: mean per step; {'after last rank: of it, since all ranks arrived; ' if skewed else ''}"
        f"{'iteration: whole steps; ' if computed else ''}{legend(groups)}; bytes/worker: sent by a worker, "
        "mean per step; compression: dense float32 bytes over the payload, of all workers; bit-exact: the "
        f"decoded sum is the exact one, bit for bit (n/a: added as float32){_LOSS if lossy else ''}",
        *answers(groups),
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
    table = FittingTable(title, notes, pairs=(_RATIO_COLUMN + computed + skewed,))
    table.add_column("variant")
    more = [*(["after last rank"] if skewed else []), *(["iteration"] if computed else [])]
    for heading in ("aggregation", *more, "elements/s", "× baseline", "bytes/worker", "compression"):
        table.add_column(heading, justify="right")
    for heading in (
        "bit-exact",
        *(["nmse", "cosine"] if lossy else []),
        *(["training loss"] if trained else []),
        *(["held-out data"] if tested else []),
        *(["target"] if aimed else []),
        *(["bottleneck"] if bounded else []),
        "verdict",
    ):
        table.add_column(heading)
    for variant in variants:
        metrics = variant["metrics"]
        table.add_row(
            Text(variant["name"]),  # not str: brackets in a name are no markup
            words.time(metrics["aggregation_time_us"]),
            *([words.time(metrics["since_last_rank_us"])] if skewed else []),
            *([words.time(metrics["iteration_time_us"])] if computed else []),
            words.scaled(metrics["aggregation_elements_per_s"], ""),
            times[variant["name"]],
            words.scaled(metrics["wire_bytes_up_per_worker"], "B"),
            words.times(metrics["compression_ratio"]),
            words.bit_exact(metrics),
            *([words.nmse(metrics), words.cosine(metrics)] if lossy else []),
            *([words.training_loss(metrics)] if trained else []),
            *([words.held_out_score(metrics)] if tested else []),
            *([words.to_target(metrics)] if aimed else []),
            *([Text(short(variant["bounds"]))] if bounded else []),
            verdict_text(variant["verdict"]),
        )
    return table


def _without_compute(variants: list[dict[str, Any]]) -> list[str]:
    """Lines that name the variants whose steps are their aggregation alone."""
    named: dict[str, list[str]] = {}
    for variant in variants:
        if compute := variant.get("compute"):
            named.setdefault(compute, []).append(variant["name"])
    hints = {NO_COMPUTE: "; with a device, such as device: a100, a model's compute takes time"}
    return [
        f"{text}{'' if len(names) == len(variants) else ' in ' + ', '.join(names)}: a step takes as long as "
        f"its aggregation{hints.get(text, '')}"
        for text, names in named.items()
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
