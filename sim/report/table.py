"""The terminal's table of a run: one line per variant, no wider than a hundred columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from sim.report import words


def results_table(summary: Mapping[str, Any]) -> Table:
    """Table of a run's `summary.json`; ratios are to its first variant."""
    variants = summary["variants"]
    table = Table(title=f"{summary['scenario']}, seed {summary['seed']}", title_justify="left")
    table.add_column("variant", overflow="fold")
    for heading in ("aggregation", "elements/s", "× first", "wire/worker", "compression"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("exact", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for variant in variants:
        metrics = variant["metrics"]
        rate = metrics["aggregation_elements_per_s"]
        table.add_row(
            Text(variant["name"]),  # not str: brackets in a name are no markup
            words.time(metrics["aggregation_time_us"]),
            words.scaled(rate, ""),
            words.times(words.ratio(rate, variants[0]["metrics"]["aggregation_elements_per_s"])),
            words.scaled(metrics["wire_bytes_up"] / metrics["workers"], "B"),
            words.times(metrics["compression_ratio"]),
            "yes" if metrics["exact"] else "no",
            verdict_text(variant["verdict"]),
        )
    return table


def verdict_text(verdict: str) -> Text:
    """The word, in the colour of what it means."""
    return Text(verdict, style="green" if verdict == "pass" else "bold red")
