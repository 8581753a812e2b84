"""The layers of a model: which module has which parameters, their operations; and examples held out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from netfold.sim.workload.data_readers import Digits, Ratings
from netfold.sim.workload.device_rooflines import (
    CONVOLUTION,
    CONVOLUTION_BACKWARD,
    MATMUL,
    OTHER,
    KernelCost,
    StepCost,
)
from netfold.sim.workload.layers import layers_of, place_tensors, tensor_of
from netfold.sim.workload.model import TaskSettings
from netfold.sim.workload.model_probe import KernelCounter, probe, timed_passes
from netfold.sim.workload.training import TrainingWorkload
from netfold.sim.workload.workload import keyed, shards
from netfold.sim.workload.workload_keys import Evaluate, Training
from tests.examples import examples
from tests.sim.workload.given import Told, images_task, ratings_task, totals, train, weights_of


class Residual(nn.Module):
    """Modules are registered in another order than they run, and run with operations between them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm2 = nn.BatchNorm2d(4)
        self.norm1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm1(self.conv1(inputs).relu()).relu()
        return inputs + torch.as_tensor(self.norm2(self.conv2(hidden)))


class Tied(nn.Module):
    """The table of words is also the last layer's matrix, as in language models."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.middle = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.decoder = nn.Linear(6, 11)
        self.decoder.weight = self.words.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.as_tensor(self.decoder(self.norm(self.middle(self.words(inputs)))))


class Again(nn.Module):
    """A layer that runs twice, with the same norm behind it each time; and a norm before all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LayerNorm(5)
        self.shared = nn.Linear(5, 5, bias=False)
        self.norm = nn.LayerNorm(5)
        self.last = nn.Linear(5, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm(self.shared(self.first(inputs)))
        return torch.as_tensor(self.last(self.norm(self.shared(hidden))))


class OwnParameters(nn.Module):
    """A model with a parameter that is no module's, and attention, whose last matrix runs as no module."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(3, 4))
        self.attention = nn.MultiheadAttention(4, 2)
        self.scale = nn.PReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs + self.places
        return torch.as_tensor(self.scale(self.attention(inputs, inputs, inputs)[0]))


class Attention(nn.Module):
    """Scaled dot products between learned rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(16, 48)

    def forward(self, inputs: Tensor) -> Tensor:
        query, key, value = self.rows(inputs).reshape(2, 4, 8, 3, 16).unbind(3)
        return nn.functional.scaled_dot_product_attention(query, key, value)


def nested() -> nn.Module:
    block = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())
    return nn.Sequential(block, nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten()), nn.Linear(64, 2))


@pytest.mark.parametrize(
    ("build", "inputs", "layers"),
    [  # the layer of each module's parameters; "" is the model itself
        (nested, torch.ones(2, 3, 6, 6), {"0.0": "0.0", "0.1": "0.0", "1.0": "0.0", "2": "2"}),
        (
            Residual,
            torch.ones(2, 4, 5, 5),
            {"conv1": "conv1", "norm1": "conv1", "conv2": "conv2", "norm2": "conv2"},
        ),
        (Tied, torch.arange(8), {"words": "words", "decoder": "words", "middle": "middle", "norm": "middle"}),
        (Again, torch.ones(2, 5), {"first": "first", "shared": "shared", "norm": "shared", "last": "last"}),
        (
            OwnParameters,
            torch.ones(3, 2, 4).transpose(0, 1),
            {
                "": "OwnParameters",
                "attention": "attention",
                "scale": "attention",
                "attention.out_proj": "attention.out_proj",
            },
        ),
        (Attention, torch.ones(2, 4, 8, 16), {"rows": "rows"}),
        (lambda: nn.Linear(3, 2), torch.ones(1, 3), {"": "Linear"}),
    ],
)
def test_layers_are_those_of_the_table_and_flops_those_that_pytorch_counts(
    build: Callable[[], nn.Module], inputs: Tensor, layers: dict[str, str]
) -> None:
    model = build()

    def loss() -> Tensor:
        output: Tensor = model(inputs)
        return output.square().sum()

    found = probe(model, loss)
    with FlopCounterMode(display=False) as forward:
        value = loss()
    with FlopCounterMode(display=False) as backward:
        value.backward()  # type: ignore[no-untyped-call]

    assert found.layers == {name: layers[name.rpartition(".")[0]] for name, _ in model.named_parameters()}
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())  # none is left
    assert found.cost.forward_flops == forward.get_total_flops() > 0
    assert found.cost.backward_flops == backward.get_total_flops() > 0


