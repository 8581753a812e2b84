"""The report of a run: one HTML file that needs nothing else, made from the run's folder alone."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from matplotlib.figure import Figure

from netfold.errors import DataError
from netfold.kernels.processor import note_of
from netfold.sim import files
from netfold.sim.report import words
from netfold.sim.report.answer import (
    answered_in,
    groups_in,
    legend,
    listed,
    spreads,
    times_baseline,
)
from netfold.sim.report.bottleneck_text import sentence
from netfold.sim.report.columns import TableColumn, left_out_of, metric_columns, priced
from netfold.sim.report.figures import drawers, figures
from netfold.sim.report.html_page import inlined, template_of
from netfold.sim.report.network_answer import details_of
from netfold.sim.report.network_drawing import busy_links
from netfold.sim.report.over_time import not_drawn
from netfold.sim.report.predictions import answers_and_outlook
from netfold.sim.report.result_display import Svg
from netfold.sim.report.several_runs import SideBySide, joined
from netfold.sim.report.style import PAPER_INCHES, WIDTH_INCHES, house_style, to_pdf, to_png, to_svg
from netfold.sim.report.words import fairness, format_value, warnings
from netfold.sim.results.folder import RunFolder, first_seed, is_sweep, load
from netfold.sim.results.metrics import PAGE_SPEED, PAGE_SUMS, PAGE_SWITCHES
from netfold.sim.results.summary import kind

# Writing figures and a report into the folder that they are of, and nowhere else.


def write_pages(folder: Path, svgs: Mapping[str, bytes], report: str) -> Path:
    """Write `figures/*.svg` and `report.html`; returns the path of the report."""
    page = folder / "report.html"
    if page.is_dir() and not page.is_symlink():
        raise _other(page, "a folder", "a file")
    write_figures(folder, svgs)
    with files.writing(folder, "free space"):
        files.write_file(page, report.encode())
    return page


def write_figures(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into `figures`, with the errors of `write_pages`."""
    figures = folder / "figures"
    if figures.is_symlink() or (figures.exists() and not figures.is_dir()):
        raise _other(figures, "a link" if figures.is_symlink() else "a file", "a folder")
    for path in (figures / name for name in contents):
        if path.is_dir() and not path.is_symlink():
            raise _other(path, "a folder", "a file")
    with files.writing(folder, "free space"):
        figures.mkdir(exist_ok=True)
        files.write_files(figures, contents)
        files.sync_folder(figures)


def _other(path: Path, content: str, wanted: str) -> DataError:
    return DataError(
        f"{path}: is {content}, {wanted} is to be written there", "remove it, and repeat the command"
    )


ROWS_MAX = 16  # slots, and messages, shown per stalled variant
NOTES_MAX = 6  # different notes shown per variant
LINKS_MAX = 3  # busiest links shown per variant
BUCKETS_MAX = 12  # shown per variant

