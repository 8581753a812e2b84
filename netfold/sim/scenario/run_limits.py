"""Limits of a resolved scenario: memory, and simulated time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from netfold.errors import ScenarioError
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.message import StepFact, Tensor
from netfold.sim.engine.engine_data import BACKLOG_MAX_PS, NEVER_PS, TIME_MAX_PS
from netfold.sim.keys import Location
from netfold.sim.plan.idle_network import packet_rate_bps
from netfold.sim.plan.memory_footprint import BASE_BYTES, UPPER_BYTES, Footprint, available_bytes, size_text
from netfold.sim.plan.plan import CollectivePlan, FaultPlan, JobPlan, LinksSlower, VariantPlan
from netfold.sim.results import kept_arrays
from netfold.sim.scenario.faults import ErrorAt
from netfold.sim.scenario.load import Scenario
from netfold.sim.workload.device_rooflines import StepCost
from netfold.sim.workload.fusion import Cutter, bucket_count, fuse_tensors
from netfold.sim.workload.gradient_files import FileSpec
from netfold.sim.workload.layers import FLOAT_BYTES, is_vector, layers_of
from netfold.sim.workload.synthetic import SyntheticSpec, words_every
from netfold.sim.workload.workload import GradientSource
from netfold.sim.workload.workload_keys import Training
from netfold.topologies.graph import LINK_RANGES
from netfold.topologies.network import Network
from netfold.units import PS_PER_S, RATE, TIME, transmit_time_ps


@dataclass(frozen=True)
class Plan:
    """A scenario ready to run."""

    scenario: Scenario
    variants: tuple[VariantPlan, ...]


# Checks that a variant fits the available memory, before large arrays are allocated.


_MOST = Footprint(UPPER_BYTES, UPPER_BYTES)
_HINTED = 0.99  # share of what would fit that a hint names
_STEP_BYTES = 500
"""Bytes of records, for each step and worker."""
_ROUND_BYTES = 1000
"""Bytes of records, for each step, worker and bucket."""
_COPIES = 3  # of arrays that are kept, while their file is written
_NEAR = 0.9  # share of what is available from which on a codec is measured
_DRAWING_BYTES = 20  # per element while a sparse gradient is drawn: masks and places of one worker
_TRAINING_BYTES = 16  # per weight: the model, its start, totals up to the update, and one tensor's gradient
_LOCAL_BYTES = 8  # per weight, with local steps: a worker's own weights and their gradient
_TRAINING_BASE_BYTES = 170 << 20
"""Bytes of PyTorch itself."""
_NCF_SAMPLE = SyntheticSpec(
    1 << 19, density=0.05, pattern="rows", row_elements=64
)  # embedding rows of a batch


@dataclass(frozen=True)
class JobSize:
    """What determines the memory of a job."""

    location: Location
    workload: GradientSource
    workers: int
    codec: Codec
    collective: CollectivePlan
    steps: int = 1
    size: int | None = None  # elements of a gradient, instead of the workload's
    buckets_in_flight: int = 1
    arrays_bytes: int = 0  # that are kept of a step

    @property
    def distinct(self) -> int:
        """Gradients that are held for all workers."""
        if isinstance(self.workload, SyntheticSpec):
            return self.workload.distinct_gradients(self.workers)
        return self.workers

    @property
    def elements(self) -> int:
        return self.workload.elements if self.size is None else self.size

    @property
    def _tensors(self) -> tuple[Tensor, ...]:
        """The workload's tensors; of a gradient that is one vector, with this job's number of elements."""
        tensors = self.workload.tensors
        return (tensors[0]._replace(shape=(self.elements,)),) if is_vector(tensors) else tensors

    @cached_property
    def _largest_bucket(self) -> int:
        rule, layers = self.workload.fusion.outline, layers_of(self._tensors)
        largest = rule.full_elements(layers)
        if not is_vector(self._tensors):  # a layer larger than a full bucket is a bucket of its own
            sizes = (sum(layers[index].elements for index in members) for members in rule.partition(layers))
            largest = max(largest, *sizes)
        return largest

    @property
    def at_once(self) -> int:
        # Elements of the buckets in flight, and of one that some workers have begun and others not.
        return min(self.elements, (self.buckets_in_flight + 1) * self._largest_bucket)

    @cached_property
    def _buckets_count(self) -> int:
        return bucket_count(self._tensors, self.workload.fusion.outline)

    @property
    def with_words(self) -> int:
        """Elements of a step's buckets whose packets carry words, at most."""
        every = min(words_every(self.workload), self._buckets_count)
        return min(self.elements, -(-self._buckets_count // every) * self._largest_bucket) if every else 0

    @property
    def records_bytes(self) -> int:
        """Memory of the records of all steps, such as workers' phases, and of the arrays that are kept."""
        records_bytes = self.workers * (_STEP_BYTES + self._buckets_count * _ROUND_BYTES)
        return self.steps * (records_bytes + _COPIES * self.arrays_bytes)

    @property
    def kept_bytes(self) -> int:
        """Gradients, copies of those whose bucket is not in one place, and what a codec has workers keep."""
        held = self.elements
        if isinstance(self.workload, Training) and self.size is None:
            held = self.workload.held_elements
        gradients = FLOAT_BYTES * held * self.distinct
        if self.with_words < self.elements:  # the others are zeros; a gradient is drawn as a whole
            rows = 2 if self.with_words else 1
            gradients = FLOAT_BYTES * (rows * self.elements + self.with_words * self.workers)
        if held < self.elements:  # what is kept as rows is dense while its bucket is in flight
            gradients += FLOAT_BYTES * self.at_once * self.workers
        tensors, count = self.workload.tensors, 0
        if not isinstance(self.workload, Training) and not is_vector(tensors):
            count += Cutter(tensors, fuse_tensors(tensors, self.workload.fusion.outline)[1]).copies
        if StepFact.KEPT_WEIGHTS in self.codec.needs:
            count += 2  # weights, and gradients at them
        return gradients * (1 + count) + self._optimizer_bytes

    @property
    def _optimizer_bytes(self) -> int:
        """What optimizers remember: one for all workers, or with local steps one of each."""
        if not isinstance(self.workload, Training):
            return 0
        state_bytes = FLOAT_BYTES * self.workload.optimizer.state_floats
        if not self.workload.is_local:
            return self.elements * state_bytes
        return self.elements * (state_bytes * self.workers + _LOCAL_BYTES)

    def bytes(self, codec: Footprint, records: bool = True) -> float:
        """Peak memory, with or without the records."""
        elements, workers = self.elements, self.workers
        with_words = min(self.at_once, self.with_words)
        round_bytes = codec.bytes(with_words, workers, self.distinct)
        round_bytes += codec.bytes(self.at_once - with_words, 1)
        round_bytes += self.collective.held_bytes * self.at_once
        round_bytes += self.collective.tables_bytes
        kept_bytes = self.kept_bytes + (self.records_bytes if records else 0)
        if isinstance(self.workload, Training):
            facts = self.workload.model.facts
            more = facts.table_bytes + facts.sample_bytes * self.workload.batch
            return kept_bytes + round_bytes + _TRAINING_BYTES * elements + _TRAINING_BASE_BYTES + more
        if isinstance(self.workload, FileSpec):
            kept_bytes += self.workload.held_bytes
        is_sparse = isinstance(self.workload, SyntheticSpec) and self.workload.density < 1
        drawing = _DRAWING_BYTES * elements if is_sparse else 0
        return kept_bytes + max(round_bytes, drawing)


def sizes_of(jobs: Sequence[JobPlan], locations: Sequence[Location]) -> list[JobSize]:
    """What determines the memory of each job of a variant."""
    return [
        JobSize(
            location,
            job.workload,
            len(job.hosts),
            job.codec,
            job.collective,
            job.steps,
            buckets_in_flight=job.overlap.buckets_in_flight,
            arrays_bytes=_arrays_bytes(job).total() // job.steps,
        )
        for job, location in zip(jobs, locations, strict=True)
    ]


def most_bytes(plan: Plan) -> int:
    """Memory that a process needs to run any variant of a plan, more rather than less."""
    needs = [BASE_BYTES]
    for variant in plan.variants:
        locations = [Location(plan.scenario, variant.name, name) for name in variant.job_names]
        jobs = sum(size.bytes(_MOST) for size in sizes_of(variant.jobs, locations))
        tables = sum(
            table.nbytes for table in vars(variant.network).values() if isinstance(table, np.ndarray)
        )
        needs.append(BASE_BYTES + tables + int(jobs))
    return max(needs)


def refuse_more_than_fits(jobs: list[JobSize]) -> None:
    """Refuse a variant whose jobs need more than the memory available now.

    Networks are not counted: they are allocated already.

    Raises
    ------
    ScenarioError
        With the estimate, the free memory, and the largest size that fits.
    """
    there_is = available_bytes()
    needed_bytes = float(BASE_BYTES)
    for job in jobs:
        if needed_bytes + job.bytes(_MOST) <= _NEAR * there_is:
            needed_bytes += job.bytes(_MOST)
            continue
        codec = _footprint(job)
        if needed_bytes + job.bytes(codec) > there_is:
            raise _refusal(job, codec, needed_bytes, there_is)
        needed_bytes += job.bytes(codec)


def _arrays_bytes(job: JobPlan) -> Counter[str]:
    """What the arrays of a job take, by what is kept."""
    workers = len(job.hosts)
    rows = {"gradients": workers, "contributions": workers, "totals": 1, "weights": 1}
    step_bytes = FLOAT_BYTES * job.workload.elements
    return Counter({kept: step_bytes * rows[kept] * (job.steps + (kept == "weights")) for kept in job.keep})


def refuse_more_than_kept(plan: Plan) -> None:
    """Refuse to keep more arrays than `kept_arrays.BYTES_MAX`, of all variants and seeds together.

    Raises
    ------
    ScenarioError
        With the size of all, and of what takes most.
    """
    sizes = Counter[str]()
    for job in (job for variant in plan.variants for job in variant.jobs):
        sizes += _arrays_bytes(job)
    seeds = len(plan.scenario.each_seed())
    if seeds * sizes.total() > kept_arrays.BYTES_MAX:
        kept, size_bytes = sizes.most_common(1)[0]
        raise plan.scenario.error(
            "keep",
            f"the arrays of all variants take {size_text(seeds * sizes.total())}, {kept} alone "
            f"{size_text(seeds * size_bytes)}; a run keeps {size_text(kept_arrays.BYTES_MAX)} at most",
            f"use fewer workload.steps, leave out {kept}, or write keep below fewer variants",
        )


def _footprint(job: JobSize) -> Footprint:
    from netfold.sim.plan.memory_footprint import codec_footprint, sample_of

    spec = job.workload
    if isinstance(spec, FileSpec):
        sample = SyntheticSpec(spec.elements)  # dense, because the file is not read yet
    else:
        sample = spec if isinstance(spec, SyntheticSpec) else _NCF_SAMPLE
    gradients, is_scaled_on_way = sample_of(sample), job.collective.has_exponents_ahead
    footprint = codec_footprint(job.codec, gradients, is_scaled_on_way)
    if job.distinct == job.workers:
        return footprint
    alike = codec_footprint(job.codec, [gradients[0]] * len(gradients), is_scaled_on_way)
    return footprint._replace(again=alike.each)


def _refusal(job: JobSize, codec: Footprint, needed_bytes: float, there_is: int) -> Exception:
    others = needed_bytes - BASE_BYTES
    free = max(0.0, there_is - needed_bytes)
    room = f"{size_text(free)} of this machine's memory are free for them"
    room += f" ({size_text(others)} go to earlier jobs)" if others else ""
    values = job.bytes(codec, records=False)
    if values <= _HINTED * free:
        message = f"the records of {job.steps:,} steps of {job.workers} workers take about "
        message += (
            f"{size_text(job.records_bytes)}, {size_text(free - values)} of this machine's memory are free"
        )
        most = _largest(job.steps, lambda steps: replace(job, steps=steps).bytes(codec), free)
        return job.location.job_error("workload.steps", f"{message} for them", _at_most(most, "steps"))
    message = f"{job.elements:,} elements of {job.workers} workers take about {size_text(values)}"
    message += f" with {job.codec.kind}, {room}"  # other variants may have other codecs
    if isinstance(job.workload, FileSpec):
        most = _largest(job.workers, lambda workers: replace(job, workers=workers).bytes(codec), free)
        return job.location.job_error("workload.path", message, _at_most(most, "workers"))
    most = _largest(job.elements, lambda elements: replace(job, size=elements).bytes(codec), free)
    if isinstance(job.workload, SyntheticSpec):
        listed = "workload.profile" if job.workload.ready_shares else "workload.tensors"
        key = listed if job.workload.shapes else "workload.elements"
        key = "workload.path" if job.workload.given else key
        return job.location.job_error(key, message, _at_most(most, "elements"))
    return job.location.job_error("workload.model", message, _at_most(most, "weights", "a model of "))


def _at_most(most: int, what: str, whose: str = "") -> str:
    """A hint with the largest number that fits, if there is one."""
    fewer = "" if what == "workers" else ", or fewer workers"
    if not most:
        return f"even one of its {what} does not fit: free memory{fewer}, or use a larger machine"
    return f"use {whose}{most:,} {what} at most{fewer}"


def _largest(wanted: int, bytes_of: Callable[[int], float], free: float) -> int:
    """The largest number below `asked` that fits; 0 if none does.

    It leaves a margin because free memory varies.
    """
    fits, does_not = 0, wanted
    while does_not - fits > 1:
        middle = (fits + does_not) // 2
        if bytes_of(middle) <= _HINTED * free:
            fits = middle
        else:
            does_not = middle
    return fits


# Limits the simulated time of a plan to what int64 holds, before the run starts.
#
# The estimate is an upper bound for a run without loss: every worker's dense gradient passes the slowest
# link twice, one after the other. A run that takes longer, because packets are lost or wait, ends at the
# same limit with a verdict (`sim.network.fabric`).


LIMIT = "26 days of simulated time"  # TIME_MAX_PS
BACKLOG_LIMIT = "6 days of simulated time"  # BACKLOG_MAX_PS
_TIMES = 2  # a gradient passes a link up and down
_FRAME_SHARE = 2  # headers are no more than what they carry
_PASSES = 16  # over a gradient in memory, to encode and to decode it


def check_duration(
    job: JobPlan, location: Location, network: Network, faults: FaultPlan, index: int, rate_key: str
) -> None:
    """Check the estimated time of job number `index`; `rate_key` is the key of the links' rate.

    Raises
    ------
    ScenarioError
        Timeouts, a step, or all steps together exceed the time that can be simulated.
    """
    rate_bps = slowest_bps(network, faults)
    if (host_bps := _host_bps(network, job)) < rate_bps:
        rate_bps, rate_key = host_bps, "hosts"
    if job.collective.sender.timeout_max_ps > TIME_MAX_PS:
        raise location.error(
            rate_key,
            f"at {RATE.format(rate_bps)} a full window waits for more than {LIMIT}",
            f"use {'faster hosts' if rate_key == 'hosts' else 'a higher rate'}, or a smaller window",
        )
    parts_ps = _estimate(job, rate_bps, faults, index)
    step_ps = sum(parts_ps)
    if step_ps > TIME_MAX_PS:
        raise _too_long(parts_ps, location, rate_bps, rate_key)
    if job.start_ps + job.steps * step_ps > TIME_MAX_PS:
        most = (TIME_MAX_PS - job.start_ps) // step_ps
        raise location.job_error(
            "workload.steps",
            f"{job.steps} steps of up to {TIME.rough(step_ps)} each are more than {LIMIT}",
            f"use {most} steps at most",
        )


def check_slowed(jobs: Sequence[JobPlan], network: Network, faults: FaultPlan, error: ErrorAt) -> None:
    """Check that full windows wait for slowed links no longer than the engine's clock allows.

    Raises
    ------
    ScenarioError
        A fault's rate is too low, however short the fault is.
    """
    for index, fault in enumerate(faults.faults):
        if not isinstance(fault.effect, LinksSlower):
            continue
        link = max(fault.effect.links, key=lambda candidate: _waiting_bytes(jobs, network, candidate))
        size_bytes, rate_bps = _waiting_bytes(jobs, network, link), fault.effect.rate_bps
        if transmit_time_ps(size_bytes, rate_bps) > BACKLOG_MAX_PS:
            least = RATE.rough(-(-size_bytes * 8 * PS_PER_S // BACKLOG_MAX_PS))
            name, rate = network.link_names[link], RATE.format(rate_bps)
            raise error(
                f"faults.{index}.rate",
                f"at {rate} a full window waits for link {name} for more than {BACKLOG_LIMIT}",
                f"use {least} or more, or a smaller window",
            )


def _waiting_bytes(jobs: Sequence[JobPlan], network: Network, link: int) -> int:
    """Most bytes that full windows put on a link at once, without copies and retransmissions."""
    source = int(network.link_source[link])
    size_bytes = 0
    for job in jobs:
        sender, frame = job.collective.sender, job.collective.sender.frame
        senders = sum(host == source for host in job.hosts) if network.is_host[source] else len(job.hosts)
        size_bytes += senders * sender.window * frame.wire_bytes(frame.elements, first=True, last=True)
    buffer_bytes = int(network.buffer_bytes[link])
    is_limited = buffer_bytes > 0 and not network.is_host[source]
    return min(size_bytes, buffer_bytes) if is_limited else size_bytes


def slowest_bps(network: Network, faults: FaultPlan) -> int:
    """Rate of the slowest link for bytes, faults that never end included."""
    slowed = (fault.effect for fault in faults.faults)
    rates = [
        effect.rate_bps
        for effect in slowed
        if isinstance(effect, LinksSlower) and effect.until_ps == NEVER_PS
    ]
    return min([int(network.rate_bps[~_is_inside(network)].min()), *rates])


def _is_inside(network: Network) -> NDArray[np.bool_]:
    """(L,) links inside hosts."""
    inside: NDArray[np.bool_] = network.link_source == network.link_target
    return inside & network.is_host[network.link_source]


def _host_bps(network: Network, job: JobPlan) -> int:
    """Rate at which the slowest host works on packets of a job; very high where that takes no time."""
    frame = job.collective.sender.frame
    size_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
    inside = np.flatnonzero(_is_inside(network)).tolist()
    rates_bps = [packet_rate_bps(network, link, size_bytes, 1) for link in inside]
    return min(rates_bps, default=LINK_RANGES["rate_bps"][1])


def _estimate(job: JobPlan, rate_bps: int, faults: FaultPlan, index: int) -> tuple[int, int, int]:
    """Upper estimates of the times of compute, memory and network in a step.

    Gradients of training fit into memory, and so are not counted.
    """
    factor = max((condition.factor for condition in faults.conditions(index, len(job.hosts))), default=1)
    elements = job.workload.elements if isinstance(job.workload, SyntheticSpec | FileSpec) else 0
    passes = job.device.passes(StepCost())  # what counts operations is not known yet, and takes less
    compute_ps = passes.forward_ps + passes.backward_ps
    if isinstance(job.workload, Training):
        compute_ps *= job.workload.local_steps
    elif isinstance(job.workload, SyntheticSpec | FileSpec):
        compute_ps = job.workload.longest_ps or compute_ps
    compute_ps += job.device.update_ps(StepCost())
    memory_ps = job.device.work_ps(4 * elements * _PASSES, 0)
    size_bytes = 4 * elements * _TIMES * _FRAME_SHARE * len(job.hosts)
    return (
        -(-compute_ps * factor // 1),
        -(-memory_ps * factor // 1),
        transmit_time_ps(size_bytes, rate_bps),
    )


def _too_long(parts_ps: Sequence[int], location: Location, rate_bps: int, rate_key: str) -> ScenarioError:
    """The error for a step that exceeds the limit, at the key of its longest part."""
    _, memory_ps, network_ps = parts_ps
    seconds = f"a step takes up to {sum(parts_ps) // PS_PER_S} s, which is more than {LIMIT}"
    if network_ps == max(parts_ps):
        needed = RATE.rough(-(-rate_bps * network_ps // TIME_MAX_PS))
        hint = f"use fewer elements, or {'hosts' if rate_key == 'hosts' else 'links'} of {needed} or more"
        return location.error(rate_key, f"at {RATE.format(rate_bps)} {seconds}", hint)
    if memory_ps == max(parts_ps):
        return location.job_error("device", seconds, "use fewer elements, or a higher memory_rate")
    return location.job_error("device", seconds, "use shorter times, or a smaller factor of slow_host")
