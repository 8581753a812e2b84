"""Changes that patterns select: which links and switches, in which order, and patterns that match nothing."""

from __future__ import annotations

import re

import networkx as nx
import pytest

from netfold.topologies.graph import TopologyError
from netfold.topologies.kinds.leaf_spine import LeafSpine
from netfold.topologies.overrides import (
    LinkChange,
    NoMatchError,
    ProfileChange,
    change_links,
    change_profiles,
)


def graph() -> nx.Graph:
    return LeafSpine(leaves=2, spines=2, hosts_per_leaf=2).graph()


def rates(changed: nx.Graph) -> dict[str, int]:
    return {f"{a}-{b}": rate for a, b, rate in changed.edges(data="rate_bps") if rate != 10**11}


@pytest.mark.parametrize(
    ("pattern", "changed"),
    [
        ("leaf0-spine1", {"leaf0-spine1"}),
        ("spine1-leaf0", {"leaf0-spine1"}),  # from the other end
        ("leaf*-spine0", {"leaf0-spine0", "leaf1-spine0"}),
        ("spine?-leaf1", {"leaf1-spine0", "leaf1-spine1"}),
        ("h[01]-*", {"h0-leaf0", "h1-leaf0"}),
        ("h3-leaf1", {"h3-leaf1"}),
    ],
)
def test_a_pattern_selects_links_from_either_end(pattern: str, changed: set[str]) -> None:
    found = graph()
    change_links(found, [LinkChange(pattern, rate_bps=7)])

    assert rates(found) == dict.fromkeys(changed, 7)


def test_later_changes_win_and_leave_the_rest() -> None:
    found = graph()
    change_links(
        found,
        [
            LinkChange("leaf*-spine*", rate_bps=5, delay_ps=6),
            LinkChange("*-spine1", rate_bps=8, buffer_bytes=9),
        ],
    )

    assert found.edges["leaf0", "spine0"] == {"rate_bps": 5, "delay_ps": 6, "buffer_bytes": 2**24}
    assert found.edges["leaf0", "spine1"] == {"rate_bps": 8, "delay_ps": 6, "buffer_bytes": 9}
    assert found.edges["h0", "leaf0"]["rate_bps"] == 10**11


def test_profiles_of_a_tier() -> None:
    found = graph()
    change_profiles(found, [ProfileChange("*", "plain"), ProfileChange("spine*", "sharp")])

    assert [found.nodes[name]["profile"] for name in ("leaf0", "spine1", "h0")] == ["plain", "sharp", ""]


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (
            "leaf*-spin0",
            "topology 'leaf_spine': no link matches 'leaf*-spin0'; did you mean 'leaf*-spine*'? "
            "links are called: h*-leaf*, leaf*-spine*",
        ),
        ("Leaf0-spine0", "no link matches 'Leaf0-spine0'; did you mean"),  # case counts
        ("leaf0", "no link matches 'leaf0'; "),  # the whole name
        ("xyz", "no link matches 'xyz'; links are called: h*-leaf*, leaf*-spine*"),
    ],
)
def test_a_pattern_that_matches_nothing_is_an_error(pattern: str, text: str) -> None:
    with pytest.raises(NoMatchError, match=re.escape(text)) as caught:
        change_links(graph(), [LinkChange("h0-*", rate_bps=1), LinkChange(pattern, rate_bps=1)])

    assert caught.value.index == 1


def test_hosts_have_no_profile() -> None:
    with pytest.raises(
        NoMatchError, match=re.escape("no switch matches 'h*'; switches are called: leaf*, spine*")
    ):
        change_profiles(graph(), [ProfileChange("h*", "sharp")])


def test_values_are_checked() -> None:
    with pytest.raises(TopologyError, match="rate_bps is 0, must be an int from 1 to"):
        change_links(graph(), [LinkChange("*", rate_bps=0)])
