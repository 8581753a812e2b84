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
    """Size in bytes and time in µs; it begins at the largest size that was simulated."""
    off: float
    """How far the largest simulated time is from what is predicted from the size before, as a share of it."""


def size_lines(groups: Sequence[Group], *, is_ranked: bool = False) -> list[SizeLine]:
    """The variants of groups that differ in the size of their messages, perhaps the ranked ones alone.

    There are none if no variant has two sizes.

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
            if variant.get("predictions") and variant["metrics"].get("loss") is None:
                entries.setdefault(name, []).append((_point(variant), variant))
                places[name] = ("-".join(values[:-1]), values[-1]) if len(values) > 1 else (name, "")
    lines = []
    for name, sizes in entries.items():
        sizes.sort(key=lambda size: size[0])
        if sizes[0][0].size_bytes < sizes[-1][0].size_bytes:
            simulated = tuple(point for point, _ in sizes)
            off = abs(_lacks_us(*sizes[-1]) - _lacks_us(*sizes[-2])) / simulated[-1].time_us
            lines.append(SizeLine(name, places[name], simulated, _beyond(*sizes[-1]), off))
    return lines


def _point(variant: Mapping[str, Any]) -> SizePoint:
    metrics = variant["metrics"]
    time_us = metrics["aggregation_time_us"]
    span = variant.get("spread", {}).get("aggregation_time_us", (time_us, time_us))
    return SizePoint(DENSE_ELEMENT_BYTES * metrics["elements"], time_us, *span)


def _lacks_us(point: SizePoint, variant: Mapping[str, Any]) -> float:
    """What the closed form lacks of a simulated time."""
    return float(point.time_us - variant["metrics"]["predicted_time_us"])


def _beyond(last: SizePoint, variant: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """What is predicted from the largest size on."""
    lacks_us = _lacks_us(last, variant)
    larger = [(size, us + lacks_us) for size, us in variant["predictions"] if size > last.size_bytes]
    return ((last.size_bytes, last.time_us), *larger)


def answers_and_outlook(groups: Sequence[Group]) -> list[str]:
    return [*answers_of(groups), *filter(None, [_outlook(size_lines(groups, is_ranked=True))])]


def _outlook(lines: Sequence[SizeLine]) -> str:
    """What is predicted to be the fastest with the largest messages, and the next; empty if nothing is."""
    if not lines:
        return ""
    names: dict[str, list[str]] = {}
    for end_us, name in sorted((line.predicted[-1][1], line.name) for line in lines):
        names.setdefault(words.time(end_us), []).append(name)
    (best, fastest), *others = names.items()
    text = f"{words.scaled(lines[0].predicted[-1][0], 'B')}, predicted: {listed(fastest)}, {best}"
    text += "".join(f"; next: {listed(tied)}, {time}" for time, tied in others[:1])
    return f"{text}; {_sureness(lines)}"


def _sureness(lines: Sequence[SizeLine]) -> str:
    """How near predictions in the same way are to the largest messages that were simulated."""
    worst = max(lines, key=lambda line: line.off)
    before, last = (words.scaled(point.size_bytes, "B") for point in worst.simulated[-2:])
    return f"{last}, predicted in the same way from {before}, is at most {words.percent(worst.off)} off"
