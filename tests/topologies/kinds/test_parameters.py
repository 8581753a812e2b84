"""Wrong counts of every kind: refused with the field and what is allowed, just beside what is accepted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from netfold.topologies.graph import NODES_MAX, TopologyError
from netfold.topologies.kind import ParameterError
from netfold.topologies.kinds.bcube import BCube
from netfold.topologies.kinds.dragonfly import Dragonfly
from netfold.topologies.kinds.dumbbell import Dumbbell
from netfold.topologies.kinds.fat_tree import FatTree
from netfold.topologies.kinds.hypercube import Hypercube
from netfold.topologies.kinds.jellyfish import Jellyfish
from netfold.topologies.kinds.leaf_spine import LeafSpine
from netfold.topologies.kinds.rail_optimized import RailOptimized
from netfold.topologies.kinds.ring import Ring
from netfold.topologies.kinds.star import Star
from netfold.topologies.kinds.torus import Torus

A_GROUP = {"routers_per_group": 4, "hosts_per_router": 1, "global_links": 2}

WRONG: list[tuple[Any, str, str]] = [
    (Star(hosts=0), "hosts", "star: hosts is 0, must be an int of at least 1"),
    (Ring(switches=2), "switches", "ring: switches is 2, must be an int of at least 3"),
    (Ring(switches=4, hosts_per_switch=0), "hosts_per_switch", "must be an int of at least 1"),
    (
        Torus(dimensions=(4, 1)),
        "dimensions",
        "torus: dimensions is (4, 1), must be a list of ints of at least 2",
    ),
    (Torus(dimensions=()), "dimensions", "must be a list of ints of at least 2"),
    (Torus(dimensions=[4, 4]), "dimensions", "must be a list"),  # type: ignore[arg-type]
    (Hypercube(dimension=0), "dimension", "must be an int of at least 1"),
    (Hypercube(dimension=65), "dimension", "hypercube: dimension is 65, must be at most 64"),
    (BCube(n=1, k=1), "n", "must be an int of at least 2"),
    (BCube(n=2, k=-1), "k", "must be an int of at least 0"),
    (BCube(n=2, k=65), "k", "bcube: k is 65, must be at most 64"),
    (FatTree(k=1), "k", "must be an int of at least 2"),
    (FatTree(k=3), "k", "fat_tree: k is 3, must be even"),
    (FatTree(k=4, hosts_per_edge=3), "hosts_per_edge", "3 hosts_per_edge and 2 uplinks (aggregations), more"),
    (FatTree(k=4, aggregations=3), "aggregations", "2 hosts_per_edge and 3 uplinks (aggregations), more"),
    (FatTree(k=4, core_links=3), "core_links", "have 2 edge switches and 3 core_links, more"),
    (FatTree(k=4, hosts_per_edge=True), "hosts_per_edge", "must be an int of at least 1"),
    (Dragonfly(groups=2, **A_GROUP), "groups", "dragonfly: groups is 2, must be from 3 to 9"),
    (Dragonfly(groups=10, **A_GROUP), "groups", "dragonfly: groups is 10, must be from 3 to 9"),
    (Jellyfish(switches=5, degree=3), "degree", "5 switches of degree 3 have an odd number of ends"),
    (Jellyfish(switches=4, degree=4), "degree", "degree is 4, must be less than the 4 switches"),
    (Jellyfish(switches=4, degree=1), "degree", "4 switches of degree 1 are not connected"),
    (Jellyfish(switches=4, degree=2, seed=-1), "seed", "must be an int of at least 0"),
    (
        RailOptimized(pods=2, islands_per_pod=1, spines=0),
        "spines",
        "spines is 0, must be at least 1 with 2 pods",
    ),
    (RailOptimized(islands_per_pod=1, spines=-1), "spines", "must be an int of at least 0"),
    (RailOptimized(islands_per_pod=1, spines=0, gpus_per_island=1), "gpus_per_island", "at least 2"),
]


@pytest.mark.parametrize(("topology", "key", "text"), WRONG)
def test_wrong_counts_are_refused_with_their_field(topology: Any, key: str, text: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(text)) as caught:
        topology.size()

    assert caught.value.key == key


RIGHT: list[Any] = [
    Ring(switches=3),
    Torus(dimensions=(2,)),
    Hypercube(dimension=64),
    BCube(n=2, k=0),
    BCube(n=2, k=64),
    FatTree(k=2),
    FatTree(k=4, hosts_per_edge=3, aggregations=1),
    FatTree(k=4, hosts_per_edge=1, aggregations=3),
    Dragonfly(groups=3, **A_GROUP),
    Dragonfly(groups=9, **A_GROUP),
    Jellyfish(switches=2, degree=1, seed=0),
    Jellyfish(switches=4, degree=3),
    RailOptimized(islands_per_pod=1, spines=0, gpus_per_island=2),
]


@pytest.mark.parametrize("topology", RIGHT)
def test_counts_at_their_limits_are_accepted(topology: Any) -> None:
    size = topology.size()
    if size.nodes < NODES_MAX:
        assert len(topology.graph()) == size.nodes


def test_a_random_graph_that_is_never_connected_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("networkx.is_connected", lambda graph: False)

    with pytest.raises(
        TopologyError, match="1000 random graphs of 6 switches and degree 2 were not connected"
    ):
        Jellyfish(switches=6, degree=2).graph()


TOO_LARGE: list[tuple[Any, str, str]] = [
    (Star(hosts=20000), "hosts", "use 16383 hosts at most"),
    (
        LeafSpine(leaves=50, spines=2, hosts_per_leaf=400),
        "hosts_per_leaf",
        "hosts_per_leaf can be 326 at most",
    ),
    (LeafSpine(leaves=20000, spines=2, hosts_per_leaf=4), "leaves", "use 3276 leaves at most"),
    (Dumbbell(hosts_per_side=10**30), "hosts_per_side", "hosts_per_side can be 8191 at most"),
    (Ring(switches=20000), "switches", "use 8192 switches at most"),
    (Torus(dimensions=(128, 128)), "dimensions", "use fewer or smaller dimensions"),
    (
        Torus(dimensions=(8, 8), hosts_per_switch=300),
        "hosts_per_switch",
        "hosts_per_switch can be 255 at most",
    ),
    (Hypercube(dimension=20), "dimension", "dimension can be 13 at most"),
    (FatTree(k=64), "k", "k can be 38 at most"),
    (BCube(n=24, k=2), "n", "n can be 19 at most"),
    (BCube(n=16, k=30), "k", "k can be 2 at most"),
    (Jellyfish(switches=10001, degree=4), "switches", "use 8192 switches at most"),
    (Jellyfish(switches=10000, degree=3, hosts_per_switch=2), "switches", "use 5460 switches at most"),
    (
        Dragonfly(groups=129, routers_per_group=16, hosts_per_router=8, global_links=8),
        "groups",
        "use 113 groups at most",
    ),
    (RailOptimized(islands_per_pod=1000, spines=8), "islands_per_pod", "islands_per_pod can be 962 at most"),
]


@pytest.mark.parametrize(("topology", "key", "hint"), TOO_LARGE)
def test_a_graph_that_is_too_large_says_what_fits(topology: Any, key: str, hint: str) -> None:
    size = topology.size()

    assert size.nodes > NODES_MAX
    assert (size.key, size.hint) == (key, hint)


def test_the_largest_that_is_named_fits_and_the_next_does_not() -> None:
    """k of a fat tree is even."""
    for most, following, shape in ((38, 40, lambda k: FatTree(k=k)), (19, 20, lambda n: BCube(n=n, k=2))):
        assert shape(most).size().nodes <= NODES_MAX < shape(following).size().nodes
