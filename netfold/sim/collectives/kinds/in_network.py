"""Aggregation in switches: which of them add up, what they are asked for, and what they refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from netfold.errors import NetfoldError
from netfold.homomorphic.merge import MERGEABLE
from netfold.sim.collectives.collective import (
    Collective,
    CollectiveSpec,
    JobContext,
    Resolved,
    RunContext,
)
from netfold.sim.collectives.in_network.in_network_keys import InNetworkSection, program_choices
from netfold.sim.collectives.in_network.in_network_run import InNetwork
from netfold.sim.collectives.in_network.job_plan import InNetworkResolver, PlacedJob, tree_route
from netfold.sim.collectives.in_network.switch_resources import Switches
from netfold.sim.collectives.schedule_bound import BoundOf, tree_bound_of
from netfold.sim.collectives.schedule_costs import AUTO, WORD_BITS, Estimate, usable_bps
from netfold.sim.plan.idle_network import PredictedTime, host_bound, job_pace, wire_bound
from netfold.sim.plan.plan import CollectivePlan
from netfold.switch.fit import can_run
from netfold.switch.profiles import PROFILES
from netfold.switch.program import names_of
from netfold.topologies.network import Network, next_links, path
from netfold.units import PS_PER_S, TIME

# An estimate of the time of aggregation in switches: a tree in which every switch that can adds up.
#
# Every link of the tree carries what the switches below it could not add up: one message of each worker or of
# each switch that adds up, and as many results back. On an idle network that is
#
#     streams · M words at the rate of the busiest link, and the delays of the longest way up and down.
#
# With a switch that adds up in every rack, each link has one stream, so the time does not grow with the
# workers (Sapio et al., NSDI 2021, section 3).


ROOTS_MAX = 64
"""Roots that are compared, at most."""
_SAMPLE = 16  # racks whose distance from a root counts
_JOB = 0


class _Workers(NamedTuple):
    """Workers by the switch that they are on."""

    own_links: tuple[int, ...]
    """Each worker's link to its switch."""
    racks: Counter[int]  # workers on each switch
    route: int  # the key that selects their paths to a root
    pairs: tuple[tuple[int, int], ...]  # links inside hosts that take time: to send, and to receive

    @classmethod
    def of(cls, network: Network, nodes: Sequence[int], route: int) -> _Workers:
        links = tuple(nodes)  # a host's link has its number
        pairs = ((network.first_link(node), network.last_link(node)) for node in nodes)
        return cls(
            links,
            Counter(int(network.link_target[link]) for link in links),
            route,
            tuple(pair for pair in pairs if network.is_inside(pair[0])),
        )

    @property
    def inside(self) -> tuple[int, ...]:
        """All links inside hosts."""
        return tuple(link for pair in self.pairs for link in pair)


def estimate_in_network(
    section: Any, network: Network, nodes: Sequence[int], words: int, seed: int
) -> Estimate:
    """The least time over the nearest switches that can be the root of a tree.

    Of several trees, which have equal shares of the words, each has the root with which the busiest link of
    those so far is least busy. It assumes what `sim/collectives/schedule_costs.py` says. Of the keys, only
    the program and the number of trees count; a switch whose profile is not netfold's own adds nothing up.

    Raises
    ------
    NetfoldError
        No switch can run the program.
    """
    if len(nodes) < 2:
        return Estimate(0.0, "", 0.0, 0.0)
    profiles = {*network.profiles}
    able = {
        name for name, profile in PROFILES.items() if name in profiles and can_run(profile, section.program)
    }
    roots = [node for node, profile in enumerate(network.profiles) if profile in able]
    if not roots:
        names = ", ".join(sorted(profiles - {""}))
        raise NetfoldError(f"no switch can run {section.program}; profiles found: {names}")
    streams, estimate = Counter[int](), Estimate(0.0, "", 0.0, 0.0)
    for number in range(section.trees):
        workers = _Workers.of(network, nodes, tree_route(seed, _JOB, number))
        streams, estimate = _with_tree(network, workers, roots, streams, words / section.trees)
    return estimate


def _with_tree(
    network: Network, workers: _Workers, roots: Sequence[int], others: Counter[int], words: float
) -> tuple[Counter[int], Estimate]:
    """Add the tree with the best root to others: streams on every link, and the time for words of each."""
    slowest_bps = min(usable_bps(network, link) for link in (*workers.own_links, *workers.inside))
    choices = list[tuple[Counter[int], Estimate]]()
    for root in _nearest(network, workers, roots)[:ROOTS_MAX]:
        streams, farthest = _streams(network, workers, root, set(roots))
        streams.update(_back(network, streams))
        streams.update(others)
        link = max(streams, key=lambda tree_link: streams[tree_link] / usable_bps(network, tree_link))
        busy_s = words * WORD_BITS * streams[link] / usable_bps(network, link)
        ways_ps = 2 * sum(int(network.delay_ps[hop]) for hop in farthest)
        ways_ps += max((int(network.delay_ps[[*pair]].sum()) for pair in workers.pairs), default=0)
        latency_s = ways_ps / PS_PER_S
        choices.append((streams, Estimate(busy_s + latency_s, network.link_names[link], busy_s, latency_s)))
        trees_count = max(streams[own] for own in workers.own_links)
        if streams[link] * slowest_bps <= trees_count * usable_bps(network, link):
            break  # no tree is faster than the workers' own links, and this root is nearest
    return min(choices, key=lambda choice: choice[1].seconds)


