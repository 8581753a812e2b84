"""What the loss of any one switch or link costs a network: bisection, and estimated times of collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import networkx as nx

from netfold.errors import NetfoldError
from netfold.sim.collectives.schedule_costs import Estimate
from netfold.topologies.graph import CutOffError, TopologyError, parts_matching, remove, switches_matching
from netfold.topologies.measures import Bounds, bisection

BISECTION = "bisection"
"""The figure beside the names of collectives."""
Timed = Mapping[str, Estimate | NetfoldError]


@dataclass(frozen=True)
class Loss:
    """A network without one switch or link; the network as it is has no name."""

    name: str
    """The switch, or the ends of the link: "leaf0-spine1"."""
    bisection: Bounds | None
    """None if hosts are cut off."""
    estimates: Timed
    """The time of each collective; none if hosts are cut off or the routing policy needs what is lost."""
    hosts_cut_off: int = 0
    why: str = ""
    """Why a figure is missing."""

    def value(self, figure: str) -> float | None:
        """Bits per second of the bisection (the lower bound), seconds of a collective; None if unknown."""
        if figure == BISECTION:
            return None if self.bisection is None else self.bisection.low
        timed = self.estimates.get(figure)
        return timed.seconds if isinstance(timed, Estimate) else None


class Rank(NamedTuple):
    """Losses by what they cost in one figure."""

    median: Loss
    """Of an even number of losses the cheaper one of the middle."""
    worst: Loss
    """The first in the order of the graph."""
    alike_count: int
    """Losses that cost as much as the worst, itself among them."""


@dataclass(frozen=True)
class Losses:
    """A network without each part that a pattern matches, one at a time."""

    pattern: str
    whole: Loss
    """The network as it is."""
    losses: tuple[Loss, ...]  # one or more
    collectives: tuple[str, ...]

    @property
    def ranks(self) -> dict[str, Rank]:
        # By figure: the bisection, then the collectives.
        return {figure: self._rank(figure) for figure in (BISECTION, *self.collectives)}

    def _rank(self, figure: str) -> Rank:
        def cost(loss: Loss) -> float:
            value = loss.value(figure)
            return inf if value is None else -value if figure == BISECTION else value

        ordered = sorted(self.losses, key=cost)
        worst = [loss for loss in self.losses if cost(loss) == cost(ordered[-1])]
        return Rank(ordered[(len(ordered) - 1) // 2], worst[0], len(worst))

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold; the bisection in bits per second, times in seconds."""
        return {
            "pattern": self.pattern,
            "figures": [
                {
                    "figure": figure,
                    "unit": "bps" if figure == BISECTION else "s",
                    "as_it_is": self.whole.value(figure),
                    "median": rank.median.value(figure),
                    "worst": rank.worst.value(figure),
                    "worst_loss": rank.worst.name,
                    "as_bad_count": rank.alike_count,
                }
                for figure, rank in self.ranks.items()
            ],
            "losses": [
                {
                    "without": loss.name,
                    "hosts_cut_off": loss.hosts_cut_off,
                    "why": loss.why,
                    "bisection_bps": loss.value(BISECTION),
                    "seconds": {name: loss.value(name) for name in self.collectives},
                }
                for loss in self.losses
            ],
        }


def lose_any(
    graph: nx.Graph,
    pattern: str,
    estimate: Callable[[nx.Graph], Timed],
    report: Callable[[str], None] | None = None,
) -> tuple[Loss, ...]:
    """The network without each switch or link that a pattern matches, in the order of the graph.

    A pattern such as "spine", which matches nothing, stands for the switches spine0, spine1 and so on.
    `estimate` gives times of collectives on what is left; `report` is called with each loss.

    Raises
    ------
    NoMatchError
        The pattern matches neither a switch nor a link.
    """
    numbered = f"{pattern}[0-9]*"
    is_stem = not switches_matching(graph, pattern) and switches_matching(graph, numbered)
    names, edges = parts_matching(graph, numbered if is_stem else pattern)
    parts: list[tuple[str, list[str], list[tuple[str, str]]]] = [
        *((name, [name], []) for name in names),
        *(("-".join(edge), [], [edge]) for edge in edges),
    ]
    losses = []
    for name, switches, links in parts:
        if report is not None:
            report(f"without {name}")
        left = graph.copy()
        try:
            remove(left, switches, links)
            losses.append(Loss(name, bisection(left), estimate(left)))
        except CutOffError as error:
            hosts = "host" if error.hosts_count == 1 else "hosts"
            losses.append(Loss(name, None, {}, error.hosts_count, f"{error.hosts_count} {hosts} cut off"))
        except TopologyError as error:
            losses.append(Loss(name, bisection(left), {}, why=str(error).partition("; ")[0]))
    return tuple(losses)
