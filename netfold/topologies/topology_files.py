"""Topologies in files: node-link JSON, GraphML and GML both ways, DOT out."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import asin, cos, radians, sin, sqrt
from pathlib import PurePath
from typing import Any, NamedTuple, NoReturn
from xml.etree.ElementTree import ParseError

import networkx as nx

from netfold.errors import NetfoldError, names_hint
from netfold.topologies.graph import (
    HOST,
    HOST_ATTRIBUTES,
    LINK_RANGES,
    PLACES,
    LinkSpec,
    TopologyError,
    add_host,
    add_link,
    check_size,
    edge_mistakes,
    hosts,
    new_graph,
    node_mistakes,
    switches,
    validate,
    where,
)
from netfold.units import RATE, TIME

# Graphs of other programs as topologies: what they leave out has a default, or is an error.
#
# - A node is a switch of tier 1 with the default profile unless it has a `kind`. Its name is its `label`, or
#   its id where it has none; a label that several nodes have is followed by their ids.
# - A link's rate is its `rate_bps`, or else its `LinkSpeedRaw` (Topology Zoo, bits per second), or else the
#   default.
# - A link's delay is its `delay_ps`; or else that of light in glass (5 µs a km) over its `dist` in km
#   (topohub), or along the great circle between ends that have `Latitude` and `Longitude`; or else the
#   default.
# - Several edges between two nodes become one link, with their rates added and the shortest delay; of those
#   that have no rate beside others that do (dark fibre in the Topology Zoo), none is counted.
# - The edges a → b and b → a of a directed graph are one link; they must have the same rate.
# - A graph without hosts gets `hosts_per_switch` of them on each switch, with links of the default rate and
#   delay.


_PS_PER_KM = 5 * 10**6  # light in glass: two thirds of its speed in vacuum
_EARTH_KM = 6371.0  # mean radius
_WITH_UNITS = {"rate": "rate_bps", "delay": "delay_ps", "buffer": "buffer_bytes"}
"""Keys of node-link JSON whose values have a unit, and the attributes that they set."""
_DIGITS = re.compile(r"[0-9]{1,19}")


class Defaults(NamedTuple):
    """What a graph that leaves something out is given."""

    link: LinkSpec
    profile: str
    hosts_per_switch: int | None  # None: a graph without hosts is an error


class _Edge(NamedTuple):
    rate_bps: object
    delay_ps: object
    buffer_bytes: object


def topology_of(source: nx.Graph, defaults: Defaults) -> nx.Graph:
    """A topology of any networkx graph, with several edges or directed ones too.

    Raises
    ------
    TopologyError
        All that is wrong with nodes and links, each alone; or a node is linked to itself, both directions
        differ in rate, there are no hosts, it is too large, or breaks the contract (see
        `topologies.graph.validate`).
    """
    graph = new_graph(_text(source.graph.get("label", source.graph.get("name", ""))))
    names = _names(source)
    for node in nx.nodes_with_selfloops(source):
        raise TopologyError(f"{where(graph)}node {names[node]!r} is linked to itself; remove that link")
    mistakes = []
    for node, attributes in source.nodes(data=True):
        ours = _node(attributes, defaults)
        mistakes += [f"{where(graph)}{mistake}" for mistake in node_mistakes(names[node], ours)]
        graph.add_node(names[node], **ours)
    for (a, b), edge in _merge(source, names, defaults).items():
        attributes = edge._asdict()
        link = f"{where(graph)}link {names[a]!r} - {names[b]!r}: "
        mistakes += [link + mistake for mistake in _units(source, a, b)]
        mistakes += [link + mistake for mistake in edge_mistakes(attributes)]
        graph.add_edge(names[a], names[b], **attributes)
    if mistakes:
        raise TopologyError(*mistakes)
    dimensions = _numbers(source.graph.get("dimensions"))
    if isinstance(dimensions, tuple):
        graph.graph["dimensions"] = dimensions
    add_hosts(graph, defaults)
    validate(graph)
    return graph


def _units(graph: nx.Graph, a: object, b: object) -> Iterator[str]:
    """Mistakes of the edges between two nodes: text such as "10Gbps", which only node-link JSON may have."""
    edges = graph[a][b].values() if graph.is_multigraph() else (graph[a][b],)
    for key, ours in _WITH_UNITS.items():
        if any(key in edge and isinstance(edge[key], str) and ours not in edge for edge in edges):
            yield f"has text under {key!r}, which is read in node-link JSON alone; write {ours}, a number"


def add_hosts(graph: nx.Graph, defaults: Defaults) -> None:
    """Add hosts h0 … to the switches of a graph that has none, in their order.

    Raises
    ------
    TopologyError
        The graph has no hosts and the defaults neither, or both have them; there are too many; or names
        clash.
    """
    per_switch = defaults.hosts_per_switch
    if hosts(graph):
        if per_switch is not None:
            raise TopologyError(
                f"{where(graph)}has {len(hosts(graph))} hosts of its own; leave out hosts_per_switch"
            )
        return
    if per_switch is None:
        raise TopologyError(
            f"{where(graph)}has no host, its {len(graph)} nodes are switches; add hosts_per_switch: 1"
        )
    routers = switches(graph)
    added = len(routers) * per_switch
    check_size(graph, len(graph) + added, 2 * (graph.number_of_edges() + added))
    for number, router in enumerate(routers):
        for index in range(number * per_switch, (number + 1) * per_switch):
            add_host(graph, f"h{index}")
            add_link(graph, f"h{index}", router, defaults.link)


def _text(value: object) -> str:
    return str(value)


def _names(graph: nx.Graph) -> dict[Any, str]:
    """Names of nodes by their id: their labels where these are different."""
    labels = {
        node: _text(attributes.get("label", node)).strip() for node, attributes in graph.nodes(data=True)
    }
    count = Counter(labels.values())
    names = {
        node: label if label and count[label] == 1 else f"{label}_{_text(node)}".lstrip("_")
        for node, label in labels.items()
    }
    name_counts = Counter(names.values())
    return {node: name if name_counts[name] == 1 else f"{name}#{_text(node)}" for node, name in names.items()}


def _node(attributes: Mapping[str, Any], defaults: Defaults) -> dict[str, Any]:
    """A node's attributes as the contract wants them."""
    places = {
        key: _numbers(attributes[key]) if key == "coordinates" else attributes[key]
        for key in PLACES
        if key in attributes and "kind" in attributes
    }
    if attributes.get("kind") == HOST:
        return {**HOST_ATTRIBUTES, **places}
    defaulted = {"kind": "switch", "tier": 1, "profile": defaults.profile}
    return {**{key: attributes.get(key, value) for key, value in defaulted.items()}, **places}


