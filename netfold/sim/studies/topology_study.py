"""Topologies without a run: what there are, what they measure, how they look, and files of them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import networkx as nx
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from netfold.errors import MistakesError, NetfoldError, ScenarioError, UnwrittenError, names_hint
from netfold.kinds import registered
from netfold.sim import files
from netfold.sim.collectives.collective import CollectiveSection
from netfold.sim.collectives.registry import estimates
from netfold.sim.collectives.schedule_costs import Estimate
from netfold.sim.keys import Location, keys
from netfold.sim.plan.host_profiles import NONE, HostProfile, with_work
from netfold.sim.plan.idle_network import with_pass_latency
from netfold.sim.plan.memory_footprint import available_bytes
from netfold.sim.plan.plan import HostAllocation
from netfold.sim.plan.prices import Bill, Prices, bill_of
from netfold.sim.plan.problem_bound import least_s
from netfold.sim.report import words
from netfold.sim.report.result_display import Svg, VerbResult
from netfold.sim.results.metrics import bus_factor
from netfold.sim.scenario.load import Scenario, load
from netfold.sim.scenario.network_keys import TopologySection, topology_sections
from netfold.sim.scenario.profile_keys import default_prices
from netfold.sim.scenario.resolve import build_topology, check_profiles, whole_topology
from netfold.sim.scenario.variant_keys import JobSections, Variant
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.sim.studies.network_losses import BISECTION, Loss, Losses, lose_any
from netfold.switch.profiles import PROFILES, Profile
from netfold.topologies.drawing_layout import NODES_DRAWN_MAX
from netfold.topologies.exact_bisection import is_available
from netfold.topologies.graph import TopologyError, hosts, switches, unmarked_ports
from netfold.topologies.kind import Topology
from netfold.topologies.measures import Bounds, Measures, measure
from netfold.topologies.network import compile_network
from netfold.topologies.placement import place_workers
from netfold.topologies.routing import ECMP, Policy
from netfold.units import RATE, SIZE, TIME

# The networks that a user names: those of a scenario, of a kind with its keys, or of a graph file.


GRAPH_SUFFIXES = (".json", ".graphml", ".gml")
Given = str | Path | ScenarioText
_PREFIX = "topology."
_REST = {  # the sections that a scenario needs besides its topology; nothing here looks at them
    "name": "topology",
    "workers": 1,
    "workload": {"kind": "synthetic", "elements": 1},
    "codec": {"kind": "none"},
    "collective": {"kind": "ring"},
}


@dataclass(frozen=True)
class NamedNetwork:
    """One network, and the switch profiles that are known there."""

    name: str
    """The name of the variant, of the kind, or of the file."""
    kind: str
    graph: nx.Graph
    profiles: Mapping[str, Profile]
    variant: Variant | None = None
    """The variant of a scenario; None: a network alone."""
    scenario: Scenario | None = None
    whole: nx.Graph | None = None
    """The network with what its topology is `without`; None: nothing is absent."""

    @property
    def able(self) -> frozenset[str]:
        """Profiles of its switches that run programs which aggregate."""
        profile_names = {profile for _, profile in self.graph.nodes(data="profile") if profile}
        return frozenset(
            name for name in profile_names if name in self.profiles and self.profiles[name].can_aggregate
        )

    @property
    def routing(self) -> Policy:
        return ECMP if self.variant is None else self.variant.routing.policy

    @property
    def seed(self) -> int:
        return 0 if self.scenario is None else self.scenario.seed

    @property
    def prices(self) -> Prices:
        scenario_prices = None if self.scenario is None else self.scenario.prices
        return scenario_prices or default_prices()

    @property
    def host_profile(self) -> HostProfile:
        return NONE if self._first is None else self._first.hosts.whole()

    @property
    def collectives(self) -> tuple[CollectiveSection, ...]:
        """Of the jobs of its variant, in order; none: a network alone."""
        if self.variant is None:
            return ()
        return tuple(job.collective for job in self.variant.jobs or (self.variant,))

    @property
    def _first(self) -> JobSections | None:
        # The first job.
        return None if self.variant is None else (self.variant.jobs or (self.variant,))[0]

    def is_like(self, other: NamedNetwork) -> bool:
        """Whether a run has the same network, routes, workers and hosts on both."""
        if self.variant is None or other.variant is None:
            return self is other
        traits, others = (
            (network.variant.topology, network.routing, network._first.workers, network.host_profile)
            for network in (self, other)
            if network.variant is not None and network._first is not None
        )
        return traits == others

    def place(self) -> list[str]:
        if self.variant is None or self.scenario is None or self._first is None:
            return place_workers(self.graph, len(hosts(self.graph)), "pack")  # all, rack by rack
        jobs = self.variant.jobs
        location = Location(self.scenario, self.variant.name, jobs[0].name if jobs else "")
        workers = self._first.workers
        placed = HostAllocation(self.graph).place(workers.count, workers.placement, location)
        return list(placed)


def networks_of(
    given: Given, sets: Sequence[str] = (), variants: Collection[str] = ()
) -> tuple[NamedNetwork, ...]:
    # A kind or a graph file, whose keys are in `sets`; or a scenario, with a network for each variant.
    text = str(given)
    is_scenario = isinstance(given, ScenarioText)
    if not is_scenario and text in registered(Topology):
        return _alone(text, {"kind": text}, sets, variants)
    if not is_scenario and text.lower().endswith(GRAPH_SUFFIXES):
        return _alone(Path(text).stem, {"kind": "file", "path": text}, sets, variants)
    if not is_scenario and _is_a_word(text):
        hint = f"{names_hint(text, registered(Topology), 'kinds')}; or give a scenario or a graph file"
        raise NetfoldError(f"there is no kind of topology {text!r}, and no such file", hint)
    scenario = load(given, sets)
    variant_names = [variant.name for variant in scenario.variants]
    _check_variants(variants, variant_names)
    return tuple(
        _of_scenario(scenario, variant)
        for variant in scenario.variants
        if not variants or variant.name in variants
    )


def _of_scenario(scenario: Scenario, variant: Variant) -> NamedNetwork:
    graph, profiles = build_topology(scenario, variant), {**PROFILES, **scenario.switch_profiles}
    check_profiles(graph, scenario, variant)
    kind, whole = variant.topology.kind, whole_topology(scenario, variant)
    return NamedNetwork(variant.name, kind, graph, profiles, variant, scenario, whole)


def _is_a_word(text: str) -> bool:
    # Neither a path nor a file.
    return text != "-" and Path(text).name == text and not Path(text).suffix and not Path(text).exists()


def _alone(
    name: str, topology: Mapping[str, str], sets: Sequence[str], variants: Collection[str]
) -> tuple[NamedNetwork, ...]:
    """The network of one topology: that of a scenario which has nothing else."""
    _check_variants(variants, [])
    text = ScenarioText(json.dumps(_REST | {"topology": dict(topology)}), name)
    # "k=8" is short for "topology.k=8".
    scenario = load(text, [change if change.startswith(_PREFIX) else f"{_PREFIX}{change}" for change in sets])
    (variant,) = scenario.variants
    try:
        graph = build_topology(scenario, variant)
        if variant.topology.file is None:
            check_profiles(graph, scenario, variant)
    except ScenarioError as error:
        if variant.topology.file is None or not error.line:
            raise
        raise _of_file(error) from None
    whole = whole_topology(scenario, variant)
    return (NamedNetwork(name, variant.topology.kind, graph, PROFILES, whole=whole),)


def _of_file(error: ScenarioError) -> NetfoldError:
    """An error in a graph file: no scenario names it, so it has no line of one."""
    mistakes = error.mistakes if isinstance(error, MistakesError) else (error,)
    *others, last = (NetfoldError(mistake.message, mistake.hint) for mistake in mistakes)
    return NetfoldError("\n".join(map(str, (*others, last.message))), last.hint)


def _check_variants(wanted: Collection[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            hint = names_hint(name, known, "variants") if known else "remove --variant: there are no variants"
            raise NetfoldError(f"there is no variant {name!r}", hint)


# Drawings of networks as files.


SUFFIX = ".svg"


def drawing(network: NamedNetwork) -> Svg:
    """SVG of a network; the same network gives the same bytes."""
    from netfold.sim.report.network_drawing import (
        Look,  # late: matplotlib is slow to import
        draw_svg,  # late: matplotlib is slow to import
    )

    title = network.name if network.name == network.kind else f"{network.name} · {network.kind}"
    if network.whole is None or len(network.whole) > NODES_DRAWN_MAX:
        return draw_svg(network.graph, Look(title, network.able))
    return draw_svg(network.whole, Look(title, network.able, present=network.graph))


def draw_into(networks: Sequence[NamedNetwork], folder_name: str) -> list[Path]:
    """Draw one network into a file, or all into a folder, which is made; returns the paths.

    Raises
    ------
    NetfoldError
        Several networks are to be drawn into one file.
    UnwrittenError
        A file cannot be written.
    """
    if folder_name.lower().endswith(SUFFIX):
        if len(networks) > 1:
            message = f"{folder_name}: cannot draw {len(networks)} networks into one file"
            raise NetfoldError(message, "give a folder, or choose one with --variant")
        return [write(Path(folder_name), drawing(networks[0]))]
    try:
        Path(folder_name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwrittenError(f"cannot make the folder {folder_name}: {error.strerror}") from None
    return [
        write(Path(folder_name) / f"{_file_name(network.name)}{SUFFIX}", drawing(network))
        for network in networks
    ]


def write(path: Path, content: bytes) -> Path:
    with files.writing(path, "give another path"):
        files.write_file(path, content)
    return path


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.+-]", "-", name) or "network"  # file systems do not take everything


# The listing of topologies: kinds, their keys, and the closed forms that they obey.


_UNITS = {"_bps": RATE, "_ps": TIME, "_bytes": SIZE}


@dataclass(frozen=True)
class TopologyKey:
    """A key that a topology may have in a scenario."""

    name: str
    default: Any
    """The default as a scenario writes it; None if there is none."""
    is_required: bool
    meaning: str


@dataclass(frozen=True)
class TopologyKind:
    """A topology that a scenario can name."""

    kind: str
    meaning: str
    closed_forms: str  # how its figures follow from its keys; empty where nothing is known
    keys: tuple[TopologyKey, ...]


def listing() -> tuple[TopologyKind, ...]:
    return tuple(_describe(section) for section in topology_sections())


def _describe(section: type[TopologySection]) -> TopologyKind:
    (kind,) = get_args(section.model_fields["kind"].annotation)
    text = inspect.cleandoc(section.__doc__ or "")
    meaning, _, closed_forms = text.partition("\n")
    made_by = getattr(section, "made_by", None)
    fields = getattr(made_by, "__dataclass_fields__", {})
    units = {
        name.removesuffix(suffix): quantity
        for name in fields
        for suffix, quantity in _UNITS.items()
        if name.endswith(suffix)
    }
    described_keys = []
    for name, field in keys(section).items():
        default = None if field.is_required() or field.default_factory is not None else field.default
        if name in units and isinstance(default, int):
            default = units[name].format(default)
        if name != "kind":
            meant = " ".join((field.description or "").split())
            described_keys.append(TopologyKey(name, default, field.is_required(), meant))
    return TopologyKind(kind, meaning, closed_forms.strip("\n"), tuple(described_keys))


# All measures of a network, with an estimate of the time of an all-reduce for each collective.


BYTES = 10**8
"""The size of a gradient, by default."""
LARGE = 2000  # nodes: larger networks take seconds and more


@dataclass(frozen=True)
class MeasuredNetwork:
    name: str
    kind: str
    measures: Measures
    workers: int
    size_bytes: int
    """The size of what every worker contributes."""
    estimates: Mapping[str, Estimate | NetfoldError]
    """The time of each collective, the fastest first; none for one worker."""
    routing: str
    seed: int
    placed: str  # how the workers were placed, in words
    bill: Bill | None
    """What it is made of, and costs; None: unknown."""
    names: tuple[str, ...] = ()
    """The names of all variants that have this network, itself the first."""
    losses: Losses | None = None
    """What losing any one of some switches or links costs, where that was asked."""
    bound_s: float | None = None
    """The least time of any algorithm; None for one worker."""
    unmarked: tuple[str, ...] = ()
    """Links that stand for the inside of a server, at switches that are not marked as its ports."""

    @property
    def heading(self) -> str:
        # "ring +3" if three more variants have the same network.
        return self.name if len(self.names) < 2 else f"{self.name} +{len(self.names) - 1}"

    def of_bound(self, timed: Estimate | NetfoldError) -> float | None:
        """The least time of any algorithm over an estimate."""
        if self.bound_s is None or not isinstance(timed, Estimate):
            return None
        return self.bound_s / timed.seconds

    def bandwidths(self, timed: Estimate | NetfoldError) -> dict[str, float | None]:
        # As nccl-tests has them.
        algbw = self.size_bytes / timed.seconds if isinstance(timed, Estimate) else None
        busbw = None if algbw is None else algbw * bus_factor(self.workers)
        return {"algbw_bytes_per_s": algbw, "busbw_bytes_per_s": busbw}

    def as_dict(self) -> dict[str, Any]:
        """What JSON can hold; rates are bits per second."""
        measures, diversity, cost = self.measures, self.measures.diversity, self.measures.cost
        return {
            "name": self.name,
            "variants": list(self.names or (self.name,)),
            "kind": self.kind,
            "hosts": measures.hosts_count,
            "switches": measures.switches_count,
            "links": measures.links_count,
            "diameter_hops": measures.diameter_hops,
            "mean_hops": measures.mean_hops,
            "bisection_bps": measures.bisection_bps,
            "bisection_bps_min": measures.bisection.low,
            "bisection_bps_max": measures.bisection.high,
            "oversubscription": {str(tier): ratio for tier, ratio in measures.oversubscription.items()},
            "paths": None if diversity is None else diversity._asdict(),
            "cost": {
                "switches_by_tier": _by_text(cost.switches_by_tier),
                "switch_ports_by_rate_bps": _by_text(cost.switch_ports_by_rate),
                "host_ports_by_rate_bps": _by_text(cost.host_ports_by_rate),
                "cables": {length: _by_text(by_rate) for length, by_rate in cost.cables.items()},
                "length_rule": cost.length_rule,
            },
            "bill": None if self.bill is None else {"cost_usd": self.bill.cost_usd, **self.bill._asdict()},
            "workers": self.workers,
            "routing": self.routing,
            "seed": self.seed,
            "bytes": self.size_bytes,
            "bound_s": self.bound_s,
            "estimates": [
                {
                    "collective": name,
                    **_estimate_dict(timed),
                    "of_bound": self.of_bound(timed),
                    **self.bandwidths(timed),
                }
                for name, timed in self.estimates.items()
            ],
            "without_any": None if self.losses is None else self.losses.as_dict(),
        }


def measurements(
    networks: Sequence[NamedNetwork],
    size: int | str = BYTES,
    workers: int | None = None,
    report: Callable[[str], None] | None = None,
    prices: Prices | None = None,
    without_any: str | None = None,
) -> Measurements:
    """As `measure_network`, of each different network once: variants may differ in what it does not show.

    `size` is a number of bytes, or text such as "100MB".
    """
    size_bytes = SIZE.parse(size) if isinstance(size, str) else size
    alike: list[list[NamedNetwork]] = []
    for network in networks:
        group = next((group for group in alike if network.is_like(group[0])), None)
        if group is None:
            alike.append([network])
        else:
            group.append(network)
    return Measurements(
        tuple(
            replace(
                measure_network(
                    group[0], size_bytes, workers, report, sections_of(group), prices, without_any
                ),
                names=tuple(network.name for network in group),
            )
            for group in alike
        )
    )


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


def measure_network(
    network: NamedNetwork,
    size_bytes: int = BYTES,
    workers: int | None = None,
    report: Callable[[str], None] | None = None,
    sections: Mapping[str, CollectiveSection] | None = None,
    prices: Prices | None = None,
    without_any: str | None = None,
) -> MeasuredNetwork:
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
    prices
        Of its parts; by default the scenario's, without one netfold's.
    without_any
        Pattern of switches and links: measure the network without each of them, one at a time, too.

    Raises
    ------
    NetfoldError
        The pattern matches nothing, more workers than hosts, a routing policy that is not for such a network,
        or routes that take more memory than there is.
    """
    graph = network.graph
    tell = partial(_tell, report, network) if report and len(graph) > LARGE else None
    is_of_scenario = network.variant is not None and workers is None
    placed = "workers as the scenario places them" if is_of_scenario else "workers rack by rack"
    try:
        names = network.place() if workers is None else place_workers(graph, workers, "pack")
        collectives = sections_of([network]) if sections is None else sections
        bound_s: float | None = None

        def timed_on(part: nx.Graph) -> Mapping[str, Estimate | NetfoldError]:
            nonlocal bound_s
            if len(names) < 2:
                return {}
            timed, least = _estimates(replace(network, graph=part), names, size_bytes, tell, collectives)
            bound_s = least if part is graph else bound_s
            return timed

        timed = timed_on(graph)
        losses = () if without_any is None else lose_any(graph, without_any, timed_on, tell)
    except TopologyError as error:
        message, _, hint = str(error).partition("; ")
        raise NetfoldError(message, hint) from None
    if tell is not None:
        tell("distances, bisection and paths")
    measures, unmarked = measure(graph), unmarked_ports(graph)
    if unmarked:  # what is a switch and what is inside a server is not known
        measures = measures._replace(oversubscription={})
    shown = tuple(timed if network.variant is None else collectives)
    whole = Loss("", measures.bisection, timed)
    return MeasuredNetwork(
        network.name,
        network.kind,
        measures,
        len(names),
        size_bytes,
        timed,
        network.routing.kind,
        network.seed,
        placed,
        None if unmarked else bill_of(network.whole or graph, prices or network.prices),
        losses=Losses(without_any, whole, losses, shown) if without_any is not None else None,
        bound_s=bound_s,
        unmarked=unmarked,
    )


