"""Times of longer messages than those of a run, as predicted: they go on from its longest ones.

A prediction is a closed form for the idle network. From the largest simulated size on, time grows as it says;
so what it leaves out, such as the time that pipelines take to fill, is that of the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from netfold.sim.report import words
from netfold.sim.report.answer import Group, listed
from netfold.sim.report.network_answer import answers_of
from netfold.sim.results.metrics import DENSE_ELEMENT_BYTES


class SizePoint(NamedTuple):
    size_bytes: float
    """Of the message of a worker."""
    time_us: float
    least_us: float
    """Over the seeds, as the next."""
    most_us: float


class SizeLine(NamedTuple):
    """A variant with messages of two sizes or more."""

    name: str
    place: tuple[str, str]
    """Where it is in a grid; of others the name, and nothing."""
    simulated: tuple[SizePoint, ...]
    predicted: tuple[tuple[float, float], ...]
    """Size in bytes and time in µs; it begins at the largest size that was simulated. Empty if nothing is
    predicted of the variant, or if the prediction is too far off."""
    off: float
    """How far the largest simulated time is from what is predicted from the size before, as a share of it."""


_OFF_MAX = 0.1
"""A prediction that is farther off leaves out what decides, such as a window."""


def size_lines(groups: Sequence[Group], *, is_ranked: bool = False) -> list[SizeLine]:
    """The variants of groups that differ in the size of their messages, perhaps the ranked ones alone.

    There are none if no variant has two sizes, or nothing is predicted.

    Variants that train are left out: they have other messages where they train another model.
    """
    entries: dict[str, list[tuple[SizePoint, Mapping[str, Any]]]] = {}
    places = {}
    for group in groups:
        known = [{dict(variant["axes"])[axis] for variant in group.members} for axis in group.axes]
        for variant in group.ranked if is_ranked else group.sound:
            name, values = group.name(variant), list[str]()
            for axis, of_all in zip(group.axes, known, strict=True):
                if len(of_all) > 1:
                    values.append(dict(variant["axes"])[axis])
                else:  # several runs have the size among their keys
                    name = name.removeprefix(f"{dict(variant['axes'])[axis]}-")
            metrics = variant["metrics"]
            if metrics.get("loss") is None and metrics.get("aggregation_time_us") is not None:
                entries.setdefault(name, []).append((_point(variant), variant))
                places[name] = ("-".join(values[:-1]), values[-1]) if len(values) > 1 else (name, "")
    lines = []
    for name, sizes in entries.items():
        sizes.sort(key=lambda size: size[0])
        if sizes[0][0].size_bytes < sizes[-1][0].size_bytes:
            lines.append(SizeLine(name, places[name], tuple(point for point, _ in sizes), *_beyond(sizes)))
    return lines if any(line.predicted for line in lines) else []


def _point(variant: Mapping[str, Any]) -> SizePoint:
    metrics = variant["metrics"]
    time_us = metrics["aggregation_time_us"]
    span = variant.get("spread", {}).get("aggregation_time_us", (time_us, time_us))
    return SizePoint(DENSE_ELEMENT_BYTES * metrics["elements"], time_us, *span)


def _lacks_us(point: SizePoint, variant: Mapping[str, Any]) -> float:
    # What the closed form lacks of a simulated time.
    return float(point.time_us - variant["metrics"]["predicted_time_us"])


def _beyond(
    sizes: Sequence[tuple[SizePoint, Mapping[str, Any]]],
) -> tuple[tuple[tuple[float, float], ...], float]:
    """What is predicted from the largest size on, and how far off it is."""
    (before, smaller), (last, variant) = sizes[-2:]
    if not (smaller.get("predictions") and variant.get("predictions")):
        return (), 0.0
    lacks_us = _lacks_us(last, variant)
    off = abs(lacks_us - _lacks_us(before, smaller)) / last.time_us
    larger = [(size, us + lacks_us) for size, us in variant["predictions"] if size > last.size_bytes]
    return ((last.size_bytes, last.time_us), *larger) if off <= _OFF_MAX else (), off


def answers_and_outlook(groups: Sequence[Group]) -> list[str]:
    return [*answers_of(groups), *filter(None, [_outlook(size_lines(groups, is_ranked=True))])]


def _outlook(lines: Sequence[SizeLine]) -> str:
    """What is predicted to be the fastest with the largest messages, and the next; empty if nothing is."""
    predicted = [line for line in lines if line.predicted]
    if not predicted:
        return ""
    names: dict[str, list[str]] = {}
    for end_us, name in sorted((line.predicted[-1][1], line.name) for line in predicted):
        names.setdefault(words.time(end_us), []).append(name)
    (best, fastest), *others = names.items()
    text = f"{words.scaled(predicted[0].predicted[-1][0], 'B')}, predicted: {listed(fastest)}, {best}"
    text += "".join(f"; next: {listed(tied)}, {time}" for time, tied in others[:1])
    if len(predicted) < len(lines):
        text += f"; not predicted: {listed([line.name for line in lines if not line.predicted])}"
    return f"{text}; {_sureness(predicted)}"


def _sureness(lines: Sequence[SizeLine]) -> str:
    """How near predictions in the same way are to the largest messages that were simulated."""
    worst = max(lines, key=lambda line: line.off)
    before, last = (words.scaled(point.size_bytes, "B") for point in worst.simulated[-2:])
    return f"{last}, predicted in the same way from {before}, is at most {words.percent(worst.off)} off"
