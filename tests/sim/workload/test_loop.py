"""The loop of training: where weights lie, buffers that are reused, exact sums, local steps, metrics."""

from __future__ import annotations

import copy
import gc
import math
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from torch import Tensor, nn

from netfold.errors import DataError
from netfold.homomorphic.message import StepFact
from netfold.sim.workload.fusion import ONE_BUCKET, NoFusion
from netfold.sim.workload.learning_rate import StepDecay
from netfold.sim.workload.optimizers import Adam, Sgd
from netfold.sim.workload.training import TrainingWorkload
from netfold.sim.workload.training_keys import Recipe, ScoreMetric, metric_named
from netfold.sim.workload.weights import Arena, mapped, no_rows, one_thread, rows_of
from tests.examples import examples, nightly
from tests.registry import registered
from tests.sim.workload.given import (
    OUTPUTS,
    SEED,
    Given,
    buffers_of,
    by_name,
    bytes_of,
    dropping,
    linear,
    made,
    normed,
    one_pass,
    totals,
    train,
    weights_of,
)

WORDS, WIDTH = 50, 6


class Table(nn.Module):
    """A table of words, whose gradient may be rows, and a linear layer."""

    def __init__(self, is_sparse: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, sparse=is_sparse)
        self.output = nn.Linear(WIDTH, OUTPUTS)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.output(self.words(ids))
        return found


TABLE = Given(partial(Table, True), ids=WORDS)
DENSE = Given(partial(Table, False), ids=WORDS)


@pytest.mark.parametrize("is_one", [False, True])
def test_rows_are_the_gradient_that_a_dense_table_gets(is_one: bool) -> None:
    fusion = ONE_BUCKET if is_one else None
    sparse, dense = made(TABLE, 3, fusion=fusion), made(DENSE, 3, fusion=fusion)
    assert [bucket.name for bucket in sparse.buckets] == [bucket.name for bucket in dense.buckets]
    for step in range(3):
        for own, other in zip(sparse.gradients(step), dense.gradients(step), strict=True):
            assert len(own) == len(other) == len(sparse.buckets)
            for part, expected in zip(own, other, strict=True):
                assert part.flags.c_contiguous
                assert part.dtype == np.float32
                np.testing.assert_allclose(part, expected, rtol=1e-6, atol=1e-8)
        for worker in range(3):
            places = sorted(set(TABLE.samples(step, worker)[0][0].tolist()))
            found = sparse.rows(worker)["words.weight"]
            assert (found.places.tolist(), found.values.shape) == (places, (len(places), WIDTH))
        assert dense.rows(0) == {}
        sums = totals(dense, step)
        sparse.apply(step, sums)
        dense.apply(step, sums)


class Tables(Table):
    """One that names its table, as ours do."""

    def __init__(self) -> None:
        super().__init__(False)
        self.tables = (self.words,)


@pytest.mark.parametrize("words", [3, WORDS])  # with few, a batch has the same ones several times
def test_tables_that_are_looked_up_once_have_the_gradients_of_pytorch(words: int) -> None:
    """Bit for bit, at every step: what the last step wrote is gone."""
    task = Given(Tables, ids=words)
    workload = TrainingWorkload(task, 2, 0.1, NoFusion(), SEED, is_ours=True)
    for step in range(4):
        for worker, own in enumerate(workload.gradients(step)):
            one_pass(workload.model, task, step, worker)
            for name, found in by_name(workload, own).items():
                gradient = workload.model.get_parameter(name).grad
                assert gradient is not None
                assert not gradient.is_sparse
                assert found.tobytes() == gradient.numpy().tobytes()
        workload.model.zero_grad()
        workload.apply(step, totals(workload, step))


def test_a_table_of_rows_after_other_gradients() -> None:
    """Rows, a whole table, rows, nothing: only the last of them is there."""
    workload = made(DENSE, 1)
    arena, bucket = Arena(workload.buckets, 1), next(one for one in workload.buckets if "words" in one.name)

    def put(*places: int) -> list[int]:
        arena.begin(0)
        values = torch.ones(len(places), WIDTH)
        rows = torch.sparse_coo_tensor([places], values, (WORDS, WIDTH), check_invariants=True)  # type: ignore[arg-type]
        arena.put(0, "words.weight", rows if len(places) < WORDS else rows.to_dense())
        arena.end(0)
        return np.flatnonzero(arena.gradients[0][bucket.index].reshape(WORDS, WIDTH).all(1)).tolist()

    assert put(3, 1, 3) == [1, 3]
    assert put(2) == [2]
    assert put(*range(WORDS)) == list(range(WORDS))
    assert put(4) == [4]
    arena.begin(0)
    arena.end(0)
    assert not arena.gradients[0][bucket.index].any()
    assert put(5) == [5]


