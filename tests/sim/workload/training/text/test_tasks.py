"""Language models' and questions' batches and tests on held-out text, against what they must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from netfold.sim.errors import DataError
from netfold.sim.workload.training.data.wordpiece import CLASSIFY, SEPARATE
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.training.tasks.language import LanguageTask, perplexity
from netfold.sim.workload.training.tasks.questions import LONGEST, SHORTEST, QuestionsTask, asked
from netfold.sim.workload.training.tasks.windows import HELD_OUT, PAGE, Windows
from tests.examples import examples

VOCABULARY = 9


class Told(nn.Module):
    """Gives what a function says."""

    def __init__(self, told: Callable[..., Tensor]) -> None:
        super().__init__()
        self.told = told

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.told(*inputs)


def settings(
    batch: int = 4, workers: int = 3, seed: int = 5, holds_out: bool = False, data: str = "some"
) -> TaskSettings:
    return TaskSettings(data, batch, workers, seed, holds_out)


def text_of(size: int, seed: int = 0) -> NDArray[np.int64]:
    """Random tokens, the small ones more often."""
    return np.minimum(np.random.default_rng(seed).geometric(0.4, size) - 1, VOCABULARY - 1).astype(np.int64)


def rows(array: Any) -> set[tuple[int, ...]]:
    return set(map(tuple, array.tolist()))


@examples(50)
@given(st.integers(10, 9000), st.integers(2, 12), st.integers(1, 5), st.booleans())
def test_windows_are_neighbours_and_held_out_ones_are_not_drawn(
    size: int, window: int, workers: int, holds_out: bool
) -> None:
    text = np.arange(size)
    count = size // window
    pages = -(-count // PAGE)
    held = -(-pages // HELD_OUT) if holds_out else 0
    if count - held * PAGE < workers:  # too short
        return
    windows = Windows(text, window, settings(200, workers, holds_out=holds_out), tested=10**9)
    drawn = [rows(windows.drawn(0, worker)) for worker in range(workers)]
    tested = rows(windows.tested)
    every = {tuple(range(start, start + window)) for start in range(0, size - window + 1, window)}

    for own in (*drawn, tested):
        assert own <= every
    for one in range(workers):
        assert not drawn[one] & tested
        assert all(not drawn[one] & drawn[other] for other in range(one))
    assert len({row[0] // window // PAGE for row in tested}) == held
    assert (held - 1) * PAGE < len(tested) <= held * PAGE or not held


def test_the_same_text_is_held_out_for_all_and_a_part_of_it_is_tested() -> None:
    text = np.arange(400_000)
    found = [
        Windows(text, 10, settings(1, workers, seed, holds_out=True), tested=100).tested
        for workers, seed in ((1, 1), (8, 2))
    ]
    whole = Windows(text, 10, settings(holds_out=True), tested=10**9).tested

    assert np.array_equal(*found)
    assert len(found[0]) == 100
    assert rows(found[0]) <= rows(whole)
    assert len(whole) == pytest.approx(40_000 / HELD_OUT, rel=0.05)
    assert np.ptp(found[0]) > 200_000  # from all over the text
    windows = Windows(np.arange(1000), 10, settings(2000, 2), tested=5)  # without tests all is trained
    assert len(rows(windows.drawn(0, 0)) | rows(windows.drawn(0, 1))) == 100
    assert not len(windows.tested)
    Windows(np.arange(30), 10, settings(workers=3), tested=5)
    with pytest.raises(DataError, match="3 workers cannot share 2 samples"):
        Windows(np.arange(29), 10, settings(workers=3), tested=5)


def language(holds_out: bool = False, time: int = 7, size: int = 20_000) -> LanguageTask:
    return LanguageTask(text_of(size), nn.Module, settings(holds_out=holds_out), time)


def test_a_target_is_the_next_token() -> None:
    task = LanguageTask(np.arange(20_000), nn.Module, settings(), 7)
    (tokens,), targets = task.samples(2, 1)

    assert tokens.shape == targets.shape == (4, 7)
    assert torch.equal(targets, tokens + 1)
    assert torch.equal(tokens, task.samples(2, 1)[0][0])
    assert not torch.equal(tokens, task.samples(3, 1)[0][0])


def test_loss_is_the_mean_over_all_tokens() -> None:
    logits, targets = torch.randn(4, 7, VOCABULARY), torch.randint(VOCABULARY, (4, 7))
    shares = np.exp(logits.numpy().astype(np.float64))
    shares /= shares.sum(2, keepdims=True)
    expected = -np.log(np.take_along_axis(shares, targets.numpy()[..., None], 2)).mean()

    assert language().loss(logits, targets).item() == pytest.approx(expected, rel=1e-5)


def test_perplexity_is_by_the_tokens_that_are_held_out() -> None:
    """Of a model that gives fixed shares: e to the cross entropy with those of the held-out targets."""
    logits = torch.linspace(1, -3, VOCABULARY)
    task = language(True)
    windows = Windows(text_of(20_000), 8, settings(holds_out=True), tested=8192 // 7)
    counts = np.bincount(windows.tested[:, 1:].ravel(), minlength=VOCABULARY)
    log_shares = logits.double().log_softmax(0).numpy()
    expected = math.exp(-(counts * log_shares).sum() / counts.sum())
    score = task.score(Told(lambda tokens: logits.expand(*tokens.shape, VOCABULARY)))

    assert counts.sum() > 500
    assert score == ("perplexity", pytest.approx(expected, rel=1e-6))
    nothing = task.score(Told(lambda tokens: torch.zeros(*tokens.shape, VOCABULARY)))
    assert nothing == ("perplexity", pytest.approx(VOCABULARY))  # of a model that knows nothing
    assert language().score(nn.Module()) is None


def test_a_test_is_short() -> None:
    seen: list[int] = []

    def counting(tokens: Tensor) -> Tensor:
        seen.append(tokens.numel())
        return torch.zeros(*tokens.shape, VOCABULARY)

    language(True, size=2_000_000).score(Told(counting))
    assert 8192 - 7 < sum(seen) <= 8192
    assert max(seen) <= 512


@pytest.mark.parametrize(
    ("loss", "value"), [(0.0, 1.0), (math.log(100), 100.0), (1e9, math.inf), (math.nan, math.inf)]
)
def test_perplexity(loss: float, value: float) -> None:
    assert perplexity(loss) == pytest.approx(value)


@examples(50)
@given(st.integers(16, 400), st.integers(0, 99))
def test_a_question_repeats_its_answer(sequence: int, seed: int) -> None:
    windows = np.random.default_rng(seed).integers(10, 10**6, (5, sequence))
    (tokens, segments), answers = asked(windows, np.random.default_rng(seed))
    assert tokens.shape == segments.shape == (5, sequence)
    assert torch.int64 == tokens.dtype == segments.dtype == answers.dtype
    for row, kinds, (first, last), window in zip(
        tokens.tolist(), segments.tolist(), answers.tolist(), windows.tolist(), strict=True
    ):
        size = last - first + 1
        assert SHORTEST <= size <= min(LONGEST, sequence // 4)
        assert row[0] == CLASSIFY
        assert row[1 : 1 + size] == row[first : last + 1]
        assert row[1 + size] == row[-1] == SEPARATE
        assert row[2 + size : -1] == window[: sequence - size - 3]
        assert kinds == [0] * (size + 2) + [1] * (sequence - size - 2)
        assert size + 2 <= first <= last < sequence - 1


def test_all_lengths_and_places_are_asked_for() -> None:
    (_, segments), answers = asked(np.arange(64 * 4000).reshape(4000, 64), np.random.default_rng(1))
    sizes = answers[:, 1] - answers[:, 0] + 1
    starts = answers[:, 0] - (segments == 0).sum(1)

    assert sizes.unique().tolist() == list(range(SHORTEST, LONGEST + 1))
    assert (starts.min(), answers[:, 1].max()) == (0, 62)


def questions(holds_out: bool) -> QuestionsTask:
    return QuestionsTask(np.arange(10, 200_010), nn.Module, settings(holds_out=holds_out), 32)


def by_question(tokens: Tensor, segments: Tensor) -> Tensor:
    """Logits of a reader: large where the question's first and last token are in the text."""
    sizes = (segments == 0).sum(1)
    logits = torch.zeros(*tokens.shape, 2)
    for row, size in enumerate(sizes.tolist()):
        for column, token in enumerate((tokens[row, 1], tokens[row, size - 2])):
            logits[row, :, column] = ((tokens[row] == token) & (segments[row] == 1)).float()
    return logits