OPEN_MAX = 8  # variants, up to which all tables that compare them are open
TALL = 0.7  # height over width of a figure that is folded
_KEY_FIGURES = {
    "time_to_target": "accuracy",
    "step_time": "bounds",
    "throughput": "throughput",
    "makespan": "jobs",
    "score_at_time": "accuracy",
}
"""The figure that shows the answer to a question."""
_TITLES = {
    "grid.svg": "grid",
    "sizes.svg": "messages of every size",
    "cost.svg": "cost and time",
    "accuracy.svg": "scores over time",
    "throughput.svg": "throughput",
    "bounds.svg": "what the aggregation waits for",
    "breakdown.svg": "phases of the aggregation",
    "bytes.svg": "bytes",
    "tradeoff.svg": "bytes, error and time",
    "jobs.svg": "jobs",
    "network.svg": "the network over time",
    "messages.svg": "how long messages took",
    "timeline.svg": "time line",
    "utilisation.svg": "how busy links were",
    "training.svg": "training",
}
_CAPTIONS = {
    "grid.svg": "Every pair of the grid; darker is more time. Framed: the best of its row.",
    "sizes.svg": "The aggregation time of a message, and its size over that time (algbw, as nccl-tests "
    "prints it). Solid: simulated packet by packet, with the range over the seeds. Dashed: predicted; from "
    "the largest simulated size on, time grows as the closed form for the idle network says.",
    "cost.svg": "The aggregation time of a step against the price of the network (switches, network cards, "
    "cables). Bars: from the least to the greatest of several seeds. Grey line: the best time for the price.",
    "accuracy.svg": "The score on held-out data against simulated time. Dotted: the target, with a ring "
    "where a variant reaches it; or the time when the first variant ends. Beside it: the time of the first "
    "test that reached the target; or the scores by then. Shades and lines: from the least to the greatest "
    "of several seeds, whose mean is drawn.",
    "throughput.svg": "Dense gradient elements summed at every worker, per second of simulated aggregation. "
    "The wire bound is that of dense sums: a codec that sends less can exceed it. The time in which "
    "some bucket is aggregated counts, so these rates favour variants that send late; iteration is the whole "
    "step. Beside it: how many times as fast as the baseline aggregates.",
    "bounds.svg": "Mean aggregation time of a step, split by what the critical path of its rounds waits for, "
    "and what the network did meanwhile; variants of equal workload are side by side, the fastest first. "
    "Beside it: how many times as fast as the baseline aggregates, the bottleneck, and how many further "
    "links were as busy (+).",
    "breakdown.svg": "Mean aggregation time of a step, each round measured at the worker that finished last: "
    "encoding, messages in flight, waits for the device or the network, and decoding. Hatched: the rank "
    "skew, how much later it began than the first worker.",
    "bytes.svg": "Bytes that one worker sends in a step: its messages, and hatched everything else on its "
    "link, such as headers, padding and the exponents that SwitchML sends a window ahead.",
    "tradeoff.svg": "The aggregation time of a step against the bytes that a worker sends in it, headers "
    "included, and against the error of the sums. Filled: no other variant is as good in all three and "
    "better in one.",
    "network.svg": "Means over 48 equal stretches of a variant's time, and of queues the longest; 0 while "
    "nobody waits for the network. Units: what one slot of a switch or one packet of a "
    "window holds; those to send again have no packet on the way.",
    "messages.svg": "The share of all messages, of all workers and steps, that had arrived so long after "
    "they began. A variant has the messages of all its jobs.",
    "jobs.svg": "Jobs in the order of arrival, at most 60 of a variant. A job waits from its arrival until "
    "it has hosts and slots. Fairness: Jain's index of the share of its own speed that each job had while "
    "it ran.",
    "timeline.svg": "The last step, of at most 60 variants or jobs. Workers that do the same, to a hundredth "
    "of the step, share a lane, which shows one of them. The upper track of a worker is its "
    "device, with encoding and decoding on one of their own where they run beside it; the network is "
    "below, a track for each bucket under way.",
    "utilisation.svg": "The topology of each variant, of more than 16 of the fastest and the slowest on each "
    "network. Colour: the share of the time from the start of the "
    "first step to the end of the last in which a link was busy, of its two directions the busier one. "
    "Width: its rate. Black edge: the busiest link. Large topologies are drawn in tiers, with the least "
    "busy, the most busy and the median link of each direction.",
    "training.svg": "Training against steps, against the bytes on a worker's link (up and down, headers "
    "included), and against simulated time. The loss is the mean over workers before a step's update; a test "
    "is of the weights after it. Lines of variants that agree coincide; a loss far above its first value is "
    "left out.",
}


_OF_FEW = ("network.svg", "messages.svg")
"""Figures that do not draw all of many variants."""


def build_report(path: Path) -> Path:
    return write_report(first_seed(load(path)))


def build_figure(path: Path, name: str, width_inches: float | None = None, out: Path | None = None) -> Path:
    """Write one figure of a run; see `write_figure`."""
    run = first_seed(load(path))
    return write_figure(run.path, drawers(run), name, width_inches, out)


