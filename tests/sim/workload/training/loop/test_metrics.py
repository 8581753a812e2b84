"""Metrics: which way is better, and perplexity."""

from __future__ import annotations

import math

import pytest

from netfold.sim.workload.training.loop.metrics import Metric, metric_named, perplexity, register


@pytest.mark.parametrize("name", ["accuracy", "HR@10"])
def test_of_shares_more_is_better(name: str) -> None:
    metric = metric_named(name)

    assert (metric.name, metric.is_share) == (name, True)
    assert metric.reaches(0.5, 0.5)
    assert metric.reaches(0.51, 0.5)
    assert not metric.reaches(0.49, 0.5)
    assert not metric.reaches(math.nan, 0.5)


@pytest.mark.parametrize("name", ["perplexity", "loss"])
def test_of_these_less_is_better(name: str) -> None:
    metric = metric_named(name)

    assert (metric.name, metric.is_share) == (name, False)
    assert metric.reaches(120.0, 120.0)
    assert metric.reaches(119.0, 120.0)
    assert not metric.reaches(121.0, 120.0)
    assert not metric.reaches(math.nan, 120.0)


def test_others_are_plain_numbers_of_which_more_is_better_until_they_are_registered() -> None:
    assert metric_named("BLEU of a test") == Metric("BLEU of a test")
    register(Metric("edits of a test", more_is_better=False))
    assert not metric_named("edits of a test").more_is_better


def test_perplexity_is_e_to_the_cross_entropy() -> None:
    assert perplexity(math.log(627)) == pytest.approx(627)  # of a guess among so many words
    assert perplexity(0.0) == 1.0
    assert perplexity(1000.0) == math.inf
    assert perplexity(math.nan) == math.inf
