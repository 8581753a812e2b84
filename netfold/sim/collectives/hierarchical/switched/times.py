"""Closed forms of hierarchies with switches: see `resolve.py` for what they say."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

from netfold.sim.collectives.between_hosts import pace_of
from netfold.sim.collectives.closed_form import Estimate, Steps, estimate_of
from netfold.sim.collectives.collective import CollectiveSpec, JobContext
from netfold.sim.collectives.hierarchical.switched.shape import Shape
from netfold.sim.plan.idle_network import Pace, job_pace
from netfold.sim.plan.plan import CollectivePlan, frame_of
from netfold.topologies.network import Network, flow_key_plain


def pace_of_phases(
    shape: Shape,
    job: JobContext,
    inside: Sequence[CollectivePlan | None],
    across: Sequence[CollectivePlan | None],
) -> Pace:
    """Closed form for dense words on an idle network: the phases one after the other."""
    network, frame = job.site.network, frame_of(shape.section.frame)
    key_of = partial(flow_key_plain, job.location.scenario.seed, job.index)
    paces = [pace_of(network, job.nodes, steps, key_of, frame) for steps in shape.host_steps(job.elements)]
    longest = max(lane.share for lane in shape.lanes)
    paces += [
        _switch_pace(network, plans, share)
        for plans, share in ((inside, 1.0), (across, longest))
        if any(plans)
    ]
    if not paces:
        return pace_of(network, job.nodes, Steps([(0, 0)], 0, 1, 0), key_of, frame)
    slowest = min(paces, key=lambda one: one.elements_per_s)
    return Pace(
        1 / sum(1 / one.elements_per_s for one in paces),
        sum(one.latency_ps for one in paces),
        slowest.busiest,
    )


def _switch_pace(network: Network, plans: Sequence[CollectivePlan | None], share: float) -> Pace:
    """The pace of several jobs on switches at the same time, each with a share of the words at most."""
    found = [plan for plan in plans if plan is not None]
    trees = [tree for plan in found for tree in plan.aggregations]
    pace = job_pace(network, *trees)
    return Pace(pace.elements_per_s / len(found) / share, pace.latency_ps, pace.busiest, pace.is_windowed)


def estimate_switched(
    shape: Shape, network: Network, nodes: Sequence[int], words: int, seed: int
) -> Estimate:
    """The estimated time: the phases one after the other, of groups and of lanes at the same time.

    A link that is the busiest of several groups or lanes is busy for all of them.
    """
    phases = [estimate_of(network, nodes, steps, words, seed) for steps in shape.host_steps(words)]
    many: list[list[Estimate]] = []
    if shape.inner_spec.composable is None:
        groups = [group for group in shape.groups if len(group) > 1]
        many.append(
            [
                _part_best(shape.inner_spec, shape.section.inner, network, nodes, (one, words, seed))
                for one in groups
            ]
        )
    if shape.outer_spec.composable is None and len(shape.groups) > 1:
        lanes = [(lane.members, math.ceil(lane.share * words), seed) for lane in shape.lanes]
        many.append([_part_best(shape.outer_spec, shape.section.outer, network, nodes, one) for one in lanes])
    phases += [_together(bests) for bests in many if bests]
    if not phases:
        return Estimate(0.0, "", 0.0, 0.0)
    slowest = max(phases, key=lambda one: one.busy_s)
    return Estimate(
        sum(one.seconds for one in phases), slowest.link, slowest.busy_s, sum(one.latency_s for one in phases)
    )


def _part_best(
    spec: CollectiveSpec,
    section: Any,
    network: Network,
    nodes: Sequence[int],
    of: tuple[Sequence[int], int, int],
) -> Estimate:
    members, words, seed = of
    assert spec.estimate is not None
    return spec.estimate(section, network, [nodes[worker] for worker in members], words, seed)


def _together(bests: Sequence[Estimate]) -> Estimate:
    """The time of several at once."""
    busy: defaultdict[str, float] = defaultdict(float)
    for one in bests:
        busy[one.link] += one.busy_s
    link = max(busy, key=lambda name: busy[name])
    latency_s = max(one.latency_s for one in bests)
    return Estimate(max(busy[link] + latency_s, *(one.seconds for one in bests)), link, busy[link], latency_s)
