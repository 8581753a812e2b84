"""Networks as graphs with a contract: generators, routing, placement, measures, import and export.

A topology is a `networkx.Graph` that passes `topologies.graph.validate`. What a scenario can name is
registered by its kind: see `topologies.kind`.
"""

from netfold.topologies.kind import register
from netfold.topologies.leaf_spine import LeafSpine
from netfold.topologies.star import Star

for _topology in (Star, LeafSpine):  # the order in which they are listed
    register(_topology)
