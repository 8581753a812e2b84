"""How weights are learned from gradients, beside the learning rate: what a scenario says of a training."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

from netfold.errors import OptionError
from netfold.homomorphic.message import StepFact
from netfold.kinds import family, register, registered
from netfold.sim.keys import ByKind, Count, Option
from netfold.sim.workload.device_rooflines import StepCost
from netfold.sim.workload.layers import FLOAT_BYTES
from netfold.sim.workload.learning_rate import Constant, RateSchedule
from netfold.sim.workload.optimizers import Optimizer, Sgd

_PLAIN_SGD, _CONSTANT = Sgd(), Constant()


@dataclass(frozen=True, kw_only=True)
class Recipe(Option):
    """The optimizer, the schedule of its rate, and when gradients or weights are exchanged.

    With `local_steps` of 1 every step exchanges gradients, and the optimizer takes one step with their mean.
    With k each worker takes k optimizer steps of its own, with its own optimizer's state, which it keeps and
    never exchanges. Then the difference of weights is exchanged (before minus after), and all go on with the
    mean of the workers' weights: local SGD, Stich, ICLR 2019, algorithm 1.
    """

    steps: Count = 1
    """Optimizer steps; with local_steps, exchanges."""
    optimizer: Annotated[Optimizer, ByKind()] = _PLAIN_SGD
    """How the mean of the workers' gradients moves the weights."""
    schedule: Annotated[RateSchedule, ByKind()] = _CONSTANT
    """How the learning rate changes from step to step."""
    local_steps: Count = 1
    """Optimizer steps that each worker takes on weights of its own before an exchange. From 2 on it is the
    difference of its weights that is exchanged, and all go on with the mean of their weights (local SGD)."""

    @property
    def is_local(self) -> bool:
        return self.local_steps > 1

    @property
    def is_plain(self) -> bool:
        # A total moves weights by rate · total / workers, as facts on a step tell codecs.
        return self.is_local or self.optimizer.is_plain

    def cost(self, plain: StepCost, weights: int) -> StepCost:
        """The cost of a step, given that of one pass and an update by plain SGD."""
        floats = 0 if self.is_local else self.optimizer.state_floats
        update_bytes = plain.update_bytes + 2 * FLOAT_BYTES * floats * weights
        return replace(plain, passes=self.local_steps, update_bytes=update_bytes)

    @property
    def facts(self) -> frozenset[StepFact]:
        unknown = set()
        # The rate is that of weights −= rate · sum / workers. An optimizer that does something else with the
        # sum has none, and no update can be made from it.
        if not self.is_plain:
            unknown.add(StepFact.LEARNING_RATE)
        # Differences at kept weights cannot be computed again once a worker's optimizer has gone on.
        if self.is_local and self.optimizer.state_floats:
            unknown.add(StepFact.KEPT_WEIGHTS)
        return frozenset(StepFact) - unknown

    def refusal(self, codec: str, needs: frozenset[StepFact]) -> OptionError | None:
        """Why a codec of this kind, which needs these facts of a step, cannot be used; None if it can."""
        unknown, kind = needs - self.facts, self.optimizer.kind
        if StepFact.LEARNING_RATE in unknown:
            return OptionError(
                "optimizer",
                f"codec {codec} makes updates of weights, or decides by them, and takes an update to be "
                f"learning_rate · sum / workers; {kind} with these options does something else with the sum",
                "use optimizer sgd without momentum and weight_decay, or local_steps, where each worker has "
                "an optimizer of its own, or another codec",
            )
        if unknown:
            return OptionError(
                "optimizer",
                f"codec {codec} compares what a worker sends with the same from weights that it kept; with "
                f"local_steps and {kind}, which remembers past steps, that cannot be computed again",
                "use optimizer sgd without momentum, local_steps: 1, or another codec",
            )
        return None

    def warnings(self, codec: str, momentum: float) -> tuple[str, ...]:
        """Warnings about a codec of this kind that keeps so much of workers' past gradients itself."""
        if not momentum or not self.optimizer.momentum:
            return ()
        where = "workers' optimizers have" if self.is_local else "the optimizer has"
        return (
            f"momentum is taken twice: codec {codec} has workers keep {momentum:g} of theirs, and {where} "
            f"{self.optimizer.momentum:g} ({self.optimizer.kind}); set one of them to 0",
        )

    def factor(self, step: int, local: int = 0) -> float:
        # `local` is a worker's optimizer step between two exchanges.
        return self.schedule.factor(step * self.local_steps + local, self.steps * self.local_steps)


# Metrics of held-out data: which way is better, and how a value is written.


@family("scores")
class ScoreMetric(NamedTuple):
    """What a score is a value of."""

    name: str
    more_is_better: bool = True
    is_share: bool = False  # 0 to 1, written as a percentage
    least: float = -math.inf  # no value is less

    def reaches(self, value: float, target: float) -> bool:
        # What is not a number is not as good.
        return value >= target if self.more_is_better else value <= target


ACCURACY = ScoreMetric("accuracy", is_share=True)
HIT_RATE = ScoreMetric("HR@10", is_share=True)
EXACT_MATCH = ScoreMetric("exact match", is_share=True)
PERPLEXITY = ScoreMetric("perplexity", more_is_better=False, least=1)
LOSS = ScoreMetric("loss", more_is_better=False)

for _metric in (ACCURACY, HIT_RATE, EXACT_MATCH, PERPLEXITY, LOSS):
    register(_metric)


def metric_named(name: str) -> ScoreMetric:
    # Of a metric that is not known, more is better.
    metric: ScoreMetric = registered(ScoreMetric).get(name, ScoreMetric(name))
    return metric


def perplexity(loss: float) -> float:
    """e to the mean cross entropy per token, in nats; infinite if that is no number, or beyond a float."""
    try:
        return math.inf if math.isnan(loss) else math.exp(loss)
    except OverflowError:
        return math.inf
