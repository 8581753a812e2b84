"""Text: its tokens, its tasks, rows of embeddings, sampled words."""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from netfold.errors import DataError
from netfold.sim.workload import data_readers as wordpiece
from netfold.sim.workload.data_readers import (
    CLASSIFY,
    SEPARATE,
    SPECIAL,
    UNKNOWN,
    learn_pieces,
    load_characters,
    load_pieces,
    load_text,
    load_words,
    number_tokens,
    split_word,
    words_of,
)
from netfold.sim.workload.model import Model, Parts, TaskSettings
from netfold.sim.workload.model_task import Draw, ModelTask
from netfold.sim.workload.models.bert import LONGEST, SHORTEST, Questions, asked
from netfold.sim.workload.models.lstm import expected_counts, log_uniform, probabilities
from netfold.sim.workload.models.ncf import Ncf
from netfold.sim.workload.models.registry import model_named
from netfold.sim.workload.models.text import HELD_OUT, PAGE, NextTokens, Windows, next_token_loss
from netfold.sim.workload.training_keys import perplexity
from netfold.sim.workload.workload import keyed, shards
from netfold.sim.workload.workload_keys import Training
from tests.examples import examples, nightly
from tests.sim.workload.given import BERT, GPT, ROWS, SAMPLED, Told, backward, module_of, task_of, train

VERSES = (  # the first, one with an added word, and the last of the Bible
    "In the beginning God created the heaven and the earth.",
    "and darkness was upon the face of the deep",
    "The grace of our Lord Jesus Christ be with you all. Amen.",
)
LINES = (  # of three plays
    "HAMLET:\nTo be, or not to be: that is the question:",
    "\nIf music be the food of love, play on;",
    "Friends, Romans, countrymen, lend me your ears;",
)


@pytest.mark.slow
def test_the_plays_are_there_and_after_them_the_bible_once() -> None:
    """Without marks of their formats; the King James Bible has about 788 thousand words (66 books)."""
    plays, both = load_text("shakespeare"), load_text("shakespeare-kjv")
    word = r"[^\W\d_]+(?:['-][^\W\d_]+)*"

    assert all(line in plays for line in LINES)
    assert both.startswith(plays)
    assert all(verse in both and verse not in plays for verse in VERSES)
    assert both.endswith(VERSES[-1])
    assert not set(both) & set("#*_[]\\’")
    assert not re.search(r"Book\.|^import |[ \t]$|^[ \t]", both, re.MULTILINE)
    assert len(re.findall(r"^ACT I$", both, re.MULTILINE)) == 38  # plays
    assert len(re.findall(word, both[len(plays) :])) == pytest.approx(788_000, rel=0.01)
    assert 800_000 < len(re.findall(word, plays)) < 1_100_000


def test_words() -> None:
    assert words_of("O, that this too-too\nsolid Flesh 'd melt!") == (
        ["o", ",", "that", "this", "too", "-", "too", "solid", "flesh", "'", "d", "melt", "!"]
    )
    assert words_of("Bellona's 12 Æneas") == ["bellona's", "1", "2", "æneas"]


@examples(50)
@given(st.lists(st.sampled_from("abcdefgh")), st.integers(2, 10))
def test_tokens_are_numbered_by_frequency(tokens: list[str], vocabulary: int) -> None:
    found = number_tokens(tokens, vocabulary)
    counts = Counter(tokens)

    assert len(found.names) == min(vocabulary - 1, len(counts))
    assert found.numbers.dtype == np.int64
    for token, number in zip(tokens, found.numbers.tolist(), strict=True):
        more = sum(counts[one] > counts[token] for one in counts)
        equal = sum(counts[one] == counts[token] and one < token for one in counts)
        assert number == (1 + more + equal if 1 + more + equal < vocabulary else UNKNOWN)
        assert number == UNKNOWN or found.names[number - 1] == token


@pytest.mark.slow
def test_the_vocabulary_is_full_and_covers_most_of_the_text() -> None:
    found = load_words("shakespeare-kjv", 10_000)

    assert found.numbers.max() == 9_999
    assert (found.numbers != UNKNOWN).mean() > 0.97
    assert len(found.numbers) == len(words_of(load_text("shakespeare-kjv")))


