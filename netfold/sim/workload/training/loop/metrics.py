"""Metrics of held-out data: which way is better, and how a value is written."""

from __future__ import annotations

import math
from typing import NamedTuple


class Metric(NamedTuple):
    """What a score is a value of."""

    name: str
    more_is_better: bool = True
    is_share: bool = False  # 0 to 1, written as a percentage
    least: float = -math.inf  # no value is less

    def reaches(self, value: float, target: float) -> bool:
        """Whether a value is as good as a target, or better; what is not a number is not."""
        return value >= target if self.more_is_better else value <= target


ACCURACY = Metric("accuracy", is_share=True)
HIT_RATE = Metric("HR@10", is_share=True)
EXACT_MATCH = Metric("exact match", is_share=True)
PERPLEXITY = Metric("perplexity", more_is_better=False, least=1)
LOSS = Metric("loss", more_is_better=False)

_METRICS = {metric.name: metric for metric in (ACCURACY, HIT_RATE, EXACT_MATCH, PERPLEXITY, LOSS)}


def register(metric: Metric) -> Metric:
    """Add a metric, under its name."""
    _METRICS[metric.name] = metric
    return metric


def metric_named(name: str) -> Metric:
    """The metric of a name; of one that is not known, more is better."""
    return _METRICS.get(name, Metric(name))


def perplexity(loss: float) -> float:
    """e to the mean cross entropy per token, in nats; infinite if that is no number, or beyond a float."""
    try:
        return math.inf if math.isnan(loss) else math.exp(loss)
    except OverflowError:
        return math.inf
