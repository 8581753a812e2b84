"""The answer about networks that differ in price, once for all sizes of messages.

Which wins, at what cost, why, and how sure that is.
"""

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
    span_of_prices,
)
from netfold.sim.report.bottleneck_text import because, place


def answers_of(groups: Sequence[Group]) -> list[str]:
    """Which variants win: a sentence on each group, or on all groups in which the same networks do."""
    return list(_which(groups)) if _are_networks(groups) else answers(groups)


def details_of(groups: Sequence[Group], *, is_brief: bool = False) -> list[str]:
    """What is to be known of the first variants of each group; of networks for all groups together."""
    if _are_networks(groups):
        return [_cost(groups), *_losses(groups), *_why(groups), _how_sure(groups)]
    return [text for group in groups[:GROUPS_MAX] if (text := details(group, is_brief=is_brief))]


def _are_networks(groups: Sequence[Group]) -> bool:
    """Whether several groups rank networks that differ in price, by the time of a step, and all are sound."""
    return len(groups) > 1 and all(
        group.question is STEP_TIME
        and len(group.sound) == len(group.members)
        and all(variant["metrics"].get("cost_usd") is not None for variant in group.members)
        and len({variant["metrics"]["cost_usd"] for variant in group.ranked}) > 1
        for group in groups
    )


def _podium(group: Group) -> tuple[list[Entry], list[Entry]]:
    """The first variants, the cheapest first, and the next, if there are any."""
    places = [list(tied) for _, tied in itertools.groupby(group.ranked, group.rank)]
    first = sorted(places[0], key=lambda variant: variant["metrics"]["cost_usd"])
    return first, places[1] if len(places) > 1 else []


def _which(groups: Sequence[Group]) -> Iterator[str]:
    alike: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        names = (listed([group.name(variant) for variant in tied]) for tied in _podium(group) if tied)
        alike.setdefault(tuple(names), []).append(group)
    for (first, *following), same in alike.items():
        verb = "tie for" if len(_podium(same[0])[0]) > 1 else "has"
        times = listed([group.shown(group.value(group.ranked[0])) for group in same])
        after = (f"; next: {names}, {_percents(*map(_margin, same))} slower" for names in following)
        labels = listed([group.label for group in same])
        yield f"{labels}: {first} {verb} the shortest step: {times}{''.join(after)}"


def _longer(group: Group, variant: Entry, than: Entry) -> float:
    return (group.value(variant) or 0.0) / (group.value(than) or 1.0) - 1


def _margin(group: Group) -> float:
    # How much longer the next takes than the first, as a share.
    return _longer(group, *(tied[0] for tied in reversed(_podium(group))))


def _percents(*shares: float) -> str:
    least, most = (words.digits(round(100 * share, 1)) for share in (min(shares), max(shares)))
    return f"{least} %" if least == most else f"{least} to {most} %"


def _cost(groups: Sequence[Group]) -> str:
    prices = {
        group.name(variant): words.money(variant["metrics"]["cost_usd"])
        for group in groups
        for variant in _podium(group)[0]
    }
    all_usd = [variant["metrics"]["cost_usd"] for group in groups for variant in group.ranked]
    told = ", ".join(f"{name} {price}" for name, price in prices.items())
    return f"cost: {told}; {span_of_prices(all_usd)}"


def _losses(groups: Sequence[Group]) -> list[str]:
    """How much longer the first variants take after a failure of their network."""
    shares: dict[tuple[str, str], list[float]] = {}
    pairs = [(group, group.whole(variant), variant) for group in groups for variant in group.sound]
    for group, whole, variant in pairs:
        if whole is not None and group.rank(whole) == 1:
            key = group.name(whole), listed(failures(variant))
            shares.setdefault(key, []).append(_longer(group, variant, whole))
    return [
        f"failure: without {lost}, {name} takes {_in_words(longer)}"
        for (name, lost), longer in shares.items()
    ]


def _in_words(longer: Sequence[float]) -> str:
    if (told := _percents(*map(abs, longer))) == "0 %":
        return "as long as before"
    return f"{told} {'less' if max(longer) < 0 else 'longer' if min(longer) >= 0 else 'less or longer'}"


def _why(groups: Sequence[Group]) -> list[str]:
    """What the first waits for, and the next, and the bottleneck of the next."""
    return [
        f"why {group.name(first)} ({group.label}): {reason}, whose bottleneck is "
        f"{place(following['bounds'][0])}"
        for group in groups
        for first, following in list(zip(*_podium(group), strict=False))[:1]
        if (reason := because(first["bounds"], following["bounds"], other_name=group.name(following)))
    ]


def _how_sure(groups: Sequence[Group]) -> str:
    """What the result rests on: seeds, the margin, and what was checked."""
    placed = [(group, variant) for group in groups for tied in _podium(group) for variant in tied]
    spans = [group.span(variant) or (1.0, 1.0) for group, variant in placed]
    seeds = len(placed[0][1].get("seeds", ())) or 1
    apart = f", whose times differ by up to {_percents(max(high / low - 1 for low, high in spans))}"
    margins = sorted(_margin(group) for group in groups if _podium(group)[1])
    texts = [
        f"{words.format_count(seeds, 'seed')}{apart * (seeds > 1)}",
        *(
            f"the next is {_percents(margin)} slower or more, while simulated rates of long messages are "
            f"within {100 * MODEL_ERROR:g} % of a published one"
            for margin in margins[:1]
        ),
        *sorted({variant["verdict"].removeprefix("pass: ") for _, variant in placed} - {"pass"}),
    ]
    return f"how sure: {'; '.join(texts)}"
