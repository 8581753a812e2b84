"""Breaks a rule of a scenario, so that it has to be refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

Holder = tuple[Any, Any]  # a mapping or list, and the key or index of a value in it

TOO_WRONG = (
    float("inf"),
    -(2**70),
    2**70,
    "\x1b[31m",
    "a" * 5000,
    [],
    {},
    {"a": [1, {"b": 2}]},
    "10 parsecs",
    "-1us",
)


def broken(chance: random.Random, scenario: dict[str, Any]) -> str:
    """Change a scenario so that it breaks a rule; returns which, in words."""
    rule = chance.choice([unknown_key, unknown_kind, wrong_type, missing, too_many_workers, below])
    return rule(chance, scenario)


def unknown_key(chance: random.Random, scenario: dict[str, Any]) -> str:
    """A key that no section has."""
    sections = [
        scenario,
        *(at[key] for at, key in places(scenario) if isinstance(at[key], dict) and "kind" in at[key]),
    ]
    name = chance.choice(["knid", "elments", "no-such-key", "0"])
    chance.choice(sections)[name] = 1
    return f"unknown key {name!r}"


def unknown_kind(chance: random.Random, scenario: dict[str, Any]) -> str:
    """A kind that does not exist."""
    sections = [at for at, key in places(scenario) if key == "kind"]
    chance.choice(sections)["kind"] = chance.choice(["ringg", "", "none2", 7, None])
    return "unknown kind"


def wrong_type(chance: random.Random, scenario: dict[str, Any]) -> str:
    """A value that nothing can be."""
    at, key = chance.choice([(at, key) for at, key in places(scenario) if not is_free(at, key)])
    at[key] = chance.choice(TOO_WRONG)
    return f"{key}: {at[key]!r:.40}"


def missing(chance: random.Random, scenario: dict[str, Any]) -> str:
    """A key that is needed."""
    key = chance.choice(["topology", "workload", "codec", "collective", "workers", "name"])
    scenario.pop(key, None)
    for part in (scenario.get("jobs"), scenario.get("variants")):
        for one in part if isinstance(part, list) else []:
            one.pop(key, None)
    if isinstance(scenario.get("variants"), dict) or isinstance(scenario.get("sweep"), dict):
        scenario.pop("variants", None)
        scenario.pop("sweep", None)
    return f"no {key}"


def too_many_workers(chance: random.Random, scenario: dict[str, Any]) -> str:
    """More workers than any network here has hosts."""
    scenario["workers"] = chance.choice([1000, 2**64, 10**30])
    for part in (scenario.get("jobs"), scenario.get("variants")):
        for one in part if isinstance(part, list) else []:
            one.pop("workers", None)
    for key in ("variants", "sweep"):
        if isinstance(scenario.get(key), dict):
            scenario.pop(key)
    return f"{scenario['workers']} workers"


def below(chance: random.Random, scenario: dict[str, Any]) -> str:
    """A number below what it may be."""
    numbers = [
        (at, key) for at, key in places(scenario) if type(at[key]) in (int, float) and not is_free(at, key)
    ]
    if not numbers:
        return unknown_key(chance, scenario)
    at, key = chance.choice(numbers)
    at[key] = chance.choice([-1, -(10**400), -0.5])
    return f"{key}: {at[key]!r:.20}"


def is_free(at: Any, key: Any) -> bool:
    """Whether any value is allowed; what stands in a list may be one of several."""
    return str(key).startswith("x-") or isinstance(at, list)


def places(value: Any) -> Iterator[Holder]:
    """All mappings and lists with their keys; what belongs to the user is left out."""
    items = (
        list(value.items())
        if isinstance(value, dict)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    for key, child in items:
        if not str(key).startswith("x-"):
            yield value, key
            yield from places(child)
