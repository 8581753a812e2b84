"""Topologies as GraphML, both ways: what drawing programs such as yEd and Gephi read and write."""

from __future__ import annotations

import re
import warnings
from xml.etree.ElementTree import ParseError

import networkx as nx

from netfold.topologies.files.foreign import Defaults, topology_of
from netfold.topologies.graph import TopologyError, check_size, validate


def to_graphml(graph: nx.Graph) -> str:
    """GraphML of a topology. Coordinates and dimensions are text there: "0,1".

    Raises
    ------
    TopologyError
        The graph breaks the contract (see `topologies.graph.validate`).
    """
    validate(graph)
    plain = graph.copy()
    for attributes in (plain.graph, *(places for _, places in plain.nodes(data=True))):
        for key, value in attributes.items():
            if isinstance(value, tuple):
                attributes[key] = ",".join(map(str, value))
    return "\n".join(nx.generate_graphml(plain)) + "\n"


def from_graphml(text: str, defaults: Defaults) -> nx.Graph:
    """Topology from GraphML: what `to_graphml` writes, or a graph of routers (see `files.foreign`).

    Raises
    ------
    TopologyError
        The text is no GraphML; it is too large, which is counted before it is read; or the graph cannot be a
        topology.
    """
    if re.search(r"<!(DOCTYPE|ENTITY)", text):
        raise TopologyError("GraphML: has a document type; remove it, entities are not read")
    check_size(nx.Graph(), len(re.findall(r"<node\b", text)), len(re.findall(r"<edge\b", text)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of networkx, about ports and hyperedges
            found = nx.parse_graphml(text, force_multigraph=True)
    except ParseError as error:
        raise TopologyError(f"not GraphML: {error}") from None
    except (nx.NetworkXError, LookupError, ValueError, TypeError, StopIteration) as error:
        raise TopologyError(
            f"not GraphML: {' '.join(map(str, error.args)) or type(error).__name__}"
        ) from None
    return topology_of(found, defaults)
