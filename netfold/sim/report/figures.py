"""The figures of a run, each answering one question: how fast, how many bytes, when, and did it learn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from netfold.sim.report import style, words
from netfold.sim.report.answer.figure import Bar, ranked_bars
from netfold.sim.report.answer.ranking import groups_of, order_key, times_baseline
from netfold.sim.report.jobs.chart import job_chart
from netfold.sim.report.learning import learning
from netfold.sim.report.networks.utilisation import utilisation
from netfold.sim.report.timeline import timeline
from netfold.sim.results.folder import Run
from netfold.sim.results.summary import GOOD, RANK_SKEW, kind

_MARKS = ("|", "D", "s", "^")


def figures(run: Run) -> dict[str, bytes]:
    """SVG of each figure that has something to show, by file name, in reading order."""
    labels = style.label_colours(run.phases.filter(pl.col("phase") == "network")["label"])
    draw: dict[str, Callable[[Run], Figure | None]] = {
        "throughput.svg": throughput,
        "bounds.svg": bound_times,
        "breakdown.svg": partial(time_spent, labels=labels),
        "bytes.svg": partial(bytes_sent, labels=labels),
        "jobs.svg": job_chart,
        "timeline.svg": partial(timeline, labels=labels),
        "utilisation.svg": utilisation,
        "training.svg": learning,
    }
    drawn: dict[str, bytes] = {}
    with style.house_style():
        for name, function in draw.items():
            figure = function(run)
            if figure is not None:
                drawn[name] = style.to_svg(figure)
    return drawn


def throughput(run: Run) -> Figure:
    """Bars: dense gradient elements aggregated per second, with published rates and bounds beside them."""
    variants = run.summary["variants"]
    rates = [variant["metrics"]["aggregation_elements_per_s"] or 0.0 for variant in variants]
    groups = groups_of(variants, run.summary.get("baseline"))
    times = times_baseline(groups)
    baselines = [group.baseline["name"] for group in groups if group.baseline is not None]
    references = [entry for variant in variants for entry in variant["references"]]
    factor, prefix = words.prefix(max([*rates, *(entry["elements_per_s"] for entry in references)]))
    figure = style.new_figure(0.85 + 0.42 * len(variants) + 0.3 * bool(references))
    axes = figure.add_subplot(xlabel=f"{prefix} elements/s".strip())
    style.bars_axes(
        axes, [variant["name"] for variant in variants], "Gradient elements aggregated per second"
    )
    for row, (variant, rate) in enumerate(zip(variants, rates, strict=True)):
        verdict = kind(variant["verdict"])
        failed = verdict not in GOOD
        axes.barh(row, rate / factor, height=0.62, color=style.LIGHT_GREY if failed else style.BLUE)
        name = variant["name"]
        compared = "" if failed or name in baselines else f" · {times[name]}"
        estimated = " · approximate" if verdict == "approximate" else ""
        style.beside(axes, row, f"{words.scaled(rate, '/s')}{compared}{estimated}")
        if failed:
            why = "stuck" if verdict == "stuck" else "a check failed"
            axes.text(0.01, row, why, transform=axes.get_yaxis_transform(), va="center")
    _mark_references(axes, variants, factor)
    axes.set_xlim(left=0)
    return figure


def _mark_references(axes: Axes, variants: list[dict[str, Any]], factor: float) -> None:
    """One mark per kind of reference, on the rows of the variants that have one."""
    rows: dict[str, list[tuple[float, int]]] = {}
    for row, variant in enumerate(variants):
        for entry in variant["references"]:
            rows.setdefault(entry["label"], []).append((entry["elements_per_s"] / factor, row))
    for (label, points), mark in zip(rows.items(), itertools.cycle(_MARKS)):
        rates, on_rows = zip(*points, strict=True)
        size, edge = (18, 2) if mark == "|" else (7, 1)
        axes.plot(
            rates,
            on_rows,
            mark,
            label=label,
            color=style.BLACK,
            markerfacecolor="white",
            markersize=size,
            markeredgewidth=edge,
        )
    if rows:
        axes.figure.legend(loc="outside lower left", ncols=4, markerscale=0.6)


def bound_times(run: Run) -> Figure | None:
    """Bars: aggregation time by what takes it, by group, the fastest first; None if it is not recorded."""
    groups = groups_of(run.summary["variants"], run.summary.get("baseline"))
    times, key = times_baseline(groups), order_key("aggregation")
    ranked = [
        variant
        for group in groups
        for variant in sorted(group.members, key=lambda one: key(one["verdict"], one["metrics"]))
        if variant["bounds"]
    ]
    bars = [
        Bar(
            name=variant["name"],
            time_us=variant["metrics"]["aggregation_time_us"],
            note=times[variant["name"]],
            parts=variant["bounds"],
            is_sound=kind(variant["verdict"]) in GOOD,
        )
        for variant in ranked
    ]
    return ranked_bars(bars, "What the aggregation waits for") if bars else None


def time_spent(run: Run, labels: Mapping[str, str]) -> Figure | None:
    """Bars: mean aggregation time of a step by phase; None if nothing took time.

    `labels` are the colours of the messages.
    """
    variants = [variant for variant in run.summary["variants"] if variant["metrics"]["aggregation_time_us"]]
    if not variants:
        return None
    rows = [words.parts(variant["metrics"]) for variant in variants]
    fullest_first = sorted(rows, key=len, reverse=True)  # it has most of the order in which a round goes
    names = [words.phase_name(part) for parts in fullest_first for part in parts if part["time_us"]]
    colours = style.phase_colours(names, labels) | ({RANK_SKEW: None} if RANK_SKEW in names else {})
    totals_us = [sum(part["time_us"] for part in parts) for parts in rows]
    factor_us, unit = words.time_unit(max(totals_us))
    figure = style.new_figure(1.25 + 0.42 * len(variants))
    axes = figure.add_subplot(xlabel=unit)
    style.bars_axes(
        axes, [variant["name"] for variant in variants], "Where the aggregation time of a step goes"
    )
    for row, (parts, total_us) in enumerate(zip(rows, totals_us, strict=True)):
        left = 0.0
        for part in parts:
            name, time = words.phase_name(part), part["time_us"] / factor_us
            if time and name in colours:
                axes.barh(row, time, left=left, height=0.62, **_filled(colours[name]))
                left += time
        style.beside(axes, row, words.time(total_us))
    axes.set_xlim(left=0)
    style.legend_below(figure, [Patch(**_filled(colour)) for colour in colours.values()], list(colours))
    return figure


def _filled(colour: str | None) -> dict[str, Any]:
    """Style of a part of a bar: its colour, or hatched without one."""
    if colour is None:
        return {"facecolor": "white", "edgecolor": style.MIDDLE_GREY, "hatch": "////"}
    return {"facecolor": colour}


def bytes_sent(run: Run, labels: Mapping[str, str]) -> Figure | None:
    """Bars: bytes that one worker sends per step, by message, beside those of the dense gradient.

    `labels` are the colours of the messages.
    """
    variants = run.summary["variants"]
    if run.steps.is_empty():
        return None
    parts = _payload_parts(run)
    dense_bytes = [4.0 * (variant["metrics"]["elements"] or 0.0) for variant in variants]
    factor, prefix = words.prefix(max(dense_bytes))
    figure = style.new_figure(1.25 + 0.42 * len(variants))
    axes = figure.add_subplot(xlabel=f"{prefix}B")
    style.bars_axes(axes, [variant["name"] for variant in variants], "Bytes that one worker sends per step")
    legend: dict[str, Any] = {}
    for row, variant in enumerate(variants):
        metrics = variant["metrics"]
        left = 0.0
        if not metrics["steps"]:
            style.beside(axes, row, "stuck in its first step")
            continue
        for label, size_bytes in parts.filter(variant=variant["name"]).select("label", "bytes").rows():
            size = size_bytes / metrics["steps"] / factor
            legend[label] = axes.barh(row, size, left=left, height=0.62, color=labels[label])
            left += size
        rest = max(0.0, metrics["wire_bytes_up"] / metrics["workers"] / factor - left)
        hatched = axes.barh(
            row, rest, left=left, height=0.62, color="white", edgecolor=style.MIDDLE_GREY, hatch="////"
        )
        compression = words.times(metrics["compression_ratio"])
        style.beside(
            axes, row, f"{words.scaled(metrics['payload_bytes_up'], 'B')} payload · compression {compression}"
        )
    legend["headers, exponents ahead, forwarding, retransmissions"] = hatched
    legend["dense float32 gradient"] = axes.vlines(
        [size / factor for size in dense_bytes],
        [row - 0.5 for row in range(len(variants))],
        [row + 0.5 for row in range(len(variants))],
        color=style.BLACK,
        linestyle="--",
    )
    axes.set_xlim(left=0)
    style.legend_below(figure, list(legend.values()), list(legend))
    return figure


def _payload_parts(run: Run) -> pl.DataFrame:
    """Bytes of worker 0's messages over all finished steps by variant and label, in order of appearance."""
    finished = run.steps.select("variant", "step")
    return (
        run.phases.join(finished, on=["variant", "step"], how="semi", maintain_order="left")
        .filter((pl.col("phase") == "network") & (pl.col("worker") == 0) & (pl.col("payload_bytes") > 0))
        .group_by("variant", "label", maintain_order=True)
        .agg(pl.col("payload_bytes").sum().alias("bytes"))
    )
