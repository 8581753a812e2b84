"""Topologies without a run: what there are, what they measure, how they look, and files of them.

    netfold.topology.measure("fat_tree", set={"k": 8})          # all measures; print shows the tables
    netfold.topology.size(256, price="1.2M")                    # of each kind the best network for that money
    netfold.topology.draw("mine.yaml", variant="ring")          # SVG; .save("mine.svg")
    netfold.topology.export("torus", "graphml", set={"dimensions": [4, 4]})

Each function takes what the command line takes: the name of a kind, the path of a graph (.json, .graphml,
.gml), or a scenario, as a path, text or mapping. `set` changes values by path: keys of a kind, paths of a
scenario.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx

from netfold.errors import NetfoldError
from netfold.sim.report.result_display import Svg
from netfold.sim.scenario.load import Given, scenario_of, sets_of
from netfold.sim.scenario.profile_keys import read_prices
from netfold.sim.studies.network_sizes import NetworkSizes
from netfold.sim.studies.network_sizes import size_networks as size
from netfold.sim.studies.topology_study import (
    BYTES,
    Measurements,
    NamedNetwork,
    TopologyKind,
    drawing,
    listing,
    measurements,
    networks_of,
)
from netfold.topologies.topology_files import export as export_text

__all__ = ["Measurements", "NetworkSizes", "draw", "export", "graph", "kinds", "measure", "size"]


def kinds() -> dict[str, TopologyKind]:
    """The kinds of topologies that a scenario can name, with their keys and closed forms."""
    return {kind.kind: kind for kind in listing()}


def graph(given: Given, *, set: Mapping[str, Any] | None = None, variant: str = "") -> nx.Graph:
    """The network as a graph; see `docs/explanation/networks.md` for its contract.

    Raises
    ------
    ScenarioError, NetfoldError
        It cannot be made, or it is one of several and `variant` does not choose one.
    """
    return _one(given, set, variant).graph


def measure(
    given: Given,
    *,
    set: Mapping[str, Any] | None = None,
    variants: Sequence[str] = (),
    bytes: int | str = BYTES,
    workers: int | None = None,
    prices: str | Path | None = None,
    without_any: str | None = None,
) -> Measurements:
    """Measure networks, with an estimate of the all-reduce time of every collective.

    Parameters
    ----------
    bytes
        Of the gradient that every worker contributes: a number, or text such as "100MB".
    workers
        On as many hosts, rack by rack; by default those of a scenario, else all hosts.
    prices
        YAML file with prices and powers of parts; by default those of a scenario, else netfold's.
    without_any
        Pattern of switches and links, such as "spine*": measure what losing any one of them costs, too.

    Raises
    ------
    ScenarioError, NetfoldError
        A network cannot be made, there are more workers than hosts, or a pattern matches nothing.
    """
    table = None if prices is None else read_prices(str(prices))
    return measurements(_all(given, set, variants), bytes, workers, prices=table, without_any=without_any)


def draw(given: Given, *, set: Mapping[str, Any] | None = None, variant: str = "") -> Svg:
    """SVG of a network: bytes that a notebook draws, and that `save(path)` writes.

    Raises
    ------
    ScenarioError, NetfoldError
        As `graph`.
    """
    return drawing(_one(given, set, variant))


def export(
    given: Given, form: str = "json", *, set: Mapping[str, Any] | None = None, variant: str = ""
) -> str:
    """A network as text: json, graphml, gml or dot.

    Raises
    ------
    ScenarioError, NetfoldError
        As `graph`; or there is no such format.
    """
    return export_text(_one(given, set, variant).graph, form)


def _all(
    given: Given, changes: Mapping[str, Any] | None, variants: Sequence[str]
) -> tuple[NamedNetwork, ...]:
    is_name = isinstance(given, str) and "\n" not in given
    return networks_of(given if is_name else scenario_of(given), sets_of(changes), variants)  # type: ignore[arg-type]  # a name is text


def _one(given: Given, changes: Mapping[str, Any] | None, variant: str) -> NamedNetwork:
    networks = _all(given, changes, (variant,) if variant else ())
    if len(networks) > 1:
        names = ", ".join(network.name for network in networks)
        raise NetfoldError(f"there are {len(networks)} networks", f"choose a variant: {names}")
    return networks[0]
