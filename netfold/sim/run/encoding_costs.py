"""Measures what a job's buckets cost, by a warm-up, for rules of fusion and for predictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import simpy

from netfold.errors import RunError
from netfold.sim.checks.checks import Journal
from netfold.sim.engine.engine import Engine
from netfold.sim.network.fabric import Fabric
from netfold.sim.network.stall import StalledError
from netfold.sim.plan.plan import FaultPlan, JobPlan, Overlap, VariantPlan
from netfold.sim.run.job import AFTER_BACKWARD, RunningJob
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.simulation import Simulation
from netfold.sim.scenario.run_limits import Plan
from netfold.sim.workload.device_rooflines import STEADY
from netfold.sim.workload.fusion import ONE_BUCKET, BySize, Fusion, NoFusion
from netfold.sim.workload.fusion_rules import Cost, Costs, Sample, Stages, Weighing
from netfold.sim.workload.layers import FLOAT_BYTES
from netfold.sim.workload.workload_keys import Workloads


def fit_stages(samples: Sequence[Sample]) -> Stages:
    """Linear costs of all stages, by least squares, over samples of several sizes."""
    sizes = [sample.elements for sample in samples]
    return Stages(*(fitted_cost(sizes, [sample[stage] for sample in samples]) for stage in (1, 2, 3)))


def fitted_cost(elements: Sequence[int], times_ps: Sequence[int]) -> Cost:
    """The cost start + element · n with the least sum of squared deviations; neither is negative.

    The deviations of such a line add up to 0, so it is right for many buckets together, even where that of a
    single small one is not on a line, as in a network of packets. Computed exactly, so it is the same on
    every machine.
    """
    count, total, total_ps = len(elements), sum(elements), sum(times_ps)
    squares = sum(size * size for size in elements)
    products = sum(size * time_ps for size, time_ps in zip(elements, times_ps, strict=True))
    spread = count * squares - total * total
    if spread == 0:  # one size does not tell a start from a rate
        return Cost(element_ps=float(Fraction(total_ps, total)))
    slope = Fraction(count * products - total * total_ps, spread)
    start = (total_ps - slope * total) / count
    if slope < 0:
        return Cost(start_ps=float(Fraction(total_ps, count)))
    if start < 0:
        return Cost(element_ps=float(Fraction(products, squares)))
    return Cost(float(start), float(slope))


# Measures what a job's buckets cost: a warm-up of the job alone, with buckets of several sizes.
#
# The warm-up is a simulation as any other, of the job's first two steps on its own network, without faults
# and without other jobs. One bucket is under way at a time, and is encoded beside the device, so what it
# takes is its own time. That holds for every codec and collective: nothing is assumed about either.
#
# The second step is what is measured. Codecs begin with a step of another kind: a round in full precision,
# an upload of everything, a choice that later steps revise. So a codec whose steps differ is predicted for
# a usual step, and its rare ones take as long as they take. A job of one step is measured in that one.


_PARTS = 8  # medium buckets of a warm-up: this share of the gradient, besides single layers and all of it
_STEPS = 2
"""Steps of a warm-up; the last one counts."""
_STAGES = ("encode", "network", "decode")
_ASSUMED = Overlap(encode="on_device", decode="last", network="in_turn")


class WarmUps:
    """The costs of the jobs of a plan, each measured once.

    Jobs that differ in nothing but the fusion of their layers and their overlap share a measurement, so a
    variant whose rule weighs nothing gets a prediction too if such a job is beside it.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: list[tuple[VariantPlan, JobPlan, Costs]] = []

    def settled(self, variant: VariantPlan, reporter: ProgressReporter) -> VariantPlan:
        # Measured if the rule of some job weighs costs. A RunError if a warm-up does not come to its end.
        if not any(_weighs(job) for other in self._plan.variants for job in other.jobs):
            return variant
        return replace(variant, jobs=tuple(self._settle_job(variant, job, reporter) for job in variant.jobs))

    def _settle_job(self, variant: VariantPlan, job: JobPlan, reporter: ProgressReporter) -> JobPlan:
        fusion = job.workload.fusion
        costs = self._costs(variant, job, _given_stages(job), reporter)
        if costs is None:
            return job
        if isinstance(fusion, Weighing):
            fusion = fusion.with_costs(costs)
        workload = replace(job.workload, fusion=fusion)
        buckets = len(fusion.partition(workload.layers))
        return replace(
            job, costs=costs, workload=workload, warnings=(*job.warnings, *_warnings(job, buckets))
        )

    def _costs(
        self, variant: VariantPlan, job: JobPlan, known_stages: Stages | None, reporter: ProgressReporter
    ) -> Costs | None:
        """Costs of a job; None if no rule asks for those of such a job."""
        for network, known, costs in self._known:
            has_such = not _weighs(job) or known_stages == _given_stages(known)
            if has_such and _are_alike(variant, job, network, known):
                return costs
        peers = [
            peer
            for other in self._plan.variants
            for peer in other.jobs
            if _weighs(peer) and _are_alike(variant, job, other, peer)
        ]
        if not peers:
            return None
        reporter.report("measures what its buckets cost")
        if not _weighs(job):
            known_stages = _given_stages(peers[0])
            job = replace(job, workload=replace(job.workload, fusion=peers[0].workload.fusion))
        costs = measure_costs(self._plan, variant, job, known_stages)
        self._known.append((variant, job, costs))
        return costs