def _back(network: Network, streams: Counter[int]) -> dict[int, int]:
    """Results on every link: as many as there are streams in the other direction."""
    links = [link for link in streams if not network.is_inside(link)]
    ends = zip(network.link_target[links].tolist(), network.link_source[links].tolist(), strict=True)
    return {next_links(network, *both)[0]: streams[link] for link, both in zip(links, ends, strict=True)}


def _nearest(network: Network, workers: _Workers, roots: Sequence[int]) -> list[int]:
    """Roots by their hops from some of the racks; ties keep their order."""
    racks = list(workers.racks)
    sample = racks[:: -(-len(racks) // _SAMPLE)]
    return sorted(
        roots, key=lambda root: sum(len(path(network, rack, root, workers.route)) for rack in sample)
    )


def _streams(
    network: Network, workers: _Workers, root: int, able: set[int]
) -> tuple[Counter[int], tuple[int, ...]]:
    """Streams on every link towards a root, and the links of the longest way of a worker.

    The same key at every switch makes the union of the ways a tree. A switch that can add up sends one
    stream, any other as many as it receives.
    """
    ways = {rack: path(network, rack, root, workers.route) for rack in workers.racks}
    into = Counter(workers.racks)
    above = {
        int(network.link_source[link]): (link, len(way) - at)
        for way in ways.values()
        for at, link in enumerate(way)
    }
    streams = Counter(dict.fromkeys((*workers.own_links, *workers.inside), 1))
    for node, (link, _) in sorted(above.items(), key=lambda uplink: -uplink[1][1]):  # the farthest first
        sent = min(into[node], 1) if node in able else into[node]
        streams[link] += sent
        into[int(network.link_target[link])] += sent
    far = max(workers.own_links, key=lambda link: len(ways[int(network.link_target[link])]))
    return streams, (far, *ways[int(network.link_target[far])])


# The specification of aggregation in switches.


KIND = "in_network"
SERVER_BYTES = 8
"""Memory per element of a parameter server's state."""


def _resolve(section: InNetworkSection, job: JobContext) -> Resolved:
    """The plan of one job, which reserves its slots on the shared switches."""
    site = job.site
    switches = site.shared_state.setdefault(
        KIND, Switches(site.network, site.profiles, site.profile_key, site.sharing)
    )
    assert isinstance(switches, Switches)
    switches.network, switches.profiles = site.network, site.profiles
    placed_job = InNetworkResolver(job, switches, section).resolve()
    site.network = switches.network
    bounds = (wire_bound(site.network, *placed_job.jobs), host_bound(site.network, *placed_job.jobs))
    return Resolved(
        _plan(placed_job, section, site.network),
        placed_job.codec,
        tuple(bound for bound in bounds if bound is not None),
        placed_job.warnings,
    )


def _as_part(section: InNetworkSection, job: JobContext) -> InNetworkSection:
    """The section of a part of another collective, whose hosts add up what switches have: sums wrap.

    Raises
    ------
    ScenarioError
        The program may deliver sums of only some workers, or needs a host of its own.
    """
    if not section.spec.is_all_or_nothing:
        able = names_of(lambda program: program.is_all_or_nothing)
        raise job.location.job_error(
            "collective.program",
            f"program {section.program} may deliver the sum of only some workers, which the rest of the "
            "hierarchy would take for that of all",
            f"use {' or '.join(able)}",
        )
    is_open = section.overflow == "auto" and section.spec.overflow is None
    return section.model_copy(update={"overflow": "wrap"}) if is_open else section


def _plan(placed: PlacedJob, section: InNetworkSection, network: Network) -> CollectivePlan:
    job, program = placed.jobs[0], placed.jobs[0].program
    window = sum(tree.slots_count for tree in placed.jobs)
    roots = {network.nodes[tree.switch] for tree in placed.jobs}  # several roots: none is settled as `switch`
    return CollectivePlan(
        kind=KIND,
        sender=replace(job.sender, window=window),
        is_timeout_released=section.timeout == "released",
        held_bytes=-(-placed.codec.lane_bits // 8) + (SERVER_BYTES if program.has_server else 0),  # results
        settled={
            **({"switch": min(roots)} if len(roots) == 1 else {}),
            **({"slots": window} if section.slots == AUTO else {}),
            **({"timeout": TIME.format(job.sender.timeout_ps)} if job.sender.timeout_ps else {}),
        },
        aggregations=placed.jobs,
        passes=placed.passes,
        has_exponents_ahead=program.has_exponents_ahead,
        needs_lossless=program.needs_lossless,
    )


def _start(plan: CollectivePlan, context: RunContext) -> Collective:
    assert plan.aggregations
    return InNetwork(context.fabric, plan.aggregations, context.job, context.ranks, plan.standby)


def _bound(plan: CollectivePlan, network: Network, nodes: Sequence[int], seed: int, job: int) -> BoundOf:
    return tree_bound_of(network, plan.aggregations)


def _predict(
    plan: CollectivePlan, network: Network, nodes: Sequence[int], seed: int, job: int
) -> PredictedTime:
    pace = job_pace(network, *plan.aggregations)
    return PredictedTime(pace.latency_ps, PS_PER_S / pace.elements_per_s, 0.0)


IN_NETWORK = CollectiveSpec(
    KIND,
    MERGEABLE,
    InNetworkSection,
    _resolve,
    _start,
    rebuilds_trees=True,
    works_anywhere=False,
    carries_absence=True,  # not with all programs
    as_part=_as_part,
    estimate=estimate_in_network,
    bound=_bound,
    predict=_predict,
    choices=program_choices,
    listed=5,
)
