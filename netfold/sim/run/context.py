"""What the parts of a job share: progress, calls of codecs and their errors, buckets, activities."""

from __future__ import annotations

import heapq
import inspect
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import simpy

from netfold.errors import InvariantError
from netfold.homomorphic import codec as gate
from netfold.homomorphic.codec import (
    Codec,
    ContractError,
    DecodeError,
    EncodeError,
    Encoder,
    Exchange,
    checked,
    named,
)
from netfold.homomorphic.fold import LockStepError
from netfold.homomorphic.message import Gradient, Merged, Round, Step, StepFact
from netfold.sim.collectives.collective import Collective
from netfold.sim.network.fabric import EndOfInstant, HostTimes, InstantPhase
from netfold.sim.network.stall import HAS_CRASHED
from netfold.sim.plan.plan import JobPlan, Overlap
from netfold.sim.workload import Workload
from netfold.sim.workload.fusion import pieces_of
from netfold.sim.workload.fusion_rules import Cost, Costs, predict
from netfold.sim.workload.hardware import STEADY, Device, Passes, Variation
from netfold.sim.workload.layers import is_vector, layers_of
from netfold.units import PS_PER_US

Progress = Callable[[str, float, float], None]  # activity, steps done (with a fraction), total steps

_EVERY_S = 0.1  # shortest interval between two reports


class ProgressReporter:
    """Reports the progress of one variant.

    Parameters
    ----------
    progress
        Receives the reports.
    variant
        Its name.
    done, total
        Steps of the whole run: done before this variant, and in all.
    """

    def __init__(
        self,
        progress: Progress = lambda what, done, total: None,
        variant: str = "",
        done: int = 0,
        total: int = 1,
    ) -> None:
        self._progress, self._variant = progress, variant
        self._begun, self._total = done, total
        self._share, self._reported_s = 0.0, -math.inf  # the first report is immediate

    def begin_step(self) -> None:
        """Begin the next step."""
        self._begun, self._share = self._begun + 1, 0.0
        self._send(self._variant)

    def report(self, what: str, share: float = 0.0) -> None:
        """Report the activity of the step, and the fraction that is done (it never decreases)."""
        self._share = max(self._share, min(share, 1.0))
        self._send(f"{self._variant}: {what}")

    def _send(self, what: str) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_s >= _EVERY_S:
            self._reported_s = now_s
            self._progress(what, max(self._begun - 1, 0) + self._share, self._total)


# The parts of a job, which the parts of its steps share.


@dataclass(frozen=True)
class JobParts:
    """The parts of a job."""

    label: str
    """The job's name in its records: the variant's, and its own where there are several jobs."""
    seed: int
    workload: Workload
    codec: Codec
    collective: Collective
    device: Device
    hosts: HostTimes
    host_links: list[tuple[int, int]]
    """Each worker's link rows out of and into its host."""
    reporter: ProgressReporter
    set_activity: Callable[[int, str, int], None] = lambda worker, what, until_ps: None
    """Notes what a worker does, and until when."""
    overlap: Overlap = field(default_factory=Overlap)
    variation: Variation = STEADY
    after_step: Callable[[], None] = lambda: None  # called between two steps

    @cached_property
    def passes(self) -> Passes:
        # Times of a worker, if nothing varies.
        return self.device.passes(self.workload.cost)

    @property
    def workers(self) -> int:
        return self.workload.workers


# What an encoder may look at before the first bucket of a step, and what that costs.


# With one of these, an encoder begins a step when all of the worker's gradients are ready.
AFTER_BACKWARD = frozenset({StepFact.ALL_BUCKETS, StepFact.KEPT_WEIGHTS})


