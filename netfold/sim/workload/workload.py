"""The protocol of workloads: a gradient per step and worker, in buckets in the order they become ready."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from netfold.errors import DataError, OptionError
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.message import Gradient, StepFact, Tensor
from netfold.kinds import family
from netfold.sim.keys import Count, Option
from netfold.sim.workload.device_rooflines import StepCost
from netfold.sim.workload.fusion import (
    ONE_BUCKET,
    AnyFusion,
    Bucket,
    Cutter,
    Fusion,
    ShortFusion,
    fuse_tensors,
    pieces_of,
)
from netfold.sim.workload.layers import Layer

if TYPE_CHECKING:
    from netfold.sim.workload.device_rooflines import Passes


ALL_FACTS = frozenset(StepFact)
FACTS_WITHOUT_TRAINING = frozenset({StepFact.ALL_BUCKETS})


class Score(NamedTuple):
    """How well a model does on data that it is not trained on."""

    metric: str  # a name that `recipe.metric_named` knows: accuracy, perplexity, HR@10 …
    value: float


class GradientSource(Protocol):
    """A resolved workload, a frozen dataclass: what is known of gradients before there are any."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def fusion(self) -> Fusion: ...

    @property
    def tensors(self) -> tuple[Tensor, ...]: ...

    @property
    def elements(self) -> int: ...

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers, in gradient-ready order; their operations are counted when it is built."""

    @property
    def facts(self) -> frozenset[StepFact]: ...

    def workload(self, workers: int, seed: int) -> Workload: ...


@family("workloads", "netfold.sim.workload.workload_keys")
@dataclass(frozen=True, kw_only=True)
class WorkloadOption(Option, ABC):
    """A source of gradients, as a scenario names it."""

    kind: ClassVar[str]
    file_key: ClassVar[str] = "path"
    """The key that errors of its file point to."""
    steps: Count | None = None
    """Optimizer steps; by default those of the file or recording. Further steps start again at its first."""
    fusion: AnyFusion = ONE_BUCKET
    """Which layers are sent together, as one bucket."""
    bucket: ShortFusion = None
    """Short for fusion by this size: {kind: size, bytes: …}."""

    @abstractmethod
    def resolved(self, folder: Path, workers: int, seed: int) -> GradientSource:
        """What it comes to for so many workers; `folder` is that of the scenario.

        Raises
        ------
        DataError
            A file that it names cannot be used.
        """


class Workload(Protocol):
    """Gradients of `workers` workers, step after step, and the use of their sum."""

    @property
    def workers(self) -> int: ...

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Parts of the gradient, each of whole layers, in gradient-ready order."""

    @property
    def cost(self) -> StepCost: ...

    def recorded(self, step: int, worker: int) -> Passes | None:
        """Times of a worker's passes that were recorded, in place of a device's; or None."""

    @property
    def loss(self) -> float | None:
        """Mean over workers of the last `gradients()`; None if nothing is trained."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results should know of the steps so far."""

    @property
    def facts(self) -> frozenset[StepFact]:
        """What it knows of a step; a codec that needs more is refused."""

    @property
    def learning_rate(self) -> float | None:
        """Step size of this step: weights −= learning_rate · sum / workers; None if nothing is trained."""

    @property
    def update_norm(self) -> float | None:
        """L2 norm, in float64, of what the last `apply` subtracted from the weights; None before it."""

    @property
    def weights(self) -> Mapping[str, NDArray[np.float32]]:
        """Trained weights by parameter, in its shape, in the order of the buckets; `apply` changes them.

        There are none if nothing is trained.
        """

    @property
    def next_step(self) -> int:
        """The step after the last `apply`; 0 before the first."""

    def gradients(self, step: int) -> Sequence[Sequence[Gradient]]:
        """Gradients as `[worker][bucket]`, 1-D and contiguous; a bucket may be made when it is asked for.

        The arrays belong to the workload: the caller must not write to them, and the call for another step
        overwrites them.
        """

    def keep_weights(self, worker: int) -> None:
        """Keep the weights as they are now for a worker, in place of those that it kept before.

        Raises
        ------
        RuntimeError
            Nothing is trained: there are no weights (see `facts`).
        """

    def kept_gradients(self, step: int, worker: int) -> Sequence[Gradient]:
        """Gradients of the worker's batch of a step at the weights it kept, `[bucket]`, float32, 1-D.

        The arrays are new; those of `gradients` stay as they are.

        Raises
        ------
        RuntimeError
            The worker has kept no weights, or nothing is trained.
        """

    def restart(self) -> None:
        """Return to the state before the first step, for another run of the same steps."""

    def apply(self, step: int, totals: Sequence[Gradient], are_updates: Sequence[bool] = ()) -> None:
        """Update the weights; `totals` has one array per bucket, `(bucket.elements,)` float32.

        A total is a sum of gradients, whose mean the optimizer takes a step with; plain SGD: weights −=
        learning_rate / workers · total. Where `are_updates` of its bucket is true it is an update, weights −=
        total, and passes the optimizer by. Without `are_updates` all are sums.
        """

    def score(self, step: int, is_last: bool) -> Score | None:
        """Test the weights after a step's `apply`, the last one of the run or not; None if no test is due."""

    def state(self) -> dict[str, Any]:
        """A copy of what later steps depend on, besides their numbers."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of a workload with the same settings, as if without a stop."""


