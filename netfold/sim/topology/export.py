"""Topologies as text for other programs: node-link JSON, GraphML, GML and DOT."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import networkx as nx

from netfold.errors import NetfoldError
from netfold.spelling import names_hint
from netfold.topologies.files import to_json
from netfold.topologies.graph import HOST, validate
from netfold.units import RATE, TIME


def export(graph: nx.Graph, form: str) -> str:
    """A valid graph in a format: json, graphml, gml or dot; the same graph gives the same text.

    All formats keep nodes, links and their attributes; all but `dot` can be read back. In all but `json` a
    tuple, such as coordinates, is text: "0,3", and so are numbers above 32 bits in `gml`.

    Raises
    ------
    NetfoldError
        There is no such format.
    TopologyError
        The graph breaks the contract (see `topologies.graph.validate`).
    """
    if form not in FORMATS:
        raise NetfoldError(f"there is no format {form!r}", names_hint(form, FORMATS, "formats"))
    validate(graph)
    return FORMATS[form](graph)


def _flat(graph: nx.Graph) -> nx.Graph:
    """The graph with text instead of tuples and lists."""
    flat = nx.Graph(**{key: _text(value) for key, value in graph.graph.items()})
    flat.add_nodes_from(
        (name, {key: _text(value) for key, value in data.items()}) for name, data in graph.nodes(data=True)
    )
    flat.add_edges_from(graph.edges(data=True))
    return flat


def _text(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else value


def _graphml(graph: nx.Graph) -> str:
    return "\n".join(nx.generate_graphml(_flat(graph))) + "\n"


def _gml(graph: nx.Graph) -> str:
    return "\n".join(nx.generate_gml(_flat(graph))) + "\n"


def _dot(graph: nx.Graph) -> str:
    """For Graphviz: hosts are circles, switches boxes, with a row for each tier."""
    return "\n".join(_dot_lines(graph)) + "\n"


def _dot_lines(graph: nx.Graph) -> Iterator[str]:
    yield f"graph {_quoted(graph.name)} {{"
    yield "  rankdir=BT;"
    for name, data in graph.nodes(data=True):
        shape = "circle" if data["kind"] == HOST else "box"
        attributes = {"shape": shape, **{key: _text(value) for key, value in data.items()}}
        yield f"  {_quoted(name)} [{_attributes(attributes)}];"
    for tier in sorted({tier for _, tier in graph.nodes(data="tier")}):
        members = " ".join(f"{_quoted(name)};" for name, own in graph.nodes(data="tier") if own == tier)
        yield f"  {{ rank=same; {members} }}"
    for a, b, data in graph.edges(data=True):
        lower, upper = sorted((a, b), key=lambda name: graph.nodes[name]["tier"])
        label = f"{RATE.format(data['rate_bps'])}, {TIME.format(data['delay_ps'])}"
        yield f"  {_quoted(lower)} -- {_quoted(upper)} [{_attributes({'label': label, **data})}];"
    yield "}"


def _attributes(values: dict[str, Any]) -> str:
    return ", ".join(f"{_quoted(key)}={_quoted(value)}" for key, value in values.items())


def _quoted(value: object) -> str:
    """A quoted string of DOT."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


FORMATS: dict[str, Callable[[nx.Graph], str]] = {
    "json": to_json,
    "graphml": _graphml,
    "gml": _gml,
    "dot": _dot,
}