class StepView:
    """One worker's view of a step, which counts the passes at kept weights."""

    def __init__(self, workload: Workload, step: int, worker: int) -> None:
        self.more_passes = 0  # forward and backward, beside those of the step
        self._workload, self._step, self._worker = workload, step, worker

    def facts(self, gradients: Sequence[Gradient]) -> Step:
        """The facts; `gradients` are those of every bucket, if they are ready."""
        workload = self._workload
        return Step(
            self._step,
            workload.learning_rate,
            workload.update_norm,
            gradients,
            self._kept_gradients,
            self._keep_weights,
        )

    def _kept_gradients(self) -> Sequence[Gradient]:
        self.more_passes += 1
        return self._workload.kept_gradients(self._step, self._worker)

    def _keep_weights(self) -> None:
        self._workload.keep_weights(self._worker)


# What a run records of the fusion of a job: the buckets, the costs, and the predicted time of a step.


def fusion_facts(job: JobPlan) -> dict[str, Any] | None:
    """The facts on a settled job as plain data; None if no rule asked for its costs."""
    costs, workload = job.costs, job.workload
    if costs is None:
        return None
    layers, partition = workload.layers, workload.fusion.partition(workload.layers)
    if is_vector(workload.tensors):
        layers = layers_of(pieces_of(workload.tensors, workload.fusion))
        partition = tuple((index,) for index in range(len(layers)))
    found = predict(layers, partition, costs)
    groups = sorted(partition, key=max)
    return {
        "rule": workload.fusion.title,
        "layers": len(layers),
        "predicted_iteration_time_us": found.step_ps / PS_PER_US,
        "costs": _costs(costs),
        "buckets": [
            {
                "layers": [layers[index].name for index in sorted(own)],
                "elements": sum(layers[index].elements for index in own),
                "encoded_us": encoded_ps / PS_PER_US,
                "arrived_us": arrived_ps / PS_PER_US,
            }
            for own, encoded_ps, arrived_ps in zip(groups, found.encoded_ps, found.arrived_ps, strict=True)
        ],
    }


def _costs(costs: Costs) -> dict[str, Any]:
    stages = costs.stages
    named = {"encode": stages.encode, "network": stages.network, "decode": stages.decode}
    return {
        "forward_us": costs.forward_ps / PS_PER_US,
        "backward_us": costs.backward_ps / PS_PER_US,
        "samples": len(costs.samples),
        "fit_error": costs.fit_error,
        "stages": {name: _cost(cost) for name, cost in named.items()},
    }


def _cost(cost: Cost) -> dict[str, float]:
    return {
        "start_us": cost.start_ps / PS_PER_US,
        "element_us": cost.element_ps / PS_PER_US,
        "sort_us": cost.sort_ps / PS_PER_US,
    }


# A unit that does one piece of work at a time, such as a worker's device.


LAST = 2**31  # rank after those of all buckets


class SerialUnit:
    """Does one piece of work at a time, without interruption.

    When it is free it takes, of the work that waits at the end of that instant, that with the lowest rank,
    and of equal ranks what asked first.
    """

    def __init__(self, environment: simpy.Environment) -> None:
        self._environment = environment
        self._waiting: list[tuple[int, int, simpy.Event]] = []  # rank, number of the request
        self._requests_count = 0
        self._is_busy = self._is_deciding = False

    def take(self, rank: int) -> simpy.Event:
        """Event at which the unit begins this work, which ends with `release`."""
        begins = self._environment.event()
        heapq.heappush(self._waiting, (rank, self._requests_count, begins))
        self._requests_count += 1
        self._decide_later()
        return begins

    def release(self) -> None:
        """End the present work."""
        self._is_busy = False
        self._decide_later()

    def _decide_later(self) -> None:
        if self._is_busy or self._is_deciding or not self._waiting:
            return
        self._is_deciding = True
        EndOfInstant(self._environment, InstantPhase.DEVICE).callbacks.append(self._decide)

    def _decide(self, _: simpy.Event) -> None:
        self._is_deciding, self._is_busy = False, True
        heapq.heappop(self._waiting)[-1].succeed()