def test_exact_match() -> None:
    task = questions(True)

    def late(tokens: Tensor, segments: Tensor) -> Tensor:
        logits = by_question(tokens, segments)
        return torch.stack((logits[..., 0], logits[..., 1].roll(1, 1)), 2)  # every end is wrong

    def broken(tokens: Tensor, segments: Tensor) -> Tensor:
        logits = by_question(tokens, segments)
        logits[:, 0] = -torch.inf
        return logits

    assert task.score(Told(by_question)) == ("exact match", 1.0)
    assert task.score(Told(late)) == ("exact match", 0.0)
    assert task.score(Told(broken)) == ("exact match", 0.0)
    assert questions(False).score(nn.Module()) is None


def test_loss_of_a_reader_that_knows_nothing() -> None:
    task = questions(False)
    _, answers = task.samples(0, 0)

    assert answers.shape == (4, 2)
    assert task.loss(torch.zeros(4, 32, 2), answers).item() == pytest.approx(math.log(32))
    knowing = torch.zeros(4, 32, 2)
    for row, (first, last) in enumerate(answers.tolist()):
        knowing[row, first, 0] = knowing[row, last, 1] = 100
    assert task.loss(knowing, answers).item() == pytest.approx(0)


def test_workers_and_steps_ask_different_questions() -> None:
    task = questions(False)
    found = {(step, worker): task.samples(step, worker) for step in (0, 1) for worker in (0, 1)}
    tokens = [rows(inputs[0]) for inputs, _ in found.values()]

    assert not set.intersection(*tokens)
    assert torch.equal(task.samples(1, 0)[1], found[1, 0][1])
    assert not torch.equal(found[0, 0][1], found[1, 0][1])