def test_a_bucket_with_rows_is_made_while_somebody_holds_it() -> None:
    workload = made(TABLE, 2)
    own = workload.gradients(0)[1]
    index = next(bucket.index for bucket in workload.buckets if "words" in bucket.name)
    held = own[index]

    assert own[index] is held  # also those who compare by identity see one array
    assert own[index - 2] is held
    assert [part is held for part in own[:]] == [number == index for number in range(2)]
    again = np.shares_memory(workload.gradients(0)[1][index], held)
    assert not again  # another list, another array: nobody keeps it
    address = held.ctypes.data
    del held
    gc.collect()
    assert np.flatnonzero(own[index]).size
    assert address  # whatever the new one's is
    with pytest.raises(IndexError):
        own[2]


def test_without_rows_the_arrays_are_those_of_the_first_step() -> None:
    workload = made(DENSE, 2)
    first = [[part.ctypes.data for part in own] for own in workload.gradients(0)]
    train(workload, range(1))

    assert [[part.ctypes.data for part in own] for own in workload.gradients(1)] == first
    assert all(address % 64 == 0 for own in first for address in own)


def test_a_gradient_in_several_parts_is_their_sum() -> None:
    workload = made(TABLE, 1)
    bucket = workload.buckets[0]
    arena = Arena(workload.buckets, 1, {"words.weight"})
    arena.begin(0)
    for _ in range(2):
        for tensor in bucket.tensors:
            arena.put(0, tensor.name, torch.full(tensor.shape, 1.5))
    for places in ([3, 1, 3], [1, 7]):
        values, size = torch.ones(len(places), WIDTH), (WORDS, WIDTH)
        rows = torch.sparse_coo_tensor([places], values, size, check_invariants=True)  # type: ignore[arg-type]
        arena.put(0, "words.weight", rows)
    arena.end(0)

    assert arena.gradients[0][0].tolist() == [3.0] * bucket.elements
    found = arena.rows(0)["words.weight"]
    assert found.places.tolist() == [1, 3, 7]
    assert found.values[:, 0].tolist() == [2.0, 2.0, 1.0]
    arena.begin(0)
    arena.end(0)
    assert not any(part.any() for part in arena.gradients[0])


tables = npst.arrays(np.float32, (7, 3), elements=st.integers(-3, 3).map(float))


@examples(50)
@given(tables, tables)
def test_rows_add_up_as_tables_do(first: np.ndarray, second: np.ndarray) -> None:
    one, other = (rows_of(torch.from_numpy(table)) for table in (first, second))
    both = one.plus(other)
    made = np.zeros(21, np.float32)
    both.write(made)

    assert np.array_equal(made.reshape(7, 3), first + second)
    assert np.all(np.diff(both.places) > 0)
    assert one.places.tolist() == [row for row in range(7) if first[row].any()]
    assert one.nbytes == one.places.size * (8 + 3 * 4)
    assert rows_of(torch.from_numpy(first).to_sparse(1)).places.tolist() == one.places.tolist()
    table = mapped(21)
    no_rows(3).plus(one).write(table)
    assert np.array_equal(table.reshape(7, 3), first)


class Odd(nn.Module):
    """Weights that do not follow one another in memory, and some that are not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, OUTPUTS).T)
        self.frozen = nn.Parameter(torch.randn(OUTPUTS), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.linear(inputs, self.weight, self.frozen)


class Doubles(nn.Linear):
    """A layer in float64, of which the others do not know."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs.double()).float()


def test_weights_of_another_type_are_refused_in_words() -> None:
    with pytest.raises(DataError, match=r"^the parameter bias has values of torch\.float64, gradients"):
        made(Given(lambda: Doubles(5, OUTPUTS, dtype=torch.float64)), 2)


def test_weights_that_lie_otherwise_in_memory_are_trained_and_frozen_ones_are_not() -> None:
    workload = made(Given(Odd), 2)
    assert [tensor.name for bucket in workload.buckets for tensor in bucket.tensors] == ["weight"]
    before, sums = weights_of(workload), totals(workload, 0)
    workload.apply(0, sums)
    after = weights_of(workload)

    assert np.array_equal(after["frozen"], before["frozen"])
    moved = before["weight"] - np.float32(0.1 / 2) * sums[0].reshape(OUTPUTS, 5)
    assert np.array_equal(after["weight"], moved)


