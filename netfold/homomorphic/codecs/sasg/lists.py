"""Codec `sasg`: uploads are lists of elements and values, which a server adds to what others sent last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import ErrorBound, FloatAddBound, RoundingBound
from netfold.homomorphic.codec import (
    BitsPerElement,
    Decoded,
    DecodeError,
    Encoder,
    Exchange,
    Origin,
    Promise,
    Server,
    State,
    part_of,
    prefixed,
    register,
)
from netfold.homomorphic.codecs.sasg.options import SasgOptions
from netfold.homomorphic.codecs.sasg.server import ServerOptions, make_server
from netfold.homomorphic.codecs.sasg.uploads import (
    FRACTION_BITS,
    Entries,
    Grid,
    Uploads,
    check_fraction_bits,
    encode_work,
    read_entries,
)
from netfold.homomorphic.message import Gradient, Merge, Message, Words, Work
from netfold.homomorphic.round import Round, Step


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

    def grid(self, workers: int) -> Grid | None:
        """The grid of the values, if they are on one."""
        bits = FRACTION_BITS if self.fraction_bits is None else self.fraction_bits
        return Grid(bits, workers) if self.aggregation == "incremental" else None

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        """Encoder of one worker, with what it holds back and what it sent last."""
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


class SasgEncoder(Encoder):
    """One worker's side.

    `residual` says nothing: what is held back is in units of the update, and unchanged where it skips.
    """

    remembers: ClassVar[str] = "uploads, and what they held back"

    def __init__(self, codec: Sasg, workers: int) -> None:
        self.rule = codec.rule(workers)
        self._codec, self._grid = codec, codec.grid(workers)
        self._uploads = Uploads(codec.share, self._grid)

    def begin(self, step: Step) -> None:
        """Decide whether to upload."""
        self.rule.begin(step)

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
        difference, place = change.difference(gradient.size), change.now.elements
        if place is not None and change.before.elements is not None:
            place = np.union1d(place, change.before.elements)
            difference = difference[place]
        return Entries(place, difference).words

    def _total(self, answer: Words, elements: int) -> Gradient:
        """The sum of all elements from a server's answer; those after its last are zero."""
        dtype = np.float32 if self._grid is None else np.int32
        found = read_entries(answer, self._codec.down == "dense", dtype, "the server")
        if found.values.size and found.end > elements:
            raise DecodeError(f"the server's sum has element {found.end - 1} of a bucket of {elements}")
        total: NDArray[Any] = np.zeros(elements, dtype)
        total[slice(found.end) if found.elements is None else found.elements] = found.values
        return total if self._grid is None else self._grid.values(total)

    def state(self) -> State:
        """The rule's state, what is held back and what was sent last."""
        return prefixed("rule", self.rule.state()) | prefixed("uploads", self._uploads.state())

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        self.rule.restore(part_of(state, "rule"))
        self._uploads.restore(part_of(state, "uploads"))
