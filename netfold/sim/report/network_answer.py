"""The answer about networks that differ in price, once for all sizes of messages: which, why, how sure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from netfold.sim.report import words
from netfold.sim.report.answer import (
    GROUPS_MAX,
    MODEL_ERROR,
    STEP_TIME,
    Entry,
    Group,
    answers,
    details,
    failures,
    listed,
    place,
)
from netfold.sim.report.bottleneck_text import longer_wait
from netfold.sim.results.records import UNCHECKED


def answers_of(groups: Sequence[Group]) -> list[str]:
    """Which variants win: a sentence on each group, or on all groups in which the same networks do."""
    return list(_which(groups)) if _are_networks(groups) else answers(groups)


def details_of(groups: Sequence[Group]) -> list[str]:
    """What is to be known of the first variants of each group; of networks for all groups together."""
    if _are_networks(groups):
        return [_cost(groups), *_losses(groups), *_why(groups), _how_sure(groups)]
    return [text for group in groups[:GROUPS_MAX] if (text := details(group))]


def _are_networks(groups: Sequence[Group]) -> bool:
    """Whether several groups rank networks that differ in price, by the time of a step, and all are sound."""
    costs = [[variant["metrics"].get("cost_usd") for variant in group.ranked] for group in groups]
    is_asked = len(groups) > 1 and all(
        group.question is STEP_TIME and len(group.sound) == len(group.members) for group in groups
    )
    return is_asked and all(None not in each and len({*each}) > 1 for each in costs)


def _podium(group: Group) -> tuple[list[Entry], list[Entry]]:
    """The first variants, the cheapest first, and the next."""
    places = [list(tied) for _, tied in itertools.groupby(group.ranked, group.rank)]
    first = sorted(places[0], key=lambda variant: variant["metrics"]["cost_usd"])
    return first, places[1] if len(places) > 1 else []


def _names(group: Group, variants: Sequence[Entry]) -> str:
    return listed([group.name(variant) for variant in variants])


def _which(groups: Sequence[Group]) -> Iterator[str]:
    alike: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        alike.setdefault(tuple(_names(group, tied) for tied in _podium(group) if tied), []).append(group)
    for (first, *others), same in alike.items():
        verb = "has" if len(_podium(same[0])[0]) == 1 else "tie for"
        times = listed([group.shown(group.value(group.ranked[0])) for group in same])
        text = f"{listed([group.label for group in same])}: {first} {verb} the shortest step: {times}"
        for following in others:
            are = "is" if len(_podium(same[0])[1]) == 1 else "are"
            text += f"; next {are} {following}, {_percents([_margin(group) for group in same])} slower"
        yield text


def _margin(group: Group) -> float:
    """How much longer the next takes than the first, as a share."""
    first_us, following_us = (group.value(tied[0]) or 0.0 for tied in _podium(group))
    return following_us / first_us - 1


def _percents(shares: Sequence[float]) -> str:
    least, most = (words.digits(round(100 * share, 1)) for share in (min(shares), max(shares)))
    return f"{least} %" if least == most else f"{least} to {most} %"


def _cost(groups: Sequence[Group]) -> str:
    names: dict[str, dict[str, None]] = {}  # of those that win, by price
    for group in groups:
        for variant in _podium(group)[0]:
            names.setdefault(words.money(variant["metrics"]["cost_usd"]), {})[group.name(variant)] = None
    told = [f"{listed([*same])} cost{'s' * (len(same) == 1)} {price}" for price, same in names.items()]
    all_usd = [variant["metrics"]["cost_usd"] for group in groups for variant in group.ranked]
    return f"cost: {', '.join(told)}; all networks {words.money(min(all_usd))} to {words.money(max(all_usd))}"


def _losses(groups: Sequence[Group]) -> Iterator[str]:
    """How much slower each network is after a failure, with the best variant of each."""
    shares: dict[tuple[str, str], list[float]] = {}
    for group in groups:
        times: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for variant in group.sound:
            whole, value = group.whole(variant), group.value(variant)
            if whole is not None and value is not None and (before := group.value(whole)) is not None:
                name = place(group, whole)[0] if len(group.axes) > 1 else group.name(whole)
                times.setdefault((name, listed(failures(variant))), []).append((before, value))
        for key, pairs in times.items():
            before, after = map(min, zip(*pairs, strict=True))
            shares.setdefault(key, []).append(after / before - 1)
    for (name, lost), slower in shares.items():
        yield f"failure: without {lost}, {name} takes {_percents(slower)} longer"


def _why(groups: Sequence[Group]) -> Iterator[str]:
    """What the next variant waits for, longer than the first."""
    waits: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        first, following = _podium(group)
        if following and (wait := longer_wait(first[0].get("bounds", ()), following[0].get("bounds", ()))):
            names = group.name(following[0]), group.name(first[0])
            waits.setdefault(names, []).append(f"{wait} ({group.label})")
    for (following_name, first_name), texts in waits.items():
        yield f"why: {following_name} waits longer than {first_name}: {', '.join(texts)}"


def _how_sure(groups: Sequence[Group]) -> str:
    """What the result rests on: seeds, the margin, and what was checked."""
    placed = [(group, variant) for group in groups for tied in _podium(group) for variant in tied]
    seeds = len(placed[0][1].get("seeds", ())) or 1
    spread = max(
        (high - low) / low for group, variant in placed for low, high in [group.span(variant) or (1.0, 1.0)]
    )
    apart = f", whose times differ by up to {_percents([spread])}" * (seeds > 1)
    parts = [f"{words.format_count(seeds, 'seed')}{apart}"]
    if margins := [_margin(group) for group in groups if _podium(group)[1]]:
        parts.append(
            f"the next is {_percents([min(margins)])} slower or more, while simulated rates of long messages "
            f"are within {100 * MODEL_ERROR:g} % of a published one"
        )
    parts += ["sums are not checked"] if any(variant["verdict"] == UNCHECKED for _, variant in placed) else []
    return f"how sure: {'; '.join(parts)}"
