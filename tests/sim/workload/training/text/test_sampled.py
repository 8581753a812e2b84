"""The sampler of a sampled softmax, against its distribution and against counting."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.workload.draws import keyed
from netfold.sim.workload.training.tasks.sampled import expected_counts, log_uniform, probabilities
from tests.examples import examples
from tests.sim.workload.training.text.given import SAMPLED, module_of, task_of

pytestmark = pytest.mark.usefixtures("short_text")


@examples(30)
@given(st.integers(2, 3000), st.data())
def test_samples_are_different_words(vocabulary: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, max(1, vocabulary // 2)))
    found = log_uniform(count, vocabulary, keyed(1, "test", count))

    assert len(set(found.words.tolist())) == count == len(found.words)
    assert 0 <= found.words.min() <= found.words.max() < vocabulary
    assert found.draws >= count


@pytest.mark.parametrize("vocabulary", [1, 2, 7, 1000, 793_471])
def test_probabilities_are_a_distribution_by_rank(vocabulary: int) -> None:
    found = probabilities(np.arange(vocabulary), vocabulary)

    assert found.sum() == pytest.approx(1)
    assert np.all(np.diff(found) < 0)
    assert found[0] == pytest.approx(math.log(2) / math.log(vocabulary + 1))


def test_draws_are_those_until_the_last_sample_is_found() -> None:
    """Another sampler, one draw after the other from the same numbers, finds the same words."""
    found = log_uniform(20, 50, keyed(1, "one by one"))
    generator = keyed(1, "one by one")
    words: list[int] = []
    draws = 0
    while len(words) < 20:
        for share in generator.random(40):
            word = int(51**share) - 1
            draws += len(words) < 20
            words += [word] if word not in words and len(words) < 20 else []

    assert found.words.tolist() == words
    assert found.draws == draws


def test_expected_counts_are_those_of_counting() -> None:
    """How often each of 30 words is among those that 40 draws find, in 4,000 trials: within 5 sigma."""
    generator = keyed(1, "counting")
    cumulated = np.cumsum(probabilities(np.arange(30), 30))
    drawn = np.searchsorted(cumulated, generator.random((4_000, 40)), side="right")
    shares = np.array([(drawn == word).any(1).mean() for word in range(30)])
    expected = expected_counts(np.arange(30), 30, 40)

    assert np.all(np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / 4_000) + 1e-9)


def test_inputs_of_the_network() -> None:
    task = task_of(SAMPLED, batch=3)
    (words, classes, log_counts), targets = task.samples(4, 1)
    successors, samples = classes[:36], classes[36:]

    assert words.shape == (3, 12)
    assert torch.equal(words[:, 1:], successors.view(3, 12)[:, :-1])
    assert len(set(samples.tolist())) == 200
    assert log_counts.dtype == torch.float32
    assert torch.all(log_counts <= 0)
    assert targets.tolist() == [0] * 36
    again, other = task.samples(4, 1)[0], task.samples(4, 0)[0]
    assert torch.equal(again[1], classes)
    assert not torch.equal(other[1][36:], samples)


def test_with_all_words_sampled_equally_the_loss_is_that_of_the_softmax() -> None:
    """Without corrections, and with every other word a sample, it is no estimate."""
    task = task_of(SAMPLED, batch=1)
    module = module_of(task)
    (words, classes, _), targets = task.samples(0, 0)
    everything = torch.cat((classes[:12], torch.arange(40_000)))
    found = task.loss(module(words, everything, torch.zeros(len(everything))), targets)
    with torch.no_grad():
        exact = module.losses(words, classes[:12]).mean()  # type: ignore[operator]

    assert found.item() == pytest.approx(exact.item(), rel=1e-4)
