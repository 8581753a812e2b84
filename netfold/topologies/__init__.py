"""Networks as graphs with a contract: generators, routing, placement, measures, import and export.

A topology is a `networkx.Graph` that passes `topologies.graph.validate`. What a scenario can name is
registered by its kind: see `topologies.kind`.
"""

from netfold.kinds import register
from netfold.topologies.kinds.bcube import BCube
from netfold.topologies.kinds.clos import Clos
from netfold.topologies.kinds.dragonfly import Dragonfly
from netfold.topologies.kinds.dumbbell import Dumbbell
from netfold.topologies.kinds.fat_tree import FatTree
from netfold.topologies.kinds.hypercube import Hypercube
from netfold.topologies.kinds.hyperx import HyperX
from netfold.topologies.kinds.jellyfish import Jellyfish
from netfold.topologies.kinds.leaf_spine import LeafSpine
from netfold.topologies.kinds.rail_optimized import RailOptimized
from netfold.topologies.kinds.ring import Ring
from netfold.topologies.kinds.slim_fly import SlimFly
from netfold.topologies.kinds.star import Star
from netfold.topologies.kinds.topohub import TopoHub
from netfold.topologies.kinds.torus import Torus

# The order in which they are listed.
for _topology in (
    *(
        Star,
        LeafSpine,
        FatTree,
        Clos,
        Dumbbell,
        Ring,
        Torus,
        Hypercube,
        HyperX,
        Dragonfly,
        SlimFly,
        Jellyfish,
    ),
    *(BCube, RailOptimized, TopoHub),
):
    register(_topology)
