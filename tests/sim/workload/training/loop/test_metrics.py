"""Metrics: which way is better, and perplexity."""

from __future__ import annotations

import math

import pytest

from netfold.sim.workload.training.loop.metrics import Metric, metric_named, register


@pytest.mark.parametrize(
    ("name", "is_share", "limit", "better"),
    [
        ("accuracy", True, 0.5, 0.51),
        ("HR@10", True, 0.5, 0.51),
        ("perplexity", False, 120, 119),
        ("loss", False, 2, 1),
    ],
)
def test_of_shares_more_is_better_and_of_others_less(
    name: str, is_share: bool, limit: float, better: float
) -> None:
    metric = metric_named(name)

    assert (metric.name, metric.is_share) == (name, is_share)
    found = [metric.reaches(value, limit) for value in (limit, better, 2 * limit - better, math.nan)]
    assert found == [True, True, False, False]


def test_others_are_plain_numbers_of_which_more_is_better_until_they_are_registered() -> None:
    assert metric_named("BLEU of a test") == Metric("BLEU of a test")
    register(Metric("edits of a test", more_is_better=False))
    assert not metric_named("edits of a test").more_is_better
