"""Networks of every kind for so many hosts: for the same money, or with the same bisection."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from netfold.errors import NetfoldError
from netfold.kinds import registered
from netfold.sim.plan.prices import Bill, Prices, bill_of
from netfold.sim.report import words
from netfold.sim.report.result_display import VerbResult
from netfold.sim.scenario.network_keys import key_of
from netfold.sim.scenario.profile_keys import default_prices, read_prices
from netfold.sim.studies.topology_study import networks_of
from netfold.sim.studies.topology_study import rate as rate_text
from netfold.topologies import measures
from netfold.topologies.graph import NODES_MAX, TopologyError
from netfold.topologies.kind import Generated, Topology
from netfold.topologies.measures import Bounds
from netfold.units import RATE

EXTRA_HOSTS = 0.1  # a network may have this share of hosts more than asked for
_AMOUNT = re.compile(r"\$?(\d+(?:\.\d+)?)([kM]?)")


@dataclass(frozen=True)
class SizedNetwork:
    """The network of a kind that comes nearest to what was asked for."""

    kind: str
    keys: dict[str, Any]
    """Its keys, without those of all links."""
    hosts: int
    bill: Bill
    bisection: Bounds
    oversubscription: float | None
    """Of the tier where it is greatest; None if no switch has links up and down."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "keys": self.keys,
            "hosts": self.hosts,
            "bill": {"cost_usd": self.bill.cost_usd, **self.bill._asdict()},
            "bisection_bps_min": self.bisection.low,
            "bisection_bps_max": self.bisection.high,
            "oversubscription": self.oversubscription,
        }


@dataclass(frozen=True)
class NetworkSizes(VerbResult):
    """Networks that can be compared; `print` shows what `netfold topology size` prints."""

    asked: str
    networks: tuple[SizedNetwork, ...]
    missing: tuple[str, ...]
    """Kinds of which no network fits."""

    def as_dict(self) -> dict[str, Any]:
        networks = [network.as_dict() for network in self.networks]
        return {"asked": self.asked, "networks": networks, "missing": list(self.missing)}

    def table(self) -> Table:
        headings = ("kind", "keys", "hosts", "switches", "price", "power", "bisection", "oversubscribed")
        table = Table(*headings)
        for network in self.networks:
            ratio = network.oversubscription
            cells = (
                network.kind,
                " ".join(f"{key}={value}" for key, value in network.keys.items()),
                str(network.hosts),
                str(network.bill.switches),
                words.money(network.bill.cost_usd),
                words.scaled(network.bill.power_w, "W"),
                rate_text(network.bisection),
                words.NOTHING if ratio is None else f"{ratio:.3g} : 1",
            )
            table.add_row(*map(Text, cells))
        return table

    def tables(self) -> list[Table]:
        return [self.table()]

    def lines(self) -> list[str]:
        missing = [f"No network fits of {', '.join(self.missing)}."] if self.missing else []
        return [f"Of each kind {self.asked}; every switch is one that has a price.", *missing]


def size_networks(
    hosts: int,
    *,
    price: float | str | None = None,
    cost_of: str | None = None,
    bisection: int | str | None = None,
    rate: int | str = "100Gbps",
    prices: str | Path | None = None,
) -> NetworkSizes:
    """Of each kind the network with the largest bisection for its price, or the cheapest with a bisection.

    Parameters
    ----------
    price
        What a network may cost: US dollars, or text such as "1.2M".
    cost_of
        In its place, a network that all may cost as much as: "leaf_spine leaves=4 spines=2 hosts_per_leaf=8".
    bisection
        In its place, the least bisection: bits per second, or text such as "12.8Tbps".
    rate
        Of all links, but those inside servers.
    prices
        YAML file with prices and powers of parts; by default netfold's.

    Raises
    ------
    NetfoldError
        Not one of `price`, `cost_of` and `bisection` is given, or one of them cannot be read.
    """
    if [price, cost_of, bisection].count(None) != 2:
        raise NetfoldError(
            "give one of a price, a network of the same cost, and a bisection", "for example --price 800k"
        )
    table = default_prices() if prices is None else read_prices(str(prices))
    rate_bps = RATE.parse(rate) if isinstance(rate, str) else rate
    least_bps = RATE.parse(bisection) if isinstance(bisection, str) else bisection or 0
    budget_usd = amount_of(price) if isinstance(price, str) else price
    if cost_of is not None:
        kind, *keys = cost_of.split()
        (reference,) = networks_of(kind, [f"rate={RATE.format(rate_bps)}", *keys])
        budget_usd = bill_of(reference.graph, table).cost_usd
    found: list[SizedNetwork] = []
    missing = []
    order = _order(budget_usd is not None)
    for kind, made in registered(Topology).items():
        if not issubclass(made, Generated):
            continue
        topologies = list(made.of_hosts(hosts, rate_bps=rate_bps))
        candidates = (_sized(topology, hosts, table, least_bps) for topology in topologies)
        fitting = [
            network
            for network in candidates
            if network is not None and (budget_usd is None or network.bill.cost_usd <= budget_usd)
        ]
        if fitting:
            found.append(min(fitting, key=order))
        elif topologies:
            missing.append(kind)
    asked = f"the cheapest network of {hosts} hosts with a bisection of {RATE.format(least_bps)}"
    if budget_usd is not None:
        asked = f"the network of {hosts} hosts with the largest bisection for {words.money(budget_usd)}"
    return NetworkSizes(asked, tuple(sorted(found, key=order)), tuple(missing))


def _order(by_bisection: bool) -> Callable[[SizedNetwork], tuple[float, float]]:
    def key(network: SizedNetwork) -> tuple[float, float]:
        best, cost = -network.bisection.low, network.bill.cost_usd
        return (best, cost) if by_bisection else (cost, best)

    return key


def _sized(topology: Generated, hosts: int, prices: Prices, bisection_bps: int) -> SizedNetwork | None:
    """The network if it is allowed, has the hosts and the bisection, and can be bought."""
    try:
        if topology.size().nodes > NODES_MAX:
            return None
        facts = topology.facts()
        known_bps = facts.bisection_bps
        is_right = hosts <= facts.hosts <= (1 + EXTRA_HOSTS) * hosts
        if not is_right or (known_bps is not None and known_bps < bisection_bps):
            return None
        graph = topology.graph()
    except TopologyError:  # the counts do not go together
        return None
    bill = bill_of(graph, prices)
    if bill.too_large:
        return None
    known = measures.bisection(graph, may_search=False) if known_bps is None else Bounds(known_bps, known_bps)
    if known.low < bisection_bps:
        return None
    common = {"rate_bps", "delay_ps", "buffer_bytes", "switch"}
    keys = {
        key_of(field.name): list(value) if isinstance(value, tuple) else value
        for field in fields(topology)
        if field.name not in common
        and "like" not in field.metadata
        and (value := getattr(topology, field.name)) not in (None, field.default)
    }
    ratios = measures.oversubscription(graph).values()
    return SizedNetwork(topology.kind, keys, facts.hosts, bill, known, max(ratios, default=None))


def amount_of(text: str) -> float:
    """An amount of dollars such as "1.2M", "$800k" or "50000".

    Raises
    ------
    NetfoldError
        It is none.
    """
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise NetfoldError(f"price: cannot read {text!r} as an amount", "for example 1.2M, or 800k")
    return float(match[1]) * {"": 1, "k": 10**3, "M": 10**6}[match[2]]
