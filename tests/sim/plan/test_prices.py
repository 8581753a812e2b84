"""What networks cost: bills worked out by hand, and the power of a published network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netfold.errors import NetfoldError, ScenarioError
from netfold.kinds import registered
from netfold.sim.plan.prices import Prices, bill_of
from netfold.sim.scenario.load import load
from netfold.sim.scenario.profile_keys import default_prices, read_prices
from netfold.sim.scenario.validation_errors import validated
from netfold.sim.scenario.yaml_tree import ScenarioText, parse
from netfold.topologies.kind import Topology
from netfold.topologies.kinds.clos import Clos
from netfold.topologies.kinds.hyperx import HyperX
from netfold.topologies.kinds.leaf_spine import LeafSpine
from netfold.topologies.kinds.rail_optimized import RailOptimized
from netfold.topologies.kinds.star import Star

GBPS = 10**9
TABLE = """
switches:
- {ports: 8, rate: 100Gbps, price: 1000, power: 100}
- {ports: 4, rate: 400Gbps, price: 3000, power: 200}
nics:
- {rate: 100Gbps, price: 50, power: 5}
- {rate: 400Gbps, price: 120, power: 9}
cables:
- {length: rack, rate: 100Gbps, price: 7}
- {length: row, rate: 100Gbps, medium: active optical, price: 20, power: 2}
- {length: hall, rate: 400Gbps, medium: fibre, price: 90, power: 8}
"""


def table(**others: object) -> Prices:
    """The table, with other entries under some keys."""
    document = parse("table", TABLE)
    content = {key: node.plain for key, node in document.children.items()} | others
    return validated(Prices, parse("table", json.dumps(content)))


def test_a_leaf_spine_in_full() -> None:
    """2 leaves with 4 hosts and 2 uplinks, 2 spines: 8 cables in racks, 4 within a row."""
    bill = bill_of(LeafSpine(leaves=2, spines=2, hosts_per_leaf=4).graph(), table())

    assert bill == (4 * 1000, 8 * 50, 8 * 7 + 4 * 20, 400 + 40 + 8, 4, 24, 12, 4, 0)
    assert bill.cost_usd == 4000 + 400 + 136


def test_ports_are_split_and_bundled() -> None:
    """16 links of 100 Gbps are 4 ports of 400 Gbps; a link of 800 Gbps is 2 of these."""
    split = bill_of(Star(hosts=16).graph(), table())
    bundled = bill_of(Star(hosts=2, rate_bps=800 * GBPS).graph(), table())
    several = bill_of(Star(hosts=33).graph(), table(switches=[{"ports": 8, "rate": "100Gbps", "price": 1}]))

    assert (split.switches_usd, split.switches) == (3000, 1)  # two of 8 ports would have no link
    assert (bundled.switches_usd, bundled.nics_usd, bundled.cables) == (3000, 2 * 2 * 120, 2 * 2)
    assert (several.switches, several.too_large) == (5, 1)


def test_a_slower_link_takes_an_eighth_of_a_port_at_least() -> None:
    fast = {"ports": 4, "rate": "400Gbps", "price": 3000}
    bills = [
        bill_of(Star(hosts=hosts, rate_bps=10 * GBPS).graph(), table(switches=[fast])) for hosts in (32, 33)
    ]

    assert [bill.switches for bill in bills] == [1, 2]


def test_a_longer_cable_serves_where_it_is_cheaper() -> None:
    cables = [
        {"length": "rack", "rate": "100Gbps", "price": 7},
        {"length": "hall", "rate": "100Gbps", "medium": "fibre", "price": 3},
    ]
    bill = bill_of(Star(hosts=4).graph(), table(cables=cables))

    assert (bill.cables_usd, bill.optics) == (12, 4)


def test_a_slow_switch_does_not_stand_for_a_fast_one() -> None:
    """Ten ports of 10 Gbps would be cheaper than one of 100 Gbps."""
    slow = {"ports": 48, "rate": "10Gbps", "price": 5}
    fast = {"ports": 8, "rate": "100Gbps", "price": 1000}

    assert bill_of(Star(hosts=4).graph(), table(switches=[slow, fast])).switches_usd == 1000


def test_of_equal_parts_the_first_is_taken() -> None:
    same = [{"ports": 8, "rate": "100Gbps", "price": 1000, "power": 100, "source": text} for text in "ab"]

    assert bill_of(Star(hosts=4).graph(), table(switches=same)).switches_usd == 1000


def test_nothing_inside_servers_is_bought() -> None:
    """2 islands of 2 GPUs: 4 cables to 2 rails, 2 from these to the spine; no NVLink."""
    graph = RailOptimized(islands_per_pod=2, gpus_per_island=2, spines=1).graph()
    bill = bill_of(graph, table())

    assert (bill.switches, bill.cables, bill.ports, bill.nics_usd) == (3, 6, 12, 4 * 50)


def test_figures_of_slim_fly_follow_from_its_formulas() -> None:
    """Besta and Hoefler, SC 2014, section VI: routers of k ports, 2.8 W a port, and cables of 2 and 20 m."""
    prices = default_prices()
    (router,) = [switch for switch in prices.switches if switch.rate_bps == 40 * GBPS]
    cables = {cable.length: cable.price for cable in prices.cables if cable.rate_bps == 40 * GBPS}

    assert (router.ports, router.price, router.power) == (36, round(350.4 * 36 - 892.3), round(2.8 * 36))
    assert cables["rack"] == round(40 * (0.4079 * 2 + 0.5771))
    assert cables["row"] == round(40 * (0.0919 * 20 + 2.7452))


def test_a_cable_that_nobody_sells() -> None:
    short = [{"length": "rack", "rate": "100Gbps", "price": 7}]
    graph = Clos(pods=2, edges_per_pod=1, hosts_per_edge=1, aggregations=1, cores=1).graph()
    with pytest.raises(NetfoldError, match=r"prices\.cables: none is for lengths ") as caught:
        bill_of(graph, table(cables=short))

    assert "give one with length: " in caught.value.hint


def test_netfolds_own_table_has_a_source_for_everything() -> None:
    prices = default_prices()
    parts = [*prices.switches, *prices.nics, *prices.cables]

    assert all(part.source for part in parts)
    assert {cable.length for cable in prices.cables} == {"rack", "row", "hall"}
    assert bill_of(HyperX(dimensions=(2, 2)).graph(), prices).cost_usd > 0
    assert "prices" not in registered(Topology)


SCENARIO = """
name: priced
workers: 2
topology: {kind: star, hosts: 2}
workload: {kind: synthetic, elements: 8}
codec: {kind: none}
collective: {kind: ring}
prices: mine.yaml
"""


def test_a_scenario_names_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(TABLE)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)

    assert load(tmp_path / "scenario.yaml").prices == table() == read_prices(str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("price: 1000", "price: -1"), "mine.yaml:3: switches.0.price"),
        (("length: row", "length: room"), "mine.yaml:10: cables.1.length"),
        (("ports: 8, ", ""), "mine.yaml:3: switches.0: the key 'ports' is missing"),
    ],
)
def test_mistakes_are_at_their_line_of_the_file(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    (tmp_path / "mine.yaml").write_text(TABLE.replace(*change))
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    with pytest.raises(ScenarioError) as caught:
        load(tmp_path / "scenario.yaml")

    assert message in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    with pytest.raises(ScenarioError, match=r"scenario\.yaml:8: prices: cannot read"):
        load(tmp_path / "scenario.yaml")
    assert load(ScenarioText(SCENARIO.replace("prices: mine.yaml", ""), "text")).prices is None
