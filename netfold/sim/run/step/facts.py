"""What an encoder may look at before the first bucket of a step, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Step, StepFact
from netfold.sim.workload import Workload

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
