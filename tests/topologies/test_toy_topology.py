"""A topology that lives in this file alone: registered, and run in a scenario."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import networkx as nx
import pytest

import netfold
from netfold.sim.scenario import schema
from netfold.topologies import kind as registry
from netfold.topologies.graph import NODES_MAX, add_host, add_link, add_switch, new_graph, validate
from netfold.topologies.kind import Facts, Links, Size, register

SCENARIO: dict[str, Any] = {
    "name": "toy",
    "topology": {"kind": "row", "switches": 3, "delay": "2us"},
    "workers": 3,
    "workload": {"kind": "synthetic", "elements": 1000},
    "codec": {"kind": "fixed_point"},
    "collective": {"kind": "ring"},
}


@dataclass(frozen=True, kw_only=True)
class Row(Links):
    """Switches in a row, a host on each."""

    kind: ClassVar[str] = "row"

    switches: int = field(metadata={"meaning": "Number of switches."})
    middle_rate_bps: int = field(metadata={"meaning": "Rate between switches.", "like": "rate_bps"})
    prefix: str = field(default="s", metadata={"meaning": "How the names of switches begin."})

    def size(self) -> Size:
        return Size(2 * self.switches, 4 * self.switches - 2, "switches", f"use {NODES_MAX // 2} at most")

    def facts(self) -> Facts:
        return Facts(self.switches, self.switches, 4 * self.switches - 2, self.switches + 1, None, 1)

    def graph(self) -> nx.Graph:
        graph = new_graph("row")
        names = [f"{self.prefix}{number}" for number in range(self.switches)]
        for number, name in enumerate(names):
            add_switch(graph, name, tier=1, profile=self.switch)
            add_host(graph, f"h{number}")
            add_link(graph, f"h{number}", name, self.link())
        for one, other in itertools.pairwise(names):
            add_link(graph, one, other, self.link(self.middle_rate_bps))
        validate(graph)
        return graph


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known in this file's tests, and nowhere after them."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    assert register(Row) is Row


def test_it_runs_in_a_scenario(tmp_path: Path) -> None:
    changes = {"topology.middle_rate": "10Gbps", "topology.prefix": "r"}
    run = netfold.run(SCENARIO, set=changes, out=tmp_path)
    rates = dict(run.links.select("link", "rate_bps").iter_rows())

    assert run.verdict == "pass"
    assert rates["r0->r1"] == 10**10
    assert rates["h0->r0"] == 10**11
    assert run.summary["variants"][0]["setup"]["topology"] == {
        "kind": "row",
        "rate": "100Gbps",
        "delay": "2us",
        "switch": "tofino1",
        "switches": 3,
        "middle_rate": "10Gbps",
        "prefix": "r",
    }


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        (
            {"kind": "row"},
            "<mapping>:3: topology: the key 'switches' is missing\n  switches: Number of switches.",
        ),
        ({"kind": "row", "switches": 3, "middle_rat": "1Gbps"}, "did you mean 'middle_rate'?"),
        ({"kind": "rows", "switches": 3}, "did you mean 'row'? allowed: star, leaf_spine, fat_tree"),
        ({"kind": "row", "switches": 8193}, "topology.switches: 16386 nodes are too many"),
        ("row", "write it as {kind: row}"),
    ],
)
def test_mistakes_are_told_as_of_any_other(topology: Any, words: str) -> None:
    with pytest.raises(netfold.ScenarioError) as caught:
        netfold.validate({**SCENARIO, "topology": topology})

    assert words in str(caught.value)


def test_its_keys_are_in_the_schema() -> None:
    row = schema()["$defs"]["Row"]

    assert list(row["properties"]) == [
        "rate",
        "delay",
        "buffer",
        "switch",
        "kind",
        *("switches", "middle_rate", "prefix"),
        *("links", "switch_profiles"),
    ]
    assert row["properties"]["middle_rate"]["description"] == "Rate between switches."
    assert {"$ref": "#/$defs/Row"} in schema()["properties"]["topology"]["anyOf"]
    assert json.dumps(schema())
