"""Builds the network of a variant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import networkx as nx

from netfold.sim.errors import ScenarioError, as_one_error, shown
from netfold.sim.files.foreign import UnreadableError, read_text
from netfold.sim.scenario.load import Scenario
from netfold.sim.scenario.models import GeneratedTopology, LeafSpine, Star, TopologyFile, Variant
from netfold.sim.units import RATE, SIZE, TIME, Quantity, UnitError
from netfold.topologies.exchange import from_json
from netfold.topologies.graph import LINKS_MAX, NODES_MAX, LinkSpec, TopologyError
from netfold.topologies.leaf_spine import leaf_spine, leaf_spine_size
from netfold.topologies.star import star, star_size

GRAPH_BYTES_MAX = 2**26  # of a file: some 400 bytes for each of the most links


def build_topology(scenario: Scenario, variant: Variant) -> nx.Graph:
    """The graph of a variant's topology; the path of a file is relative to the scenario.

    Raises
    ------
    ScenarioError
        The file cannot be read, or the graph is too large or breaks the contract of
        `topologies.graph.validate`.
    """
    section = variant.topology
    too_large = _too_large(section)
    if too_large:
        key, message, hint = too_large
        raise scenario.error(f"topology.{key}", message, hint, variant.name)
    try:
        match section:
            case Star():
                return star(section.hosts, _link(section, section.rate), section.switch)
            case LeafSpine():
                link, uplink = _link(section, section.rate), _link(section, section.uplink_rate)
                counts = section.leaves, section.spines, section.hosts_per_leaf
                return leaf_spine(*counts, link, uplink, section.switch)
            case TopologyFile():
                return from_json(_read(section, scenario, variant), _UNITS)
    except TopologyError as error:
        path, prefix = "topology", ""
        if isinstance(section, TopologyFile):
            path, prefix = "topology.path", f"{section.path}: "
        raise as_one_error(
            _refused(scenario, variant, path, prefix + mistake) for mistake in error.mistakes
        ) from None


def _refused(scenario: Scenario, variant: Variant, path: str, text: str) -> ScenarioError:
    """The scenario error for a mistake in a graph; text after a semicolon is the hint."""
    message, _, hint = text.partition("; ")
    return scenario.error(path, message, hint, variant.name)


def _too_large(section: Star | LeafSpine | TopologyFile) -> tuple[str, str, str] | None:
    """Key, message and hint if a generated topology would exceed the packet engine's limits."""
    match section:
        case Star():
            nodes, links = star_size(section.hosts)
            key, hint = "hosts", f"use {NODES_MAX - 1} hosts at most"
        case LeafSpine():
            leaves, spines = section.leaves, section.spines
            nodes, links = leaf_spine_size(leaves, spines, section.hosts_per_leaf)
            most = min((NODES_MAX - spines) // leaves - 1, LINKS_MAX // (2 * leaves) - spines)
            if most >= 1:
                key, hint = "hosts_per_leaf", f"use {most} hosts_per_leaf at most, or fewer leaves"
            else:
                key, hint = "leaves", "use fewer leaves or spines"
        case TopologyFile():  # counted when it is read
            return None
    if nodes > NODES_MAX:
        return key, f"{nodes} nodes are too many: the packet engine takes up to {NODES_MAX}", hint
    if links > LINKS_MAX:
        return key, f"{links} links are too many: the packet engine takes up to {LINKS_MAX}", hint
    return None


def _reader(quantity: Quantity) -> Callable[[object], int]:
    def read(text: object) -> int:
        try:
            return quantity.parse(text)
        except UnitError as error:
            raise ValueError(f"{error.message}; {error.hint}") from None

    return read


_UNITS = {"rate_bps": _reader(RATE), "delay_ps": _reader(TIME), "buffer_bytes": _reader(SIZE)}


def _read(section: TopologyFile, scenario: Scenario, variant: Variant) -> str:
    try:
        return read_text(Path(scenario.file).parent / section.path, GRAPH_BYTES_MAX)
    except UnreadableError as error:
        hint = "give the path of a node-link JSON file, relative to the scenario file"
        message = f"cannot read {shown(section.path)}: {error.message}"
        raise scenario.error("topology.path", message, hint, variant.name) from None


def _link(section: GeneratedTopology, rate_bps: int) -> LinkSpec:
    return LinkSpec(rate_bps, section.delay, section.buffer)