_PEAK = """
import torch
from torch import nn
from netfold.sim.workload.fusion import BySize
from netfold.sim.workload.training import TrainingWorkload

class Task:
    def build(self): return nn.Sequential(*[nn.Linear(1250, 1250) for _ in range(16)])
    def samples(self, step, worker): return (torch.ones(1, 1250),), torch.ones(1, 1250)
    def loss(self, outputs, targets): return ((outputs - targets) ** 2).mean()

def size(key):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(key))

(Task().build()(torch.ones(1, 1250)).sum()).backward()
before = size("VmRSS")
workload = TrainingWorkload(Task(), 4, 0.1, BySize(10 << 20), 1)
for step in range(2):
    gradients = workload.gradients(step)
print((size("VmHWM") - before) / 4 / sum(bucket.elements for bucket in workload.buckets))
"""


@nightly  # 3 s
@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_that_of_the_weights_and_a_gradient_for_each_worker() -> None:
    """25 M weights, 4 workers, in units of a gradient: 5, and one layer of 16; it was 8 with copies."""
    found = subprocess.run([sys.executable, "-c", _PEAK], capture_output=True, text=True, check=True)

    assert float(found.stdout) < 5.6


STATISTICS = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_statistics_are_those_of_worker_0() -> None:
    """A model that sees the batches of worker 0 alone, at the same weights."""
    task = Given(normed)
    workload = made(task, 3)
    assert set(dict(workload.model.named_buffers())) == STATISTICS
    alone = copy.deepcopy(workload.model)
    for step in range(4):
        alone.load_state_dict(dict(workload.model.named_parameters()), strict=False)
        (inputs,), _ = task.samples(step, 0)
        with one_thread():
            alone(inputs)
        workload.apply(step, totals(workload, step))

        assert buffers_of(workload.model) == buffers_of(alone)
    assert workload.model.get_buffer("1.num_batches_tracked").item() == 4  # the probe does not count


def test_a_test_uses_running_statistics_and_changes_nothing() -> None:
    task = Given(normed)
    workload = made(task, 2)
    workload.model[3].eval()  # type: ignore[index]  # a part that its owner has frozen stays so
    train(workload, range(3))
    before = buffers_of(workload.model)
    score = workload.score(2, is_last=True)
    model = copy.deepcopy(workload.model).eval()
    inputs, targets = task.samples(10**6, 0)

    assert score is not None
    assert score.value == pytest.approx(task.loss(model(*inputs), targets).item(), rel=1e-6)
    assert buffers_of(workload.model) == before
    workload.keep_weights(1)  # nor does a pass at kept weights
    workload.kept_gradients(3, 1)
    assert buffers_of(workload.model) == before
    assert [module.training for module in workload.model] == [True, True, True, False]  # type: ignore[attr-defined]
    assert workload.model.training


def test_a_model_that_is_built_otherwise_each_time_is_refused_at_the_restart() -> None:
    count = iter(range(10))

    def other() -> nn.Module:
        model = linear()
        nn.init.constant_(model[0].weight, next(count))  # type: ignore[index]
        return model

    workload = made(Given(other), 2)
    workload.restart()  # nothing has moved
    train(workload, range(1))
    with pytest.raises(DataError, match="the model has other weights each time it is built"):
        workload.restart()


def test_a_model_of_ours_is_built_once() -> None:
    built = []
    task = Given(lambda: built.append(1) or normed())  # type: ignore[func-returns-value]
    workload = TrainingWorkload(task, 2, 0.1, NoFusion(), SEED, is_ours=True)
    start = bytes_of(workload), buffers_of(workload.model)
    train(workload, range(3))
    assert bytes_of(workload) != start[0]
    for _ in range(2):
        workload.restart()
        assert (bytes_of(workload), buffers_of(workload.model)) == start
        train(workload, range(2))
    assert len(built) == 1


def test_dropout_is_keyed_by_step_and_worker() -> None:
    """The same bits whatever was drawn before; other elements at another step or worker."""
    state = torch.get_rng_state()
    task = Given(dropping)
    workload, other = made(task, 3), made(task, 3)
    train(workload, range(2))
    assert torch.equal(torch.get_rng_state(), state)  # PyTorch's own is left alone
    torch.manual_seed(5)
    other.gradients(1)  # out of order
    other.restart()
    train(other, range(2))
    assert bytes_of(workload) == bytes_of(other)

    def dropped(step: int, worker: int) -> frozenset[int]:
        """Units of the hidden layer without a gradient at any sample: 1 in 16, drawn."""
        parts = other.gradients(step)[worker]
        bias = parts[1][:40]
        assert other.buckets[1].tensors[0].name == "0.bias"
        return frozenset(np.flatnonzero(bias == 0).tolist())

    assert len({dropped(5, worker) for worker in range(3)}) > 1
    assert len({dropped(step, 0) for step in range(5, 9)}) > 1
    torch.set_rng_state(state)