def test_characters_are_those_of_tiny_shakespeare_and_a_dash() -> None:
    """Its 65 are the letters, the white space, and !$&',-.3:;?; here $ and 3 are too rare, and — is not."""
    found = load_characters("shakespeare", 65)

    letters = {chr(first + place) for first in (65, 97) for place in range(26)}
    assert set(found.names) - letters == set("\n !&',-.:;?—")
    assert "".join(found.names[number - 1] for number in found.numbers[:26]) == "A Midsummer Night's Dream\n"


PIECES_SHA256 = "afa2ab5b25da161ff2dc691f1e8cfb1ff6c7516280da92f525451ef074269854"  # of BERT's default

counts = st.dictionaries(st.text("abc", min_size=1, max_size=7), st.integers(1, 9), min_size=1, max_size=12)


def reference(words: dict[str, int], vocabulary: int) -> list[str]:
    cuts = {word: [word[0], *("##" + letter for letter in word[1:])] for word in words}
    pieces = [*SPECIAL, *sorted({piece for own in cuts.values() for piece in own})]
    while len(pieces) < vocabulary:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, own in cuts.items():
            for pair in pairwise(own):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merged = best[0] + best[1][2:]
        if merged not in pieces:
            pieces.append(merged)
        for word, own in cuts.items():
            place = 0
            while place < len(own) - 1:
                if (own[place], own[place + 1]) == best:
                    own[place : place + 2] = [merged]
                place += 1
            cuts[word] = own
    return pieces[:vocabulary]


@examples(100)
@given(counts, st.integers(6, 60))
def test_pieces_are_those_of_the_reference(words: dict[str, int], vocabulary: int) -> None:
    assert learn_pieces(words, vocabulary) == reference(words, vocabulary)


@examples(100)
@given(counts, st.integers(6, 60))
def test_pieces_of_a_word_are_the_longest_first(words: dict[str, int], vocabulary: int) -> None:
    pieces = learn_pieces(words, vocabulary)
    numbers = {piece: number for number, piece in enumerate(pieces)}

    def longest(rest: str, prefix: str) -> list[str] | None:
        if not rest:
            return []
        for size in range(len(rest), 0, -1):
            if prefix + rest[:size] in pieces:
                after = longest(rest[size:], "##")
                return None if after is None else [prefix + rest[:size], *after]
        return None

    for word in words:
        expected = longest(word, "")
        found = [pieces[number] for number in split_word(word, numbers)]
        assert found == (expected or [SPECIAL[wordpiece.UNKNOWN_PIECE]])
        assert expected is None or "".join(piece.removeprefix("##") for piece in found) == word


def test_pieces_are_kept_and_made_again_if_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = "to be or not to be that is the question"
    monkeypatch.setenv("NETFOLD_CACHE", str(tmp_path))
    monkeypatch.setattr(wordpiece, "load_text", lambda name: text)
    counting = mock.Mock(wraps=learn_pieces)
    monkeypatch.setattr(wordpiece, "learn_pieces", counting)

    def loaded(vocabulary: int) -> list[int]:
        load_pieces.cache_clear()
        found: list[int] = load_pieces("some", vocabulary).numbers.tolist()
        load_pieces.cache_clear()
        return found

    first = loaded(40)
    assert loaded(40) == first
    loaded(30)
    assert [call.args[1] for call in counting.call_args_list] == [40, 30]
    (path,) = (tmp_path / "wordpiece").glob("some-40-*")
    path.write_text(path.read_text().replace("be", "bi"))
    with caplog.at_level(logging.WARNING):
        assert loaded(40) == first
    assert "is damaged and is made again" in caplog.text
    text = "another text"
    loaded(40)
    assert [call.args[1] for call in counting.call_args_list] == [40, 30, 40, 40]


@nightly
def test_the_default_vocabulary_is_the_same_everywhere() -> None:
    """5 s on one core."""
    pieces = learn_pieces(Counter(words_of(load_text("shakespeare-kjv"))), 30_522)

    assert len(pieces) == len(set(pieces)) == 30_522
    assert hashlib.sha256("\n".join(pieces).encode()).hexdigest() == PIECES_SHA256
    assert np.array_equal(load_pieces("shakespeare-kjv", 30_522).names, pieces)


VOCABULARY = 9


def settings(batch: int = 4, workers: int = 3, seed: int = 5) -> TaskSettings:
    return TaskSettings("some", batch, workers, seed)