def measure_costs(plan: Plan, variant: VariantPlan, job: JobPlan, stages: Stages | None = None) -> Costs:
    """The costs of a job of a variant: of its passes, and of its buckets unless these are given.

    Raises
    ------
    RunError
        The warm-up does not come to its end.
    """
    rules: tuple[Fusion, ...] = (ONE_BUCKET,)
    if stages is None:
        medium = BySize(-(-job.workload.elements * FLOAT_BYTES // _PARTS))
        rules = (NoFusion(), medium, ONE_BUCKET)
    jobs = [_warm_up(plan, variant, job, rule) for rule in rules]
    journals = [warmed_up.journal for warmed_up in jobs]
    step = journals[-1].steps[-1]
    samples = (
        () if stages is not None else tuple(sample for journal in journals for sample in _samples(journal))
    )
    return Costs(
        forward_ps=step.forward_end_ps - step.start_ps,
        backward_ps=step.backward_end_ps - step.forward_end_ps,
        stages=fit_stages(samples) if stages is None else stages,
        samples=samples,
        ready=jobs[-1].layer_shares,
        update_ps=jobs[-1].update_ps,
    )


def _warm_up(plan: Plan, variant: VariantPlan, job: JobPlan, rule: Fusion) -> RunningJob:
    """A job that has run its first steps, alone on its network, with workers that do not vary."""
    workload = replace(job.workload, fusion=rule)
    alone = replace(
        job, start_ps=0, steps=_steps(job), overlap=Overlap(), workload=workload, variation=STEADY
    )
    variant = replace(variant, faults=FaultPlan(), jobs=(alone,))
    environment = simpy.Environment()
    engine = Engine(variant.network, variant.seed, ())
    fabric = Fabric(environment, engine, variant.timeout_max_ps)
    running = Simulation(environment, fabric, variant, ProgressReporter(), Workloads()).start(0)
    why = ""
    try:
        fabric.run_until(running.process)
    except StalledError as error:
        why = str(error.diagnosis)
    if failure := running.failure:
        why = str(failure)
    if why:
        raise RunError(
            f"{plan.scenario.file}: {job.label}: what its buckets cost cannot be measured: {why}",
            "give the costs (workload.fusion.costs), or use a rule that weighs none: size, one or none",
        )
    return running


def _samples(journal: Journal) -> Iterator[Sample]:
    """What each bucket of the last step took, at the worker who took the longest."""
    last = journal.steps[-1].step
    times: dict[tuple[int, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for phase in journal.phases:
        if phase.step == last:
            times[phase.bucket, phase.phase][phase.worker] += phase.end_ps - phase.start_ps
    for bucket in journal.rounds:
        if bucket.step == last:
            stages_ps = [max(times[bucket.bucket, stage].values(), default=0) for stage in _STAGES]
            yield Sample(bucket.elements, *stages_ps)


def _steps(job: JobPlan) -> int:
    return min(job.steps, _STEPS)


def _weighs(job: JobPlan) -> bool:
    return isinstance(job.workload.fusion, Weighing)


def _given_stages(job: JobPlan) -> Stages | None:
    fusion = job.workload.fusion
    return fusion.given.stages() if isinstance(fusion, Weighing) and fusion.given is not None else None


def _are_alike(variant: VariantPlan, job: JobPlan, other: VariantPlan, peer: JobPlan) -> bool:
    """Whether the buckets of two jobs cost the same, however their layers are divided."""
    return (
        variant.seed == other.seed
        and _alone(job) == _alone(peer)
        and all(
            _is_same(getattr(variant.network, field.name), getattr(other.network, field.name))
            for field in fields(variant.network)
        )
    )


def _alone(job: JobPlan) -> JobPlan:
    """A job without what makes no difference to a warm-up."""
    workload = replace(job.workload, fusion=ONE_BUCKET)
    return replace(
        job,
        label="",
        workload=workload,
        steps=_steps(job),
        references=(),
        start_ps=0,
        warnings=(),
        overlap=Overlap(),
        variation=STEADY,
    )


def _is_same(first: Any, other: Any) -> bool:
    if first is other:
        return True
    if isinstance(first, np.ndarray):
        return bool(np.array_equal(first, other))
    return bool(first == other)


def _warnings(job: JobPlan, buckets: int) -> Iterator[str]:
    """What predictions of a job's steps assume, where the job does otherwise."""
    overlap = job.overlap
    is_as_assumed = replace(overlap, buckets_in_flight=1) == _ASSUMED
    if not is_as_assumed or overlap.buckets_in_flight < buckets:
        yield (
            "fusion is weighed, and steps are predicted, for overlap: {buckets_in_flight: as many as there "
            "are, encode: on_device, decode: last, network: in_turn}; this job overlaps otherwise"
        )
    if job.codec.needs & AFTER_BACKWARD:
        yield (
            "fusion is weighed, and steps are predicted, for buckets that are sent during backward; codec "
            f"{job.codec.kind} looks at all of a step's gradients before it sends the first: both are only "
            "approximate"
        )