def _tell(report: Callable[[str], None], network: NamedNetwork, what: str) -> None:
    report(f"{network.name}, {len(network.graph)} nodes: {what}")


def _estimates(
    network: NamedNetwork,
    names: list[str],
    size_bytes: int,
    tell: Callable[[str], None] | None,
    sections: Mapping[str, CollectiveSection],
) -> tuple[dict[str, Estimate | NetfoldError], float]:
    """Times with the latency of the switches' pipelines, as a run has it, and the least of any algorithm."""
    graph, known = network.graph, network.profiles
    profiles = {
        name: known[graph.nodes[name]["profile"]]
        for name in switches(graph)
        if graph.nodes[name]["profile"] in known
    }
    if tell is not None:
        tell("routes")
    compiled = with_pass_latency(compile_network(graph, available_bytes(), network.routing), profiles)
    rows = {name: row for row, name in enumerate(compiled.nodes)}
    compiled = with_work(compiled, {rows[name]: network.host_profile for name in names})
    nodes = [rows[name] for name in names]
    timed = estimates(compiled, nodes, size_bytes, network.seed, tell, sections)
    return timed, least_s(compiled, nodes, size_bytes)


def _estimate_dict(estimate: Estimate | NetfoldError) -> dict[str, Any]:
    if isinstance(estimate, NetfoldError):
        return {"seconds": None, "link": None, "busy_s": None, "latency_s": None, "why": estimate.message}
    return {**estimate._asdict(), "why": ""}


