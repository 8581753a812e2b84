"""Groups of switches, as a dragonfly has them: where every switch has a `group`, an int."""

from __future__ import annotations

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.topologies.graph import switches
from netfold.topologies.routing.tables import Fabric


def groups_of(graph: nx.Graph) -> NDArray[np.int32] | None:
    """(switches,) number of each switch's group, from 0 in order of their names; None without groups."""
    groups = [graph.nodes[name].get("group") for name in switches(graph)]
    if not all(type(group) is int for group in groups):
        return None
    return np.unique(groups, return_inverse=True)[1].astype(np.int32)


def port_costs(graph: nx.Graph, fabric: Fabric) -> NDArray[np.int64] | None:
    """(ports,) cost of each link between switches, where links between groups cost more than others.

    Minimal routing on a dragonfly takes as few links between groups as possible, and then as few hops (Kim,
    Dally, Scott and Abts, ISCA 2008): a way over a third group may have fewer hops, and is not minimal. So
    a link between groups costs more than all hops inside groups on any way with as few of them as possible.
    None where all links cost the same.
    """
    group = groups_of(graph)
    if group is None:
        return None
    owner = np.repeat(np.arange(fabric.switches_count), fabric.degrees)
    is_between = group[owner] != group[fabric.far_end]
    if not is_between.any() or is_between.all():
        return None
    inside = nx.Graph()
    inside.add_nodes_from(range(fabric.switches_count))
    inside.add_edges_from(zip(owner[~is_between].tolist(), fabric.far_end[~is_between].tolist(), strict=True))
    parts = list(nx.connected_components(inside))
    longest = max(nx.diameter(inside.subgraph(part)) for part in parts)
    number = {switch: index for index, part in enumerate(parts) for switch in part}
    between = nx.Graph()
    between.add_edges_from(
        (number[a], number[b])
        for a, b in zip(owner[is_between].tolist(), fabric.far_end[is_between].tolist(), strict=True)
    )
    return np.where(is_between, (nx.diameter(between) + 1) * longest + 1, 1)