class Untrained:
    """The part of a `Workload` without training that does not depend on its gradients.

    Parameters
    ----------
    tensors
        All tensors, one after another as in a flat gradient, in gradient-ready order.
    fusion
        What divides their layers into buckets.
    workers
        How many take part.
    ready_shares
        Share of the backward pass after which each tensor is ready; empty: not known.

    Raises
    ------
    OptionError
        The rule's options do not fit these layers.
    """

    def __init__(
        self, tensors: tuple[Tensor, ...], fusion: Fusion, workers: int, ready_shares: Sequence[float] = ()
    ) -> None:
        self._workers = workers
        self._buckets, members = fuse_tensors(tensors, fusion, ready_shares)
        self._cutter = Cutter(pieces_of(tensors, fusion), members)
        self._next_step = 0

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return self._buckets

    @property
    def cost(self) -> StepCost:
        return StepCost()

    def recorded(self, step: int, worker: int) -> Passes | None:
        return None

    @property
    def loss(self) -> float | None:
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    @property
    def facts(self) -> frozenset[StepFact]:
        return FACTS_WITHOUT_TRAINING

    @property
    def learning_rate(self) -> float | None:
        return None

    @property
    def update_norm(self) -> float | None:
        return None

    @property
    def weights(self) -> Mapping[str, NDArray[np.float32]]:
        return {}

    @property
    def next_step(self) -> int:
        return self._next_step

    def keep_weights(self, worker: int) -> None:
        raise RuntimeError("nothing is trained: there are no weights to keep")

    def kept_gradients(self, step: int, worker: int) -> list[Gradient]:
        raise RuntimeError("nothing is trained: there are no gradients at kept weights")

    def restart(self) -> None:
        # The gradients of a step depend only on its number.
        self._next_step = 0

    def apply(self, step: int, totals: Sequence[Gradient], are_updates: Sequence[bool] = ()) -> None:
        self._next_step = step + 1

    def score(self, step: int, is_last: bool) -> Score | None:
        return None

    def state(self) -> dict[str, Any]:
        return {"step": self._next_step}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._next_step = state["step"]


# Facts of a step that a codec needs and a source of gradients may not know.


def refusal_of_needs(codec: Codec, known: frozenset[StepFact], where: str) -> OptionError | None:
    # `where` is what does not know the others, as a sentence's subject: "a study".
    missing = [fact.value for fact in StepFact if fact in codec.needs - known]
    if not missing:
        return None
    listed = ", ".join(missing[:-1]) + (" and " if len(missing) > 1 else "") + missing[-1]
    return OptionError(
        "codec",
        f"{codec.kind} needs {listed}, {where} does not know {'it' if len(missing) == 1 else 'them'}",
        "use a scenario whose workload has the kind training, or another codec",
    )


# Random numbers in keyed streams, so that they do not depend on earlier draws.


def keyed(seed: int, rng_stream: str, *key: int) -> np.random.Generator:
    # `key`, such as step and worker, has numbers ≥ 0. Generators of other streams and keys are independent.
    return np.random.Generator(np.random.PCG64([seed, zlib.crc32(rng_stream.encode()), *key]))


def shards(samples: int, workers: int, seed: int) -> list[NDArray[np.int64]]:
    # Disjoint, together all samples; their sizes differ by one at most.
    if workers > samples:
        raise DataError(
            f"{workers} workers cannot share {samples} samples",
            f"use at most {samples} workers, or more data",
        )
    order = keyed(seed, "shards").permutation(samples)
    return [order[worker::workers] for worker in range(workers)]
