"""Whether a variant fits the memory that there is, found before anything large is made."""

from __future__ import annotations

from dataclasses import dataclass

from homomorphic.codec import Codec
from sim.engine.model import Job, Program
from sim.memory import BASE_BYTES, UPPER_BYTES, Footprint, available_bytes, size_text
from sim.plan import RingPlan
from sim.resolve.place import Place
from sim.workload import FileSpec, SyntheticSpec, TrainingSpec, training_elements
from sim.workload.workload import FLOAT_BYTES

_NEAR = 0.9  # share of what is available from which on a codec is measured
_DRAWING_BYTES = 20  # per element while a sparse gradient is drawn: masks and places of one worker
_RING_BYTES = 16  # per element: segments under way and joined, of all workers together
_SERVER_BYTES = 8  # per element: what ATP's server keeps
_TRAINING_BYTES = 16  # per weight: the model, its gradient, its start, and what the update takes
_TRAINING_BASE_BYTES = 300 << 20  # of PyTorch
_NCF_SAMPLE = SyntheticSpec(1 << 17, 0.05, "rows", 64)  # embedding rows of a batch


@dataclass(frozen=True)
class Sized:
    """A job as far as memory goes."""

    place: Place
    workload: TrainingSpec | SyntheticSpec | FileSpec
    workers: int
    codec: Codec
    collective: RingPlan | Job

    @property
    def elements(self) -> int:
        """Of a gradient."""
        spec = self.workload
        return training_elements(spec) if isinstance(spec, TrainingSpec) else spec.elements

    @property
    def at_once(self) -> int:
        """Elements of the buckets that workers are in at the same time: two where there are several."""
        bucket_bytes = self.workload.bucket_bytes
        return self.elements if bucket_bytes is None else min(self.elements, 2 * bucket_bytes // FLOAT_BYTES)


def refuse_more_than_fits(jobs: list[Sized]) -> None:
    """Refuse a variant whose jobs take more than the memory that is available now.

    Raises
    ------
    ScenarioError
        With the estimate, what there is, and the largest that fits.
    """
    there_is = available_bytes()
    taken = float(BASE_BYTES)
    for job in jobs:
        least = _bytes(job, Footprint(0.0, 0.0))
        most = _bytes(job, Footprint(UPPER_BYTES, UPPER_BYTES))
        if taken + most <= _NEAR * there_is:
            taken += most
            continue
        needed = least if taken + least > there_is else _bytes(job, _footprint(job))
        if taken + needed > there_is:
            raise _refusal(job, needed, taken, there_is)
        taken += needed


def _footprint(job: Sized) -> Footprint:
    from sim.footprint import codec_footprint, sample_of  # late: most runs are far from any limit

    spec = job.workload
    plan = job.collective
    if isinstance(spec, FileSpec):
        sample = SyntheticSpec(spec.elements)  # dense: what it holds is not known before it is read
    else:
        sample = spec if isinstance(spec, SyntheticSpec) else _NCF_SAMPLE
    is_scaled_on_way = isinstance(plan, Job) and plan.program is Program.SWITCHML
    return codec_footprint(job.codec, sample_of(sample), is_scaled_on_way)


def _bytes(job: Sized, codec: Footprint) -> float:
    """What a job takes at its peak."""
    elements, workers, plan = job.elements, job.workers, job.collective
    gradients = FLOAT_BYTES * elements * workers
    if isinstance(plan, RingPlan):
        network = _RING_BYTES
    else:
        network = FLOAT_BYTES + (_SERVER_BYTES if plan.program is Program.ATP else 0)
    round_bytes = codec.bytes(job.at_once, workers) + network * job.at_once
    if isinstance(job.workload, TrainingSpec):
        a, b = job.workload.expand
        return gradients + round_bytes + _TRAINING_BYTES * elements + _TRAINING_BASE_BYTES + a * b
    is_sparse = isinstance(job.workload, SyntheticSpec) and job.workload.density < 1
    drawing = _DRAWING_BYTES * elements if is_sparse else 0
    return gradients + max(round_bytes, drawing)


def _refusal(job: Sized, needed: float, taken: float, there_is: int) -> Exception:
    others = taken - BASE_BYTES
    message = f"{job.elements:,} elements of {job.workers} workers take about {size_text(needed)}, "
    message += f"{size_text(max(0, there_is - taken))} of this machine's memory are free for them"
    message += f" ({size_text(others)} go to earlier jobs)" if others else ""
    share = max(0.0, (there_is - taken) / needed)
    if isinstance(job.workload, SyntheticSpec):
        hint = f"use {int(job.elements * share):,} elements at most, or fewer workers"
        return job.place.job_error("workload.elements", message, hint)
    if isinstance(job.workload, FileSpec):
        hint = f"use {max(1, int(job.workers * share))} workers at most"
        return job.place.job_error("workload.path", message, hint)
    key = "workload.expand" if job.workload.model == "ncf" else "workload.model"
    hint = f"use a model of {int(job.elements * share):,} weights at most, or fewer workers"
    return job.place.job_error(key, message, hint)
