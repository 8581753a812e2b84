"""SASG: sparse uploads, made only when a worker's gradient has changed enough.

After Deng, Li, Sun and Lu, IEEE Transactions on Big Data, 2024, arXiv 2112.04088, as in the notebooks of the
authors' repository xiaogdeng/SASG. Here are the rule by which workers upload, uploads, the server that adds
them up, and the published codec; `sasg_summed.py` is ours, whose uploads are summed on the way.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.block_floating_point import not_finite
from netfold.homomorphic.codec import (
    BitsPerElement,
    Codec,
    Decoded,
    DecodeError,
    EncodeError,
    Encoder,
    Exchange,
    Origin,
    Promise,
    Request,
    Server,
    State,
    part_of,
    prefixed,
    prefixes,
)
from netfold.homomorphic.codecs.topk import check_share
from netfold.homomorphic.error_bounds import ErrorBound, FloatAddBound, RoundingBound
from netfold.homomorphic.feedback import STATE_BYTES
from netfold.homomorphic.merge import WORD_MAX, Merge, Words, Work
from netfold.homomorphic.message import Gradient, Message, Round, Step, StepFact
from netfold.kernels.bits import largest
from netfold.kernels.compiled import kernel
from netfold.kinds import register

# When a worker uploads, and when the others go on with what it sent last.
#
# A worker compares two gradients of the same batch: at the weights of this step, and at the weights of its
# last upload. It uploads if their squared distance is above alpha / M² · Σ ‖θ_i − θ_{i−1}‖² over the last D
# − 1 updates, with M workers. In the first D steps all upload (warm start). A worker that has not uploaded
# in the last D steps does so in any case, so uploads are at most D + 1 steps apart. The sum has D − 1 terms
# as in the authors' code, which holds D sets of weights. LASG (Chen, Sun and Yin, 2020) has the rule
# without sparse uploads.


def facts_of(alpha: float | None) -> frozenset[StepFact]:
    """The facts of a step that the rule reads; with alpha 0 it compares nothing."""
    return frozenset({StepFact.LEARNING_RATE} if alpha == 0 else StepFact)


def check_rule(alpha: float | None, staleness: int) -> None:
    """Reject options of the rule that make no sense.

    Raises
    ------
    ValueError
        What was found, and what is allowed.
    """
    if alpha is not None and not 0 <= alpha < float("inf"):
        raise ValueError(
            f"alpha is {alpha}: must be finite and not below 0; leave it out for 1 / γ, or write 1e300 for "
            "as few uploads as staleness allows"
        )
    if staleness < 1:
        raise ValueError(f"staleness is {staleness}: must be at least 1 step, 10 is usual")


class UploadRule:
    """One worker's decisions, step by step.

    Attributes
    ----------
    uploads
        Whether the worker uploads in this step.
    has_compared
        Whether it has compared gradients for that.
    rate
        γ, float32: what a gradient is multiplied by, the learning rate over the number of workers.
    """

    def __init__(self, alpha: float | None, staleness: int, workers: int) -> None:
        self.uploads = self.has_compared = False
        self.rate = np.float32(0)
        self._alpha, self._staleness, self._workers = alpha, staleness, workers
        self._now: int | None = None  # number of the step that has begun
        self._steps = 0  # steps begun so far
        self._waited = 0  # steps from the last upload to the next step; 0 before the first
        self._squares: deque[float] = deque(maxlen=staleness - 1)  # squared norms of the last updates

    def begin(self, step: Step) -> None:
        """Decide about a step."""
        assert step.learning_rate is not None, "a driver that knows no learning rate refuses the codec"
        self.rate = np.float32(step.learning_rate / self._workers)
        if step.update_norm is not None:
            self._squares.append(step.update_norm**2)
        is_due = self._alpha == 0 or self._steps < self._staleness or self._waited > self._staleness
        self.has_compared = not is_due
        self.uploads = is_due or _squared_distance(step) > self._threshold(step.learning_rate)
        self._now, self._steps = step.number, self._steps + 1
        self._waited += 1
        if self.uploads:
            self._waited = 1
            if self._alpha != 0:
                step.keep_weights()

    def _threshold(self, learning_rate: float) -> float:
        """Largest squared distance of gradients for which nothing is sent."""
        alpha = self._workers / learning_rate if self._alpha is None else self._alpha
        return alpha / self._workers**2 * sum(self._squares)

    def require(self, step: int) -> None:
        """Require that a step has begun.

        Raises
        ------
        RuntimeError
            It has not: the driver does not call `begin`.
        """
        if step != self._now:
            raise RuntimeError(f"step {step} was not begun: call `begin` before the step's first exchange")

    def state(self) -> State:
        """Steps so far, steps waited, and the squares of norms."""
        return {"steps": np.array([self._steps, self._waited]), "squares": np.array(self._squares)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        self._steps, self._waited = (int(count) for count in state["steps"])
        self._squares.clear()
        self._squares.extend(float(square) for square in state["squares"])


def _squared_distance(step: Step) -> float:
    """Of this step's gradients, of all buckets, from those of the same batch at the kept weights."""
    pairs = zip(step.gradients, step.kept_gradients(), strict=True)
    return sum(float(_bucket_distance(now, then)) for now, then in pairs)