RATE, LOCAL = 0.2, 3
PLAIN = Recipe(local_steps=LOCAL)


@pytest.mark.parametrize(
    ("optimizer", "plain"),
    [
        (Sgd(), torch.optim.SGD),
        (Sgd(0.9), partial(torch.optim.SGD, momentum=0.9)),
        (Adam(), torch.optim.Adam),
    ],
)
def test_each_worker_keeps_an_optimizer_of_its_own_from_one_exchange_to_the_next(
    optimizer: Sgd | Adam, plain: Callable[..., torch.optim.Optimizer]
) -> None:
    """Loops of PyTorch, an optimizer for each worker, whose weights are replaced by the mean."""
    task, workers = Given(linear), 2
    workload = made(
        task,
        workers,
        RATE,
        Recipe(optimizer=optimizer, schedule=StepDecay(4, 0.5), steps=3, local_steps=LOCAL),
    )
    models = [copy.deepcopy(workload.model) for _ in range(workers)]
    theirs = [plain(model.parameters(), RATE) for model in models]
    for step in range(3):
        for worker, (model, own) in enumerate(zip(models, theirs, strict=True)):
            for local in range(LOCAL):
                number = step * LOCAL + local
                one_pass(model, task, number, worker)
                own.param_groups[0]["lr"] = RATE * 0.5 ** (number // 4)
                with one_thread():
                    own.step()
        train(workload, range(step, step + 1))
        for key, mean in weights_of(workload).items():
            owns = [one.get_parameter(key).detach().numpy() for one in models]
            np.testing.assert_allclose(mean, np.mean(owns, axis=0, dtype=float), rtol=1e-4, atol=1e-6)
            for one in models:
                one.get_parameter(key).data.copy_(torch.from_numpy(mean))


def test_differences_from_kept_weights_are_those_of_the_steps_from_there() -> None:
    task = Given(linear)
    workload, other = made(task, 2, RATE, PLAIN), made(task, 2, RATE, PLAIN)
    workload.keep_weights(1)
    train(workload, range(2))
    here = [part.copy() for part in workload.gradients(2)[1]]
    kept = workload.kept_gradients(2, 1)
    at_start = other.gradients(2)[1]  # a workload that has not moved

    assert [part.tobytes() for part in kept] == [part.tobytes() for part in at_start]
    assert [part.tobytes() for part in here] == [part.tobytes() for part in workload.gradients(2)[1]]
    assert not np.array_equal(kept[0], here[0])
    workload.keep_weights(0)
    assert [part.tobytes() for part in workload.kept_gradients(2, 0)] == [
        part.tobytes() for part in workload.gradients(2)[0]
    ]


def test_the_rate_of_an_exchange_is_one_and_its_passes_are_counted() -> None:
    """So weights −= rate · sum / workers holds, and codecs that make updates can be used."""
    local, plain = made(Given(linear), 2, RATE, PLAIN), made(Given(linear), 2, RATE)

    assert (local.learning_rate, plain.learning_rate) == (1.0, RATE)
    assert (local.cost.passes, plain.cost.passes) == (LOCAL, 1)
    assert local.cost.forward_flops == plain.cost.forward_flops
    assert [bucket.ready_share for bucket in local.buckets] == [1.0, 1.0]
    assert plain.buckets[0].ready_share < 1
    everything, rate = frozenset(StepFact), StepFact.LEARNING_RATE
    assert local.facts == Recipe().facts == Recipe(optimizer=Sgd(), local_steps=2).facts == everything
    assert (
        Recipe(optimizer=Adam()).facts == Recipe(optimizer=Sgd(weight_decay=0.1)).facts == everything - {rate}
    )
    assert Recipe(optimizer=Adam(), local_steps=2).facts == everything - {StepFact.KEPT_WEIGHTS}
    assert Recipe(optimizer=Sgd(weight_decay=0.1), local_steps=2).facts == everything


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
    assert metric_named("BLEU of a test") == ScoreMetric("BLEU of a test")
    with registered(ScoreMetric("edits of a test", more_is_better=False)):
        assert not metric_named("edits of a test").more_is_better
