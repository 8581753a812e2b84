"""Scenario files, which describe the variants of gradient aggregation to compare."""

from netfold.sim.scenario.load import Scenario, load
from netfold.sim.scenario.models import Variant
from netfold.sim.scenario.schema import schema

__all__ = ["Scenario", "Variant", "load", "schema"]