def _numbers(value: object) -> object:
    """The tuple of ints that a text such as "0,1" stands for."""
    try:
        return tuple(map(int, str(value).split(","))) if isinstance(value, str) else value
    except ValueError:
        return value


def _merge(graph: nx.Graph, names: Mapping[Any, str], defaults: Defaults) -> dict[tuple[Any, Any], _Edge]:
    """One edge for each two linked nodes."""
    each_way: dict[tuple[Any, Any], list[Mapping[str, Any]]] = defaultdict(list)
    for a, b, attributes in graph.edges(data=True):
        pair = (b, a) if not graph.is_directed() and (b, a) in each_way else (a, b)
        each_way[pair].append(attributes)
    merged: dict[tuple[Any, Any], _Edge] = {}
    for (a, b), edges in each_way.items():
        rated = [edge for edge in edges if "rate_bps" in edge or "LinkSpeedRaw" in edge]
        link = _join([_edge(edge, graph.nodes[a], graph.nodes[b], defaults) for edge in rated or edges])
        back = merged.get((b, a))
        if back is not None and back.rate_bps != link.rate_bps:
            raise TopologyError(
                f"link {names[a]!r} - {names[b]!r}: has {link.rate_bps} bit/s, "
                f"and {back.rate_bps} the other way; both directions must have the same rate"
            )
        if back is None:
            merged[a, b] = link
    return merged


def _join(edges: list[_Edge]) -> _Edge:
    """Parallel edges as one; values that are no ints stay for the check to find."""
    if len(edges) == 1:
        return edges[0]
    for edge in edges:
        if not (isinstance(edge.rate_bps, int) and edge.rate_bps > 0 and isinstance(edge.delay_ps, int)):
            return edge
    rates = [edge.rate_bps for edge in edges if isinstance(edge.rate_bps, int)]
    delays = [edge.delay_ps for edge in edges if isinstance(edge.delay_ps, int)]
    return _Edge(sum(rates), min(delays), edges[0].buffer_bytes)


def _edge(
    attributes: Mapping[str, Any], way: Mapping[str, Any], way_back: Mapping[str, Any], defaults: Defaults
) -> _Edge:
    """An edge's attributes as the contract wants them."""
    rate = attributes.get("rate_bps", attributes.get("LinkSpeedRaw", defaults.link.rate_bps))
    delay = attributes.get("delay_ps")
    if delay is None:
        kilometres = _kilometres(attributes, way, way_back)
        delay = defaults.link.delay_ps if kilometres is None else round(kilometres * _PS_PER_KM)
    buffer = attributes.get("buffer_bytes", defaults.link.buffer_bytes)
    return _Edge(_whole(rate), _whole(delay), _whole(buffer))