_WRITERS: Mapping[str, Callable[[Figure], bytes]] = {".svg": to_svg, ".pdf": to_pdf, ".png": to_png}
"""Files of a figure, by their suffixes."""


def write_figure(
    folder: Path,
    draw: Mapping[str, Callable[[], Figure | None]],
    name: str,
    width_inches: float | None = None,
    out: Path | None = None,
) -> Path:
    """Write one figure as `out`, an SVG, PDF or PNG file, or as `figures/NAME-WIDTHin.pdf`; returns its path.

    By default a PDF is as wide as a column of a paper, and others are as wide as those of a page. Raises
    DataError for a figure that does not exist or has nothing to show, and for other suffixes.
    """
    suffix = ".pdf" if out is None else out.suffix.lower()
    if suffix not in _WRITERS:
        raise DataError(
            f"{out}: figures are written as SVG, PDF or PNG",
            f"use a name that ends in {' or '.join(_WRITERS)}",
        )
    width_inches = width_inches or (PAPER_INCHES if suffix == ".pdf" else WIDTH_INCHES)
    with house_style(width_inches):
        figure = _drawn(folder, draw, name)
        content = _WRITERS[suffix](figure)
    if out is not None:
        with files.writing(out, "give another file"):
            files.write_file(out, content)
        return out
    file = f"{name}-{width_inches:g}in.pdf"
    write_figures(folder, {file: content})
    return folder / "figures" / file


def draw(run: RunFolder, name: str = "") -> Svg:
    """A figure of a run, by default the one that shows its answer; errors as `write_figure`."""
    draw = drawers(first_seed(run))
    with house_style():
        answering = filter(None, (draw[key]() for key in _key_figures(run)))
        return to_svg(_drawn(run.path, draw, name) if name else next(answering))


def _drawn(folder: Path, draw: Mapping[str, Callable[[], Figure | None]], name: str) -> Figure:
    figure = draw[name]() if name in draw else None
    if figure is None:
        what = f"figure '{name}' has nothing to show of it" if name in draw else f"no figure '{name}'"
        others = ", ".join(other for other in draw if other != name)
        why = "; a grid needs `variants` that are a mapping of two keys or more" * (name == "grid")
        raise DataError(f"{folder}: {what}", f"allowed: {others}{why}")
    return figure


def _key_figures(run: RunFolder) -> tuple[str, ...]:
    # Those that may show the answer, the best first.
    return "grid", _KEY_FIGURES[answered_in(run.summary)[0].question.name], "throughput"


def write_report(run: RunFolder) -> Path:
    """Write `figures/*.svg` and `report.html` into a run's folder from its tables."""
    svgs = figures(run)
    return write_pages(run.path, svgs, render(run, svgs))


def write_comparison(
    comparison: SideBySide,
    folder: Path,
    figure: str = "",
    width_inches: float | None = None,
    out: Path | None = None,
) -> Path:
    """Write a page about all variants of several runs, or one of its figures; returns what is written.

    Raises
    ------
    DataError
        The folder is that of a run or a sweep; or as `write_pages` and `write_figure`.
    UnwrittenError
        The folder cannot be written.
    """
    if (folder / "summary.json").exists() or is_sweep(folder):
        raise DataError(
            f"{folder}: is a run or a sweep, which has a report of its own", "name another folder"
        )
    run = joined(comparison.runs)
    if out is None:
        with files.writing(folder, files.WRITABLE_HINT):
            folder.mkdir(parents=True, exist_ok=True)
    if figure:
        return write_figure(folder, drawers(run), figure, width_inches, out)
    svgs = figures(run)
    return write_pages(folder, svgs, render(run, svgs, comparison))


