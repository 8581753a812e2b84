"""Topologies as files: node-link JSON both ways, GraphML out.

{"directed": false, "multigraph": false, "graph": {"name": "star"},
 "nodes": [{"id": "h0", "kind": "host", "tier": 0, "profile": ""}, …],
 "edges": [{"source": "h0", "target": "s0",
            "rate_bps": 100000000000, "delay_ps": 1000000, "buffer_bytes": 262144}, …]}

A file to be read may leave out what has one value: `directed`, `multigraph`, a host's `tier` and `profile`.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import networkx as nx

from topologies.graph import HOST_ATTRIBUTES, TopologyError, hosts, validate


def to_json(graph: nx.Graph) -> str:
    """Node-link JSON of a topology; nodes keep their order, the same graph gives the same text.

    Raises
    ------
    TopologyError
        The graph breaks the contract (see `topologies.graph.validate`).
    """
    validate(graph)
    return json.dumps(nx.node_link_data(graph, edges="edges"), indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> nx.Graph:
    """Topology from node-link JSON, checked.

    Raises
    ------
    TopologyError
        The text is not JSON (says where) or not node-link JSON, a node or an edge is there twice, or the
        graph breaks the contract (see `topologies.graph.validate`).
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise TopologyError(f"not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    _check_shape(data)
    graph = nx.node_link_graph(data, directed=False, multigraph=False, edges="edges")
    for host in hosts(graph):
        graph.nodes[host].update({**HOST_ATTRIBUTES, **graph.nodes[host]})
    validate(graph)
    return graph


def to_graphml(graph: nx.Graph) -> str:
    """GraphML of a topology, for drawing programs such as yEd and Gephi.

    Raises
    ------
    TopologyError
        The graph breaks the contract (see `topologies.graph.validate`).
    """
    validate(graph)
    return "\n".join(nx.generate_graphml(graph)) + "\n"


def _check_shape(data: Any) -> None:
    """Refuse what networkx would crash on or silently merge."""
    if not isinstance(data, dict) or not isinstance(data.get("graph", {}), dict):
        raise TopologyError("not node-link JSON: must be an object, with an object 'graph' if it has one")
    nodes = [name for (name,) in _entries(data, "nodes", ("id",))]
    edges = _entries(data, "edges", ("source", "target"))
    known = set(nodes)
    for edge in edges:
        for name in edge:
            if name not in known:
                raise TopologyError(
                    f"node-link JSON: edge {' - '.join(edge)} leads to {name!r}, which is not a node"
                )
    _refuse_repeated("node", Counter(nodes))
    _refuse_repeated("edge", Counter(" - ".join(sorted(edge)) for edge in edges))


def _entries(data: dict[str, Any], key: str, needed: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The `needed` strings of each object in the list `data[key]`."""
    entries = data.get(key)
    if not isinstance(entries, list):
        raise TopologyError(
            f"not node-link JSON: must have lists 'nodes' and 'edges'; {key!r} is missing or not a list"
        )
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in needed):
            strings = " and ".join(repr(name) for name in needed)
            raise TopologyError(
                f"not node-link JSON: {key}[{number}] must be an object with text under {strings}"
            )
    return [tuple(entry[name] for name in needed) for entry in entries]


def _refuse_repeated(what: str, counts: Counter[str]) -> None:
    for name, count in counts.items():
        if count > 1:
            raise TopologyError(f"node-link JSON: {what} {name!r} is there {count} times, must be there once")
