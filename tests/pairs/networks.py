"""The smallest network of any registered kind of topology that has room for some hosts, found by trying."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any

from netfold.topologies.graph import TopologyError
from netfold.topologies.kind import topology_kinds, type_of

TEXTS = {"topohub": {"name": "topozoo/Abilene"}}  # keys that no counting finds
SIDES_MAX = 4  # of a count in a list


@cache
def small_network(kind: str, hosts: int) -> Mapping[str, Any]:
    """The keys of the network; where it can, it has two or more of everything."""
    topology: Any = topology_kinds()[kind]
    texts = TEXTS.get(kind, {})
    counts = [one for one in fields(topology) if _is_needed(one) and one.name not in texts]
    best: tuple[bool, int] | None = None
    found: Mapping[str, Any] = {}
    for values in itertools.product(*(_values(one, hosts) for one in counts)):
        keys = {**texts, **{one.name: value for one, value in zip(counts, values, strict=True)}}
        try:
            network = topology(**keys)
            nodes = network.size().nodes
        except TopologyError:
            continue
        rank = 1 in values, nodes
        if (best is None or rank < best) and network.facts().hosts >= hosts:
            best, found = rank, keys
    assert best is not None, f"topology {kind}: no small network has {hosts} hosts; name its keys in TEXTS"
    return found


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and "like" not in field.metadata


def _values(field: Field[Any], hosts: int) -> Iterator[Any]:
    """What a count, or a list of counts, may be."""
    if not type_of(field).startswith("tuple"):
        yield from range(1, hosts + 1)
        return
    for length in (1, 2):
        yield from itertools.product(range(2, SIDES_MAX + 1), repeat=length)
