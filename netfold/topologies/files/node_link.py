"""Topologies as node-link JSON, both ways: netfold's own format.

{"directed": false, "multigraph": false, "graph": {"name": "star"},
 "nodes": [{"id": "h0", "kind": "host", "tier": 0, "profile": ""}, …],
 "edges": [{"source": "h0", "target": "s0",
            "rate_bps": 100000000000, "delay_ps": 1000000, "buffer_bytes": 262144}, …]}

A file to be read may leave out what has one value: `directed`, `multigraph`, a host's `tier` and `profile`.
Where the reader brings units, a link may have "rate": "100Gbps", "delay": "1us" and "buffer": "16MiB"
instead. What else is written is kept and not looked at; lists of ints under `coordinates` (of a node) and
`dimensions` (of the graph) are tuples again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import networkx as nx

from netfold.topologies.graph import (
    HOST,
    HOST_ATTRIBUTES,
    LINK_RANGES,
    TopologyError,
    check_size,
    edge_mistakes,
    node_mistakes,
    validate,
    where,
)

_WITH_UNITS = {
    "rate_bps": '"rate": "100Gbps"',
    "delay_ps": '"delay": "1us"',
    "buffer_bytes": '"buffer": "16MiB"',
}
Units = Mapping[str, Callable[[object], int]]  # by attribute of an edge: text such as "100Gbps" to its number


def to_json(graph: nx.Graph) -> str:
    """Node-link JSON of a topology; nodes keep their order, the same graph gives the same text.

    Raises
    ------
    TopologyError
        The graph breaks the contract (see `topologies.graph.validate`).
    """
    validate(graph)
    return json.dumps(nx.node_link_data(graph, edges="edges"), indent=1, ensure_ascii=False) + "\n"


def from_json(
    text: str, units: Units | None = None, complete: Callable[[nx.Graph], None] | None = None
) -> nx.Graph:
    """Topology from node-link JSON, checked.

    Parameters
    ----------
    units
        Readers of text, by edge attribute ("rate_bps"), that raise ValueError; without them links have whole
        numbers only.
    complete
        What adds to the graph before it is checked.

    Raises
    ------
    TopologyError
        The text is not JSON (says where) or not node-link JSON; or all that is wrong with nodes and edges,
        each alone; or the graph is too large, or breaks the contract (see `topologies.graph.validate`).
    """
    data = _object(text)
    graph = _empty(data)
    nodes, edges = _entries(data, "nodes", ("id",)), _entries(data, "edges", ("source", "target"))
    check_size(graph, len(nodes), 2 * len(edges))
    mistakes = [*_add_nodes(graph, nodes), *_add_edges(graph, edges, units or {})]
    if mistakes:
        raise TopologyError(*mistakes)
    if complete is not None:
        complete(graph)
    validate(graph)
    return graph


def _object(text: str) -> dict[str, Any]:
    """The JSON object that a text is, with limits."""
    try:
        data = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise TopologyError(f"not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise TopologyError("not node-link JSON: too many lists and objects inside of each other") from None
    except TopologyError:
        raise
    except ValueError:  # Python reads no whole number of more than 4300 digits
        raise TopologyError("not node-link JSON: a number in it has too many digits") from None
    if not isinstance(data, dict) or not isinstance(data.get("graph", {}), dict):
        raise TopologyError("not node-link JSON: must be an object, with an object 'graph' if it has one")
    return data


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are there once: others would overwrite each other without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        key, count = Counter(key for key, _ in pairs).most_common(1)[0]
        name = next((f" of {found[key]!r}" for key in ("id", "source") if key in found), "")
        raise TopologyError(f"JSON: the key {key!r}{name} is there {count} times, must be there once")
    return found


def _no_number(text: str) -> NoReturn:
    raise TopologyError(f"not JSON: {text} is no number")


def _empty(data: dict[str, Any]) -> nx.Graph:
    attributes = data.get("graph", {})
    if not isinstance(attributes.get("name", ""), str):
        raise TopologyError(f"node-link JSON: the graph's name is {attributes['name']!r}, must be text")
    graph = nx.Graph()
    graph.graph.update(attributes)
    _as_tuple(graph.graph, "dimensions")
    for key, meaning in (
        ("directed", "one edge already stands for a link each way"),
        ("multigraph", "two nodes have one link each way, for more capacity raise its rate_bps"),
    ):
        if data.get(key, False) is not False:
            raise TopologyError(f"{where(graph)}{key!r} is {data[key]!r}, must be false; {meaning}")
    return graph


def _entries(data: dict[str, Any], key: str, needed: tuple[str, ...]) -> list[dict[str, Any]]:
    """The objects of the list `data[key]`, which have text under the keys that are `needed`."""
    entries = data.get(key)
    if not isinstance(entries, list):
        if key == "edges" and isinstance(data.get("links"), list):
            raise TopologyError(
                "not node-link JSON: 'edges' is missing, there is a list 'links'; "
                "call it 'edges': networkx writes it so with node_link_data(graph, edges='edges')"
            )
        raise TopologyError(
            f"not node-link JSON: {key!r} is missing or not a list; it must have lists 'nodes' and 'edges'"
        )
    strings = " and ".join(repr(name) for name in needed)
    mistakes = [
        f"not node-link JSON: {key}[{number}] must be an object with text under {strings}"
        for number, entry in enumerate(entries)
        if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in needed)
    ]
    if mistakes:
        raise TopologyError(*mistakes)
    return entries


def _add_nodes(graph: nx.Graph, entries: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Add nodes; yields what is wrong with them."""
    yield from _repeated("node", Counter(entry["id"] for entry in entries))
    for entry in entries:
        attributes = {key: value for key, value in entry.items() if key != "id"}
        _as_tuple(attributes, "coordinates")
        if attributes.get("kind") == HOST:
            attributes = {
                **attributes,
                **{key: attributes.get(key, HOST_ATTRIBUTES[key]) for key in HOST_ATTRIBUTES},
            }
        graph.add_node(entry["id"], **attributes)
        yield from (f"{where(graph)}{mistake}" for mistake in node_mistakes(entry["id"], attributes))


