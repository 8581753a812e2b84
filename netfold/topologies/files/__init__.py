"""Topologies in files: node-link JSON and GraphML both ways, GML in, and names of the package topohub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath

import networkx as nx

from netfold.topologies.files.foreign import Defaults, add_hosts
from netfold.topologies.files.gml import from_gml
from netfold.topologies.files.graphml import from_graphml
from netfold.topologies.files.node_link import Units, from_json

__all__ = ["FORMATS", "Defaults", "read_graph"]


def _from_json(text: str, defaults: Defaults, units: Units) -> nx.Graph:
    given = defaults.hosts_per_switch is not None
    return from_json(text, units, (lambda graph: add_hosts(graph, defaults)) if given else None)


FORMATS: dict[str, Callable[[str, Defaults, Units], nx.Graph]] = {
    ".json": _from_json,
    ".graphml": lambda text, defaults, _: from_graphml(text, defaults),
    ".gml": lambda text, defaults, _: from_gml(text, defaults),
}


def read_graph(name: str, text: str, defaults: Defaults, units: Units) -> nx.Graph:
    """The topology in a file's text, in the format that the end of its name says; else node-link JSON.

    Raises
    ------
    TopologyError
        The text is not of that format, or no topology (see the readers).
    """
    return FORMATS.get(PurePath(name).suffix.lower(), _from_json)(text, defaults, units)
