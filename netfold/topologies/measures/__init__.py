"""Measures of a topology that need no simulation."""

from netfold.topologies.measures.bandwidth import Bounds, bisection
from netfold.topologies.measures.cost import Cost
from netfold.topologies.measures.diversity import Diversity
from netfold.topologies.measures.figures import Measures, measure

__all__ = ["Bounds", "Cost", "Diversity", "Measures", "bisection", "measure"]