# What every worker does now, for the diagnosis of a stall.


class Activities:
    """The activities of a job's workers: of each bucket in flight or, if there is none, of the device."""

    def __init__(self, hosts: HostTimes, workers: int, show: Callable[[int, str, int], None]) -> None:
        self._hosts, self._show = hosts, show  # `show` takes worker, text, and when that ends
        self._buckets: list[dict[int, str]] = [{} for _ in range(workers)]
        self._computing = [("", 0)] * workers  # the latest text, and when that ends
        self._step, self._left = 0, [0] * workers  # buckets that have not landed in this step

    def begin(self, step: int, buckets_count: int) -> None:
        # `buckets_count` is that of each worker.
        self._step, self._left = step, [buckets_count] * len(self._left)

    def compute(self, worker: int, what: str, now_ps: int, end_ps: int) -> None:
        """The device's passes are at a point, up to a time."""
        self._computing[worker] = what, end_ps
        if not self._buckets[worker]:
            self._report(worker, now_ps)

    def set(self, worker: int, bucket: int, what: str, until_ps: int) -> None:
        """A bucket in flight is at a point, up to a time as far as that is known."""
        self._buckets[worker][bucket] = what
        texts = self._buckets[worker]
        self._tell(worker, "; ".join(texts[one] for one in sorted(texts)), until_ps)

    def land(self, worker: int, bucket: int, now_ps: int) -> None:
        """A bucket is no longer in flight."""
        self._buckets[worker].pop(bucket, None)  # a round may have no operation
        self._left[worker] -= 1
        if not self._left[worker]:
            self._computing[worker] = f"is done with step {self._step}", now_ps
        self._report(worker, now_ps)

    def _report(self, worker: int, now_ps: int) -> None:
        texts = self._buckets[worker]
        what, end_ps = self._computing[worker]
        if texts:
            what, end_ps = "; ".join(texts[one] for one in sorted(texts)), now_ps
        self._tell(worker, what, max(now_ps, end_ps))

    def _tell(self, worker: int, what: str, until_ps: int) -> None:
        crash_ps = self._hosts.crash_ps(worker)
        if until_ps >= crash_ps:
            what, until_ps = HAS_CRASHED, crash_ps
        self._show(worker, what, until_ps)


# Errors of codecs end their variant with a verdict: where it happened, what was raised, and the traceback.
#
# Encoders are wrapped, so that everything they raise, yield or return is seen where it happens.


class CodecError(Exception):
    """A codec cannot go on; the text is the detail of the variant's verdict.

    Attributes
    ----------
    is_undecoded
        Some merged messages could not be decoded.
    trace
        For the codec's author: Python's traceback from the codec on; empty if it raised nothing.
    """

    def __init__(self, text: str, is_undecoded: bool = False, trace: str = "") -> None:
        super().__init__(text)
        self.is_undecoded, self.trace = is_undecoded, trace


def make_encoder(codec: Codec, rank: int, workers: int, seed: int) -> Encoder:
    # Errors of this encoder are `CodecError`s.
    with _placed(f"worker {rank}: `worker`", codec):
        encoder = gate.make_encoder(codec, rank, workers, seed)
    if not callable(getattr(encoder, "exchange", None)):
        raise CodecError(f"worker {rank}: the codec's `worker` returns {named(encoder)}, must be an Encoder")
    return cast(Encoder, _Watched(encoder, rank, codec))


@contextmanager
def blaming(codec: Codec, place: str) -> Iterator[None]:
    """Turn what a codec raises in a block into a `CodecError` that names the place.

    An exception is the codec's if the contract names it, or if it passed through the file of the codec's
    class; others are netfold's own.
    """
    try:
        yield
    except LockStepError as error:
        raise CodecError(f"{place}: {error}") from error
    except Exception as error:
        is_named = isinstance(error, EncodeError | DecodeError | ContractError)
        if not _is_reportable(error) or not (is_named or _passed_through(error, codec)):
            raise
        raise _reported(error, place, codec) from error