@kernel
def _bucket_distance(now: Gradient, then: Gradient) -> float:
    """Σ (now − then)², in float64."""
    total = 0.0
    for i in range(now.size):
        off_by = np.float64(now[i]) - np.float64(then[i])
        total += off_by * off_by
    return total


# The options that both codecs of SASG have.


WEIGHT_BYTES = 4


@dataclass(frozen=True)
class SasgOptions(Codec):
    """Who uploads, and how much."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    share: float = 0.01
    alpha: float | None = None
    staleness: int = 10

    def __post_init__(self) -> None:
        check_share(self.share)
        check_rule(self.alpha, self.staleness)

    @property
    def needs(self) -> frozenset[StepFact]:
        """What the rule reads; with alpha 0 the learning rate alone."""
        return facts_of(self.alpha)

    @property
    def state_bytes(self) -> int:
        """What is held back, and the weights of the last upload."""
        return STATE_BYTES + (WEIGHT_BYTES if StepFact.KEPT_WEIGHTS in self.needs else 0)

    def rule(self, workers: int) -> UploadRule:
        """The rule of one of some workers."""
        return UploadRule(self.alpha, self.staleness, workers)


# What an upload holds: the largest elements of every tensor, with error feedback in units of the update.
#
# A worker adds what it held back to γ · gradient, sends the largest elements of every tensor, and holds
# back the rest: sent + held back now = γ · gradient + held back before, exactly, in float32. A worker that
# does not upload holds back the same as before, and discards its gradient.


FRACTION_BITS = 24
FRACTION_BITS_MAX = 60  # a step of 2**-60 and sums of int32 stay normal float32 numbers


def count_of(share: float, elements: int) -> int:
    """Elements of a tensor that an upload holds: the share rounded down, but at least one if it has any."""
    return min(elements, max(1, math.floor(share * elements)))


class SparseEntries(NamedTuple):
    """Elements of a bucket and their values; with `elements` None all, in order."""

    elements: NDArray[np.uint32] | None  # ascending
    values: NDArray[Any]  # float32, or int32 multiples of a grid's step

    @property
    def place(self) -> Any:
        """What selects the elements in an array of all."""
        return slice(None) if self.elements is None else self.elements

    @property
    def words(self) -> Words:
        """As words of a message: elements, if they are not all, then values."""
        bits: Words = self.values.view(np.uint32)
        return bits.copy() if self.elements is None else np.concatenate([self.elements, bits])

    @property
    def end(self) -> int:
        """The element after the last."""
        return self.values.size if self.elements is None else int(self.elements[-1]) + 1

    def dense(self, elements: int) -> NDArray[Any]:
        """The values of all elements, zero where there are none."""
        dense = np.zeros(elements, self.values.dtype)
        dense[self.place] = self.values
        return dense


def read_entries(words: Words, is_whole: bool, dtype: type[np.generic], sender: str) -> SparseEntries:
    """The entries of a message that has words.

    Raises
    ------
    DecodeError
        The words are no such list.
    """
    if is_whole:
        return SparseEntries(None, words.view(dtype))
    if words.size % 2:
        raise DecodeError(f"{sender} sends {words.size} words: elements and values need an even number")
    elements, values = np.split(words, 2)
    if (elements[1:] <= elements[:-1]).any():
        raise DecodeError(f"{sender} sends elements that are not in ascending order")
    return SparseEntries(elements, values.view(dtype))


@dataclass(frozen=True)
class StepGrid:
    """Multiples of a step 2**−fraction_bits, small enough that differences of all workers add up in int32.

    A float32 is either finer than the step, and rounded to a multiple of it, or a multiple already. So values
    on the grid are float32 numbers, and what rounding leaves is one too.
    """

    fraction_bits: int
    workers: int

    @property
    def limit(self) -> int:
        """The largest multiple that one worker may have."""
        return WORD_MAX // (2 * self.workers)

    def integers(self, values: Gradient) -> NDArray[np.int32]:
        """The nearest multiples; ties go to even ones.

        Raises
        ------
        EncodeError
            A value is too large.
        """
        multiples = np.rint(np.ldexp(values.astype(np.float64), self.fraction_bits))
        if values.size and (largest_one := float(np.abs(multiples).max())) > self.limit:
            most = math.ldexp(self.limit, -self.fraction_bits)
            magnitude = math.ldexp(largest_one, -self.fraction_bits)
            raise EncodeError(
                f"an element of an upload is {magnitude:g}: with {self.workers} workers and fraction_bits "
                f"{self.fraction_bits} the largest is {most:g}; lower the learning rate, or use fewer bits"
            )
        return multiples.astype(np.int32)

    def values(self, integers: NDArray[np.int32]) -> Gradient:
        """The float32 nearest to each multiple."""
        return np.ldexp(integers.astype(np.float32), -self.fraction_bits)


def check_fraction_bits(fraction_bits: int) -> None:
    """Reject a step that is above 1 or too small.

    Raises
    ------
    ValueError
        It is.
    """
    if not 0 <= fraction_bits <= FRACTION_BITS_MAX:
        raise ValueError(
            f"fraction_bits is {fraction_bits}: must be from 0 to {FRACTION_BITS_MAX}, "
            f"{FRACTION_BITS} is usual"
        )


class Change(NamedTuple):
    """One worker's upload: what it contributes from now on, and what it contributed before."""

    now: SparseEntries
    before: SparseEntries | None  # None: nothing

    def difference(self, elements: int) -> NDArray[np.int32]:
        """Now minus before, of a bucket of so many elements on a grid."""
        change: NDArray[np.int32] = self.now.dense(elements)
        if self.before is not None:
            change[self.before.place] -= self.before.values
        return change


