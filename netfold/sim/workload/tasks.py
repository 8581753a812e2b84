"""What models are trained to do: data, loss and tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.kernels.functions import expm1s, exps, log1ps, logs
from netfold.sim.workload.data_readers import CLASSIFY, SEPARATE, Images, Ratings
from netfold.sim.workload.model import TaskSettings
from netfold.sim.workload.networks import SampledLstm
from netfold.sim.workload.recipe import perplexity
from netfold.sim.workload.workload import Score, keyed, shards

# The task of a classifier of images: which class is shown?


HELD_OUT = 5  # one image in so many
_TESTED_BYTES = 4 << 20
"""Bytes of images that are tested at once."""


class ImagesTask:
    """Classification of images by a module that gives logits `(batch, classes)`.

    The data set's own test part is held out, if it has one. Otherwise a fifth of the images can be: the same
    ones for every seed and number of workers.
    """

    def __init__(self, images: Images, build: Callable[[], nn.Module], settings: TaskSettings) -> None:
        self._build = build
        self._images = images
        self._labels = torch.from_numpy(images.labels)
        samples = np.arange(len(images.labels))
        self._tested = samples[:0]
        if images.tested is not None:
            samples = np.setdiff1d(samples, images.tested)
            self._tested = images.tested if settings.holds_out else self._tested
        elif settings.holds_out:
            order = keyed(0, "held-out digits").permutation(len(samples))
            self._tested, samples = np.split(order, [len(order) // HELD_OUT])
        self._shards = [samples[own] for own in shards(len(samples), settings.workers, settings.seed)]
        self._batch = settings.batch
        self._seed = settings.seed

    def build(self) -> nn.Module:
        return self._build()

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Images `(batch, …)` and labels `(batch,)`."""
        chosen = keyed(self._seed, "batch", step, worker).choice(self._shards[worker], self._batch)
        return (torch.from_numpy(self._images.take(chosen)),), self._labels[chosen]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)

    def score(self, model: nn.Module) -> Score | None:
        """Accuracy: the share of held-out images whose own label has the largest of finite logits."""
        if not len(self._tested):
            return None
        rights = [self._is_right(model, part) for part in self._parts()]
        return Score("accuracy", torch.cat(rights).double().mean().item())

    def _parts(self) -> list[NDArray[np.int64]]:
        """The tested images in parts, so that large ones are not all in memory."""
        sample_bytes = self._images.take(self._tested[:1]).nbytes
        at_once = max(1, _TESTED_BYTES // sample_bytes)
        return np.split(self._tested, range(at_once, len(self._tested), at_once))

    def _is_right(self, model: nn.Module, samples: NDArray[np.int64]) -> Tensor:
        """Whether each image's own label has the largest of finite logits."""
        logits = model(torch.from_numpy(self._images.take(samples)))
        is_right: Tensor = (logits.argmax(1) == self._labels[samples]) & logits.isfinite().all(1)
        return is_right


# Windows of a text: those that each worker is trained on, and those that are held out for tests.


HELD_OUT_WINDOWS = 20  # one page in so many
PAGE = 64  # neighbouring windows


class Windows:
    """A text cut into windows, one after another; the rest of it, shorter than a window, is left out.

    A twentieth of the text can be held out, in pages: the same ones for every seed and number of workers.

    Parameters
    ----------
    tokens
        `(tokens,)`, int64.
    size
        Tokens of a window.
    settings
        What is held out, and among how many workers the rest is divided.
    tested
        Windows that are tested, at most; they are spread over those that are held out.

    Raises
    ------
    DataError
        There are fewer windows than workers.
    """

    def __init__(self, tokens: NDArray[np.int64], size: int, settings: TaskSettings, tested: int) -> None:
        count = len(tokens) // size
        self._windows = tokens[: count * size].reshape(count, size)
        pages = -(-count // PAGE)
        is_tested = np.zeros(count, np.bool_)
        if settings.holds_out:
            chosen = keyed(0, "held-out text").permutation(pages)[: -(-pages // HELD_OUT_WINDOWS)]
            is_tested = np.isin(np.arange(count) // PAGE, chosen)
        trained, held = np.flatnonzero(~is_tested), np.flatnonzero(is_tested)
        places = np.linspace(0, max(0, len(held) - 1), min(tested, len(held))).astype(np.int64)
        self.tested: NDArray[np.int64] = self._windows[held[places]]  # (tested, size)
        self._shards = [trained[own] for own in shards(len(trained), settings.workers, settings.seed)]
        self._batch, self._seed = settings.batch, settings.seed

    def drawn(self, step: int, worker: int) -> NDArray[np.int64]:
        """A worker's windows of a step, `(batch, size)`."""
        generator = keyed(self._seed, "batch", step, worker)
        found: NDArray[np.int64] = self._windows[generator.choice(self._shards[worker], self._batch)]
        return found


# The task of a language model: which token comes next?


_TESTED_TOKENS = 8192
"""Most tokens that are tested."""
_TOKENS_AT_ONCE = 512
"""Tokens that are tested at once."""


class LanguageTask:
    """Prediction of each token of a window from those before it in the window.

    Nothing is carried from one window to the next: the state of an LSTM is zero before each.

    Parameters
    ----------
    tokens
        The text, `(tokens,)`, int64.
    build
        Makes a module that gives logits `(batch, time, vocabulary)`.
    settings
        Data, batch in windows, workers.
    time
        Tokens of a window that are predicted.
    tested_tokens
        Tokens that are predicted in a test, at most (one window at least).
    """

    def __init__(
        self,
        tokens: NDArray[np.int64],
        build: Callable[[], nn.Module],
        settings: TaskSettings,
        time: int,
        tested_tokens: int = _TESTED_TOKENS,
    ) -> None:
        self._build = build
        self._time = time
        self._windows = Windows(tokens, time + 1, settings, max(1, tested_tokens // time))

    def build(self) -> nn.Module:
        return self._build()

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Tokens, and the token after each, both `(batch, time)` int64."""
        windows = torch.from_numpy(self._windows.drawn(step, worker))
        return (windows[:, :-1],), windows[:, 1:]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def losses(self, model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="none")

    def score(self, model: nn.Module) -> Score | None:
        """Perplexity of held-out text: e to the mean cross entropy of a token; less is better."""
        tested = torch.from_numpy(self._windows.tested)
        if not len(tested):
            return None
        parts = torch.split(tested, max(1, _TOKENS_AT_ONCE // self._time))
        losses = [self.losses(model, part[:, :-1], part[:, 1:]) for part in parts]
        return Score("perplexity", perplexity(torch.cat(losses).double().mean().item()))


# The task of finding an answer in a text: the question repeats a span of the text, which is the answer.


SHORTEST, LONGEST = 4, 16  # tokens of a question; the longest is also a quarter of the sequence at most

_TESTED = 64  # windows
_TESTED_AT_ONCE = 4


class QuestionsTask:
    """Which span of a text does the question repeat? Spans are drawn at random.

    A sequence is as in BERT's use of SQuAD: [CLS] question [SEP] text [SEP]; the question is of segment 0,
    and from the text on it is segment 1. It has no padding.
    """

    def __init__(
        self,
        tokens: NDArray[np.int64],
        build: Callable[[], nn.Module],
        settings: TaskSettings,
        sequence: int,  # tokens, special ones included
    ) -> None:
        self._build = build
        self._windows = Windows(tokens, sequence, settings, _TESTED)
        self._seed = settings.seed

    def build(self) -> nn.Module:
        return self._build()

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        # Tokens and segments `(batch, sequence)`, and the answers' first and last place `(batch, 2)`; all are
        # int64.
        return asked(self._windows.drawn(step, worker), keyed(self._seed, "spans", step, worker))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # The mean over first and last places.
        return functional.cross_entropy(outputs, targets)

    def score(self, model: nn.Module) -> Score | None:
        """Exact match: the share of held-out answers of which both places have the largest finite logit."""
        if not len(self._windows.tested):
            return None
        (tokens, segments), answers = asked(self._windows.tested, keyed(0, "held-out spans"))
        parts = zip(
            *(torch.split(part, _TESTED_AT_ONCE) for part in (tokens, segments, answers)), strict=True
        )
        rights = [_is_right(model(own, kinds), places) for own, kinds, places in parts]
        return Score("exact match", torch.cat(rights).double().mean().item())


def asked(windows: NDArray[np.int64], generator: np.random.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Sequences of windows `(batch, sequence)` of text, whose last tokens make room for the question."""
    sequence = windows.shape[1]
    longest = min(LONGEST, sequence // 4)
    tokens, segments = np.empty_like(windows), np.zeros_like(windows)
    answers = np.empty((len(windows), 2), np.int64)
    for row, window in enumerate(windows):
        size = int(generator.integers(SHORTEST, longest + 1))
        text = window[: sequence - size - 3]
        start = int(generator.integers(len(text) - size + 1))
        question = text[start : start + size]
        tokens[row] = [CLASSIFY, *question, SEPARATE, *text, SEPARATE]
        segments[row, size + 2 :] = 1
        answers[row] = size + 2 + start, size + 1 + start + size
    return (torch.from_numpy(tokens), torch.from_numpy(segments)), torch.from_numpy(answers)


def _is_right(logits: Tensor, answers: Tensor) -> Tensor:
    """Whether both places of each answer are found."""
    is_right: Tensor = (logits.argmax(1) == answers).all(1) & logits.isfinite().flatten(1).all(1)
    return is_right


# The task of a recommender: which items does a user choose?


# He et al., Neural Collaborative Filtering, WWW 2017, §4.1
NEGATIVES = 4  # unrated items per rated one, in training
RIVALS = 99  # unrated items beside the held-out one, in tests
TOP = 10  # the held-out item must be among so many

_USERS_AT_ONCE = 64
"""Users that are tested at once: activations stay in the cache."""


class HeldOut(NamedTuple):
    """What is held out, one test per user who has rated something."""

    ratings: NDArray[np.int64]  # (users,): which ratings
    users: NDArray[np.int64]  # (users,)
    items: NDArray[np.int64]  # (users, 1 + rivals): the held-out item, then items that the user never rated


class RecommenderTask:
    """Prediction of whether a user has rated an item, on ratings expanded to any size.

    The expansion is the Kronecker product of the ratings with a small copy of themselves, which keeps the
    uneven popularity of users and items at the larger size (Belletti et al., Scalable Realistic
    Recommendation Datasets through Fractal Expansions, arXiv:1901.08910; the small copy here is block
    counts, in the paper a factorisation). With `copies` (a, b) user u's copy x is number u + x·users, item
    i's copy y is i + y·items, and the small copy has a·b blocks of neighbouring users and items. An
    expanded rating is a pair of ratings, one for (u, i) and one whose block is (x, y), so the product is
    sampled and never built.

    The last rating of each user can be held out (`tests` says which), if nothing is expanded.
    """

    def __init__(
        self,
        network: Callable[[int, int], nn.Module],
        ratings: Ratings,
        copies: tuple[int, int],
        *,
        batch: int,
        workers: int,
        seed: int,
        holds_out: bool = False,
    ) -> None:
        """`network` makes the model for a number of users and one of items."""
        self.tests = held_out(ratings, seed) if holds_out else None
        if self.tests is not None:
            ratings = without(ratings, self.tests.ratings)
        self._ratings = ratings
        self._network, self._copies = network, copies
        self._rated = _table(ratings.users, ratings.items, (ratings.users_count, ratings.items_count))
        self._user_blocks = ratings.users * copies[0] // ratings.users_count
        self._item_blocks = ratings.items * copies[1] // ratings.items_count
        self._rated_blocks = _table(self._user_blocks, self._item_blocks, copies)
        self._shards = shards(len(ratings.users), workers, seed)
        self._batch = batch
        self._seed = seed

    def build(self) -> nn.Module:
        """The model for the expanded users and items."""
        users, items = (count * copies for count, copies in zip(self._ratings[3:], self._copies, strict=True))
        return self._network(users, items)

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Users and items, both `(batch,)` int64, and labels `(batch,)`: 1, 0, 0, 0, 0, 1, 0 …

        Each rated pair is followed by `NEGATIVES` random items that the same user has not rated.
        """
        generator = keyed(self._seed, "batch", step, worker)
        groups = -(-self._batch // (1 + NEGATIVES))
        base = generator.choice(self._shards[worker], groups)
        blocks = generator.integers(len(self._ratings.users), size=groups)
        users = self._ratings.users[base] + self._ratings.users_count * self._user_blocks[blocks]
        rated = self._ratings.items[base] + self._ratings.items_count * self._item_blocks[blocks]
        items = np.column_stack((rated, self._unrated(users, generator)))
        labels = np.zeros(items.shape, np.float32)
        labels[:, 0] = 1
        flat = (users.repeat(1 + NEGATIVES), items.reshape(-1), labels.reshape(-1))
        user_batch, item_batch, targets = (torch.from_numpy(part[: self._batch]) for part in flat)
        return (user_batch, item_batch), targets

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(outputs, targets)

    def score(self, model: nn.Module) -> Score | None:
        """HR@10: the share of held-out items that are among the ten with the largest logits of their 100.

        Items of the same logit count as better, so that a model that cannot tell items apart has 0; so do
        logits that are not numbers.
        """
        if self.tests is None:
            return None
        hits = 0
        for first in range(0, len(self.tests.users), _USERS_AT_ONCE):
            users, items = (part[first : first + _USERS_AT_ONCE] for part in self.tests[1:])
            pairs = (users.repeat(items.shape[1]), items.reshape(-1))
            logits = model(*map(torch.from_numpy, pairs)).reshape(items.shape)
            better = (~(logits[:, 1:] < logits[:, :1])).sum(1)
            hits += int((better < TOP).sum())
        return Score(f"HR@{TOP}", hits / len(self.tests.users))

    def is_rated(self, users: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.bool_]:
        # Users and items are expanded ones. Held-out ratings do not count: in training their items are
        # unrated ones, as others are.
        user_copies, base_users = np.divmod(users, self._ratings.users_count)
        item_copies, base_items = np.divmod(items, self._ratings.items_count)
        return self._rated[base_users, base_items] & self._rated_blocks[user_copies, item_copies]

    def _unrated(self, users: NDArray[np.int64], generator: np.random.Generator) -> NDArray[np.int64]:
        """Uniform items `(users, NEGATIVES)` that the user has not rated: rated ones are drawn again."""
        items_count = self._ratings.items_count * self._copies[1]
        items = generator.integers(items_count, size=(len(users), NEGATIVES))
        while (rated := self.is_rated(users[:, None], items)).any():
            items[rated] = generator.integers(items_count, size=int(rated.sum()))
        return items


def held_out(ratings: Ratings, seed: int) -> HeldOut:
    """The last rating of each user (of several at the same time, the last in the file), and its rivals.

    A user has `RIVALS` different rivals, all items that it has not rated in any order if they are fewer.
    """
    order = np.lexsort((np.arange(len(ratings.times)), ratings.times, ratings.users))
    last = order[np.flatnonzero(np.diff(ratings.users[order], append=-1))]
    is_rated = _table(ratings.users, ratings.items, (ratings.users_count, ratings.items_count))
    rivals_count = min(RIVALS, ratings.items_count - int(is_rated.sum(1).max()))
    users = ratings.users[last]
    rivals = [
        keyed(seed, "rivals", user).permutation(np.flatnonzero(~is_rated[user]))[:rivals_count]
        for user in users.tolist()
    ]
    return HeldOut(last, users, np.column_stack((ratings.items[last], np.array(rivals))))


def without(ratings: Ratings, left_out: NDArray[np.int64]) -> Ratings:
    """Ratings without some, for the same users and items."""
    users, items, times = (np.delete(part, left_out) for part in ratings[:3])
    return ratings._replace(users=users, items=items, times=times)


def _table(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Mask of the given shape, set at the given places."""
    mask = np.zeros(shape, np.bool_)
    mask[rows, columns] = True
    return mask


# The task of a language model whose softmax is over sampled words, with a log-uniform sampler.


_SAMPLED_TESTED_TOKENS = 1024  # the softmax of a test is over the whole vocabulary


class Sampled(NamedTuple):
    """Different words, and in how many draws they were found."""

    words: NDArray[np.int64]  # (count,), in the order in which they were drawn
    draws: int


class SampledTask(LanguageTask):
    """A language model that is trained with a sampled softmax; all words of a batch share the samples.

    Words are numbered by how often they occur, from 0, as the sampler assumes.
    """

    def __init__(
        self,
        tokens: NDArray[np.int64],
        build: Callable[[], nn.Module],
        settings: TaskSettings,
        time: int,
        words: tuple[int, int],  # the vocabulary, and how many of it are sampled
    ) -> None:
        super().__init__(tokens, build, settings, time, _SAMPLED_TESTED_TOKENS)
        self._seed = settings.seed
        self._vocabulary, self._samples = words

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs of `SampledLstm`, and the column of the right class: 0 for each word."""
        (words,), successors = super().samples(step, worker)
        generator = keyed(self._seed, "sampled words", step, worker)
        sampled = log_uniform(self._samples, self._vocabulary, generator)
        classes = np.concatenate((successors.flatten().numpy(), sampled.words))
        counts = expected_counts(classes, self._vocabulary, sampled.draws)
        inputs = words, torch.from_numpy(classes), torch.from_numpy(logs(counts).astype(np.float32))
        return inputs, torch.zeros(successors.numel(), dtype=torch.int64)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)

    def losses(self, model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy of each target by the softmax over the whole vocabulary."""
        assert isinstance(model, SampledLstm)
        return model.losses(tokens, targets.flatten())


def log_uniform(count: int, vocabulary: int, generator: np.random.Generator) -> Sampled:
    """Draw words until `count` different ones are found; word k has the probability of `probabilities`.

    It is the distribution of words by rank (Zipf), and TensorFlow's log_uniform_candidate_sampler. `count` is
    at most the vocabulary.
    """
    drawn = np.empty(0, np.int64)
    while True:
        more = exps(generator.random(2 * count), math.log(vocabulary + 1)).astype(np.int64) - 1
        drawn = np.concatenate((drawn, np.clip(more, 0, vocabulary - 1)))  # exp may round up
        first = np.sort(np.unique(drawn, return_index=True)[1])
        if len(first) >= count:
            return Sampled(drawn[first[:count]], int(first[count - 1]) + 1)


def probabilities(words: NDArray[np.int64], vocabulary: int) -> NDArray[np.float64]:
    """Of drawing a word: log((k + 2) / (k + 1)) / log(vocabulary + 1)."""
    found: NDArray[np.float64] = log1ps(1 / (words + 1.0)) / math.log(vocabulary + 1)
    return found


def expected_counts(words: NDArray[np.int64], vocabulary: int, draws: int) -> NDArray[np.float64]:
    """How often each word is expected among the different words that so many draws find: 0 to 1."""
    found: NDArray[np.float64] = -expm1s(draws * log1ps(-probabilities(words, vocabulary)))
    return found