def render(run: RunFolder, svgs: Mapping[str, bytes], comparison: SideBySide | None = None) -> str:
    """HTML text of a run's report, with its figures embedded.

    With a `comparison`, of several runs, the run is all of them joined.
    """
    template = template_of(Path(__file__).with_name("template.html"))
    variants = run.summary["variants"]
    groups = groups_in(run.summary)
    metrics, times = [variant["metrics"] for variant in variants], times_baseline(groups)
    ratios = {member["name"]: group.times(member) for group in groups for member in group.members}
    names = [variant["name"] for variant in variants]
    baseline = TableColumn(
        "× baseline", [times[name] for name in names], values=[ratios[name] for name in names]
    )
    left_out, beside = left_out_of(groups, metrics)
    speed = metric_columns((*PAGE_SPEED, *priced(metrics)), metrics, left_out, {beside: baseline})
    sums = metric_columns(PAGE_SUMS, metrics)
    on_switches = [variant for variant in variants if variant["metrics"]["passes"] is not None]
    return template.render(
        words=words,
        summary=run.summary,
        warnings=[*(comparison.notes if comparison else note_of(run.circumstances)), *warnings(run.summary)],
        comparison=comparison,
        run=run,
        command_of=_command,
        unheld=_unheld(run),
        checks=run.checks,
        counted_checks=Counter((check["name"], check["verdict"]) for check in run.checks).items(),
        open_max=OPEN_MAX,
        variants=variants,
        setup=setup(variants),
        verdict=kind(run.summary["verdict"]),
        kind=kind,
        notes=_notes(run),
        notes_max=NOTES_MAX,
        divided=legend(groups),
        spreads=spreads(groups),
        answers=answers_and_outlook(answered_in(run.summary)),
        details=details_of(answered_in(run.summary)),
        speed=speed,
        sums=sums,
        shown={column.name for column in (*speed, *sums)},
        steps=words.span(variant["metrics"]["steps"] for variant in variants),
        workers=words.span(variant["metrics"]["workers"] for variant in variants),
        bound=sentence,
        jobs=run.summary.get("jobs", []),
        staying=[variant for variant in variants if variant.get("stay") is not None],
        fairness=fairness,
        fused=[variant for variant in variants if "fusion" in variant],
        weighed=_weighed(variants),
        buckets_max=BUCKETS_MAX,
        on_switches={
            "names": [variant["name"] for variant in on_switches],
            "columns": metric_columns(PAGE_SWITCHES, [variant["metrics"] for variant in on_switches]),
        },
        references=_references(variants),
        **_figures(run, svgs),
        links=_busiest_links(run),
        links_max=LINKS_MAX,
        rows_max=ROWS_MAX,
        unfinished=run.summary.get("unfinished", []),
        missing=[file for file in run.summary.get("inputs", ()) if not file.get("kept", True)],
        version=run.circumstances["version"],
    )


def _figures(run: RunFolder, drawn: Mapping[str, bytes]) -> dict[str, Any]:
    """The figure that shows the answer, and the others."""
    shown = {
        name: {
            **inlined(
                name.removesuffix(".svg"), svg, _CAPTIONS[name] + (not_drawn(run) if name in _OF_FEW else "")
            ),
            "title": _TITLES[name],
            "is_tall": height_of(svg) > TALL,
        }
        for name, svg in drawn.items()
    }
    key = next((name for key in _key_figures(run) if (name := f"{key}.svg") in shown), "")
    return {"key_figure": shown.pop(key, None), "figures": list(shown.values())}


def _unheld(run: RunFolder) -> list[dict[str, Any]]:
    """Checks that do not hold or could not be made, once for all variants with the same finding."""
    variants: dict[tuple[str, str, str], list[str]] = {}
    for check in run.checks:
        if check["verdict"] != "pass":
            where = check["name"], check["detail"], check["verdict"]
            variants.setdefault(where, []).append(check["variant"])
    return [
        {"variant": listed(names), "name": name, "detail": detail, "verdict": verdict, "count": len(names)}
        for (name, detail, verdict), names in variants.items()
    ]


def height_of(svg: bytes) -> float:
    """The height of a figure over its width."""
    width, height = (float(re.findall(rb'%s="([\d.]+)pt"' % side, svg)[0]) for side in (b"width", b"height"))
    return height / width