def test_a_tied_layer_is_ready_with_its_last_use() -> None:
    """The decoder's bias is ready first; the table last, when the embedding's gradient is in it."""
    model = Tied()
    found = probe(model, lambda: model(torch.arange(8)).square().sum())
    tensors = [tensor_of(name, tuple(model.get_parameter(name).shape)) for name in found.order]
    tensors = [one._replace(layer=found.layers[one.name]) for one in tensors]

    assert found.order[0] == "decoder.bias"
    assert found.order[-1] == "words.weight"
    assert [layer.name for layer in layers_of(place_tensors(tensors))] == ["middle", "words"]


FLOAT = 4


def counted(call: object) -> list[KernelCost]:
    with KernelCounter() as counter:
        call()  # type: ignore[operator]
    return list(counter.take())


def cost_of(model: nn.Module, inputs: Tensor) -> StepCost:
    return probe(model, lambda: model(inputs).square().sum()).cost


ONE, TABLE, CHOSEN, ROW = torch.ones(10), torch.ones(1000, 16), torch.arange(5), torch.ones(8).expand(100, 8)
ROWS = [KernelCost(OTHER, 0, 2 * 5 * 16 * FLOAT + 40)]


@pytest.mark.parametrize(
    ("call", "kernels"),
    [
        # `ones` writes 24 floats; to reshape the transposed matrix takes a copy: 24 read and written
        (
            lambda: torch.ones(6, 4).t().reshape(3, 8)[1:],
            [KernelCost(OTHER, 0, 96), KernelCost(OTHER, 0, 192)],
        ),
        (lambda: torch.empty(1000), []),
        (lambda: torch.empty(10).fill_(2), [KernelCost(OTHER, 0, 40)]),  # written, not read
        (
            lambda: ONE.add_(ONE.clone()),
            [KernelCost(OTHER, 0, 80), KernelCost(OTHER, 0, 120)],
        ),  # read and written
        (lambda: ONE.copy_(torch.empty(10)), [KernelCost(OTHER, 0, 80)]),
        (lambda: ONE + ONE, [KernelCost(OTHER, 0, 80)]),  # the same tensor twice
        (lambda: ROW + 1, [KernelCost(OTHER, 0, 32 + 3200)]),  # an expanded tensor has the bytes that hold it
        (lambda: nn.functional.embedding(CHOSEN, TABLE), ROWS),  # of a table the rows that are taken
        (lambda: TABLE[CHOSEN], ROWS),
        (lambda: TABLE.index_select(0, CHOSEN), ROWS),
        (lambda: TABLE[:3, :5] @ TABLE[:5, :7], [KernelCost(MATMUL, 2 * 3 * 5 * 7, FLOAT * (15 + 35 + 21))]),
    ],
)
def test_kernels_read_their_operands_and_write_their_results(call: object, kernels: list[KernelCost]) -> None:
    assert counted(call) == kernels


def test_gradients_of_a_table_are_written_whole() -> None:
    cost = cost_of(nn.Embedding(1000, 16), torch.arange(5))
    (stage,) = cost.backward

    assert max(one.size_bytes for one in stage.kernels) >= 1000 * 16 * FLOAT
    assert cost.update_bytes == 3 * 1000 * 16 * FLOAT


def test_stages_are_in_the_order_of_gradients_and_add_up() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    cost = cost_of(model, torch.ones(2, 3, 8, 8))
    named = [stage.tensor for stage in cost.backward if stage.tensor]
    kernels = list(chain.from_iterable(stage.kernels for stage in cost.backward))

    assert sorted(named) == sorted(name for name, _ in model.named_parameters())
    assert {named.index(f"3.{one}") for one in ("weight", "bias")} == {0, 1}
    assert sum(one.flops for one in cost.forward) == cost.forward_flops
    assert sum(one.flops for one in kernels) == cost.backward_flops
    assert [one.kind for one in cost.forward if one.flops] == [CONVOLUTION, MATMUL]
    assert [one.kind for one in kernels if one.flops] == [MATMUL, MATMUL, CONVOLUTION_BACKWARD]
    (convolution,) = [one for one in cost.forward if one.kind == CONVOLUTION]
    assert convolution.size_bytes == FLOAT * (2 * 3 * 64 + 8 * 27 + 8 + 2 * 8 * 36)