def _by_text(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(key): count for key, count in counts.items()}


# Tables of topologies and their measures.


_EXACT_COUNT = 2**53
US_PER_S = 10**6


def size_table(networks: Sequence[NamedNetwork]) -> Table:
    """A row for each network: its size, distances and bisection."""
    headings = ("variant", "kind", "hosts", "switches", "links", "diameter", "mean hops", "bisection")
    table = Table(*headings)
    for network in networks:
        measures = measure(network.graph)
        counts = (measures.hosts_count, measures.switches_count, measures.links_count, measures.diameter_hops)
        cells = (
            network.name,
            network.kind,
            *map(str, counts),
            f"{measures.mean_hops:.2f}",
            rate(measures.bisection),
        )
        table.add_row(*map(Text, cells))
    return table


@dataclass(frozen=True)
class Measurements(VerbResult):
    """Measures of one or more networks; `print` shows what `netfold topology measure` prints."""

    measured: tuple[MeasuredNetwork, ...]

    @property
    def networks(self) -> dict[str, dict[str, Any]]:
        """By name of the variant, kind or file: a mapping with all figures, as `--json` prints them.

        Variants with the same network, routes and workers share one.
        """
        return {name: network.as_dict() for network in self.measured for name in network.names}

    def as_dict(self) -> dict[str, Any]:
        return {"networks": [network.as_dict() for network in self.measured]}

    def table(self) -> Table:
        """The tables, one below the other."""
        grid = Table.grid()
        parts: list[RenderableType] = [*self.tables(), *map(Text, self.lines())]
        for part in parts:
            grid.add_row(part)
        return grid

    def tables(self) -> list[Table]:
        """A row for each measure; and, if there are any, for each estimate of an all-reduce's time."""
        table = Table("measure")
        for column in self.measured:
            table.add_column(Text(column.heading))
        for figures in (
            [_measures(network.measures) for network in self.measured],
            [_bill(network.bill) for network in self.measured],
        ):
            for name in dict.fromkeys(name for figure in figures for name in figure):
                table.add_row(name, *(Text(figure.get(name, words.NOTHING)) for figure in figures))
        return [
            table,
            *([self._estimates()] if any(network.estimates for network in self.measured) else []),
            *([self._losses()] if any(network.losses for network in self.measured) else []),
        ]

    def _losses(self) -> Table:
        """For each network what the losses cost, as the median and at worst."""
        table = Table("variant", "without any", "figure", "as it is", "median", "worst", "worst loss")
        for network in self.measured:
            if network.losses is None:
                continue
            lost = f"{network.losses.pattern} ({len(network.losses.losses)})"
            for figure, (median, worst, alike_count) in network.losses.ranks.items():
                texts = [_loss(loss, figure) for loss in (network.losses.whole, median, worst)]
                alike = f" ({alike_count - 1} more as bad)" if alike_count > 1 else ""
                table.add_row(*map(Text, (network.heading, lost, figure, *texts, worst.name + alike)))
        return table

    def _estimates(self) -> Table:
        """For each network the collectives, the fastest first."""
        headings = (
            *("workers", "collective", "estimate", "× fastest", "% of bound", "algbw", "busbw"),
            *("limited by", "link busy", "latency"),
        )
        table = Table("variant", *headings)
        for network in self.measured:
            times = [timed.seconds for timed in network.estimates.values() if isinstance(timed, Estimate)]
            for kind, timed in network.estimates.items():
                cells: tuple[str, ...] = (*[words.NOTHING] * 5, getattr(timed, "message", ""))
                if isinstance(timed, Estimate):
                    ratio = words.times(words.ratio(timed.seconds, min(times)))
                    spent = (words.time(span_s * US_PER_S) for span_s in (timed.busy_s, timed.latency_s))
                    speeds = (words.scaled(speed, "B/s") for speed in network.bandwidths(timed).values())
                    shares = ratio, words.percent(network.of_bound(timed))
                    cells = (words.time(timed.seconds * US_PER_S), *shares, *speeds, timed.link, *spent)
                table.add_row(*map(Text, (network.heading, str(network.workers), kind, *cells)))
        return table

    def lines(self) -> list[str]:
        """What the tables mean."""
        rules = dict.fromkeys(network.measures.cost.length_rule for network in self.measured)
        sizes = dict.fromkeys(SIZE.format(network.size_bytes) for network in self.measured)
        placed = dict.fromkeys(network.placed for network in self.measured)
        chosen = dict.fromkeys(
            f"routes by {network.routing} with seed {network.seed}" for network in self.measured
        )
        lines = [
            *(f"Cables by length class: {rule}." for rule in rules),
            "Price and power: of switches, network cards and cables, without what is inside servers; "
            "change them with --prices FILE.",
        ]
        lines += [
            f"Price and oversubscription of {network.heading} are unknown: links such as "
            f"{network.unmarked[0]} have the rate and delay of the inside of a server, but their switches "
            "are not marked as its ports. Give these switches `server: 0` (or any other number), or the "
            "links their rate."
            for network in self.measured
            if network.unmarked
        ]
        if any(network.measures.bisection_bps is None for network in self.measured):
            lines.append(
                "A to B: a bound from traffic over shortest paths, and the cheapest cut found between halves."
                + ("" if is_available() else " With SciPy, which is not installed, small networks are exact.")
            )
        lines.append(
            f"Estimate: closed form of an all-reduce of {', '.join(sizes)} of float32 per worker on the idle "
            f"network, without headers, windows and losses, {'; '.join([*placed, *chosen])}. It is no bound: "
            "transfers begin together in it, so a run can be faster. Link busy: the one that limits it; "
            "latency: propagation and switch delays in sequence. % of bound: the least time of any algorithm "
            "on this network over the estimate. algbw, busbw: as nccl-tests has them for an all-reduce."
        )
        if any(network.losses for network in self.measured):
            lines.append(
                "Without any: a switch or link that the pattern matches is lost, one at a time. Workers stay "
                "on their hosts, and routes are those of what is left. Worst loss: the first of those as bad."
            )
        if any(len(network.names) > 1 for network in self.measured):
            lines.append("+1: one more variant has the same network, routes and workers.")
        return lines

    def __repr__(self) -> str:
        return f"<netfold measures of {', '.join(network.heading for network in self.measured)}>"


