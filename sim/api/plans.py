"""Validate a scenario without running it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netfold.sim.api.given import Given, scenario_of, sets_of
from netfold.sim.resolve import resolve
from netfold.sim.run.settings import setups
from netfold.sim.scenario import load


def validate(
    scenario: Given, *, set: Mapping[str, Any] | None = None, seed: int | None = None
) -> dict[str, dict[str, Any]]:
    """Check a scenario; return the settings of every variant (or job, "variant/job") by name.

    Settings are the sections of the scenario: each has the values that differ from their defaults, and the
    values that defaults resolve to on this network, such as the collective's `switch` and `timeout`.

    Raises
    ------
    ScenarioError
        All mistakes in it, or the reason why it cannot run on its network.
    """
    return setups(resolve(load(scenario_of(scenario), sets_of(set), seed)))
