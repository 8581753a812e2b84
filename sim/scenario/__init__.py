"""The scenario file: what a person writes down to have two or more ways of aggregating gradients compared."""

from netfold.sim.scenario.load import Scenario, load
from netfold.sim.scenario.models import Variant
from netfold.sim.scenario.schema import schema

__all__ = ["Scenario", "Variant", "load", "schema"]
