"""Builds the network of a variant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import networkx as nx

from netfold.sim.errors import ScenarioError, as_one_error, shown
from netfold.sim.files.foreign import UnreadableError, read_text
from netfold.sim.scenario.load import Scenario
from netfold.sim.scenario.models import Variant
from netfold.sim.units import RATE, SIZE, TIME, Quantity, UnitError
from netfold.topologies.exchange import from_json
from netfold.topologies.graph import LINKS_MAX, NODES_MAX, TopologyError

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
    path, prefix = "topology", ""
    try:
        if section.file is not None:
            path, prefix = "topology.path", f"{section.file}: "
            return from_json(_read(section.file, scenario, variant), _UNITS)
        topology = section.topology()
        size = topology.size()
        for count, most, what in ((size.nodes, NODES_MAX, "nodes"), (size.links, LINKS_MAX, "links")):
            if count > most:
                message = f"{count} {what} are too many: the packet engine takes up to {most}"
                raise scenario.error(f"topology.{size.key}", message, size.hint, variant.name)
        return topology.graph()
    except TopologyError as error:
        raise as_one_error(
            _refused(scenario, variant, path, prefix + mistake) for mistake in error.mistakes
        ) from None


def _refused(scenario: Scenario, variant: Variant, path: str, text: str) -> ScenarioError:
    """The scenario error for a mistake in a graph; text after a semicolon is the hint."""
    message, _, hint = text.partition("; ")
    return scenario.error(path, message, hint, variant.name)


def _reader(quantity: Quantity) -> Callable[[object], int]:
    def read(text: object) -> int:
        try:
            return quantity.parse(text)
        except UnitError as error:
            raise ValueError(f"{error.message}; {error.hint}") from None

    return read


_UNITS = {"rate_bps": _reader(RATE), "delay_ps": _reader(TIME), "buffer_bytes": _reader(SIZE)}


def _read(file: str, scenario: Scenario, variant: Variant) -> str:
    try:
        return read_text(Path(scenario.file).parent / file, GRAPH_BYTES_MAX)
    except UnreadableError as error:
        hint = "give the path of a node-link JSON file, relative to the scenario file"
        message = f"cannot read {shown(file)}: {error.message}"
        raise scenario.error("topology.path", message, hint, variant.name) from None
