"""The network that a variant describes, built."""

from __future__ import annotations

from pathlib import Path

import networkx as nx

from sim.errors import shown
from sim.scenario.load import Scenario
from sim.scenario.models import LeafSpine, Links, Star, TopologyFile, Variant
from topologies.exchange import from_json
from topologies.graph import LinkSpec, TopologyError
from topologies.leaf_spine import leaf_spine
from topologies.star import star


def build_topology(scenario: Scenario, variant: Variant) -> nx.Graph:
    """Graph of a variant's topology; a file is looked for beside the scenario.

    Raises
    ------
    ScenarioError
        The file cannot be read, or the graph breaks the contract of `topologies.graph.validate`.
    """
    section = variant.topology
    try:
        match section:
            case Star():
                return star(section.hosts, _link(section, section.rate), section.switch)
            case LeafSpine():
                link, uplink = _link(section, section.rate), _link(section, section.uplink_rate)
                counts = section.leaves, section.spines, section.hosts_per_leaf
                return leaf_spine(*counts, link, uplink, section.switch)
            case TopologyFile():
                return from_json(_read(section, scenario, variant))
    except TopologyError as error:
        path, message = "topology", str(error)
        if isinstance(section, TopologyFile):
            path, message = "topology.path", f"{section.path}: {error}"
        raise scenario.error(path, message, variant=variant.name) from None


def _read(section: TopologyFile, scenario: Scenario, variant: Variant) -> str:
    try:
        return (Path(scenario.file).parent / section.path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        hint = "give the path of a node-link JSON file, relative to the scenario file"
        message = f"cannot read {shown(section.path)}: {reason}"
        raise scenario.error("topology.path", message, hint, variant.name) from None


def _link(section: Links, rate_bps: int) -> LinkSpec:
    return LinkSpec(rate_bps, section.delay, section.buffer)