def _whole(value: object) -> object:
    """The whole number that a float or a text of digits stands for; networkx's GML has text above 32 bits."""
    if isinstance(value, str) and _DIGITS.fullmatch(value) and len(value) < 1000:
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _kilometres(
    attributes: Mapping[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]
) -> float | None:
    """Length of a link, None if it is unknown; along the great circle by the haversine formula."""
    if _is_number(attributes.get("dist")):
        return max(0.0, float(attributes["dist"]))
    degrees = [end.get(key) for end in (one, other) for key in ("Latitude", "Longitude")]
    if not all(map(_is_number, degrees)):
        return None
    south, west, north, east = (radians(float(degree)) for degree in degrees if degree is not None)
    chord = sin((north - south) / 2) ** 2 + cos(south) * cos(north) * sin((east - west) / 2) ** 2
    return 2 * _EARTH_KM * asin(sqrt(min(1.0, chord)))


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(float(value)) < 10**6  # type: ignore[arg-type]  # just checked


# Topologies from GML, the format of the Internet Topology Zoo.


_GRAPH = re.compile(r"(?m)^([ \t]*graph\s*\[)")  # no white space twice in a row, else time is quadratic


def from_gml(text: str, defaults: Defaults) -> nx.Graph:
    nodes, edges = (len(re.findall(rf"\b{part}\s*\[", text)) for part in ("node", "edge"))
    # The size is checked before the text is parsed.
    check_size(nx.Graph(), nodes, edges)
    # Files of the Topology Zoo do not say that they are multigraphs, and some labels are there twice.
    if not re.search(r"(?m)^[ \t]*multigraph\s+[01]", text):
        text = _GRAPH.sub(r"\1\n  multigraph 1", text, count=1)
    try:
        graph = nx.parse_gml(text, label="id")
    except nx.NetworkXError as error:
        raise TopologyError(f"not GML: {' '.join(map(str, error.args))}") from None
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise TopologyError(f"not GML: {type(error).__name__} {error}") from None
    return topology_of(graph, defaults)


# Topologies as GraphML, both ways: what drawing programs such as yEd and Gephi read and write.


def to_graphml(graph: nx.Graph) -> str:
    validate(graph)
    plain = graph.copy()
    # Coordinates and dimensions become text: "0,1".
    for attributes in (plain.graph, *(places for _, places in plain.nodes(data=True))):
        for key, value in attributes.items():
            if isinstance(value, tuple):
                attributes[key] = ",".join(map(str, value))
    return "\n".join(nx.generate_graphml(plain)) + "\n"


