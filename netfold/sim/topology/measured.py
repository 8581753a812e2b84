"""All measures of a network, with an estimate of the time of an all-reduce for each collective."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from netfold.errors import NetfoldError
from netfold.sim.collectives.estimate import Estimate
from netfold.sim.collectives.estimates import estimates
from netfold.sim.collectives.spec import CollectiveSection
from netfold.sim.memory.available import available_bytes
from netfold.sim.plan.host_profiles import with_work
from netfold.sim.plan.idle_network import with_pass_latency
from netfold.sim.topology.given import NamedNetwork
from netfold.topologies.graph import TopologyError, switches
from netfold.topologies.measures import Measures, measure
from netfold.topologies.network import compile_network
from netfold.topologies.placement import place_workers
from netfold.topologies.routing import POLICIES

BYTES = 10**8  # of a gradient, by default
LARGE = 2000  # nodes: larger networks take seconds and more


@dataclass(frozen=True)
class Measured:
    """What one network measures."""

    name: str
    kind: str
    measures: Measures
    workers: int
    size_bytes: int  # that every worker contributes
    estimates: Mapping[str, Estimate | NetfoldError]  # by collective, the fastest first; none for one worker
    routing: str
    seed: int
    placed: str  # how the workers were placed, in words
    names: tuple[str, ...] = ()  # of all variants that have this network, itself the first

    @property
    def heading(self) -> str:
        """Its name in a table: "ring +3" if three more variants have the same network."""
        return self.name if len(self.names) < 2 else f"{self.name} +{len(self.names) - 1}"

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold; rates are bits per second."""
        found, diversity, cost = self.measures, self.measures.diversity, self.measures.cost
        return {
            "name": self.name,
            "variants": list(self.names or (self.name,)),
            "kind": self.kind,
            "hosts": found.hosts_count,
            "switches": found.switches_count,
            "links": found.links_count,
            "diameter_hops": found.diameter_hops,
            "mean_hops": found.mean_hops,
            "bisection_bps": found.bisection_bps,
            "bisection_bps_min": found.bisection.low,
            "bisection_bps_max": found.bisection.high,
            "oversubscription": {str(tier): ratio for tier, ratio in found.oversubscription.items()},
            "paths": None if diversity is None else diversity._asdict(),
            "cost": {
                "switches_by_tier": _by_text(cost.switches_by_tier),
                "switch_ports_by_rate_bps": _by_text(cost.switch_ports_by_rate),
                "host_ports_by_rate_bps": _by_text(cost.host_ports_by_rate),
                "cables": {length: _by_text(by_rate) for length, by_rate in cost.cables.items()},
                "length_rule": cost.length_rule,
            },
            "workers": self.workers,
            "routing": self.routing,
            "seed": self.seed,
            "bytes": self.size_bytes,
            "estimates": [
                {"collective": name, **_estimate_dict(timed)} for name, timed in self.estimates.items()
            ],
        }


def all_measured(
    networks: Sequence[NamedNetwork],
    size_bytes: int = BYTES,
    workers: int | None = None,
    report: Callable[[str], None] | None = None,
) -> list[Measured]:
    """As `measured`, of each different network once: variants may differ in what it does not show."""
    alike: list[list[NamedNetwork]] = []
    for network in networks:
        group = next((group for group in alike if network.is_like(group[0])), None)
        if group is None:
            alike.append([network])
        else:
            group.append(network)
    return [
        replace(
            measured(group[0], size_bytes, workers, report, sections_of(group)),
            names=tuple(one.name for one in group),
        )
        for group in alike
    ]


def sections_of(networks: Sequence[NamedNetwork]) -> dict[str, CollectiveSection]:
    """The collectives of a scenario's variants: by kind, and by variant where settings of a kind differ."""
    of_kind: dict[str, dict[str, CollectiveSection]] = {}
    for network in networks:
        for section in network.collectives:
            settings = of_kind.setdefault(section.kind, {})
            if section not in settings.values():
                settings[network.name] = section
    return {
        kind if len(settings) == 1 else f"{kind} ({variant})": section
        for kind, settings in of_kind.items()
        for variant, section in settings.items()
    }


def measured(
    network: NamedNetwork,
    size_bytes: int = BYTES,
    workers: int | None = None,
    report: Callable[[str], None] | None = None,
    sections: Mapping[str, CollectiveSection] | None = None,
) -> Measured:
    """All measures of a network.

    Parameters
    ----------
    size_bytes
        Of the gradient that every worker contributes to an all-reduce: dense float32.
    workers
        On as many hosts, rack by rack; by default those of the scenario, without one all hosts.
    report
        Called with what is worked out next, of a network of more than `LARGE` nodes: it takes some time.
    sections
        Of collectives, by their names in the result; by default those of the network's variant.

    Raises
    ------
    NetfoldError
        More workers than hosts, a routing policy that is not for such a network, or routes that take more
        memory than there is.
    """
    graph = network.graph
    tell = partial(_tell, report, network) if report and len(graph) > LARGE else None
    is_of_scenario = network.variant is not None and workers is None
    placed = "workers as the scenario places them" if is_of_scenario else "workers rack by rack"
    try:
        names = network.place() if workers is None else place_workers(graph, workers, "pack")
        own = sections_of([network]) if sections is None else sections
        timed = _estimates(network, names, size_bytes, tell, own) if len(names) > 1 else {}
    except TopologyError as error:
        message, _, hint = str(error).partition("; ")
        raise NetfoldError(message, hint) from None
    if tell is not None:
        tell("distances, bisection and paths")
    return Measured(
        network.name,
        network.kind,
        measure(graph),
        len(names),
        size_bytes,
        timed,
        network.routing,
        network.seed,
        placed,
    )


def _tell(report: Callable[[str], None], network: NamedNetwork, what: str) -> None:
    report(f"{network.name}, {len(network.graph)} nodes: {what}")


def _estimates(
    network: NamedNetwork,
    names: list[str],
    size_bytes: int,
    tell: Callable[[str], None] | None,
    sections: Mapping[str, CollectiveSection],
) -> dict[str, Estimate | NetfoldError]:
    """Times with the latency of the switches' pipelines, as a run has it."""
    graph, known = network.graph, network.profiles
    profiles = {
        name: known[graph.nodes[name]["profile"]]
        for name in switches(graph)
        if graph.nodes[name]["profile"] in known
    }
    if tell is not None:
        tell("routes")
    compiled = with_pass_latency(
        compile_network(graph, available_bytes(), POLICIES[network.routing]), profiles
    )
    rows = {name: row for row, name in enumerate(compiled.nodes)}
    compiled = with_work(compiled, {rows[name]: network.host_profile for name in names})
    return estimates(compiled, [rows[name] for name in names], size_bytes, network.seed, tell, sections)


def _estimate_dict(one: Estimate | NetfoldError) -> dict[str, Any]:
    if isinstance(one, NetfoldError):
        return {"seconds": None, "link": None, "busy_s": None, "latency_s": None, "why": one.message}
    return {**one._asdict(), "why": ""}


def _by_text(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(key): count for key, count in counts.items()}
