"""When a worker uploads, and when the others go on with what it sent last.

A worker compares two gradients of the same batch: at the weights of this step, and at the weights of its
last upload. It uploads if their squared distance is above alpha / M² · Σ ‖θ_i − θ_{i−1}‖² over the last D − 1
updates, with M workers. In the first D steps all upload (warm start). A worker that has not uploaded in the
last D steps does so in any case, so uploads are at most D + 1 steps apart. The sum has D − 1 terms as in the
authors' code, which holds D sets of weights. LASG (Chen, Sun and Yin, 2020) has the rule without sparse
uploads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import State
from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Step, StepFact


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
        self._steps = 0  # begun so far
        self._waited = 0  # steps from the last upload to the next step; 0 before the first
        self._squares: deque[float] = deque(maxlen=staleness - 1)  # of the norms of the last updates

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
        self._steps, self._waited = (int(one) for one in state["steps"])
        self._squares.clear()
        self._squares.extend(float(one) for one in state["squares"])


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
