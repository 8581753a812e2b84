"""Validate a scenario without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netfold.sim.api.given import Given, scenario_of, sets_of
from netfold.sim.run.run import setups
from netfold.sim.scenario.load import load as load_scenario
from netfold.sim.scenario.load import running_code
from netfold.sim.scenario.resolve import resolve
from netfold.sim.studies.sweep_points import points_of
from netfold.sim.studies.sweep_workers import own_versions


def validate(
    scenario: Given, *, set: Mapping[str, Any] | None = None, seed: int | None = None, code: bool = True
) -> dict[str, dict[str, Any]]:
    """Check a scenario; return the settings of every variant (or job, "variant/job") by name.

    All points of a sweep are checked; the settings are those of its first point.

    Settings are the sections of the scenario: each has the values that differ from their defaults, and the
    values that defaults resolve to on this network, such as the collective's `switch` and `timeout`.

    A model in a Python file that the scenario names is built, so its code runs, which a line on stderr says;
    with `code=False` it is refused.

    Raises
    ------
    ScenarioError
        All mistakes in it, or the reason why it cannot run on its network.
    """
    with running_code(code):
        found = load_scenario(scenario_of(scenario), sets_of(set), seed)
        if found.sweep is not None:
            points_of(found, own_versions())
        return setups(resolve(found))
