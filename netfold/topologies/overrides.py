"""Changes of single links and switches of a graph, which patterns of names select.

A link is called by its ends, "leaf0-spine1" or "spine1-leaf0": a pattern may match either. Patterns are those
of `fnmatch`, case included: `*` is any text, `?` a character, `[01]` one of some. Later changes win over
earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import NamedTuple

import networkx as nx

from netfold.spelling import NAMES_SHOWN, names_hint
from netfold.topologies.graph import TopologyError, switches, validate, where


class LinkChange(NamedTuple):
    """New attributes of the links that a pattern matches, in both directions; None leaves one as it is."""

    match: str
    rate_bps: int | None = None
    delay_ps: int | None = None
    buffer_bytes: int | None = None


class ProfileChange(NamedTuple):
    """The profile of the switches that a pattern matches."""

    match: str
    profile: str


class NoMatchError(TopologyError):
    """A pattern that matches nothing; `index` is the number of its change, from 0."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def change_links(graph: nx.Graph, changes: Sequence[LinkChange]) -> None:
    """Change links of a graph, one change after the other.

    Raises
    ------
    NoMatchError
        A pattern matches no link; the message has names that come near.
    TopologyError
        A value is out of range.
    """
    for index, change in enumerate(changes):
        is_match = re.compile(translate(change.match)).match
        found = [
            edge
            for a, b, edge in graph.edges(data=True)
            if is_match(f"{a}-{b}") is not None or is_match(f"{b}-{a}") is not None
        ]
        if not found:
            raise _no_match(graph, index, "link", change.match, (f"{a}-{b}" for a, b in graph.edges))
        values = {
            key: value for key, value in change._asdict().items() if key != "match" and value is not None
        }
        for edge in found:
            edge.update(values)
    if changes:
        validate(graph)


def change_profiles(graph: nx.Graph, changes: Sequence[ProfileChange]) -> None:
    """Change profiles of switches of a graph, one change after the other.

    Raises
    ------
    NoMatchError
        A pattern matches no switch; the message has names that come near.
    """
    for index, change in enumerate(changes):
        is_match = re.compile(translate(change.match)).match
        found = [name for name in switches(graph) if is_match(name) is not None]
        if not found:
            raise _no_match(graph, index, "switch", change.match, switches(graph))
        for name in found:
            graph.nodes[name]["profile"] = change.profile
    if changes:
        validate(graph)


def _no_match(graph: nx.Graph, index: int, what: str, pattern: str, names: Iterable[str]) -> NoMatchError:
    """The error for a pattern without a match, with patterns of the names that there are."""
    shapes = list(dict.fromkeys(re.sub(r"\d+", "*", name) for name in names))
    hint = names_hint(
        pattern, shapes, f"{what}es are called" if what == "switch" else f"{what}s are called", NAMES_SHOWN
    )
    return NoMatchError(index, f"{where(graph)}no {what} matches {pattern!r}; {hint}")
