"""Numbers and results as text: three digits, a prefix, a unit; an en dash for a missing value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from netfold.sim.results.breakdown import RANK_SKEW
from netfold.sim.results.metrics import has_target, has_trained, is_tested
from netfold.sim.results.records import FALLEN_BACK, MISSED_FORECASTS
from netfold.sim.workload.training_keys import metric_named
from netfold.units import PS_PER_US

NOTHING = "–"
STAGES = ("encode", "network", "decode")
"""The stages that a bucket goes through."""
NETWORK = "network: "  # before a label
_PLACES = {phase: index for index, phase in enumerate(("encode", "network", "wait", "decode", RANK_SKEW))}
_LOSS_LARGE = 1e6  # a model that diverges reaches any number of digits
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIMES_US = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns"))


def digits(value: float) -> str:
    """Three significant digits without an exponent: 0.0123, 1.23, 12.3, 123, 1234."""
    if value == 0:
        return "0"
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    text = f"{value:#.3g}"
    return f"{value:.2e}" if "e" in text else text


def scaled(value: float | None, unit: str) -> str:
    """With a decimal prefix: `scaled(12_345_678, "B")` is "12.3 MB"."""
    if value is None:
        return NOTHING
    factor, name = prefix(value)
    return f"{digits(value / factor)} {name}{unit}".rstrip()


def money(value_usd: float | None) -> str:
    # "$27.6k"
    return NOTHING if value_usd is None else f"${scaled(value_usd, '').replace(' ', '')}"


def prefix(value: float) -> tuple[float, str]:
    return next(((factor, name) for factor, name in _PREFIXES if abs(value) >= factor), _PREFIXES[-1])


def time(value_us: float | None) -> str:
    """A time in a suitable unit: "1.24 ms"."""
    if value_us is None:
        return NOTHING
    factor, unit = time_unit(value_us)
    return f"{digits(value_us / factor)} {unit}"


def time_unit(value_us: float) -> tuple[float, str]:
    return next(((factor, unit) for factor, unit in _TIMES_US if abs(value_us) >= factor), _TIMES_US[-1])


def iteration(metrics: Mapping[str, Any]) -> str:
    """The time of a step; "1.24 ms (aggregation alone)" if no model is computed."""
    text = time(metrics["iteration_time_us"])
    return f"{text} (aggregation alone)" if metrics.get("compute_time_us") == 0 else text


def times(value: float | None) -> str:
    return NOTHING if value is None else f"{digits(value)} ×"


def optional(value: float | None) -> str:
    return NOTHING if value is None else digits(value)


def percent(value: float | None) -> str:
    return NOTHING if value is None else f"{digits(100 * value)} %"


def links_used(metrics: Mapping[str, Any]) -> str:
    """The share of links that were used: "leaf–spine 25.0 %", or that of each direction if these differ."""
    shares = {
        name.partition("→")[::2]: percent(ratio(count["used"], count["links"]))
        for name, count in (metrics.get("links_used") or {}).items()
    }
    texts = []
    for (lower, upper), share in shares.items():
        if shares.get((upper, lower)) != share:
            texts.append(f"{lower}→{upper} {share}")
        elif f"{upper}–{lower} {share}" not in texts:
            texts.append(f"{lower}–{upper} {share}")
    return ", ".join(texts) or NOTHING


def ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def format_count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def off_by(predicted: float | None, measured: float | None) -> str:
    """What a prediction lacks, as a share of what was found: "+1.20 %"."""
    if predicted is None or not measured:
        return NOTHING
    share = 100 * (measured - predicted) / measured
    return f"{share:+.2f} %"


def per_megabyte(cost: Mapping[str, float]) -> str:
    """Time for each 10^6 bytes of float32 of a bucket; "and sorting" where that is not all."""
    text = time(cost["element_us"] * 1e6 / 4)
    return f"{text} and sorting" if cost["sort_us"] else text


def layers(names: list[str]) -> str:
    """The layers of a bucket: the first and the last, and how many there are."""
    if len(names) == 1:
        return names[0]
    return f"{names[0]} … {names[-1]} ({len(names)})" if len(names) > 2 else f"{names[0]}, {names[1]}"


def nmse(values: Mapping[str, Any]) -> str:
    if values.get("bit_exact"):
        return "exact"
    return NOTHING if values["nmse"] is None else error(values["nmse"])


def error(value: float | None) -> str:
    """The size of an error: "1.23e-07"; None means that it is not finite."""
    if value is None:
        return "not finite"
    return "0" if value == 0 else f"{value:.2e}"


def bit_exact(metrics: Mapping[str, Any]) -> str:
    """Whether decoded totals are the exact sums: "yes", "no", or "n/a" of float32 additions."""
    text = {True: "yes", False: "no", None: "n/a"}[metrics["bit_exact"]]
    return NOTHING if metrics["merges_verified"] is None else text


def verified(metrics: Mapping[str, Any]) -> str:
    # None: no word was merged.
    return NOTHING if metrics["merges_verified"] is None else "yes" if metrics["merges_verified"] else "no"


def cosine(metrics: Mapping[str, Any]) -> str:
    return NOTHING if metrics["cosine"] is None else f"{metrics['cosine']:.4f}"


def max_error(metrics: Mapping[str, Any]) -> str:
    # None: nothing was decoded.
    return NOTHING if metrics["merges_verified"] is None else error(metrics["max_abs_error"])


def codec_events(metrics: Mapping[str, Any]) -> str:
    """A variant's codec notes, counted: "packed in 12 rounds, dense in 3; 5 elements are infinite"."""
    choices = [f"{name} in {count} rounds" for name, count in (metrics["codec_choice"] or {}).items()]
    counted = {
        FALLEN_BACK: metrics["decode_failures"],
        MISSED_FORECASTS: metrics["forecast_misses"],
        "elements are infinite": metrics["infinite_entries"],
    }
    events = [f"{count} {what}" for what, count in counted.items() if count]
    return "; ".join([*([", ".join(choices)] if choices else []), *events])


