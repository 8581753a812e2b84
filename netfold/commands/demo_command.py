"""The command `netfold demo`: three acts, each with a run, a table, and a claim that the run bears out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isclose
from typing import Any, NamedTuple

import typer

from netfold.commands.example_commands import shipped
from netfold.commands.terminal import RUNS, Out, print_error, print_line, print_table, progress_bar

EXIT_CLAIM_FAILED = 1

OWN_SCENARIO = """\
name: mine
topology: {kind: star, hosts: 4, rate: 25Gbps}
workers: 4
workload: {kind: synthetic, elements: 1000000, density: 1%}
codec: {kind: fixed_point}
collective: {kind: in_network}
variants:
  - name: dense
  - name: sparse
    codec: {kind: lossless}
"""
"""README's first scenario of one's own."""

Metrics = Mapping[str, Any]
Variants = Mapping[str, Metrics]
"""The metrics of a run's variants, by their names."""


class Act(NamedTuple):
    """One run of the demo, and what it shows."""

    title: str
    before: str
    scenario: str
    """The name of an example, or the text of a scenario."""
    variants: tuple[str, ...]
    columns: tuple[str, ...]
    holds: Callable[[Variants], bool]
    """Whether a run bears out the claim."""
    claim: Callable[[Variants], str]
    """The claim, with the numbers of a run."""


def _columns() -> dict[str, Callable[[Metrics], str]]:
    from netfold.sim.report.columns import format_metric  # late, as all that a run needs

    return {
        "aggregation": lambda metrics: format_metric("aggregation_time_us", metrics),
        "bytes/worker": lambda metrics: format_metric("wire_bytes_up_per_worker", metrics),
        "packets lost": lambda metrics: f"{metrics['packets_lost']:,}",
        "squared error": lambda metrics: format_metric("nmse", metrics),
        "steps": lambda metrics: format_metric("steps_to_target", metrics),
        "time": lambda metrics: format_metric("time_to_target_us", metrics),
    }


def _compression_claim(variants: Variants) -> str:
    dense, sparse = variants["dense"], variants["sparse"]
    return (
        f"sparse is {_ratio(dense, sparse, 'aggregation_time_us')} as fast, sends {_share(sparse, dense)} of "
        "the bytes, and its sums are as exact."
    )


def _recovery_claim(variants: Variants) -> str:
    lossy, clean = variants["loss-5"], variants["no-loss"]
    return (
        "All sums are the same. But loss-5 takes "
        f"{_ratio(lossy, clean, 'aggregation_time_us')} as long, as workers wait before they resend packets."
    )


def _training_claim(variants: Variants) -> str:
    dense, signs = variants["dense"], variants["bird-shared"]
    return (
        f"switchml is first. bird-shared sends {_share(signs, dense)} of the bytes in a step, but needs more "
        "steps."
    )


def _ratio(larger: Metrics, smaller: Metrics, metric: str) -> str:
    return f"{larger[metric] / smaller[metric]:.3g} ×"


def _share(smaller: Metrics, larger: Metrics) -> str:
    return f"1/{larger['wire_bytes_up_per_worker'] / smaller['wire_bytes_up_per_worker']:.0f}"


def _are_whole(variants: Variants) -> bool:
    return all(metrics["merges_verified"] and not metrics["decode_failures"] for metrics in variants.values())


ACTS = (
    Act(
        "1. Compress, and still sum in the switch",
        "A switch sums gradients of which 1 % is not zero: all elements (dense), or compressed (sparse).",
        OWN_SCENARIO,
        ("dense", "sparse"),
        ("aggregation", "bytes/worker", "squared error"),
        lambda variants: (
            _are_whole(variants)
            and isclose(variants["sparse"]["nmse"], variants["dense"]["nmse"], rel_tol=0.01)
            and 10 * variants["sparse"]["aggregation_time_us"] < variants["dense"]["aggregation_time_us"]
        ),
        _compression_claim,
    ),
    Act(
        "2. Lose packets, and never a sum",
        "Links lose 0 %, 1 % or 5 % of all packets.",
        "02-loss",
        ("no-loss", "loss-1", "loss-5"),
        ("packets lost", "aggregation"),
        lambda variants: (
            _are_whole(variants)
            and len({metrics["nmse"] for metrics in variants.values()}) == 1
            and variants["loss-5"]["packets_lost"] > variants["loss-1"]["packets_lost"] > 0
        ),
        _recovery_claim,
    ),
    Act(
        "3. Reach an accuracy of 95 % first",
        "Workers train a PyTorch model: with sums on hosts (dense), in the switch (switchml), or of signs in "
        "the switch (bird-shared).",
        "17-bring-your-own-model",
        ("dense", "switchml", "bird-shared"),
        ("bytes/worker", "steps", "time"),
        lambda variants: (
            _are_whole(variants)
            and all(metrics["time_to_target_us"] for metrics in variants.values())
            and variants["dense"]["test_score"] >= variants["bird-shared"]["test_score"]
            and min(variants, key=lambda name: variants[name]["time_to_target_us"]) == "switchml"
        ),
        _training_claim,
    ),
)


def demo(
    out: Out = RUNS,
) -> None:
    """Show in three short acts what netfold does; the first time also compiles kernels, for up to a minute.

    The exit status is 1 if the result of a run contradicts the text of the demo.
    """
    from rich.table import Table

    from netfold.api import run

    columns = _columns()
    for act in ACTS:
        print_line(f"{act.title}\n{_wrap(act.before)}")
        example = shipped().get(act.scenario)
        with progress_bar(has_lines=False) as progress:
            finished_run = run(
                example.path if example else act.scenario, variants=act.variants, out=out, progress=progress
            )
        variants = {variant["name"]: variant["metrics"] for variant in finished_run.summary["variants"]}
        table = Table("variant", *act.columns)
        for name, metrics in variants.items():
            table.add_row(name, *(columns[heading](metrics) for heading in act.columns))
        print_table(table)
        if not act.holds(variants):
            print_error(f"this run does not show what it should; it is in {finished_run.path}")
            raise typer.Exit(EXIT_CLAIM_FAILED)
        print_line(f"{_wrap(act.claim(variants))}\n")
    print_line(f"Report: {finished_run.report()}")
    print_line("Next: netfold examples, netfold new scenario FILE, netfold run FILE")


def _wrap(text: str) -> str:
    from textwrap import fill

    return fill(text, 100)
