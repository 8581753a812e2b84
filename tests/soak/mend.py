"""Takes out of a scenario what netfold refuses, so that the rest of it runs.

A drawn scenario has many keys, and often one of them does not go with another. The refusal is an outcome, and
is judged: it has to be in words. Then the key that it names goes, and the scenario is tried again.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from netfold.sim.errors import MistakesError, NetfoldError, ScenarioError

ROUNDS_MAX = 15
NEEDED = ("name", "topology", "workload", "codec", "collective", "workers", "kind", "program")
_ADD = re.compile(r"^add (\w+): (\w+)$")
_SWITCH = re.compile(r"^use a switch that can: (\w+)")


def mended(scenario: dict[str, Any], error: NetfoldError) -> dict[str, Any] | None:
    """The scenario without what an error names; None if nothing can go."""
    found = copy.deepcopy(scenario)
    mistakes = error.mistakes if isinstance(error, MistakesError) else (error,)
    changed = [_mend(found, one) for one in mistakes if isinstance(one, ScenarioError)]
    return found if any(changed) and found != scenario else None


def _mend(scenario: dict[str, Any], mistake: ScenarioError) -> bool:
    if add := _ADD.match(mistake.hint):
        scenario[add[1]] = add[2]
        return True
    parts = [part.removesuffix(" (default)") for part in mistake.path.split(".")]
    trail = _trail(scenario, parts)
    if parts[-1] == "switch" and (able := _SWITCH.match(mistake.hint)):
        trail[-1][0]["switch"] = able[1]
        return True
    for holder, _ in reversed(trail[-2:]):
        if isinstance(holder, dict) and _without_named(holder, mistake.message):
            return True
    if (
        trail
        and isinstance(last := trail[-1][0], dict)
        and "kind" in last
        and _without_named(last, mistake.message)
    ):
        return True
    for holder, key in reversed(trail):
        if key is not None and (isinstance(holder, list) or key not in NEEDED or holder is not scenario):
            if isinstance(holder, dict) and key in ("kind", "program"):
                continue
            del holder[key]
            return True
    return _without_parts(scenario, parts[0])


def _trail(scenario: dict[str, Any], parts: list[str]) -> list[tuple[Any, Any]]:
    """The mappings and lists along a path, each with the key that goes on; the last may have none."""
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


def _without_named(section: dict[str, Any], message: str) -> bool:
    """Take out the first key of a section that a message names."""
    words = re.findall(r"[a-z_]+", message)
    named = [key for key in words if key in section and key not in NEEDED]
    if named:
        del section[named[0]]
    return bool(named)


def _without_parts(scenario: dict[str, Any], first: str) -> bool:
    """Take out other variants or jobs as a whole."""
    for key in ("variants", "sweep", "jobs", "faults"):
        if key in scenario and (first == key or key in ("variants", "sweep")):
            del scenario[key]
            return True
    return False
