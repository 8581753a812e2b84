"""Topologies from GML, the format of the Internet Topology Zoo."""

from __future__ import annotations

import re

import networkx as nx

from netfold.topologies.files.foreign import Defaults, topology_of
from netfold.topologies.graph import TopologyError, check_size

_GRAPH = re.compile(r"(?m)^([ \t]*graph\s*\[)")  # no white space twice in a row, else time is quadratic


def from_gml(text: str, defaults: Defaults) -> nx.Graph:
    """Topology from GML: what an export writes, or a graph of routers (see `files.foreign`).

    Files of the Topology Zoo have several edges between two nodes without saying that they are multigraphs,
    and labels that are there several times: both are read.

    Raises
    ------
    TopologyError
        The text is no GML; it is too large, which is counted before it is read; or the graph cannot be a
        topology.
    """
    nodes, edges = (len(re.findall(rf"\b{part}\s*\[", text)) for part in ("node", "edge"))
    check_size(nx.Graph(), nodes, edges)
    if not re.search(r"(?m)^[ \t]*multigraph\s+[01]", text):
        text = _GRAPH.sub(r"\1\n  multigraph 1", text, count=1)
    try:
        found = nx.parse_gml(text, label="id")
    except nx.NetworkXError as error:
        raise TopologyError(f"not GML: {' '.join(map(str, error.args))}") from None
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise TopologyError(f"not GML: {type(error).__name__} {error}") from None
    return topology_of(found, defaults)
