"""Tables of topologies and their measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from netfold.sim.collectives.estimate import Estimate
from netfold.sim.report import words
from netfold.sim.topology.given import NamedNetwork
from netfold.sim.topology.measured import Measured
from netfold.topologies.measures import Bounds, Measures, measure
from netfold.units import RATE, SIZE

_EXACT_COUNT = 2**53
US_PER_S = 10**6


def shown(networks: Sequence[NamedNetwork]) -> Table:
    """A row for each network: its size, distances and bisection."""
    headings = ("variant", "kind", "hosts", "switches", "links", "diameter", "mean hops", "bisection")
    table = Table(*headings)
    for one in networks:
        found = measure(one.graph)
        counts = (found.hosts_count, found.switches_count, found.links_count, found.diameter_hops)
        cells = (one.name, one.kind, *map(str, counts), f"{found.mean_hops:.2f}", rate(found.bisection))
        table.add_row(*map(Text, cells))
    return table


def measures_table(all_measured: Sequence[Measured]) -> Table:
    """A row for each measure, a column for each network."""
    table = Table("measure")
    for one in all_measured:
        table.add_column(Text(one.heading))
    rows = [_measures(one.measures) for one in all_measured]
    for name in dict.fromkeys(name for row in rows for name in row):
        table.add_row(name, *(Text(row.get(name, words.NOTHING)) for row in rows))
    return table


def estimates_table(all_measured: Sequence[Measured]) -> Table:
    """Estimated times of an all-reduce: for each network the collectives, the fastest first."""
    table = Table(
        "variant", "workers", "collective", "estimate", "× fastest", "limited by", "link busy", "latency"
    )
    for one in all_measured:
        times = [timed.seconds for timed in one.estimates.values() if isinstance(timed, Estimate)]
        for kind, timed in one.estimates.items():
            cells: tuple[str, ...]
            if isinstance(timed, Estimate):
                ratio = words.times(words.ratio(timed.seconds, min(times)))
                spent = (words.time(one_s * US_PER_S) for one_s in (timed.busy_s, timed.latency_s))
                cells = (words.time(timed.seconds * US_PER_S), ratio, timed.link, *spent)
            else:
                cells = (words.NOTHING, words.NOTHING, timed.message)
            table.add_row(*map(Text, (one.heading, str(one.workers), kind, *cells)))
    return table


def both_tables(all_measured: Sequence[Measured]) -> Table:
    """Measures, and below them the estimates and the notes."""
    grid = Table.grid()
    grid.add_row(measures_table(all_measured))
    if any(one.estimates for one in all_measured):
        grid.add_row(estimates_table(all_measured))
    for note in notes(all_measured):
        grid.add_row(Text(note))
    return grid


def notes(all_measured: Sequence[Measured]) -> list[str]:
    """What the tables mean."""
    rules = dict.fromkeys(one.measures.cost.length_rule for one in all_measured)
    sizes = dict.fromkeys(SIZE.format(one.size_bytes) for one in all_measured)
    found = [f"Cables by length class: {rule}." for rule in rules]
    if any(one.measures.bisection_bps is None for one in all_measured):
        found.append(
            "A to B: a bound from traffic over shortest paths, and the cheapest cut found between halves."
        )
    found.append(
        f"Estimate: closed form of an all-reduce of {', '.join(sizes)} of float32 per worker on the idle "
        f"network, without headers, windows and losses, {_routes(all_measured)}. It is no bound: nothing "
        "overlaps in it, so a run can be faster. Link busy: the one that limits it; latency: propagation and "
        "switch delays in sequence."
    )
    if any(len(one.names) > 1 for one in all_measured):
        found.append("+1: one more variant has the same network, routes and workers.")
    return found


def _routes(all_measured: Sequence[Measured]) -> str:
    """How workers were placed, and how their routes were chosen."""
    placed = dict.fromkeys(one.placed for one in all_measured)
    chosen = dict.fromkeys(f"routes by {one.routing} with seed {one.seed}" for one in all_measured)
    return "; ".join([*placed, *chosen])


def rate(bounds: Bounds) -> str:
    """A rate if it is known, else the bounds."""
    if bounds.exact is not None:
        return RATE.format(bounds.exact)
    return f"{RATE.format(bounds.low)} to {RATE.format(bounds.high)}"


def _measures(found: Measures) -> dict[str, str]:
    rows = {
        "hosts": str(found.hosts_count),
        "switches": _listed({f"tier {tier}": count for tier, count in found.cost.switches_by_tier.items()}),
        "links, both directions": str(found.links_count),
        "diameter, hops": str(found.diameter_hops),
        "mean path, hops": f"{found.mean_hops:.3f}",
        "bisection, one direction": rate(found.bisection),
    }
    for tier, ratio in found.oversubscription.items():
        rows[f"oversubscription, tier {tier}"] = f"{ratio:.3g} : 1"
    if found.diversity is not None:
        low, middle, high, disjoint = found.diversity
        rows["shortest paths between racks"] = f"{_count(low)} to {_count(high)}, median {_count(middle)}"
        rows["disjoint paths between racks, least"] = str(disjoint)
    rows["ports of switches"] = _by_rate(found.cost.switch_ports_by_rate)
    rows["ports of hosts"] = _by_rate(found.cost.host_ports_by_rate)
    for length, by_rate in found.cost.cables.items():
        rows[f"cables {length}"] = _by_rate(by_rate)
    return rows


def _listed(counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    parts = ", ".join(f"{count} in {name}" for name, count in counts.items())
    return f"{total}: {parts}" if len(counts) > 1 else str(total)


def _by_rate(counts: Mapping[int, int]) -> str:
    return ", ".join(f"{count} × {RATE.format(one)}" for one, count in counts.items()) or "0"


def _count(value: float) -> str:
    """A number of paths: whole, or rounded if it is huge."""
    if value >= _EXACT_COUNT:
        return f"{value:.3g}"
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"
