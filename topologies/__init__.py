"""Networks as graphs with a contract: generators, routing, placement, measures, import and export.

A topology is a `networkx.Graph` that passes `topologies.graph.validate`. `GENERATORS` has the ready-made
ones, by the kind that a scenario names.
"""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx

from netfold.topologies.leaf_spine import leaf_spine
from netfold.topologies.star import star

GENERATORS: dict[str, Callable[..., nx.Graph]] = {"star": star, "leaf_spine": leaf_spine}
