"""What a network costs, what power it draws, and of which parts: a table of prices, and the bill by it.

`prices.yaml` has the default table; a scenario's `prices` takes its place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import networkx as nx
from pydantic import Field

from netfold.errors import NetfoldError
from netfold.sim.keys import Count, Option, Rate
from netfold.topologies.graph import hosts, server_ports, switches
from netfold.topologies.measures import ACROSS_HALL, WITHIN_RACK, WITHIN_ROW, cables_of

Amount = Annotated[float, Field(ge=0, lt=1e12)]
LENGTHS = {"rack": WITHIN_RACK, "row": WITHIN_ROW, "hall": ACROSS_HALL}
COPPER = "copper"
_WAYS_MAX = 8  # links that a port can be split into: its lanes


@dataclass(frozen=True, kw_only=True)
class Part(Option):
    """Something that has a price."""

    rate_bps: Rate
    """Rate of a port of it, or of the cable. A link that is faster than any such part takes several."""
    price: Amount
    """Price in US dollars."""
    power: Amount = 0.0
    """Typical power in watts."""
    source: str = ""
    """Where the figures are from."""


@dataclass(frozen=True, kw_only=True)
class SwitchPrice(Part):
    """A switch of ports that are alike."""

    ports: Count
    """Its ports; each can be split into up to eight slower ones."""


@dataclass(frozen=True, kw_only=True)
class CablePrice(Part):
    """A cable with what is at its ends."""

    length: Literal["rack", "row", "hall"]
    """How far it reaches: within a rack, within a row, or across the hall."""
    medium: str = COPPER
    """What it is: copper, or something optical."""


@dataclass(frozen=True, kw_only=True)
class Prices(Option):
    """Prices of the parts of networks; of those that could be used the cheapest is taken."""

    switches: Annotated[tuple[SwitchPrice, ...], Field(min_length=1)]
    """Switches, each {ports, rate, price, power, source}."""
    nics: Annotated[tuple[Part, ...], Field(min_length=1)]
    """Network cards, each {rate, price, power, source}: one for every link of a host."""
    cables: Annotated[tuple[CablePrice, ...], Field(min_length=1)]
    """Cables, each {length, rate, medium, price, power, source}: price and power with both ends."""


class Bill(NamedTuple):
    """What a network is made of, and costs; nothing that is inside a server."""

    switches_usd: float
    nics_usd: float
    cables_usd: float
    power_w: float
    switches: int
    """Switches, of which `too_large` are several each, without what would link these."""
    ports: int
    """Ends of cables at switches and hosts."""
    cables: int
    optics: int
    """The cables that are not copper."""
    too_large: int
    """Switches of the network that have more ports than any with a price."""

    @property
    def cost_usd(self) -> float:
        return self.switches_usd + self.nics_usd + self.cables_usd


class _Purchase(NamedTuple):
    """So many of a part."""

    price_usd: float
    power_w: float
    units: int
    part: Part


def bill_of(graph: nx.Graph, prices: Prices) -> Bill:
    """The bill of a valid graph.

    A switch with an `island` is one of NVLink: it is inside servers, and so are its links. Parts are the
    cheapest that are fast enough; length classes are those of `measures.cables_of`.

    Raises
    ------
    NetfoldError
        No cable that has a price is long enough.
    """
    at_hosts = {*hosts(graph), *server_ports(graph)}
    islands = {name for name in switches(graph) if "island" in graph.nodes[name]} - at_hosts
    rates_of: dict[str, Counter[int]] = {
        name: Counter() for name in switches(graph) if name not in islands | at_hosts
    }
    nics: Counter[int] = Counter()
    lines: Counter[tuple[str, int]] = Counter()
    for ends, rate_bps, length in cables_of(graph)[0]:
        if not islands.isdisjoint(ends):
            continue
        lines[length, rate_bps] += 1
        for end in ends:
            (nics if end in at_hosts else rates_of[end])[rate_bps] += 1
    shapes = Counter(tuple(sorted(rates.items())) for rates in rates_of.values())
    switch_lots = [(_switch(prices, shape), number) for shape, number in shapes.items()]
    nic_lots = [(_cheapest(prices.nics, rate_bps), number) for rate_bps, number in nics.items()]
    cable_lots = [(_cable(prices, *line), number) for line, number in lines.items()]
    switches_usd, nics_usd, cables_usd = (
        math.fsum(number * purchase.price_usd for purchase, number in lots)
        for lots in (switch_lots, nic_lots, cable_lots)
    )
    cables_count = sum(number * purchase.units for purchase, number in cable_lots)
    return Bill(
        switches_usd,
        nics_usd,
        cables_usd,
        power_w=math.fsum(
            number * purchase.power_w for purchase, number in (*switch_lots, *nic_lots, *cable_lots)
        ),
        switches=sum(number * purchase.units for purchase, number in switch_lots),
        ports=2 * cables_count,
        cables=cables_count,
        optics=sum(
            number * purchase.units
            for purchase, number in cable_lots
            if isinstance(purchase.part, CablePrice) and purchase.part.medium != COPPER
        ),
        too_large=sum(number for purchase, number in switch_lots if purchase.units > 1),
    )


def _switch(prices: Prices, shape: Sequence[tuple[int, int]]) -> _Purchase:
    """The cheapest for links of these rates, each with their number.

    It is as fast as the fastest link, and one switch, if there is such a one.
    """
    purchases = []
    fastest_bps = max((rate_bps for rate_bps, _ in shape), default=0)
    for model in prices.switches:
        ports = 0
        for rate_bps, links in shape:
            ways = min(_WAYS_MAX, model.rate_bps // rate_bps)
            ports += -(-links // ways) if ways else links * -(-rate_bps // model.rate_bps)
        purchases.append(_lot(model, -(-ports // model.ports)))
    return min(
        purchases,
        key=lambda lot: (lot.part.rate_bps < fastest_bps, lot.units > 1, lot.price_usd, lot.power_w),
    )


def _cable(prices: Prices, length: str, rate_bps: int) -> _Purchase:
    reach = list(LENGTHS.values())
    fitting = [cable for cable in prices.cables if reach.index(LENGTHS[cable.length]) >= reach.index(length)]
    if not fitting:
        key = next(key for key, name in LENGTHS.items() if name == length)
        raise NetfoldError(
            f"prices.cables: none is for lengths {length}", f"give one with length: {key}, or a longer one"
        )
    return _cheapest(fitting, rate_bps)


def _cheapest(parts: Iterable[Part], rate_bps: int) -> _Purchase:
    lots = [_lot(part, -(-rate_bps // part.rate_bps)) for part in parts]
    return min(lots, key=lambda lot: (lot.units, lot.price_usd, lot.power_w))


def _lot(part: Part, count: int) -> _Purchase:
    return _Purchase(count * part.price, count * part.power, count, part)
