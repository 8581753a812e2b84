"""What all workers know of a round, what one worker knows of a step, and notes on them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import Gradient


class NoteKind(Enum):
    """The subject of a note."""

    CHOICE = "choice"  # the encoding that was chosen, and why
    REDO = "redo"  # parts that did not decode and were sent again
    FORECAST = "forecast"  # parts that differed from the forecast and were sent again
    ESTIMATE = "estimate"  # elements of the decoded sum that are estimates
    INFINITE = "infinite"  # elements whose true sum is beyond float32 and became an infinity


@dataclass(frozen=True)
class Note:
    """What a codec reports of one round; all workers report the same."""

    kind: NoteKind
    text: str  # a sentence without a full stop; for a choice: its name, a colon, the reason
    count: int = 1  # affected items
    total: int = 1  # all items
    elements: NDArray[np.int64] | None = None  # for estimates and infinities: their elements, ascending

    @property
    def name(self) -> str:
        """The name of the choice."""
        return self.text.partition(":")[0]


def _ignore_note(note: Note) -> None:
    """Default: notes are discarded."""


class Tensor(NamedTuple):
    """A tensor of a bucket. A layer's weight, bias and norm parameters are always in the same bucket."""

    name: str
    shape: tuple[int, ...]
    layer: str  # the name of its layer; "" if it is none's
    start: int = 0  # offset in the bucket, elements

    @property
    def elements(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)  # of any size, unlike NumPy's

    @property
    def place(self) -> slice:
        """Its elements in the bucket."""
        return slice(self.start, self.start + self.elements)


@dataclass(frozen=True)
class Round:
    """One aggregation of one bucket; the same for all workers."""

    step: int
    bucket: int
    workers: int
    seed: int
    takes_floats: bool = False  # the network adds a message's `floats` where its words overflow
    report: Callable[[Note], None] = field(default=_ignore_note, compare=False)
    tensors: tuple[Tensor, ...] = ()  # of the bucket, in order, without gaps; empty: unknown

    def tensors_of(self, gradient: Gradient) -> tuple[Tensor, ...]:
        """The tensors of the bucket; the whole gradient as one vector if they are unknown."""
        return self.tensors or (Tensor("", gradient.shape, ""),)


class StepFact(Enum):
    """A fact about a step that not every driver knows."""

    LEARNING_RATE = "the learning rate"
    UPDATE_NORM = "the norm of the last update"
    ALL_BUCKETS = "the gradients of all buckets before the first is sent"
    KEPT_WEIGHTS = "gradients at weights that a worker has kept"


def _no_kept_gradients() -> Sequence[Gradient]:
    raise RuntimeError("this driver keeps no weights: name StepFact.KEPT_WEIGHTS in the codec's `needs`")


def _keep_nothing() -> None:
    """Default: no weights are kept."""


@dataclass(frozen=True)
class Step:
    """One worker's view of a step before its first bucket."""

    number: int
    learning_rate: float | None = None  # of the sum's mean: weights −= learning_rate · sum / workers
    update_norm: float | None = None  # L2 norm of the last update of all weights; None before the first
    gradients: Sequence[Gradient] = ()  # this worker's, of every bucket; only with ALL_BUCKETS
    kept_gradients: Callable[[], Sequence[Gradient]] = _no_kept_gradients  # same batch, at the kept weights
    keep_weights: Callable[[], None] = _keep_nothing  # keep the weights of this step from now on
