"""What bounds a variant, in words; `sim/checks/bottleneck.py` says how it is found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from netfold.sim.report import words

Parts = Sequence[Mapping[str, Any]]

CLOSE = 0.5
"""A part of at least this share of the largest one is named beside it."""
NEARLY = 0.8
"""The next busiest link is named beside a link if it is at least this share as busy."""
_LEAST_FASTER = 1.05  # a remedy that gives less is not worth a word
_NAMES = {
    "link": "links",
    "loopback": "loopback ports",
    "host": "what hosts do for packets",
    "window": "slots and windows",
    "timer": "retransmission timers",
    "latency": "latency",
    "device": "the workers' devices",
    "straggler": "stragglers",
    "merging": "merging on hosts",
    "unexplained": "something that was not recorded",
}
_COSTS = {  # what a cause costs a variant, and that it costs it nothing
    "link": ("its links are the bottleneck", "its links are never the bottleneck"),
    "loopback": ("its loopback ports are the bottleneck", "its loopback ports are never the bottleneck"),
    "host": ("its hosts work on packets", "its hosts never hold packets up"),
    "window": ("it waits for slots and windows", "it never waits for slots or windows"),
    "timer": ("it waits for retransmissions", "it never waits for a retransmission"),
    "latency": ("it waits for packets on their way", "it never waits for packets on their way"),
    "device": ("its workers' devices are the bottleneck", "its workers' devices are never the bottleneck"),
    "straggler": ("it waits for stragglers", "it never waits for a straggler"),
    "merging": ("it waits for merging on hosts", "it never waits for merging on hosts"),
    "unexplained": ("its time is not explained", "all of its time is explained"),
}
_REMEDIES = {
    "link": "with twice the rate",
    "loopback": "with twice the rate",
    "host": "with hosts of twice the speed",
    "window": "with twice the slots or window",
    "timer": "with half the timeout",
    "latency": "with half the delays",
    "device": "with twice the speed there",
    "straggler": "if it were like the others",
    "merging": "with twice the speed there",
}


def cause_name(cause: str) -> str:
    return _NAMES.get(cause, cause)


def short(parts: Parts) -> str:
    # The largest part is the first: "h0->s0 +15, 96 %".
    return f"{place(parts[0])}, {_percent(parts[0]['share'])}" if parts else words.NOTHING


def place(part: Mapping[str, Any]) -> str:
    """Where a part is, as short as it can be said: "h0->s0 +15", "encode", "window"."""
    match part["cause"]:
        case "link" | "host":
            return f"{part['where']}{_more(part)}"
        case "loopback":
            return f"loopback {part['where']}{_more(part)}"
        case "device":
            return str(part["stage"])
        case "straggler":
            return f"{part['where'] or 'a straggler'}: {part['stage']}" if part["stage"] else "straggler"
        case cause:
            return str(cause)


def _more(part: Mapping[str, Any]) -> str:
    return f" +{part['alike']}" if part["alike"] else ""


def sentence(parts: Parts) -> str:
    """What bounds a variant, what is close to it, and what would help; empty if nothing is known."""
    if not parts:
        return ""
    first, *others = parts
    close = [part for part in others if part["share"] >= CLOSE * first["share"]]
    text = f"bottleneck: {_told(first)}"
    if close:
        text += f"; close to it: {', '.join(_told(part) for part in close)}"
    return f"{text}{_following(first)}{_remedy(first)}"


def _told(part: Mapping[str, Any]) -> str:
    """A part with its share: "link h0->s0 (15 more as busy): 96 % of the aggregation, busy 95 %"."""
    busy = f", busy {_percent(part['busy'])}" if part["busy"] is not None else ""
    return f"{described(part)}: {_percent(part['share'])} of the aggregation{busy}"


def described(part: Mapping[str, Any]) -> str:
    """What a step waits for in a part: "link h0->s0 (15 more as busy)"."""
    match part["cause"]:
        case "link" | "loopback" | "host" as cause:
            what = "the loopback port" if cause == "loopback" else cause
            alike = f" ({part['alike']} more as busy)" if part["alike"] else ""
            hosts = f", shared by {part['hosts']} hosts" if part["hosts"] > 1 else ""
            return f"{what} {part['where']}{alike}{hosts}"
        case "window":
            return "slots or windows, which are full while no link is"
        case "timer":
            return "retransmission timers, while nothing is on its way"
        case "latency":
            return "latency, while packets are on their way and no link is busy"
        case "device":
            return f"'{part['stage']}' on the workers' devices"
        case "straggler":
            return f"the straggler {part['where']} ({part['stage'] or 'late'})"
        case cause:
            return cause_name(cause)


def _following(part: Mapping[str, Any]) -> str:
    """The next busiest link, if it is nearly as busy."""
    busy = part["following_busy"]
    if busy is None or part["busy"] is None or busy < NEARLY * part["busy"]:
        return ""
    return f"; nearly as busy: {part['following']}, {_percent(busy)}"


def _remedy(part: Mapping[str, Any]) -> str:
    faster = part["faster"]
    if faster is None or faster < _LEAST_FASTER or part["cause"] not in _REMEDIES:
        return ""
    them = " of all of them" if part["alike"] else ""
    return f"; at most {words.times(faster)} as fast {_REMEDIES[part['cause']]}{them}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def because(mine: Parts, other: Parts, *, other_name: str) -> str:
    """Why a variant is faster than another: the cause that costs it least in comparison; may be empty."""
    times, others = _by_cause(mine), _by_cause(other)
    saved = {cause: time_us - times.get(cause, 0.0) for cause, time_us in others.items()}
    if not times or not saved or max(saved.values()) <= 0:
        return ""
    cause = max(saved, key=lambda name: saved[name])
    waits, never = _COSTS.get(cause, (f"{cause_name(cause)} take time", f"{cause_name(cause)} take no time"))
    text = f"{waits} for {words.time(times[cause])}" if cause in times else never
    return f"{text}, against {words.time(others[cause])} for {other_name}"


def _by_cause(parts: Parts) -> dict[str, float]:
    times: dict[str, float] = defaultdict(float)
    for part in parts:
        times[part["cause"]] += part["time_us"]
    return dict(times)
