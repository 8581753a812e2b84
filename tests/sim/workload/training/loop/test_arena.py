"""The arena: gradients as PyTorch gives them, rows that stay rows, and how much memory that takes."""

from __future__ import annotations

import gc
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from torch import Tensor, nn

from netfold.sim.errors import DataError
from netfold.sim.workload.fusion.one import ONE_BUCKET
from netfold.sim.workload.training.loop.arena import Arena, mapped
from netfold.sim.workload.training.loop.rows import no_rows, rows_of
from tests.examples import examples, nightly
from tests.sim.workload.training.loop.given import OUTPUTS, Given, made, totals, train

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


def rows(places: list[int], values: Tensor) -> Tensor:
    return torch.sparse_coo_tensor([places], values, (WORDS, WIDTH), check_invariants=True)  # type: ignore[arg-type]


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
            ids = TABLE.samples(step, worker)[0][0].numpy()
            found = sparse.rows(worker)["words.weight"]
            assert found.places.tolist() == sorted(set(ids.tolist()))
            assert found.values.shape == (len(set(ids.tolist())), WIDTH)
        assert dense.rows(0) == {}
        sums = totals(dense, step)
        sparse.apply(step, sums)
        dense.apply(step, sums)


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
    shapes = {tensor.name: tensor.shape for tensor in bucket.tensors}
    for _ in range(2):
        for name, shape in shapes.items():
            arena.put(0, name, torch.full(shape, 1.5))
    for places in ([3, 1, 3], [1, 7]):
        values = torch.ones(len(places), WIDTH)
        arena.put(0, "words.weight", rows(places, values))
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
    before = {name: one.detach().clone() for name, one in workload.model.named_parameters()}
    found = totals(workload, 0)
    workload.apply(0, found)
    after = dict(workload.model.named_parameters())

    assert torch.equal(after["frozen"], before["frozen"])
    moved = before["weight"].numpy() - np.float32(0.1 / 2) * found[0].reshape(OUTPUTS, 5)
    assert np.array_equal(after["weight"].detach().numpy(), moved)


_PEAK = """
import torch
from torch import nn
from netfold.sim.workload.fusion.size import BySize
from netfold.sim.workload.training.workload import TrainingWorkload

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
