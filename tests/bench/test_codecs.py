"""The loads of the codecs do the stated work, whole or divided; `make bench` measures their speed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from netfold.homomorphic.index import bits
from netfold.homomorphic.kernels.largest import largest
from netfold.homomorphic.sketch.counts import estimate
from tests.bench import codecs, sketches
from tests.reference.systems.count_sketch import Hashes

ELEMENTS = 3 * codecs.BLOCK_ELEMENTS + 100


@pytest.mark.parametrize("middle", [0, codecs.BLOCK_ELEMENTS, 3 * codecs.BLOCK_ELEMENTS])
def test_packing_gives_the_gradient_back(middle: int) -> None:
    load = codecs.Sparse(ELEMENTS, 0.05)
    load.index[:] = 0
    for work in (load.pack, load.expand):
        for begin, end in ((0, middle), (middle, ELEMENTS)):
            work(begin, end)

    assert load.words.size == np.count_nonzero(load.gradient) > 500
    assert np.abs(load.decoded - load.gradient).max() <= 2**-28  # half of the step, 16 / 2^31


def test_a_peeled_sketch_gives_the_integers_back() -> None:
    load = codecs.Sparse(ELEMENTS, 0.05)
    load.sketch(0, ELEMENTS)
    integers = load.words.copy()
    load.words[:] = 0

    load.peel(0, ELEMENTS)

    assert integers.tolist() == load.words.tolist()
    assert not load.is_failed.any()


def test_indexes_are_right() -> None:
    load = codecs.Sparse(ELEMENTS, 0.01)
    load.write_two_levels(0, ELEMENTS)
    load.fill_filter(0, ELEMENTS)
    load.ask_filter(0, 4096)
    load.ask_filter(4096, ELEMENTS)

    assert bits.count_members(load.index) == np.count_nonzero(load.gradient)
    assert load.live_words.tolist() == [word for word in load.index.tolist() if word]
    assert not (load.index & ~load.named).any()
    assert bits.count_members(load.named) < 1.5 * np.count_nonzero(load.gradient)


@pytest.mark.parametrize("middle", [0, 1024, ELEMENTS // 32 * 32])
def test_signs_are_those_of_gradient_and_residual_and_torch_packs_the_same(middle: int) -> None:
    load = codecs.Signs(ELEMENTS)
    load.words[:] = 0
    for begin, end in ((0, middle), (middle, ELEMENTS)):
        load.pack(begin, end)
    load.pack_in_torch(0, ELEMENTS)

    right = np.packbits(load.gradient + load.residual >= 0, bitorder="little")
    assert load.words.view(np.uint8)[: right.size].tolist() == right.tolist()
    assert load.bytes.numpy().tolist() == right[: load.bytes.numel()].tolist()


def test_every_load_has_a_row() -> None:
    rows = codecs.table(ELEMENTS)

    assert rows.row_count == 4 + 4 + 6 + 3 + 2 * 11


def test_the_formulation_in_pytorch_keeps_as_many_rows() -> None:
    tensors = torch.from_numpy(np.random.default_rng(1).standard_normal((500, 64), np.float32))

    scale, signs, kept = codecs._bird_in_torch(tensors)

    assert len(kept) == 50
    assert signs.size == 50 * 64 // 8
    assert scale > tensors.abs().sum(dim=1).max() / 64


def test_sketches_are_those_of_the_formulation_beside_them() -> None:
    """With our buckets and signs, PyTorch's tables, estimates and choice are the same."""
    load = sketches.Sketches(ELEMENTS)
    hashes = Hashes(sketches.ROWS, load.columns, 32, 1)
    places = [[hashes.of(row, element) for element in range(ELEMENTS)] for row in range(sketches.ROWS)]
    load.buckets[:], load.signs[:] = torch.tensor(places).permute(2, 0, 1)
    load.scatter(0, ELEMENTS)
    gathered = torch.median(torch.gather(load.table, 1, load.buckets) * load.signs, dim=0).values
    estimates = estimate(load.rows, load.sketch, ELEMENTS)
    chosen = torch.topk(load.tensor.abs(), load.chosen).indices

    assert np.abs(load.table.numpy().ravel() - load.sketch).max() < 1e-5
    assert np.abs(gathered.numpy() - estimates).max() < 1e-5
    assert largest(load.values, load.chosen).tolist() == sorted(chosen.tolist())