def test_a_fused_lstm_has_the_operations_of_its_matrices() -> None:
    """PyTorch counts them where oneDNN does not fuse: all but what that leaves out.

    The inputs and the first hidden state need no gradient: two products of each layer's first step, and that
    of the first layer's inputs, are not done there.
    """
    steps, batch, inputs, hidden = 7, 3, 16, 32
    model, sequence = nn.LSTM(inputs, hidden, 2), torch.ones(steps, batch, inputs)

    cost = probe(model, lambda: model(sequence)[0].square().sum()).cost
    forward = 2 * steps * batch * 4 * hidden * (inputs + 3 * hidden)

    assert cost.forward_flops == forward
    assert cost.backward_flops == 2 * forward


def test_cost_of_the_perceptron() -> None:
    """Data are drawn before the passes are counted: two products and biases, a ReLU, the loss."""
    cost = Training("mlp", batch=16).workload(workers=1, seed=1).cost
    layers = 64 * 128, 128 * 10
    activations = 16 * (64 + 128 + 10)  # images, hidden (saved once for two uses), log-probabilities
    parameters = sum(layers) + 128 + 10
    saved_bytes = 4 * (activations + layers[1]) + 8 * 16 + 4  # labels are int64; a scalar weight

    assert [one.kind for one in cost.forward].count(MATMUL) == 2
    assert len(cost.forward) == 5
    assert cost.update_bytes == 3 * FLOAT * parameters
    assert cost.forward_flops == 2 * 16 * sum(layers)
    # both weight gradients, and the hidden layer's; images need none
    assert cost.backward_flops == 2 * 16 * (sum(layers) + layers[1])
    assert cost.forward_bytes // 2 == saved_bytes
    assert cost.backward_bytes == cost.forward_bytes + FLOAT * parameters


def test_timed_passes_leave_the_model_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, state = torch.rand(32, 16), torch.get_rng_state()

    passes, update_ps = timed_passes(model, lambda one: one(inputs).square().sum())

    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())
    names = [name for name, _ in model.named_parameters()]
    assert set(passes.ready_ps) == set(names)
    assert 0 < passes.ready_ps["3.weight"] < passes.ready_ps["0.weight"] <= passes.backward_ps
    assert passes.forward_ps > 0
    assert update_ps > 0


SAMPLES, WORKERS, BATCH, STEPS = 60, 3, 20, 40


def settings(workers: int, seed: int, holds_out: bool = True) -> TaskSettings:
    return TaskSettings("digits", BATCH, workers, seed, holds_out)


def numbered_digits(labels: NDArray[np.int64] | None = None) -> Digits:
    """Images whose first pixel is their number."""
    images = np.zeros((SAMPLES, 64), np.float32)
    images[:, 0] = np.arange(SAMPLES)
    return Digits(images, np.arange(SAMPLES) % 10 if labels is None else labels)


def held_out_digits(workers: int, seed: int) -> set[int]:
    told = Told(lambda images: torch.zeros(len(images), 10))
    images_task(numbered_digits(), settings(workers, seed)).score(told)
    return {int(number) for (images,) in told.asked for number in images[:, 0]}


Seen = Callable[[int, int], list[int]]  # the samples of a step and worker


def digits_seen(holds_out: bool = False) -> Seen:
    task = images_task(numbered_digits(), settings(WORKERS, 1, holds_out))
    return lambda step, worker: [int(one) for one in task.samples(step, worker)[0][0][:, 0]]


def ratings_seen() -> Seen:
    """Every user has rated one item, that of its own number."""
    numbers = np.arange(SAMPLES)
    ratings = Ratings(numbers, numbers, numbers, SAMPLES, SAMPLES)
    task = ratings_task(ratings, batch=BATCH, workers=WORKERS, seed=1)
    return lambda step, worker: [int(one) for one in task.samples(step, worker)[0][0]]


