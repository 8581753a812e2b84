"""Builds the network of a variant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import networkx as nx

from netfold.errors import ScenarioError, as_one_error, shown
from netfold.sim.files.foreign import UnreadableError, read_text
from netfold.sim.keys.location import ScenarioInfo
from netfold.sim.scenario.load import Scenario
from netfold.sim.scenario.models import Variant
from netfold.sim.scenario.networks import key_of
from netfold.spelling import names_hint
from netfold.switch.profiles import PROFILES
from netfold.topologies.files import FORMATS, read_graph
from netfold.topologies.graph import LINKS_MAX, NODES_MAX, TopologyError, switches
from netfold.topologies.kind import ParameterError
from netfold.topologies.overrides import NoMatchError, change_links, change_profiles
from netfold.units import RATE, SIZE, TIME, Quantity, UnitError

_WRITTEN_MAX = 10**24  # larger numbers of nodes are rounded
GRAPH_BYTES_MAX = 2**26  # of a file: some 400 bytes for each of the most links


def build_topology(scenario: Scenario, variant: Variant) -> nx.Graph:
    """The graph of a variant's topology; the path of a file is relative to the scenario.

    Raises
    ------
    ScenarioError
        The file cannot be read; the graph is too large, which is known before it is made, or breaks the
        contract of `topologies.graph.validate`; or a pattern of `links` or `switch_profiles` matches nothing.
    """
    section = variant.topology
    path, prefix = "topology", ""
    try:
        if section.file is None:
            graph = _generated(scenario, variant)
        else:
            path, prefix = "topology.path", f"{section.file}: "
            text = _read(section.file, scenario, variant)
            graph = read_graph(section.file, text, section.defaults(), _UNITS)
    except ParameterError as error:
        raise _refused(scenario, variant, f"topology.{key_of(error.key)}", str(error)) from None
    except TopologyError as error:
        raise as_one_error(
            _refused(scenario, variant, path, prefix + mistake) for mistake in error.mistakes
        ) from None
    _change(graph, scenario, variant)
    return graph


def check_profiles(graph: nx.Graph, scenario: ScenarioInfo, variant: Variant) -> None:
    """Check that the profiles of all switches are known.

    Raises
    ------
    ScenarioError
        One is not, with the key that names it.
    """
    known = {**PROFILES, **scenario.profiles}
    for name in switches(graph):
        wanted = graph.nodes[name]["profile"]
        if wanted not in known:
            key = variant.topology.key_of_value("switch", wanted)
            message = f"there is no switch profile {wanted!r}"
            raise scenario.error(key, message, names_hint(wanted, known), variant.name)


def _generated(scenario: Scenario, variant: Variant) -> nx.Graph:
    """The graph of a registered topology, if its size fits."""
    topology = variant.topology.topology()
    size = topology.size()
    for count, most, what in ((size.nodes, NODES_MAX, "nodes"), (size.links, LINKS_MAX, "links")):
        if count > most:
            number = str(count) if count < _WRITTEN_MAX else f"more than 10^{len(str(count)) - 1}"
            message = f"{number} {what} are too many: the packet engine takes up to {most}"
            raise scenario.error(f"topology.{key_of(size.key)}", message, size.hint, variant.name)
    return topology.graph()


def _change(graph: nx.Graph, scenario: Scenario, variant: Variant) -> None:
    """Make the changes that patterns select."""
    known = {**PROFILES, **scenario.profiles}
    section = variant.topology
    for index, change in enumerate(section.profile_changes()):
        if change.profile not in known:
            message = f"there is no switch profile {change.profile!r}"
            at = f"topology.switch_profiles.{index}.profile"
            raise scenario.error(at, message, names_hint(change.profile, known), variant.name)
    try:
        key = "links"
        change_links(graph, section.link_changes())
        key = "switch_profiles"
        change_profiles(graph, section.profile_changes())
    except NoMatchError as error:
        raise _refused(scenario, variant, f"topology.{key}.{error.index}.match", str(error)) from None


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
        formats = "node-link JSON, GraphML or GML"
        hint = f"give the path of a file of {formats} ({', '.join(FORMATS)}), relative to the scenario file"
        message = f"cannot read {shown(file)}: {error.message}"
        raise scenario.error("topology.path", message, hint, variant.name) from None