class Uploads:
    """What one worker holds back and what it sent last, bucket by bucket; values on a grid if it has one."""

    def __init__(self, share: float, grid: StepGrid | None = None) -> None:
        self._share, self._grid = share, grid
        self._held: dict[int, Gradient] = {}
        self._last: dict[int, SparseEntries] = {}

    def upload(self, gradient: Gradient, rate: np.float32, round: Round) -> Change:
        """Choose what to send of a gradient and of what was held back; hold back the rest.

        Raises
        ------
        EncodeError
            An element is NaN, infinite, or too large for the grid.
        ValueError
            The bucket had another length before.
        """
        owed = self._add_residual(gradient, rate, round.bucket)
        if not np.isfinite(owed).all():
            raise EncodeError(not_finite(gradient if not np.isfinite(gradient).all() else owed))
        elements = None if self._share == 1 else self._choose(owed, round)
        selection = slice(None) if elements is None else elements
        values = owed[selection].copy()
        integers = None if self._grid is None else self._grid.integers(values)
        owed[selection] -= values if integers is None or self._grid is None else self._grid.values(integers)
        before, self._held[round.bucket] = self._last.get(round.bucket), owed
        self._last[round.bucket] = SparseEntries(elements, values if integers is None else integers)
        return Change(self._last[round.bucket], before)

    def _add_residual(self, gradient: Gradient, rate: np.float32, bucket: int) -> Gradient:
        """γ · gradient and what was held back, in a new array."""
        residual = self._held.get(bucket)
        if residual is not None and residual.size != gradient.size:
            raise ValueError(
                f"bucket {bucket} has {gradient.size} elements and had {residual.size}: a bucket with error "
                "feedback keeps its length"
            )
        with np.errstate(over="ignore"):
            owed: Gradient = gradient * rate
            if residual is not None:
                owed += residual
        return owed

    def _choose(self, owed: Gradient, round: Round) -> NDArray[np.uint32]:
        """The largest elements of every tensor, in ascending order."""
        parts = [
            tensor.start + largest(owed[tensor.place], count_of(self._share, tensor.elements))
            for tensor in round.tensors_of(owed)
        ]
        return np.concatenate(parts).astype(np.uint32)

    def contribution(self, bucket: int, elements: int) -> Gradient:
        """What the worker sent last, as float32 values of all elements."""
        if bucket not in self._last:
            return np.zeros(elements, np.float32)
        upload = self._last[bucket].dense(elements)
        return upload if self._grid is None else self._grid.values(upload)

    def state(self) -> State:
        """What is held back and what was sent last, by bucket."""
        state = {f"held/{bucket}": held.copy() for bucket, held in self._held.items()}
        for bucket, last in self._last.items():
            state |= entries_state(last, f"last/{bucket}")
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        held = {name.split("/")[1]: array for name, array in state.items() if name.startswith("held/")}
        self._held = {int(bucket): np.array(residual, np.float32) for bucket, residual in held.items()}
        self._last = {int(bucket): entries_from(state, f"last/{bucket}") for bucket in held}


