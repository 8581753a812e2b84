"""Takes out of a scenario what netfold refuses, so that the rest of it runs.

A drawn scenario has many keys, and often one of them does not go with another. The refusal is an outcome, and
is judged: it has to be in words. Then the key that it names goes, and the scenario is tried again.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from netfold.errors import MistakesError, NetfoldError, ScenarioError
from tests.soak.language import alternatives, kind_of, language, root
from tests.soak.values import DERIVED

ROUNDS_MAX = 25
SECTIONS = ("topology", "workload", "codec", "collective", "workers")  # that a scenario needs
OF_SWITCHES = ("cannot merge words", "runs program tree alone", "adders that wrap", "a port of")
TIMEOUTS = ("timeout", "first_timeout", "timeout_max")
PARTS = ("variants", "sweep", "jobs", "faults")
FINAL = ("take about", "GiB")  # words of refusals for want of memory
_ADD = re.compile(r"^add (\w+): (\w+)")
_SWITCH = re.compile(r"use a switch that can: (\w+)")
_HOSTS = re.compile(r"cannot place \d+ \w+ on (\d+) hosts")


def mended(scenario: dict[str, Any], error: NetfoldError) -> dict[str, Any] | None:
    """The scenario without what an error names; None if nothing can go."""
    found = copy.deepcopy(scenario)
    mistakes = error.mistakes if isinstance(error, MistakesError) else (error,)
    changed = [_mend(found, one) for one in mistakes if isinstance(one, ScenarioError)]
    return found if any(changed) and found != scenario else None


def _mend(scenario: dict[str, Any], mistake: ScenarioError) -> bool:
    text = str(mistake)
    if all(word in text for word in FINAL):
        return False
    parts = [part.removesuffix(" (default)") for part in mistake.path.split(".")]
    trail = _trail(scenario, parts)
    if "arrivals" in text and "number of jobs" in text and isinstance(trail[-1][0], dict):
        trail[-1][0]["count"] = 1
        return True
    if (add := _ADD.match(mistake.hint)) and add[1] in root()["properties"]:
        changed = [_set(settings, add[1], add[2]) for settings in _all_settings(scenario)]
        if any(changed):
            return True
    if "nothing to do" in text and "groups" in text and _with_groups(scenario):
        return True
    if "cannot stand in" in text:
        changed = [_without_shape(settings.get("collective")) for settings in _all_settings(scenario)]
        return any(changed)
    if "too short" in text and "timeout" in parts[-1] and "(default)" in mistake.path:
        return _with_timeouts(scenario)
    if "adders that wrap" in text and _without_everywhere(scenario, ["collective", "overflow"]):
        return True
    is_of_switches = "topology" in parts or any(words in text for words in OF_SWITCHES)
    if is_of_switches and _with_switch(scenario, text):
        return True
    if hosts := _HOSTS.search(text):
        return _with_workers(scenario, int(hosts[1]))
    if len(trail) > 1 and len(trail) == len(parts) + 1 and _is_free(*trail[-2]):
        holder, key = trail[-2]
        del holder[key]
        return True
    if "(default)" in mistake.path and _without_everywhere(scenario, parts):
        return True
    for holder, _ in reversed(trail[-2:]):
        if isinstance(holder, dict) and holder is not scenario and _without_named(holder, mistake.message):
            return True
    return _without_around(scenario, trail) or _without_parts(scenario, parts[0])


@cache
def _required() -> frozenset[tuple[str, str]]:
    """Kind of a section, and a key that it cannot be without."""
    found = set()
    codecs = alternatives(root()["properties"]["codec"])
    sections = [
        *codecs,
        *(one for definition in root()["$defs"].values() for one in alternatives(definition)),
    ]
    for section in sections:
        for key, child in section.get("properties", {}).items():
            if "default" not in child and key not in DERIVED:
                found.add((kind_of(section), key))
    return frozenset(found)


def _is_free(holder: Any, key: Any) -> bool:
    """Whether a value can go without another in its place."""
    if key is None or key in ("kind", "name"):
        return False
    if isinstance(holder, list):
        return True
    return key not in SECTIONS and (str(holder.get("kind", "")), key) not in _required()


def _trail(scenario: dict[str, Any], parts: list[str]) -> list[tuple[Any, Any]]:
    """The mappings and lists along a path, each with the key that goes on; the last has none."""
    at: Any = scenario
    trail: list[tuple[Any, Any]] = []
    for part in parts:
        key: Any = None
        if isinstance(at, dict) and part in at:
            key = part
        elif isinstance(at, list):
            named = [
                index for index, one in enumerate(at) if isinstance(one, dict) and one.get("name") == part
            ]
            key = named[0] if named else int(part) if part.isdigit() and int(part) < len(at) else None
        if key is None:
            break
        trail.append((at, key))
        at = at[key]
    trail.append((at, None))
    return trail


def _all_settings(scenario: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The root, every variant and job, each value of a grid, and what a job falls back to."""
    yield scenario
    if isinstance(scenario.get("fallback"), dict):
        yield {"collective": scenario["fallback"]}
    for key in ("variants", "jobs"):
        parts = scenario.get(key)
        for one in parts if isinstance(parts, list) else ():
            yield from _all_settings(one)
        for name, named in parts.items() if isinstance(parts, dict) else ():
            yield from ({name: value} for value in named.values())