def phase_name(phase: Mapping[str, Any]) -> str:
    return f"{NETWORK}{phase['label']}" if phase["phase"] == "network" else str(phase["phase"])


def parts(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Parts of a variant's aggregation time per step, in the order in which a round goes through them.

    Messages keep their own order.
    """
    rounds = metrics.get("buckets") or 1
    rows = [
        {**part, "time_us": part["time_us"] * rounds, "payload_bytes": part["payload_bytes"] * rounds}
        for part in metrics["breakdown"] or ()
    ]
    return sorted(rows, key=lambda part: _PLACES.get(part["phase"], len(_PLACES)))


def lacks_workers(metrics: Mapping[str, Any]) -> bool:
    """Whether some result of a variant lacks a worker."""
    workers_held = metrics["workers_held_min"]
    return workers_held is not None and bool(workers_held < metrics["workers"])


def has_finished(variant: Mapping[str, Any]) -> bool:
    return all(check["verdict"] == "pass" for check in variant["checks"] if check["name"] == "finishes")


def span(values: Iterable[int]) -> str:
    """The single value, or the least and the most: "4" or "4 to 16"."""
    numbers = sorted(set(values))
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


def injected(entry: Mapping[str, Any]) -> str:
    """Effect of a fault: "123 packets", "at 1.00 ms, for 2ms", or that it never happened."""
    if entry["counted"] == "packets":
        return f"{entry['count']} packets"
    if not entry["count"]:
        return "never, the run ended before"
    extent = f", {entry['extent']}" if entry["extent"] else ""
    return f"at {time(entry['first_ps'] / PS_PER_US)}{extent}"


def training_loss(metrics: Mapping[str, Any]) -> str:
    return f"{_loss(metrics['loss_first'])} → {_loss(metrics['loss'])}" if has_trained(metrics) else NOTHING


def _loss(value: float) -> str:
    """Three significant digits, with an exponent from a million on: "2.18e36"."""
    if abs(value) < _LOSS_LARGE:
        return digits(value)
    number, _, exponent = f"{value:.2e}".partition("e+")
    return f"{number}e{int(exponent)}"


def held_out_score(metrics: Mapping[str, Any]) -> str:
    """The last test on held-out data: "accuracy 94.2 %"."""
    if not is_tested(metrics):
        return NOTHING
    return f"{metrics['test_metric']} {score(metrics['test_metric'], metrics['test_score'])}"


def score(metric: str, value: float) -> str:
    return percent(value) if metric_named(metric).is_share else digits(value)


def to_target(metrics: Mapping[str, Any]) -> str:
    """What it took to reach the target: "95 % in 120 steps, 3.40 ms, 1.20 MB", or "95 % missed (93 %)"."""
    if not has_target(metrics):
        return NOTHING
    target = score(metrics["test_metric"] or "", metrics["target"])
    if metrics["steps_to_target"] is None:
        last = metrics.get("test_score")
        return f"{target} missed" + (
            "" if last is None else f" ({score(metrics['test_metric'] or '', last)})"
        )
    steps = format_count(metrics["steps_to_target"], "step")
    cost = time(metrics["time_to_target_us"]), scaled(metrics["bytes_to_target"], "B")
    return f"{target} in {steps}, {', '.join(cost)}"


# Text of files on a terminal: control characters are shown, not obeyed.
#
# A file may be somebody else's, and a terminal takes what begins with such a character for a command: it
# changes the window's title, moves the cursor, writes over lines.


# The warnings of a run: what several variants have in common is said once.


def warnings(summary: Mapping[str, Any]) -> list[str]:
    """The warnings of a run's `summary.json`, each text once, with the variants that have it."""
    names = {variant["name"] for variant in summary["variants"]}
    by_text: dict[str, list[str]] = {}
    for warning in summary["warnings"]:
        name, colon, text = warning.partition(": ")
        if colon and name in names:
            by_text.setdefault(text, []).append(name)
        else:
            by_text.setdefault(warning, [])
    return [_told(text, having, len(names)) for text, having in by_text.items()]


def _told(text: str, having: Sequence[str], count: int) -> str:
    """One warning; `count` is the number of variants."""
    if not having:
        return text
    if len(having) == count > 1:
        return f"all variants: {text}"
    if len(having) <= _LISTED:
        return f"{', '.join(having)}: {text}"
    return f"{', '.join(having[: _LISTED - 1])} and {len(having) - _LISTED + 1} more: {text}"


_LISTED = 4  # names


# Jobs that come and go, in the terminal.


JOBS_LEGEND = (
    "job: from its arrival to its end, waiting included; slowdown: that over its time on the idle network; "
    "fairness: Jain's index of the share of its own speed that each job had while it ran"
)


def lines(overviews: Sequence[Mapping[str, Any]]) -> list[str]:
    return [_line(overview) for overview in overviews]


def _line(overview: Mapping[str, Any]) -> str:
    parts = [
        f"jobs of {overview['variant']}: {overview['finished']} of {overview['jobs']} done"
        + ("" if overview["makespan_us"] is None else f" in {time(overview['makespan_us'])}"),
        _spread("completion", overview["completion_time_us"], time),
        f"{overview['waited']} waited, {_spread('waiting', overview['waiting_us'], time)}",
        _spread("slowdown", overview["slowdown"], times),
        fairness(overview),
    ]
    if overview["fallbacks"]:
        parts.append(f"{overview['fallbacks']} with their fallback")
    return "; ".join(parts)


def fairness(overview: Mapping[str, Any]) -> str:
    """Jain's index, and of how many jobs."""
    if overview["fairness"] is None:
        return "fairness: no two jobs overlap"
    return f"fairness {overview['fairness']:.3f} over {overview['overlapping']} that overlap"


def _spread(title: str, spread: Mapping[str, float] | None, text_of: Any) -> str:
    if spread is None:
        return f"{title} unknown"
    mean, p95, largest = (text_of(spread[name]) for name in ("mean", "p95", "max"))
    return f"{title} {mean} on average, p95 {p95}, at most {largest}"


def format_value(value: Any) -> str:
    """A value as a scenario file writes it, a list with commas."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, value))}]"
    if isinstance(value, dict):
        kind_first = sorted(value, key=lambda key: key != "kind")
        return f"{{{', '.join(f'{key} {format_value(value[key])}' for key in kind_first)}}}"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