def entries_state(entries: SparseEntries, name: str) -> State:
    """Entries as arrays whose names begin with this one."""
    state: State = {f"{name}/values": entries.values.copy()}
    return state if entries.elements is None else {**state, f"{name}/elements": entries.elements.copy()}


def entries_from(state: Mapping[str, NDArray[Any]], name: str) -> SparseEntries:
    """Entries from arrays whose names begin with this one."""
    elements = state.get(f"{name}/elements")
    return SparseEntries(None if elements is None else elements.copy(), state[f"{name}/values"].copy())


def encode_work(rule: UploadRule, gradient: Gradient, words_bytes: int) -> Work:
    """Work of one worker in one bucket before it sends: comparing gradients, and making an upload.

    A comparison reads two gradients. An upload reads the gradient and what was held back, writes their sum,
    reads it twice to select (as `topk`), and clears what is sent.
    """
    compared = 2 * gradient.nbytes if rule.has_compared else 0
    flops = 3 * gradient.size if rule.has_compared else 0
    launches = int(rule.has_compared) + int(rule.uploads)
    if not rule.uploads:
        return Work(compared, 0, flops, launches)
    written = gradient.nbytes + 2 * words_bytes
    return Work(compared + 4 * gradient.nbytes, written, flops + 2 * gradient.size, launches)


# Where uploads meet: the sum of what every worker sent last, kept worker by worker or as one sum.
#
# A dense answer has all elements of the bucket. Where the bucket's tensors are unknown, it ends with the last
# element that any worker has sent so far; the elements after it are zero.


class ServerOptions(NamedTuple):
    """What a server reads, keeps and sends."""

    is_whole: bool  # uploads have all elements
    is_incremental: bool
    sends_union: bool


def make_server(options: ServerOptions) -> Server:
    """The server part of these options."""
    return RunningSum(options) if options.is_incremental else LastUploads(options)


class _Summing(Server):
    """A server whose answer is a sum of all elements, or those of it that some worker has."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self._work = Work()  # work of the last merge

    def read(self, parts: Sequence[Words], dtype: type[np.generic]) -> dict[int, SparseEntries]:
        """The uploads that arrived, by worker."""
        is_whole = self.options.is_whole
        return {
            rank: read_entries(part, is_whole, dtype, f"worker {rank}")
            for rank, part in enumerate(parts)
            if part.size
        }

    def work(self, parts: Sequence[Words], answer: Words) -> Work:
        """That of the last merge: what was added, and the sum that was written and sent."""
        return self._work

    def answer(self, total: NDArray[Any], members: NDArray[np.bool_] | None, read_bytes: int) -> Words:
        """A sum as words; of `members` alone if only they are sent. Remembers the work."""
        words = SparseEntries(None, total).words
        if members is not None:
            elements = np.flatnonzero(members).astype(np.uint32)
            words = SparseEntries(elements, total[elements]).words
        self._work = Work(read_bytes, total.nbytes + words.nbytes, flops=read_bytes // 4)
        return words

    @abstractmethod
    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        """As published: the sum of the last uploads of all workers."""


class LastUploads(_Summing):
    """Keeps every worker's last upload, and adds them up in the order of ranks, in float32."""

    def __init__(self, options: ServerOptions) -> None:
        super().__init__(options)
        self._last: dict[int, dict[int, SparseEntries]] = {}  # last uploads by bucket and worker

    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        """Replace the uploads of those who sent one; add up all."""
        last = self._last.setdefault(request.bucket, {})
        last |= {rank: _copy(upload) for rank, upload in self.read(parts, np.float32).items()}
        end = max(_elements(request), 0, *(upload.end for upload in last.values()))
        total, members = np.zeros(end, np.float32), np.zeros(end, np.bool_)
        for rank in sorted(last):
            total[last[rank].place] += last[rank].values
            members[last[rank].place] = True
        read_bytes = sum(upload.words.nbytes for upload in last.values())
        return self.answer(total, members if self.options.sends_union else None, read_bytes)

    def state(self) -> State:
        """Every worker's last upload, by bucket."""
        state: State = {}
        for bucket, last in self._last.items():
            for rank, upload in last.items():
                state |= entries_state(upload, f"{bucket}/{rank}")
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._last = {
            int(bucket): {
                int(rank): entries_from(state, f"{bucket}/{rank}")
                for rank in prefixes(part_of(state, bucket))
            }
            for bucket in prefixes(state)
        }


