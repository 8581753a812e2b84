"""Real networks by name, from the package topohub."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

import networkx as nx

from netfold.errors import closest
from netfold.topologies.kind import Counts, Direct, Facts, ParameterError, optional
from netfold.topologies.topology_files import Defaults, topology_of

_NAME = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9._+-]*[A-Za-z0-9_+-])+")


@dataclass(frozen=True, kw_only=True)
class TopoHub(Direct):
    """A real network by its name in the package topohub (extra: netfold[topohub]), with hosts on each router.

    Jurkiewicz: TopoHub: A repository of reference Gabriel graph and real-world topologies for networking
    research, SoftwareX 24, 2023. Routers are switches; the delay of a link is that of light in glass over its
    length, 5 µs a km. Nothing has a closed form.
    """

    kind: ClassVar[str] = "topohub"
    growing: ClassVar[tuple[str, ...]] = ("hosts_per_switch",)

    fabric_delay_ps: int | None = optional(
        "Delay of the links between switches; by default from their length."
    )
    name: str = field(metadata={"meaning": "Name in topohub, such as topozoo/Abilene or sndlib/polska."})

    def counts(self) -> Counts:
        """Counts of the network, read from the package."""
        network = _graph(self.name)
        return self.counts_of(network.number_of_nodes(), nx.Graph(network).number_of_edges())

    def facts(self) -> Facts:
        """Its counts: nothing else has a closed form."""
        return Facts(*self.counts(), None, None, None)

    def graph(self) -> nx.Graph:
        """Switches have the names of the network's routers.

        Raises
        ------
        TopologyError
            The package is missing, or has no such network; or the network cannot be a topology.
        """
        link = self.link()
        graph = topology_of(_graph(self.name), Defaults(link, self.switch, self.hosts_per_switch))
        for node, other, edge in graph.edges(data=True):
            if graph.nodes[node]["kind"] == graph.nodes[other]["kind"]:
                edge["rate_bps"] = self.fabric_rate_bps
                if self.fabric_delay_ps is not None:
                    edge["delay_ps"] = self.fabric_delay_ps
        return graph


@cache
def _graph(name: str) -> nx.Graph:
    """The network of this name, as networkx reads it."""
    try:
        import topohub
    except ImportError:
        raise ParameterError(
            "name",
            "topohub: the package topohub is not installed; install it with: pip install 'netfold[topohub]'",
        ) from None
    if _NAME.fullmatch(name) is None or ".." in name:
        raise ParameterError("name", f"topohub: {name!r} cannot be a name; use one such as topozoo/Abilene")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # it leaves its file open
            data: dict[str, Any] = topohub.get(name)
    except KeyError:
        raise ParameterError("name", f"topohub: there is no network {name!r}; {_hint(name)}") from None
    labelled = [{**node, "label": node.get("name", "")} for node in data["nodes"]]
    return nx.node_link_graph({**data, "nodes": labelled}, edges="edges")


def _hint(name: str) -> str:
    """The name that comes near, and the groups that there are."""
    folder = files("topohub") / "data"
    group = name.split("/", 1)[0]
    groups = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != "_")
    members = folder / (group if group in groups else groups[0])
    names = [f"{members.name}/{file.name.removesuffix('.json')}" for file in members.iterdir()]
    meant = closest(name, names) if group in groups else ""
    return (f"did you mean {meant!r}? " if meant else "") + f"groups: {', '.join(groups)}"