@pytest.mark.parametrize("seen", [digits_seen, ratings_seen])
def test_workers_share_the_samples_without_overlap(seen: Callable[[], Seen]) -> None:
    """Every step and worker has a batch of its own."""
    samples = seen()
    batches = [[tuple(samples(step, worker)) for step in range(STEPS)] for worker in range(WORKERS)]
    own = [{one for batch in found for one in batch} for found in batches]

    # A sample of 20 that is never among STEPS · 4 draws or more has odds of 0.95^160, 0.03 %.
    assert [len(one) for one in own] == [SAMPLES // WORKERS] * WORKERS
    assert set.union(*own) == set(range(SAMPLES))
    assert len({batch for found in batches for batch in found}) == STEPS * WORKERS


def test_no_worker_draws_a_digit_that_is_tested() -> None:
    """An image of 16 that is never among 800 drawn ones: less than once in 10 to the 21."""
    samples = digits_seen(holds_out=True)
    own = [{one for step in range(STEPS) for one in samples(step, worker)} for worker in range(WORKERS)]
    tested = held_out_digits(WORKERS, 1)

    assert len(tested) == SAMPLES // 5
    assert tested == held_out_digits(8, 1) == held_out_digits(3, 2)  # for all seeds and workers
    assert sum(map(len, own)) + len(tested) == SAMPLES
    assert set().union(*own) | tested == set(range(SAMPLES))


def test_without_tests_all_digits_are_trained_on_as_ever() -> None:
    task = images_task(numbered_digits(), settings(WORKERS, 7, holds_out=False))
    for worker, shard in enumerate(shards(SAMPLES, WORKERS, 7)):
        expected = keyed(7, "batch", 2, worker).choice(shard, BATCH)
        assert expected.tolist() == task.samples(2, worker)[0][0][:, 0].tolist()

    assert task.score(Told(lambda images: torch.zeros(len(images), 10))) is None


@pytest.mark.parametrize("data", ["digits", "mnist-5k"])
def test_accuracy_is_that_of_numpy(data: str, large_digits: Digits, mnist: Digits) -> None:
    spec = Training("mlp_784", batch=16, learning_rate=0.1, data=data, evaluate=Evaluate(20))
    workload = spec.workload(workers=2, seed=3)
    train(workload, range(20))
    score = workload.score(19, is_last=False)
    assert isinstance(workload, TrainingWorkload)
    weights = {name: array.astype(float) for name, array in weights_of(workload).items()}

    images, labels = large_digits if data == "digits" else mnist
    tested = keyed(0, "held-out digits").permutation(len(labels))[: len(labels) // 5]
    hidden = np.maximum(images[tested].astype(float) @ weights["0.weight"].T + weights["0.bias"], 0)
    logits = hidden @ weights["2.weight"].T + weights["2.bias"]
    right = [max(range(10), key=row.__getitem__) for row in logits.tolist()] == labels[tested]

    assert score == ("accuracy", pytest.approx(right.mean(), abs=1.5 / len(tested)))  # float32 may tie once
    assert 0.3 < score.value < 1  # it has learned something, and not everything
    counts = np.bincount(labels[tested], minlength=10)
    assert counts.min() > 0.5 * len(tested) / 10  # sorted data would leave classes out


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_wrong(value: float) -> None:
    task = images_task(numbered_digits(np.zeros(SAMPLES, np.int64)), settings(1, 1))

    for logit, accuracy in ((1.0, 1.0), (-1.0, 0.0), (value, 0.0)):
        row = torch.tensor([[logit] + [0.0] * 9])
        told = Told(lambda images, row=row: row.repeat(len(images), 1))
        assert task.score(told) == ("accuracy", accuracy)


@st.composite
def timed_ratings(draw: st.DrawFn) -> Ratings:
    """Ratings in any order, some at the same time, more than one of some user; all leave items unrated."""
    users_count, items_count = draw(st.integers(1, 5)), draw(st.integers(4, 130))
    chosen = st.sets(st.integers(0, items_count - 1), max_size=min(8, items_count - 3))
    pairs = [(user, item) for user in range(users_count) for item in sorted(draw(chosen))]
    pairs = draw(st.permutations(sorted({*pairs, (0, 0), (0, 1)})))
    times = draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)))
    users, items = np.array(pairs).T
    return Ratings(users, items, np.array(times), users_count, items_count)


