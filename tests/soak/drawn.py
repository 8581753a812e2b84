"""What a scenario has of the language: keys, choices, kinds, and pairs of kinds of its jobs; how often."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tests.soak.language import (
    AGAIN,
    WORDS,
    Place,
    Schema,
    alternatives,
    can_meet,
    chosen,
    form,
    is_repeated,
    kind_of,
    language,
    pair,
    pairs,
    root,
    words_of,
)

Kinds = dict[str, set[str]]  # by section


@dataclass
class Has:
    """What a scenario has, by name, as `language` names it."""

    keys: set[str] = field(default_factory=set)
    choices: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    pairs: set[str] = field(default_factory=set)


def units_of(scenario: Mapping[str, Any]) -> Has:
    """Everything that a scenario has, in its variants and jobs too."""
    has = Has()
    _Seen(has, {}).mapping(root(), dict(scenario), Place())
    for kinds in contexts(scenario):
        has.kinds |= {f"{section}={kind}" for section, own in kinds.items() for kind in own}
        for first, second in itertools.combinations(sorted(kinds), 2):
            for one, other in itertools.product(sorted(kinds[first]), sorted(kinds[second])):
                if can_meet((first, one), (second, other)):
                    has.pairs.add(pair((first, one), (second, other)))
    return has


def contexts(scenario: Mapping[str, Any]) -> Iterator[Kinds]:
    """The kinds of each job of each variant."""
    for variant in variants_of(scenario):
        settings = {key: value for key, value in scenario.items() if key not in ("variants", "jobs", "sweep")}
        settings |= {key: value for key, value in variant.items() if key != "jobs"}
        jobs = variant.get("jobs", scenario.get("jobs")) or [{}]
        for job in jobs if isinstance(jobs, list) else [{}]:
            kinds: Kinds = {}
            shared = {key: value for key, value in settings.items() if key not in job}
            _Seen(Has(), kinds).mapping(root(), {**shared, "jobs": [job]}, Place())
            # What a job changes is read as if it were written at the root.
            own = {key: value for key, value in job.items() if key in root()["properties"]}
            _Seen(Has(), kinds).mapping(root(), own, Place())
            yield kinds


def variants_of(scenario: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The changes of each variant; of a grid, of each value alone."""
    variants = scenario.get("variants")
    if isinstance(variants, list) and variants:
        return [one for one in variants if isinstance(one, dict)]
    if isinstance(variants, dict) and variants:
        return [{key: one} for key, named in variants.items() for one in named.values()]
    return [{}]


def short_kind(path: str, value: Any) -> str:
    """The kind that a text is short for: a model's name, a file of one's own, a device; "" if for none."""
    kinds = language().kinds.get(path, ())
    if not isinstance(value, str) or not kinds or value in kinds:
        return str(value) if isinstance(value, str) and value in kinds else ""
    return {"workload.model": "user", "device": "roofline"}.get(path, "")


class _Seen:
    """Walks a value beside its schema."""

    def __init__(self, has: Has, kinds: Kinds) -> None:
        self.has, self.kinds = has, kinds

    def value(self, schema: Schema, value: Any, place: Place) -> None:
        options = alternatives(schema)
        option = chosen(options, value)
        if option is None:
            return
        if len(options) > 1 and value is not None:
            self.has.choices.add(f"{place.path}={form(option)}")
        if kind := kind_of(option):
            self.kinds.setdefault(place.path, set()).add(kind)
        if short := short_kind(place.path, value):
            self.kinds.setdefault(place.path, set()).add(short)
        if words_of(option):
            self.has.choices.add(f"{place.path}={value}")
            section = place.path.removesuffix(".kind")
            if place.path in WORDS or section != place.path:
                self.kinds.setdefault(section, set()).add(str(value))
        inner = Place(place.path, kind)
        if place.path in AGAIN:
            _Seen(self.has, {}).value(schema, value, Place(AGAIN[place.path]))
        elif isinstance(value, dict):
            self.mapping(option, value, inner)
        elif isinstance(value, list):
            prefix = option.get("prefixItems", [])
            for index, item in enumerate(value):
                child = prefix[index] if index < len(prefix) else option.get("items")
                if child is not None:
                    self.value(child, item, inner)

    def mapping(self, option: Schema, value: Mapping[str, Any], place: Place) -> None:
        known, more = option.get("properties", {}), option.get("additionalProperties")
        for name, item in value.items():
            if name in known:
                if not (name == "kind" and "const" in known[name]):
                    self.key(name, known[name], item, place)
            elif isinstance(more, dict):
                self.key("*", more, item, place)

    def key(self, name: str, child: Schema, item: Any, place: Place) -> None:
        self.has.keys.add(f"{place.text}.{name}".lstrip("."))
        if is_repeated(place, name):
            self.repeated(name, item, place)
        elif place.path == "" and name == "variants":
            self.variants(child, item)
        else:
            self.value(child, item, place.key(name))

    def variants(self, child: Schema, item: Any) -> None:
        option = chosen(alternatives(child), item)
        if option is None:
            return
        self.has.choices.add(f"variants={form(option)}")
        place = Place("variants", "grid" if isinstance(item, dict) else "list")
        for one in [item] if isinstance(item, dict) else item:
            if isinstance(one, dict):
                self.mapping(option.get("items", option), one, place)

    def repeated(self, name: str, item: Any, place: Place) -> None:
        """Read what a job, a variant or a grid says as if the root said it."""
        schema = root()["properties"].get(name)
        if schema is None or name == "name" or place.path == "sweep":
            return
        inner = _Seen(self.has, {})
        for one in item.values() if place.kind == "grid" and isinstance(item, dict) else [item]:
            inner.value(schema, one, Place(name))


LEAST = 5  # scenarios of each


class Coverage:
    """Counts over many scenarios."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in wanted()}

    def add(self, scenario: Mapping[str, Any]) -> None:
        """Count a scenario."""
        has = units_of(scenario)
        for name, drawn in (("keys", has.keys), ("words and forms", has.choices), ("kinds", has.kinds)):
            self.counts[name].update(drawn)
        self.counts["pairs of kinds"].update(has.pairs)

    def rare(self) -> list[tuple[str, int]]:
        """What came up in fewer than five scenarios."""
        return [
            (name, counts[name])
            for sort, counts in self.counts.items()
            for name in wanted()[sort]
            if counts[name] < LEAST
        ]

    def table(self, ran: Coverage) -> str:
        """How much of the language came up at least five times, in all scenarios and in those that ran."""
        lines = [f"{'of the language':16} {'there are':>10} {'drawn 5 ×':>10} {'ran 5 ×':>10} {'ran':>10}"]
        for sort, names in wanted().items():
            drawn, often, once = (
                sum(counts[name] >= least for name in names)
                for counts, least in (
                    (self.counts[sort], LEAST),
                    (ran.counts[sort], LEAST),
                    (ran.counts[sort], 1),
                )
            )
            lines.append(f"{sort:16} {len(names):10} {drawn:10} {often:10} {once:10}")
        return "\n".join(lines)


@cache
def wanted() -> dict[str, list[str]]:
    """All that has to come up, by sort."""
    units = language()
    return {
        "keys": sorted(units.keys),
        "words and forms": sorted(units.choices),
        "kinds": sorted(f"{section}={kind}" for section, kinds in units.kinds.items() for kind in kinds),
        "pairs of kinds": [pair(*two) for two in pairs()],
    }
