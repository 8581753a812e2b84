"""The routing policies that a scenario can name: what each makes of a graph, and what it does to packets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx

from netfold.topologies.routing.dimension_order import dimension_order_tables
from netfold.topologies.routing.groups import port_costs
from netfold.topologies.routing.shortest import shortest_tables
from netfold.topologies.routing.tables import Fabric, Tables
from netfold.topologies.routing.valiant import Detours, find_detours


def _minimal(graph: nx.Graph, fabric: Fabric) -> Tables:
    return shortest_tables(fabric, port_costs(graph, fabric))


@dataclass(frozen=True)
class Policy:
    """How packets between hosts choose among paths. Packets from or to a switch keep one path a flow."""

    kind: str
    meaning: str  # a sentence, after the kind
    make_tables: Callable[[nx.Graph, Fabric], Tables] = _minimal
    is_sprayed: bool = False  # every packet chooses anew at every node, so packets overtake each other
    find_detours: Callable[[nx.Graph, Tables], Detours] | None = None

    @property
    def is_for_hosts_alone(self) -> bool:
        """Whether packets between hosts and switches take other paths than those between hosts."""
        return self.is_sprayed or self.find_detours is not None


ECMP = Policy("ecmp", "one of the shortest paths for each flow, by a hash of its key")
SPRAY = Policy("spray", "one of the shortest paths for each packet, by a hash of its key", is_sprayed=True)
VALIANT = Policy(
    "valiant",
    "minimally to a random group (of a dragonfly; elsewhere: switch) for each flow, and on from there",
    find_detours=find_detours,
)
DIMENSION_ORDER = Policy(
    "dimension_order",
    "all hops of the first dimension of a torus or hypercube, then of the next",
    make_tables=dimension_order_tables,
)
POLICIES = {policy.kind: policy for policy in (ECMP, SPRAY, VALIANT, DIMENSION_ORDER)}