def _set(settings: dict[str, Any], key: str, value: Any) -> bool:
    """Write a key where it is written already, or at the root."""
    if settings.get(key) == value or (key not in settings and "topology" not in settings):
        return False
    settings[key] = value
    return True


def _with_groups(scenario: dict[str, Any]) -> bool:
    """Groups of two, everywhere."""
    keys = {
        key.rpartition(".")[2] for key in language().keys if key.startswith("collective[hierarchical].group")
    }
    found = False
    for settings in _all_settings(scenario):
        collective = settings.get("collective")
        if isinstance(collective, dict) and collective.get("kind") == "hierarchical":
            key = next((key for key in sorted(keys) if key in collective), min(keys))
            found |= collective.get(key) != 2
            for other in keys:
                collective.pop(other, None)
            collective[key] = 2
    return found


def _without_shape(collective: Any) -> bool:
    """Take out the rows and columns of a torus, of the phases of a hierarchy too."""
    if not isinstance(collective, dict):
        return False
    inner = [_without_shape(collective.get(key)) for key in ("inner", "outer")]
    return any([*inner, *(collective.pop(key, None) is not None for key in ("rows", "columns"))])


def _with_timeouts(scenario: dict[str, Any]) -> bool:
    """Timeouts that are left to netfold, or long where that is not enough."""
    changed = [_without_everywhere(scenario, ["collective", key]) for key in TIMEOUTS]
    if any(changed):
        return True
    found = False
    for settings in _all_settings(scenario):
        collective = settings.get("collective")
        if isinstance(collective, dict) and collective.get("window") != 4:
            collective |= (
                {"timeout": "2s"} if collective.get("kind") == "in_network" else {"window": 4, "ack_every": 1}
            )
            found |= "window" in collective
    return found


def _without_everywhere(scenario: dict[str, Any], parts: list[str]) -> bool:
    """Take out a key of a section wherever it is written: a variant has it from the root."""
    found = False
    for settings in _all_settings(scenario):
        for section in [key for key in parts if key in root()["properties"] and key not in PARTS][-1:]:
            holder = settings.get(section)
            for name in parts[parts.index(section) + 1 : -1]:
                holder = holder.get(name) if isinstance(holder, dict) else None
            if isinstance(holder, dict) and parts[-1] in holder and _is_free(holder, parts[-1]):
                del holder[parts[-1]]
                found = True
    return found


def _with_switch(scenario: dict[str, Any], text: str) -> bool:
    """Give all networks switches that can do what was refused."""
    able = _SWITCH.search(text)
    name = able[1] if able else "sharp" if "does not recover" in text else "ideal"
    found = False
    for settings in _all_settings(scenario):
        topology = settings.get("topology")
        if isinstance(topology, dict) and "a port of" in text:
            for key in [key for key in topology if key.endswith("rate")]:
                del topology[key]
                found = True
        if isinstance(topology, dict) and topology.get("switch") != name:
            topology["switch"] = name
            topology.pop("switch_profiles", None)
            found = topology.get("kind") != "file" or topology.get("path") != "net.json"
    return found


def _with_workers(scenario: dict[str, Any], hosts: int) -> bool:
    """Fewer workers, everywhere."""
    found = False
    for settings in _all_settings(scenario):
        jobs = settings.get("jobs")
        most = max(1, hosts // max(1, len(jobs) if isinstance(jobs, list) else 1))
        workers = settings.get("workers")
        count = workers.get("count") if isinstance(workers, dict) else workers
        if isinstance(count, int) and count > most:
            settings["workers"] = most
            found = True
    return found


def _without_named(section: dict[str, Any], message: str) -> bool:
    """Take out the first key of a section that a message names."""
    words = re.findall(r"[a-z_]+", message)
    named = [key for key in words if key in section and _is_free(section, key)]
    if named:
        del section[named[0]]
    return bool(named)


def _without_around(scenario: dict[str, Any], trail: list[tuple[Any, Any]]) -> bool:
    """Take out the section that a path is in."""
    for holder, key in reversed(trail):
        is_part = isinstance(holder, dict) and "name" in holder and key in SECTIONS and holder is not scenario
        if is_part or _is_free(holder, key):
            del holder[key]
            return True
    return False


def _without_parts(scenario: dict[str, Any], first: str) -> bool:
    """Take out other variants or jobs as a whole."""
    for key in PARTS:
        if key in scenario and (first == key or key in ("variants", "sweep")):
            del scenario[key]
            return True
    return False