def text_of(size: int, seed: int = 0) -> NDArray[np.int64]:
    """Random tokens, the small ones more often."""
    return np.minimum(np.random.default_rng(seed).geometric(0.4, size) - 1, VOCABULARY - 1).astype(np.int64)


def rows(array: Any) -> set[tuple[int, ...]]:
    return set(map(tuple, array.tolist()))


def drawn_by(windows: Windows, settings: TaskSettings) -> list[set[tuple[int, ...]]]:
    """What each worker draws of its shard in the first step."""
    own = shards(len(windows), settings.workers, settings.seed)
    return [rows(windows.drawn(shard, Draw(settings, 0, worker))) for worker, shard in enumerate(own)]


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
    windows = Windows(text, window, holds_out, tested=10**9)
    drawn = drawn_by(windows, settings(200, workers))
    tested = rows(windows.tested)
    every = {tuple(range(start, start + window)) for start in range(0, size - window + 1, window)}

    assert set.union(*drawn, tested) <= every
    assert sum(map(len, (*drawn, tested))) == len(set.union(*drawn, tested))  # no window is shared
    assert len({row[0] // window // PAGE for row in tested}) == held
    assert (held - 1) * PAGE < len(tested) <= held * PAGE or not held


def test_a_part_of_the_text_that_is_held_out_is_tested() -> None:
    text = np.arange(400_000)
    found = Windows(text, 10, True, tested=100).tested
    whole = Windows(text, 10, True, tested=10**9).tested

    assert len(found) == 100
    assert rows(found) <= rows(whole)
    assert len(whole) == pytest.approx(40_000 / HELD_OUT, rel=0.05)
    assert np.ptp(found) > 200_000  # from all over the text
    windows = Windows(np.arange(1000), 10, False, tested=5)  # without tests all is trained
    assert len(set.union(*drawn_by(windows, settings(2000, 2)))) == 100
    assert not len(windows.tested)
    language(time=9, size=30)
    with pytest.raises(DataError, match="3 workers cannot share 2 samples"):
        language(time=9, size=29)


def language(
    holds_out: bool = False, time: int = 7, size: int = 20_000, text: NDArray[np.int64] | None = None
) -> ModelTask:
    data = NextTokens(text_of(size) if text is None else text, time, holds_out)
    parts = Parts(nn.Module(), data, next_token_loss, data.perplexity if holds_out else None)
    return ModelTask(parts, "perplexity", nn.Module, settings())


def test_a_target_is_the_next_token() -> None:
    task = language(text=np.arange(20_000))
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
    windows = Windows(text_of(20_000), 8, True, tested=8192 // 7)
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
    told = Told(lambda tokens: torch.zeros(*tokens.shape, VOCABULARY))
    language(True, size=2_000_000).score(told)
    seen = [tokens.numel() for (tokens,) in told.asked]

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


def questions(holds_out: bool) -> ModelTask:
    data = Questions(np.arange(10, 200_010), 32, holds_out)
    score = data.exact_match if holds_out else None
    return ModelTask(
        Parts(nn.Module(), data, nn.functional.cross_entropy, score), "exact match", nn.Module, settings()
    )


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

    def late(logits: Tensor) -> Tensor:
        return torch.stack((logits[..., 0], logits[..., 1].roll(1, 1)), 2)  # every end is wrong

    def broken(logits: Tensor) -> Tensor:
        return logits.index_fill(1, torch.tensor(0), -torch.inf)

    assert task.score(Told(by_question)) == ("exact match", 1.0)
    for wrong in (late, broken):
        told = Told(lambda *asked, wrong=wrong: wrong(by_question(*asked)))
        assert task.score(told) == ("exact match", 0.0)
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


@pytest.mark.usefixtures("short_text")
def test_a_text_is_all_in_pieces_that_spell_it() -> None:
    found = load_pieces("shakespeare", 1200)
    words = words_of(load_text("shakespeare"))[:500]
    spelled, place = [], 0
    for word in words:
        own = ""
        while len(own) < len(word):
            own += found.names[found.numbers[place]].removeprefix("##")
            place += 1
        spelled.append(own)

    assert spelled == words
    assert len(found.names) == 1200
    assert found.numbers.min() >= len(SPECIAL)  # every letter is in the vocabulary
    assert found.numbers.max() < 1200


@pytest.mark.usefixtures("short_text")
@pytest.mark.parametrize("model", [*ROWS, GPT], ids=lambda model: model.kind)
def test_gradients_are_rows_where_the_model_says_so_and_what_whole_tables_get(model: Model) -> None:
    for batch in (1, 7):
        task = task_of(model, batch)
        gradients = backward(task, module_of(task))
        most = model.row_tables(batch)

        assert {name for name, one in gradients.items() if one.is_sparse} == set(most)
        held = 0
        for name, one in gradients.items():
            if one.is_sparse:
                found = one.coalesce()
                assert one.sparse_dim() == 1
                assert found._nnz() <= most[name]
                held += most[name] * found.values()[0].numel()
            else:
                held += one.numel()
        assert model.held_elements(batch) == held
    whole = module_of(task)
    for layer in whole.modules():
        if isinstance(layer, nn.Embedding):
            layer.sparse = False
    tables = backward(task, whole)
    assert not any(one.is_sparse for one in tables.values())
    for name, one in gradients.items():
        torch.testing.assert_close(one.to_dense(), tables[name], rtol=1e-5, atol=1e-9)


def test_what_is_held_of_a_gradient() -> None:
    """Of lstm_1b the LSTM and its projection, 16 · 20 words, and as many classes and 8192 samples."""
    model = model_named("lstm_1b")
    layers = 4 * 2048 * (256 + 2048 + 2) + 257 * 2048 - 2048 + 256

    assert model.held_elements(16) == layers + 320 * 256 + (320 + 8192) * 257
    for model in ROWS:
        assert model.held_elements(1) < model.held_elements(1 << 20) == model.elements
    for model in (GPT, Ncf()):
        assert model.held_elements(1) == model.elements


@pytest.mark.usefixtures("short_text")
@pytest.mark.parametrize("model", [SAMPLED, replace(BERT, dropout=0.3)])
def test_the_same_seed_trains_the_same_bits(model: Model) -> None:
    """With dropout, samples and questions; the global generator is as before."""
    state = torch.get_rng_state()
    losses = []
    for seed in (1, 1, 2):
        workload = Training(model, batch=2, learning_rate=0.5).workload(2, seed)
        train(workload, range(2))
        losses.append(workload.loss)
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(state, torch.get_rng_state())


@examples(30)
@given(st.integers(2, 3000), st.data())
def test_samples_are_different_words_by_draws_until_the_last_is_found(
    vocabulary: int, data: st.DataObject
) -> None:
    """Another sampler, one draw after the other from the same numbers, finds the same words."""
    count = data.draw(st.integers(1, max(1, vocabulary // 2)))
    sampled, drawn = log_uniform(count, vocabulary, keyed(1, "test", count))
    generator = keyed(1, "test", count)
    words: list[int] = []
    draws = 0
    while len(words) < count:
        for share in generator.random(2 * count):
            word = int((vocabulary + 1) ** share) - 1
            draws += len(words) < count
            words += [word] if word not in words and len(words) < count else []

    assert (sampled.tolist(), drawn) == (words, draws)
    assert 0 <= sampled.min() <= sampled.max() < vocabulary


@pytest.mark.parametrize("vocabulary", [1, 2, 7, 1000, 793_471])
def test_probabilities_are_a_distribution_by_rank(vocabulary: int) -> None:
    found = probabilities(np.arange(vocabulary), vocabulary)

    assert found.sum() == pytest.approx(1)
    assert np.all(np.diff(found) < 0)
    assert found[0] == pytest.approx(math.log(2) / math.log(vocabulary + 1))


def test_expected_counts_are_those_of_counting() -> None:
    """How often each of 30 words is among those that 40 draws find, in 4,000 trials: within 5 sigma."""
    generator = keyed(1, "counting")
    cumulated = np.cumsum(probabilities(np.arange(30), 30))
    drawn = np.searchsorted(cumulated, generator.random((4_000, 40)), side="right")
    shares = np.array([(drawn == word).any(1).mean() for word in range(30)])
    expected = expected_counts(np.arange(30), 30, 40)

    assert np.all(np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / 4_000) + 1e-9)


@pytest.mark.usefixtures("short_text")
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


@pytest.mark.usefixtures("short_text")
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
