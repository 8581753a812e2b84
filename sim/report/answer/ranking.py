"""The order of variants by a metric, and the fastest of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from netfold.sim.errors import DataError
from netfold.sim.report import words
from netfold.sim.report.answer.bounds import because
from netfold.sim.results.verdicts import GOOD, kind
from netfold.sim.workload.training.loop.metrics import metric_named
from netfold.spelling import names_hint

AS_GIVEN = "given"
RANKED_BY = "aggregation"  # where no other order is wanted
SORTS = {  # metrics by the name that `--sort` takes, and whether more is better
    "aggregation": ("aggregation_time_us", False),
    "iteration": ("iteration_time_us", False),
    "elements": ("aggregation_elements_per_s", True),
    "wire": ("wire_bytes_up_per_worker", False),
    "compression": ("compression_ratio", True),
    "nmse": ("nmse", False),
    "error": ("max_abs_error", False),
    "loss": ("loss", False),
    "score": ("test_score", True),  # of a metric of which less is better, the least
    "target": ("time_to_target_us", False),
}


class Fastest(NamedTuple):
    """The fastest variant of a run."""

    variant: dict[str, Any]
    elements_per_s: float
    times_first: str | None  # its rate over the first variant's; None if it is the first
    of_steps: bool  # whether whole steps were compared
    why: str  # a sentence; empty if it is not known


def check_sort(sort: str) -> str:
    """The name of an order.

    Raises
    ------
    DataError
        There is no such order.
    """
    known = [*SORTS, AS_GIVEN]
    if sort not in known:
        raise DataError(f"--sort {sort}: there is no such order", names_hint(sort, known, "orders"))
    return sort


def order_key(sort: str) -> Callable[[str, Mapping[str, Any]], tuple[bool, bool, float]]:
    """A key of a variant's verdict and metrics, best first; bad verdicts and missing values come last."""
    metric, usually = SORTS[sort]

    def key(verdict: str, metrics: Mapping[str, Any]) -> tuple[bool, bool, float]:
        value = metrics.get(metric)
        more_is_better = usually
        if metric == "test_score" and value is not None:
            more_is_better = metric_named(metrics["test_metric"]).more_is_better
        signed = 0.0 if value is None else -value if more_is_better else value
        return kind(verdict) not in GOOD, value is None, signed

    return key


def fastest_of(variants: Sequence[dict[str, Any]]) -> Fastest | None:
    """The fastest variant among those whose checks hold; None with fewer than two variants.

    Variants of different buckets are compared by whole steps: one that sends late aggregates in less time.
    """
    sound = [variant for variant in variants if kind(variant["verdict"]) in GOOD]
    of_steps = len({_cut(variant) for variant in sound}) > 1
    rates = {variant["name"]: _elements_per_s(variant["metrics"], of_steps) for variant in variants}
    known = [(rate, variant) for variant in sound if (rate := rates[variant["name"]]) is not None]
    if len(variants) < 2 or not known:
        return None
    rate, fastest = max(known, key=lambda found: found[0])
    first = variants[0]
    times_first = None if fastest is first else words.times(words.ratio(rate, rates[first["name"]]))
    others = [variant for variant in variants if variant is not fastest]
    other = max(others, key=lambda one: rates[one["name"]] or 0.0) if fastest is first else first
    why = "" if of_steps else because(_named(fastest), _named(other))
    return Fastest(fastest, rate, times_first, of_steps, why)


def fastest_line(variants: Sequence[dict[str, Any]]) -> str:
    """The fastest variant, and why, in plain words; empty if that is not known."""
    found = fastest_of(variants)
    if found is None or not found.variant.get("bounds"):
        return ""
    rate = "" if found.times_first is None else f", {found.times_first} the rate of {variants[0]['name']}"
    what = "fastest by whole steps" if found.of_steps else "fastest"
    why = f", because {found.why}" if found.why else ""
    return f"{what}: {found.variant['name']}{rate}{why}"


def _named(variant: dict[str, Any]) -> tuple[str, Sequence[Mapping[str, Any]]]:
    return variant["name"], variant.get("bounds", ())


def _cut(variant: dict[str, Any]) -> tuple[float | None, str]:
    """How a variant's gradient is cut: the number of its buckets, and the rule of fusion."""
    fusion = variant.get("setup", {}).get("workload", {}).get("fusion")
    return variant["metrics"].get("buckets"), str(fusion)


def _elements_per_s(metrics: dict[str, Any], of_steps: bool) -> float | None:
    """Gradient elements over the time of whole steps, or of aggregation."""
    if not of_steps:
        rate: float | None = metrics["aggregation_elements_per_s"]
        return rate
    per_us = words.ratio(metrics["elements"], metrics["iteration_time_us"])
    return None if per_us is None else 1e6 * per_us