def last_ratings(ratings: Ratings) -> dict[int, int]:
    """By user, which rating is the last: later ones in the file win among those of one time."""
    last: dict[int, int] = {}
    for index, (user, time) in enumerate(zip(ratings.users.tolist(), ratings.times.tolist(), strict=True)):
        if user not in last or time >= ratings.times[last[user]]:
            last[user] = index
    return last


@examples(40)
@given(timed_ratings(), st.integers(0, 99))
def test_hit_rate_is_that_of_plain_python(ratings: Ratings, seed: int) -> None:
    """Of each list of items, is the first among the ten of the largest logits? Some are equal."""
    task = ratings_task(ratings, batch=4, seed=seed, holds_out=True)
    table = np.random.default_rng(seed).integers(0, 40, (ratings.users_count, ratings.items_count))
    told = Told(lambda users, items: torch.from_numpy(table)[users, items].float())
    score = task.score(told)
    users, items = (torch.cat(parts).tolist() for parts in zip(*told.asked, strict=True))

    last = last_ratings(ratings)
    rated = set(zip(ratings.users.tolist(), ratings.items.tolist(), strict=True))
    most = max(Counter(ratings.users.tolist()).values())
    count = 1 + min(99, ratings.items_count - most)
    asked = [(users[at : at + count], items[at : at + count]) for at in range(0, len(users), count)]
    assert [own[0] for own, _ in asked] == sorted(last)
    hits = 0
    for own, ranked in asked:
        user = own[0]
        assert set(own) == {user}
        assert ranked[0] == ratings.items[last[user]]
        assert len(set(ranked)) == count
        assert not rated & {(user, item) for item in ranked[1:]}
        logits = [int(table[user, item]) for item in ranked]
        hits += sum(rival >= logits[0] for rival in logits[1:]) < 10
    assert score == ("HR@10", hits / len(asked))


def test_no_worker_draws_the_last_rating_of_a_user(movielens: Ratings) -> None:
    task = ratings_task(movielens, batch=20_000, workers=2, seed=5, holds_out=True)
    last = last_ratings(movielens)
    held_out = {(user, int(movielens.items[index])) for user, index in last.items()}
    drawn: set[tuple[int, int]] = set()
    for worker in range(2):
        for step in range(10):
            (users, items), _ = task.samples(step, worker)
            drawn |= set(zip(users[::5].tolist(), items[::5].tolist(), strict=True))

    assert len(held_out) == 943
    assert not drawn & held_out
    # 2 · 10 · 4000 draws with replacement of 99 057 ratings leave e^-0.81 of them out
    assert len(drawn) == pytest.approx(99_057 * (1 - np.exp(-80_000 / 99_057)), rel=0.01)


def test_chance_finds_one_film_in_ten(movielens: Ratings) -> None:
    """Within 5 sigma of 943 draws at 0.1; and a model that knows the held-out film finds it."""
    task = ratings_task(movielens, batch=4, seed=5, holds_out=True)
    generator = torch.Generator().manual_seed(1)
    score = task.score(Told(lambda users, _: torch.rand(len(users), generator=generator)))
    last = {user: int(movielens.items[index]) for user, index in last_ratings(movielens).items()}
    films = torch.tensor([last[user] for user in range(943)])
    knowing = task.score(Told(lambda users, items: (films[users] == items).float()))

    assert score == ("HR@10", pytest.approx(0.1, abs=5 * np.sqrt(0.09 / 943)))
    for logit in (0.0, float("nan")):  # of a model that cannot tell films apart
        told = Told(lambda users, _, logit=logit: torch.full((len(users),), logit))
        assert task.score(told) == ("HR@10", 0.0)
    assert knowing == ("HR@10", 1.0)


def scores(every: int | None, steps: int) -> list[Any]:
    workload = Training("mlp", batch=16, learning_rate=0.5, evaluate=every and Evaluate(every)).workload(
        workers=2, seed=1
    )
    found = []
    for step in range(steps):
        workload.apply(step, totals(workload, step))
        found.append((workload.loss, workload.score(step, is_last=step + 1 == steps)))
    return found


def test_tests_come_after_every_few_steps_and_the_last_and_change_nothing() -> None:
    found = scores(every=3, steps=7)

    assert [step for step, (_, score) in enumerate(found) if score] == [2, 5, 6]
    assert [loss for loss, _ in found] == [loss for loss, _ in scores(every=100, steps=7)]
    assert [score for _, score in scores(every=None, steps=7)] == [None] * 7