def _references(variants: list[dict[str, Any]]) -> list[tuple[dict[str, Any], list[str]]]:
    """What is shown for comparison, once for all variants that have the same."""
    names: dict[tuple[Any, ...], list[str]] = {}
    for variant in variants:
        for entry in variant["references"]:
            names.setdefault(tuple(sorted(entry.items())), []).append(variant["name"])
    return [(dict(entry), of) for entry, of in names.items()]


def _weighed(variants: list[dict[str, Any]]) -> list[tuple[list[str], dict[str, Any]]]:
    """What rules of fusion weighed, once for all variants with the same costs."""
    shared_costs: list[tuple[list[str], dict[str, Any]]] = []
    for variant in variants:
        if "fusion" in variant:
            costs = variant["fusion"]["costs"]
            names = next((names for names, known in shared_costs if known == costs), None)
            if names is None:
                names = []
                shared_costs.append((names, costs))
            names.append(variant["name"])
    return shared_costs


def _notes(run: RunFolder) -> list[dict[str, Any]]:
    """The first notes of each variant, one row for all rounds with the same note."""
    return (
        run.notes.group_by("variant", "kind", "text", maintain_order=True)
        .agg(pl.len().alias("rounds"), pl.col("step").first(), pl.col("bucket").first())
        .group_by("variant", maintain_order=True)
        .head(NOTES_MAX)
        .to_dicts()
    )


def _busiest_links(run: RunFolder) -> list[dict[str, Any]]:
    """The busiest links of each variant, with the share of the simulated time they were busy."""
    rows = busy_links(run)
    return [
        row
        for name in run.links["variant"].unique(maintain_order=True)
        for row in rows.filter(pl.col("variant") == name).head(LINKS_MAX).to_dicts()
    ]


def _command(run: RunFolder) -> str:
    """The command that repeats the run, from inside its folder."""
    sets = [word for assignment in run.summary["sets"] for word in ("--set", assignment)]
    chosen = [word for name in run.summary.get("chosen", ()) for word in ("--variant", name)]
    words = ["netfold", "run", "scenario.yaml", "--seed", str(run.summary["seed"]), *sets, *chosen]
    return shlex.join(words)


# The settings of a run: shared ones once, and for each variant those that differ.


NONE = "none"
_FIRST = ("program", "model", "hosts", "elements", "density", "rate", "switch", "count")
"""The keys that come first, in this order."""
_SECTIONS = ("topology", "workers", "workload", "device", "hosts", "overlap", "codec", "collective", "faults")


class Setup(NamedTuple):
    """The rows of settings."""

    shared: list[tuple[str, str]]  # section and its text
    headings: list[str]  # sections in which variants differ
    rows: list[tuple[str, list[str]]]  # variant, and its text under each heading


def setup(variants: Sequence[Mapping[str, Any]]) -> Setup:
    """Settings of a summary's variants; empty if no variant records its setup."""
    texts = {entry["name"]: _texts(entry.get("setup", {})) for entry in variants}
    sections = [name for name in _SECTIONS if any(name in settings for settings in texts.values())]
    same = {name for name in sections if len({settings.get(name, NONE) for settings in texts.values()}) == 1}
    first = next(iter(texts.values()))
    headings = [name for name in sections if name not in same]
    rows = [(variant, [settings.get(name, NONE) for name in headings]) for variant, settings in texts.items()]
    shared = [(name, first[name]) for name in sections if name in same and first[name] != NONE]
    return Setup(shared, headings, rows if headings else [])


def _texts(sections: Mapping[str, Any]) -> dict[str, str]:
    return {name: _section(value) for name, value in sections.items()}


def _section(value: Any) -> str:
    """A section's kind and its options with their names; a list's items one after the other."""
    if isinstance(value, list):
        return "; ".join(map(_section, value)) or NONE
    if not isinstance(value, dict):
        return format_value(value)
    kind = format_value(value["kind"]) if "kind" in value else ""
    keys = [key for key in _FIRST if key in value] + [key for key in value if key not in _FIRST]
    options = ", ".join(f"{key} {format_value(value[key])}" for key in keys if key != "kind")
    return ": ".join(part for part in (kind, options) if part) or NONE