def rate(bounds: Bounds) -> str:
    """A rate if it is known, else the bounds."""
    if bounds.exact is not None:
        return RATE.format(bounds.exact)
    return f"{RATE.format(bounds.low)} to {RATE.format(bounds.high)}"


def _loss(loss: Loss, figure: str) -> str:
    """A figure of a network without a part, or why there is none."""
    if figure == BISECTION and loss.bisection is not None:
        return rate(loss.bisection)
    seconds = loss.value(figure)
    return words.time(seconds * US_PER_S) if seconds is not None else loss.why or words.NOTHING


def _measures(measures: Measures) -> dict[str, str]:
    rows = {
        "hosts": str(measures.hosts_count),
        "switches": _list_counts(
            {f"tier {tier}": count for tier, count in measures.cost.switches_by_tier.items()}
        ),
        "links, both directions": str(measures.links_count),
        "diameter, hops": str(measures.diameter_hops),
        "mean path, hops": f"{measures.mean_hops:.3f}",
        "bisection, one direction": rate(measures.bisection),
    }
    for tier, ratio in measures.oversubscription.items():
        rows[f"oversubscription, tier {tier}"] = f"{ratio:.3g} : 1"
    if measures.diversity is not None:
        low, middle, high, disjoint = measures.diversity
        rows["shortest paths between racks"] = f"{_count(low)} to {_count(high)}, median {_count(middle)}"
        rows["disjoint paths between racks, least"] = str(disjoint)
    rows["ports of switches"] = _by_rate(measures.cost.switch_ports_by_rate)
    rows["ports of hosts"] = _by_rate(measures.cost.host_ports_by_rate)
    for length, by_rate in measures.cost.cables.items():
        rows[f"cables {length}"] = _by_rate(by_rate)
    return rows


def _bill(bill: Bill | None) -> dict[str, str]:
    if bill is None:
        return {"price": "unknown"}
    parts = ("switches", bill.switches_usd), ("network cards", bill.nics_usd), ("cables", bill.cables_usd)
    return {
        "price": words.money(bill.cost_usd),
        **{f"price of {name}": words.money(price_usd) for name, price_usd in parts},
        "power": words.scaled(bill.power_w, "W"),
        "optical cables": f"{bill.optics} of {bill.cables}",
        **({"larger than any switch with a price": str(bill.too_large)} if bill.too_large else {}),
    }


def _list_counts(counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    parts = ", ".join(f"{count} in {name}" for name, count in counts.items())
    return f"{total}: {parts}" if len(counts) > 1 else str(total)


def _by_rate(counts: Mapping[int, int]) -> str:
    return ", ".join(f"{count} × {RATE.format(rate_bps)}" for rate_bps, count in counts.items()) or "0"


def _count(value: float) -> str:
    """A number of paths: whole, or rounded if it is huge."""
    if value >= _EXACT_COUNT:
        return f"{value:.3g}"
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"
