"""The scenario file: what a person writes down to have two or more ways of aggregating gradients compared."""

from sim.scenario.load import Scenario, load
from sim.scenario.models import Variant
from sim.scenario.schema import schema

__all__ = ["Scenario", "Variant", "load", "schema"]
