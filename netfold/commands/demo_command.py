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
        "held-out score": lambda metrics: f"{100 * metrics['test_score']:.1f} %",
        "steps to 95 %": lambda metrics: format_metric("steps_to_target", metrics),
        "time to 95 %": lambda metrics: format_metric("time_to_target_us", metrics),
    }


def _compression_claim(variants: Variants) -> str:
    dense, sparse = variants["dense"], variants["sparse"]
    return (
        "The switch still only adds integers, and the sums are as exact as before. They are there "
        f"{_ratio(dense, sparse, 'aggregation_time_us')} as fast, for {_share(sparse, dense)} of the bytes."
    )


def _recovery_claim(variants: Variants) -> str:
    lossy, clean = variants["loss-5"], variants["no-loss"]
    return (
        f"{lossy['packets_lost']:,} packets were lost, and not one sum: the error is that of the run without "
        f"loss. Only time was lost: it took {_ratio(lossy, clean, 'aggregation_time_us')} as long, since "
        "a worker waits for a timeout before it sends a lost packet again."
    )


def _training_claim(variants: Variants) -> str:
    dense, summed, signs = (variants[name] for name in ("dense", "switchml", "bird-shared"))
    return (
        f"Sums in the switch are the first at 95 %. bird-shared sends {_share(signs, dense)} of the bytes in "
        f"a step, but needs {signs['steps_to_target']} steps instead of {summed['steps_to_target']}: fewer "
        "bytes alone do not make a model ready sooner."
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
        "Four workers sum a gradient of a million elements, of which 1 % are not zero. A switch that adds "
        "integers can take all of them (dense), or an index and a sketch, whose sums decode (sparse).",
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
        "Eight workers, and links that lose no packet, 1 % or 5 % of them. The switch keeps partial sums in "
        "registers, so a packet that is sent again must not be added twice.",
        "02-loss",
        ("no-loss", "loss-1", "loss-5"),
        ("packets lost", "aggregation", "squared error"),
        lambda variants: (
            _are_whole(variants)
            and len({metrics["nmse"] for metrics in variants.values()}) == 1
            and variants["loss-5"]["packets_lost"] > variants["loss-1"]["packets_lost"] > 0
        ),
        _recovery_claim,
    ),
    Act(
        "3. Reach the target accuracy first",
        "Four workers train a small PyTorch model until it is right about 95 % of data that it has not seen: "
        "with a ring of hosts (dense), sums in the switch (switchml), and signs of a few rows (bird-shared).",
        "17-bring-your-own-model",
        ("dense", "switchml", "bird-shared"),
        ("bytes/worker", "held-out score", "steps to 95 %", "time to 95 %"),
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
        print_line(f"{act.title}\n\n{_wrap(act.before)}\n")
        example = shipped().get(act.scenario)
        with progress_bar() as progress:
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
        print_line(f"\n{_wrap(act.claim(variants))}\n")
    print_line(f"Report of the last act: {finished_run.report()}")
    print_line(
        "Next: netfold examples, a list of scenarios to copy; netfold new scenario, a file to begin with; "
        "netfold run FILE."
    )


def _wrap(text: str) -> str:
    from textwrap import fill

    return fill(text, 100)
