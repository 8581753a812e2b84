"""Networks that are sized for a price or a bisection are the best of those there are."""

from __future__ import annotations

from itertools import product

import pytest

from netfold import topology
from netfold.errors import NetfoldError
from netfold.kinds import registered
from netfold.sim.plan.prices import bill_of
from netfold.sim.scenario.profile_keys import default_prices
from netfold.sim.studies.network_sizes import EXTRA_HOSTS, SizedNetwork, amount_of, size_networks
from netfold.topologies.kind import Generated, ParameterError, Topology, divisors, lattices, steps
from netfold.topologies.kinds.leaf_spine import LeafSpine

GBPS = 10**9
LEAF_SPINES = [
    LeafSpine(leaves=leaves, spines=spines, hosts_per_leaf=32 // leaves)
    for leaves, spines in product((2, 4, 8, 16, 32), (1, 2, 3, 4, 6, 8, 12, 16))
    if spines <= 32 // leaves
]
"""All for 32 hosts, with any number of spines that is offered."""


@pytest.mark.parametrize("hosts", [16, 24, 128])
@pytest.mark.parametrize("kind", [kind for kind in registered(Topology) if kind != "topohub"])
def test_what_a_kind_offers_has_the_hosts(kind: str, hosts: int) -> None:
    made = registered(Topology)[kind]
    assert issubclass(made, Generated)
    for offered in made.of_hosts(hosts, rate_bps=25 * GBPS):
        try:
            offered.size()
        except ParameterError:
            continue

        assert offered.facts().hosts >= hosts
        assert kind == "slim_fly" or offered.facts().hosts == hosts
        assert offered.rate_bps == 25 * GBPS


def test_choices_of_counts() -> None:
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert steps(10) == [1, 2, 3, 4, 6, 8, 10]
    assert list(lattices(12)) == [(12,), (2, 6), (3, 4), (2, 2, 3)]
    assert list(lattices(1)) == []


def of_kind(networks: tuple[SizedNetwork, ...], kind: str) -> SizedNetwork:
    (chosen,) = [network for network in networks if network.kind == kind]
    return chosen


def test_the_leaf_spine_for_a_price_is_the_best_of_all() -> None:
    chosen = of_kind(size_networks(32, price="90k").networks, "leaf_spine")
    bills = [bill_of(made.graph(), default_prices()) for made in LEAF_SPINES]
    within = [
        made
        for made, bill in zip(LEAF_SPINES, bills, strict=True)
        if bill.cost_usd <= 90_000 and not bill.too_large
    ]

    assert chosen.bill.cost_usd <= 90_000
    assert chosen.bisection.exact == max(made.facts().bisection_bps or 0 for made in within)
    assert LeafSpine(**chosen.keys).facts().bisection_bps == chosen.bisection.exact


def test_the_leaf_spine_with_a_bisection_is_the_cheapest_of_all() -> None:
    sized = size_networks(32, bisection="800Gbps", rate="100Gbps")
    enough = [made for made in LEAF_SPINES if (made.facts().bisection_bps or 0) >= 800 * GBPS]
    bills = [bill_of(made.graph(), default_prices()) for made in enough]
    costs = [network.bill.cost_usd for network in sized.networks]

    assert of_kind(sized.networks, "leaf_spine").bill.cost_usd == min(
        bill.cost_usd for bill in bills if not bill.too_large
    )
    assert all(network.bisection.low >= 800 * GBPS for network in sized.networks)
    assert all(32 <= network.hosts <= 32 * (1 + EXTRA_HOSTS) for network in sized.networks)
    assert costs == sorted(costs)


def test_the_cost_of_another_network_is_a_price() -> None:
    price = bill_of(LeafSpine(leaves=4, spines=2, hosts_per_leaf=4).graph(), default_prices()).cost_usd
    by_cost = topology.size(16, cost_of="leaf_spine leaves=4 spines=2 hosts_per_leaf=4")
    by_price = topology.size(16, price=price)

    assert by_cost == by_price
    assert all(network["bill"]["cost_usd"] <= price for network in by_cost.as_dict()["networks"])
    assert len(by_cost.table().rows) == len(by_cost.networks)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "give one of a price, a network of the same cost, and a bisection"),
        ({"price": 1.0, "bisection": 1}, "give one of a price, a network of the same cost, and a bisection"),
        ({"price": "cheap"}, "price: cannot read 'cheap' as an amount"),
        ({"bisection": "12"}, "cannot read '12' as a rate"),
        ({"cost_of": "leaf_spin leaves=2"}, "there is no kind of topology 'leaf_spin', and no such file"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, object], message: str) -> None:
    with pytest.raises(NetfoldError) as caught:
        size_networks(16, **asked)  # type: ignore[arg-type]

    assert caught.value.message == message


def test_amounts() -> None:
    assert [amount_of(text) for text in ("50000", "$800k", "1.2M")] == [50_000, 800_000, 1_200_000]