class _Watched:
    """An encoder whose errors name the worker, the round and the operation; all else is the encoder's."""

    def __init__(self, encoder: Encoder, rank: int, codec: Codec) -> None:
        self._encoder, self._rank, self._codec = encoder, rank, codec

    def begin(self, step: Step) -> None:
        with self._placed(f", step {step.number}: `begin`"):
            self._encoder.begin(step)

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        place = f", step {round.step}, bucket {round.bucket}"
        with self._placed(f"{place}, operation 0"):
            inner = checked(self._encoder.exchange(gradient, round), gradient, self._codec)
        answers: tuple[Merged, ...] | None = None
        operation, before = 0, ""
        while True:
            with self._placed(f"{place}, operation {operation}{before}"):
                try:
                    sent = next(inner) if answers is None else inner.send(answers)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
            answers = yield sent
            operation += 1
            before = f", after {' and '.join(repr(message.label) for message in sent) or 'no messages'}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._encoder, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            with self._placed(f": `{name}`"):
                return found(*arguments, **named)

        return call

    def _placed(self, place: str) -> AbstractContextManager[None]:
        return _placed(f"worker {self._rank}{place}", self._codec, self._encoder)


@contextmanager
def _placed(place: str, *of: object) -> Iterator[None]:
    """Turn what a codec raises in a block into a `CodecError` that names the place; `of`: see `_reported`."""
    try:
        yield
    except Exception as error:
        if not _is_reportable(error):
            raise
        raise _reported(error, place, *of) from error


def _is_reportable(error: Exception) -> bool:
    # These keep their meaning; all others can be a codec's.
    return not isinstance(error, MemoryError | InvariantError | CodecError)


def _reported(error: Exception, place: str, *of: object) -> CodecError:
    """The error to end with; `of` are the codec's objects, whose files say where it happened."""
    if isinstance(error, EncodeError | DecodeError):
        return CodecError(f"{error} ({place})", is_undecoded=isinstance(error, DecodeError))
    if isinstance(error, ContractError):
        return CodecError(f"{place}: {error}")
    frames = _frames(error) or _frames(error.__cause__)  # Python's own, of a generator that raised
    files = {_file_of(type(one)) for one in of}
    raised = [frame for frame in frames if frame.filename in files] or frames
    last = raised[-1] if raised else None
    where = f" ({Path(last.filename).name}, line {last.lineno}, in {last.name})" if last else ""
    what = _plain("".join(traceback.format_exception_only(error)).strip())
    short = what if len(what) <= _TEXT_MAX else f"{what[: _TEXT_MAX - 1]}…"
    for frame in frames:
        frame.filename = Path(frame.filename).name  # a run folder has the same bytes wherever netfold lies
    lines = _plain("".join(traceback.format_list(frames)))
    trace = f"Traceback (most recent call last):\n{lines}{what}\n"
    return CodecError(f"{place}: {short}{where}", trace=trace)


def _frames(error: BaseException | None) -> list[traceback.FrameSummary]:
    found = [] if error is None else traceback.extract_tb(error.__traceback__)
    return [frame for frame in found if frame.filename not in _WATCHING]


def _plain(text: str) -> str:
    # Escapes for what is not Unicode, which cannot be written.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_TEXT_MAX = 300  # characters of an exception in a verdict; the trace has all
_WATCHING = {__file__, checked.__code__.co_filename}  # frames of these tell a codec's author nothing


def _file_of(kind: type) -> str:
    """The file of a class; empty if it was made at a prompt."""
    try:
        return inspect.getfile(kind)
    except (OSError, TypeError):
        return ""


def _passed_through(error: Exception, codec: Codec) -> bool:
    file = _file_of(type(codec))
    return any(frame.filename == file for frame in traceback.extract_tb(error.__traceback__))