def from_graphml(text: str, defaults: Defaults) -> nx.Graph:
    """Topology from GraphML: what `to_graphml` writes, or a graph of routers (see `topology_of`).

    Raises
    ------
    TopologyError
        The text is no GraphML; it is too large, which is counted before it is read; or the graph cannot be a
        topology.
    """
    if re.search(r"<!(DOCTYPE|ENTITY)", text):
        raise TopologyError("GraphML: has a document type; remove it, entities are not read")
    check_size(nx.Graph(), len(re.findall(r"<node\b", text)), len(re.findall(r"<edge\b", text)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # networkx warns of ports and hyperedges
            graph = nx.parse_graphml(text, force_multigraph=True)
    except ParseError as error:
        raise TopologyError(f"not GraphML: {error}") from None
    except (nx.NetworkXError, LookupError, ValueError, TypeError, StopIteration) as error:
        raise TopologyError(
            f"not GraphML: {' '.join(map(str, error.args)) or type(error).__name__}"
        ) from None
    return topology_of(graph, defaults)


# Topologies as node-link JSON, both ways: netfold's own format.
#
# {"directed": false, "multigraph": false, "graph": {"name": "star"},
#  "nodes": [{"id": "h0", "kind": "host", "tier": 0, "profile": ""}, …],
#  "edges": [{"source": "h0", "target": "s0",
#             "rate_bps": 100000000000, "delay_ps": 1000000, "buffer_bytes": 262144}, …]}
#
# A file to be read may leave out what has one value: `directed`, `multigraph`, a host's `tier` and `profile`.
# Where the reader brings units, a link may have "rate": "100Gbps", "delay": "1us" and "buffer": "16MiB"
# instead. What else is written is kept and not looked at; lists of ints under `coordinates` (of a node) and
# `dimensions` (of the graph) are tuples again.


_EXAMPLES = {
    "rate_bps": '"rate": "100Gbps"',
    "delay_ps": '"delay": "1us"',
    "buffer_bytes": '"buffer": "16MiB"',
}
Units = Mapping[str, Callable[[object], int]]
"""Readers of text such as "100Gbps", by attribute of an edge; they raise ValueError."""


def to_json(graph: nx.Graph) -> str:
    validate(graph)
    # Nodes keep their order, so the same graph gives the same text.
    return json.dumps(nx.node_link_data(graph, edges="edges"), indent=1, ensure_ascii=False) + "\n"


def from_json(
    text: str, units: Units | None = None, complete: Callable[[nx.Graph], None] | None = None
) -> nx.Graph:
    # Without `units` links have whole numbers only; `complete` adds to the graph before it is checked.
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
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        key, count = Counter(key for key, _ in pairs).most_common(1)[0]
        name = next((f" of {mapping[key]!r}" for key in ("id", "source") if key in mapping), "")
        raise TopologyError(f"JSON: the key {key!r}{name} is there {count} times, must be there once")
    return mapping


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
    yield from _list_repeated("node", Counter(entry["id"] for entry in entries))
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
    yield from _list_repeated("edge", ends)
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
    for key, parse in units.items():
        short = key.partition("_")[0]  # "rate_bps" is written as "rate" where it has a unit
        if short in attributes and key in attributes:
            yield key, f"has both {short} and {key}; leave out one of them"
            continue
        if short not in attributes and key not in attributes:
            lowest, highest = LINK_RANGES[key]
            example = _EXAMPLES[key]
            yield key, f"{key} is missing, must be an int from {lowest} to {highest}; or write {example}"
            continue
        written = short if short in attributes else key
        if written == short or isinstance(attributes.get(key), str):
            try:
                attributes[key] = parse(attributes.pop(written))
            except ValueError as error:
                yield key, f"{written}: {error}"


def _list_repeated(what: str, counts: Counter[str]) -> Iterator[str]:
    for name, count in counts.items():
        if count > 1:
            yield f"node-link JSON: {what} {name!r} is there {count} times, must be there once"


def _from_json(text: str, defaults: Defaults, units: Units) -> nx.Graph:
    has_default = defaults.hosts_per_switch is not None
    return from_json(text, units, (lambda graph: add_hosts(graph, defaults)) if has_default else None)


FORMATS: dict[str, Callable[[str, Defaults, Units], nx.Graph]] = {
    ".json": _from_json,
    ".graphml": lambda text, defaults, _: from_graphml(text, defaults),
    ".gml": lambda text, defaults, _: from_gml(text, defaults),
}


def read_graph(name: str, text: str, defaults: Defaults, units: Units) -> nx.Graph:
    return FORMATS.get(PurePath(name).suffix.lower(), _from_json)(text, defaults, units)


# Topologies as text for other programs: node-link JSON, GraphML, GML and DOT.


def export(graph: nx.Graph, form: str) -> str:
    if form not in EXPORTS:
        raise NetfoldError(f"there is no format {form!r}", names_hint(form, EXPORTS, "formats"))
    validate(graph)
    return "\n".join(EXPORTS[form](graph)) + "\n"


def _flat(graph: nx.Graph) -> nx.Graph:
    """The graph with text instead of tuples and lists."""
    flat = nx.Graph(**{key: _flat_of(value) for key, value in graph.graph.items()})
    flat.add_nodes_from(
        (name, {key: _flat_of(value) for key, value in data.items()}) for name, data in graph.nodes(data=True)
    )
    flat.add_edges_from(graph.edges(data=True))
    return flat


def _flat_of(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else value


def _dot_lines(graph: nx.Graph) -> Iterator[str]:
    yield f"graph {_quote(graph.name)} {{"
    yield "  rankdir=BT;"
    for name, data in graph.nodes(data=True):
        shape = "circle" if data["kind"] == HOST else "box"
        attributes = {"shape": shape, **{key: _flat_of(value) for key, value in data.items()}}
        yield f"  {_quote(name)} [{_attributes(attributes)}];"
    for tier in sorted({tier for _, tier in graph.nodes(data="tier")}):
        members = " ".join(f"{_quote(name)};" for name, level in graph.nodes(data="tier") if level == tier)
        yield f"  {{ rank=same; {members} }}"
    for a, b, data in graph.edges(data=True):
        lower, upper = sorted((a, b), key=lambda name: graph.nodes[name]["tier"])
        label = f"{RATE.format(data['rate_bps'])}, {TIME.format(data['delay_ps'])}"
        yield f"  {_quote(lower)} -- {_quote(upper)} [{_attributes({'label': label, **data})}];"
    yield "}"


def _attributes(values: dict[str, Any]) -> str:
    return ", ".join(f"{_quote(key)}={_quote(value)}" for key, value in values.items())


def _quote(value: object) -> str:
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


# All keep nodes, links and their attributes; all but `dot` can be read back.
EXPORTS: dict[str, Callable[[nx.Graph], Iterable[str]]] = {  # the lines of a file
    "json": lambda graph: [to_json(graph).removesuffix("\n")],
    "graphml": lambda graph: nx.generate_graphml(_flat(graph)),
    "gml": lambda graph: nx.generate_gml(_flat(graph)),  # numbers above 32 bits become text
    "dot": _dot_lines,
}