def _as_tuple(attributes: dict[str, Any], key: str) -> None:
    """JSON has no tuples."""
    if isinstance(attributes.get(key), list):
        attributes[key] = tuple(attributes[key])


def _add_edges(graph: nx.Graph, entries: Sequence[dict[str, Any]], units: Units) -> Iterator[str]:
    """Add edges between nodes that are there; yields what is wrong with them."""
    ends = Counter(" - ".join(sorted((entry["source"], entry["target"]))) for entry in entries)
    yield from _repeated("edge", ends)
    for entry in entries:
        source, target = entry["source"], entry["target"]
        lost = [name for name in (source, target) if name not in graph]
        for name in lost:
            yield f"node-link JSON: edge {source!r} - {target!r} leads to {name!r}, which is not a node"
        attributes = {key: value for key, value in entry.items() if key not in ("source", "target")}
        unread = list(_read_units(attributes, units))
        for mistake in (*unread, *edge_mistakes(attributes, without=[key for key, _ in unread])):
            text = mistake if isinstance(mistake, str) else mistake[1]
            yield f"{where(graph)}link {source!r} - {target!r}: {text}"
        if not lost:
            graph.add_edge(source, target, **attributes)


def _read_units(attributes: dict[str, Any], units: Units) -> Iterator[tuple[str, str]]:
    """Replace text with a unit by its number; yields attributes that cannot be read, and why."""
    for key, read in units.items():
        short = key.partition("_")[0]  # "rate_bps" is written as "rate" where it has a unit
        if short in attributes and key in attributes:
            yield key, f"has both {short} and {key}; leave out one of them"
            continue
        if short not in attributes and key not in attributes:
            lowest, highest = LINK_RANGES[key]
            example = _WITH_UNITS[key]
            yield key, f"{key} is missing, must be an int from {lowest} to {highest}; or write {example}"
            continue
        written = short if short in attributes else key
        if written == short or isinstance(attributes.get(key), str):
            try:
                attributes[key] = read(attributes.pop(written))
            except ValueError as error:
                yield key, f"{written}: {error}"


def _repeated(what: str, counts: Counter[str]) -> Iterator[str]:
    for name, count in counts.items():
        if count > 1:
            yield f"node-link JSON: {what} {name!r} is there {count} times, must be there once"