class RunningSum(_Summing):
    """Keeps the sum of all workers' last uploads, as integers, and adds the differences that arrive."""

    def __init__(self, options: ServerOptions) -> None:
        super().__init__(options)
        self._sums: dict[int, NDArray[np.int32]] = {}  # sums by bucket

    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        """Add the differences of those who sent one."""
        changes = self.read(parts, np.int32)
        sum_words = self._sums.get(request.bucket, np.zeros(0, np.int32))
        end = max(_elements(request), sum_words.size, *(entries.end for entries in changes.values()))
        total = np.zeros(end, np.int32)
        total[: sum_words.size] = sum_words
        for change in changes.values():
            total[change.place] += change.values
        self._sums[request.bucket] = total
        read_bytes = sum_words.nbytes + sum(part.nbytes for part in parts)
        return self.answer(total, total != 0 if self.options.sends_union else None, read_bytes)

    def state(self) -> State:
        """The sums, by bucket."""
        return prefixed("sum", {str(bucket): total.copy() for bucket, total in self._sums.items()})

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._sums = {int(bucket): total.copy() for bucket, total in part_of(state, "sum").items()}


def _elements(request: Request) -> int:
    # 0 if the bucket's tensors are unknown.
    return sum(tensor.elements for tensor in request.tensors)


def _copy(entries: SparseEntries) -> SparseEntries:
    """Entries in memory of their own: words that arrive belong to others."""
    elements = None if entries.elements is None else entries.elements.copy()
    return SparseEntries(elements, entries.values.copy())


# Codec `sasg`: uploads are lists of elements and values, which a server adds to what others sent last.


@register
@dataclass(frozen=True)
class Sasg(SasgOptions):
    """The largest elements of workers whose gradients have changed; of the others, their last uploads.

    A worker's values are γ · gradient, where γ is the learning rate over the number of workers. The total is
    the sum of the last uploads of all workers, which is subtracted from the weights. With share 1 this is
    LASG, with alpha 0 top-k SGD with error feedback, with both plain SGD.

    share: elements of every tensor that an upload holds, rounded down; at least one.
    alpha: coefficient of the threshold; left out, 1 / γ. 0: every worker uploads in every step.
    staleness: steps that a worker may skip before it must upload (D); also the steps of the warm start.
    aggregation: what the server keeps and workers send. last: every worker's last upload; incremental: their
        sum, to which a worker adds the difference of its uploads, in integers, so that it is exact.
    down: what a server sends. dense: all elements; union: those in some last upload, as elements and values.
    fraction_bits: incremental: values are multiples of 2^-fraction_bits; left out, 24.
    """

    kind: ClassVar[str] = "sasg"
    origin: ClassVar[Origin] = Origin("published", "Deng et al., IEEE Trans. Big Data 2024, arXiv 2112.04088")
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.GATHER})

    aggregation: Literal["last", "incremental"] = "last"
    down: Literal["dense", "union"] = "dense"
    fraction_bits: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fraction_bits is None:
            return
        check_fraction_bits(self.fraction_bits)
        if self.aggregation != "incremental":
            raise ValueError(
                f"fraction_bits belongs to aggregation incremental, found {self.aggregation}; remove it"
            )

    @property
    def promise(self) -> Promise:
        """Sums of integers are exact."""
        return Promise.EXACT if self.aggregation == "incremental" else Promise.BOUNDED

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """Of last uploads: float32 additions in the order of ranks. Of a running sum: one rounding."""
        workers = len(contributions)
        return FloatAddBound(workers) if self.promise is Promise.BOUNDED else RoundingBound(workers)

    def grid(self, workers: int) -> StepGrid | None:
        """The grid of the values, if they are on one."""
        bits = FRACTION_BITS if self.fraction_bits is None else self.fraction_bits
        return StepGrid(bits, workers) if self.aggregation == "incremental" else None

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return SasgEncoder(self, workers)

    def server(self, workers: int, seed: int) -> Server:
        """What adds up the last uploads."""
        is_incremental = self.aggregation == "incremental"
        return make_server(ServerOptions(self.share == 1, is_incremental, self.down == "union"))

    def bits_per_element(self, workers: int) -> BitsPerElement | None:
        """Known if every worker uploads in every step, and the rest does not depend on the gradients."""
        if self.alpha != 0 or self.aggregation == "incremental" or self.down == "union":
            return None
        return BitsPerElement(32.0 if self.share == 1 else 64 * self.share, 32.0)


class UploadEncoder(Encoder):
    """One worker that uploads by a rule, and remembers what it sent last.

    `residual` says nothing: what is held back is in units of the update, and unchanged where it skips.
    """

    remembers: ClassVar[str] = "uploads, and what they held back"

    def __init__(self, codec: SasgOptions, workers: int, grid: StepGrid | None) -> None:
        self.rule = codec.rule(workers)
        self._uploads = Uploads(codec.share, grid)

    def begin(self, step: Step) -> None:
        self.rule.begin(step)

    def state(self) -> State:
        """The rule's state, what is held back and what was sent last."""
        return prefixed("rule", self.rule.state()) | prefixed("uploads", self._uploads.state())

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.rule.restore(part_of(state, "rule"))
        self._uploads.restore(part_of(state, "uploads"))


class SasgEncoder(UploadEncoder):
    """One worker's side."""

    def __init__(self, codec: Sasg, workers: int) -> None:
        self._codec, self._grid = codec, codec.grid(workers)
        super().__init__(codec, workers, self._grid)

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send an upload, or nothing; receive the sum of the last uploads of all workers.

        Raises
        ------
        EncodeError
            An element is NaN, infinite, or too large for the grid.
        DecodeError
            The server's answer is no sum of such uploads.
        RuntimeError
            The step has not begun.
        """
        self.rule.require(round.step)
        if not gradient.size:
            return Decoded(np.zeros(0, np.float32), np.zeros(0, np.float32), is_update=True)
        words = self._words(gradient, round) if self.rule.uploads else np.empty(0, np.uint32)
        (merged,) = yield (
            Message(
                words,
                Merge.GATHER,
                "upload",
                encode_work(self.rule, gradient, words.nbytes),
                decode_work=Work(gradient.nbytes, gradient.nbytes),
            ),
        )
        if merged.parts:
            raise DecodeError("uploads arrived one by one: sasg needs a driver that runs its server part")
        contribution = self._uploads.contribution(round.bucket, gradient.size)
        return Decoded(self._total(merged.words, gradient.size), contribution, is_update=True)

    def _words(self, gradient: Gradient, round: Round) -> Words:
        """An upload as words: itself or, on a grid, its difference from the last one."""
        change = self._uploads.upload(gradient, self.rule.rate, round)
        if self._grid is None or change.before is None:
            return change.now.words
        difference, elements = change.difference(gradient.size), change.now.elements
        if elements is not None and change.before.elements is not None:
            elements = np.union1d(elements, change.before.elements)
            difference = difference[elements]
        return SparseEntries(elements, difference).words

    def _total(self, answer: Words, elements: int) -> Gradient:
        """The sum of all elements from a server's answer; those after its last are zero."""
        dtype = np.float32 if self._grid is None else np.int32
        entries = read_entries(answer, self._codec.down == "dense", dtype, "the server")
        if entries.values.size and entries.end > elements:
            raise DecodeError(f"the server's sum has element {entries.end - 1} of a bucket of {elements}")
        total: NDArray[Any] = np.zeros(elements, dtype)
        total[slice(entries.end) if entries.elements is None else entries.elements] = entries.values
        return total if self._grid is None else self._grid.values(total)
