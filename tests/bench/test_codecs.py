"""The loads of the benchmarks do exactly the stated work, whole or divided; `make bench` measures speed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from netfold.homomorphic.codecs.count_sketch import estimate
from netfold.homomorphic.merge import Merge
from netfold.kernels.bits import largest
from tests.bench import beside, codecs, loads, nspy, rates
from tests.bench import loads as rings
from tests.reference.systems.count_sketch import Hashes

ELEMENTS = 3 * rates.BLOCK_ELEMENTS + 100


@pytest.mark.parametrize("middle", [0, rates.BLOCK_ELEMENTS, 3 * rates.BLOCK_ELEMENTS])
def test_packing_gives_the_gradient_back(middle: int) -> None:
    load = codecs.Sparse(ELEMENTS, 0.05)
    load.index[:] = 0
    for work in (load.pack, load.expand):
        for begin, end in ((0, middle), (middle, ELEMENTS)):
            work(begin, end)

    assert load.words.size == np.count_nonzero(load.gradient) > 500
    assert np.abs(load.decoded - load.gradient).max() <= 2**-28  # half of the step, 16 / 2^31


@pytest.mark.parametrize("middle", [0, 1024, ELEMENTS // 32 * 32])
def test_signs_are_those_of_gradient_and_residual_and_torch_packs_the_same(middle: int) -> None:
    load = beside.Signs(ELEMENTS)
    load.words[:] = 0
    for begin, end in ((0, middle), (middle, ELEMENTS)):
        load.pack(begin, end)
    load.pack_in_torch(0, ELEMENTS)

    right = np.packbits(load.gradient + load.residual >= 0, bitorder="little")
    assert load.words.view(np.uint8)[: right.size].tolist() == right.tolist()
    assert load.bytes.numpy().tolist() == right[: load.bytes.numel()].tolist()


def test_every_load_has_a_row_and_every_bar() -> None:
    measured, bars = codecs.measure_all(ELEMENTS)

    assert measured.row_count == 4 + 4 + 6 + 3 + 2 * 11
    assert list(zip(*(column.cells for column in bars.columns[:3]), strict=True)) == [
        ("marsit: encode (signs, residual)", "read", "0.8 ×"),
        ("bird: encode", "top-k by sorting all", "10 ×"),
        ("count sketch, 3 rows", "in PyTorch, as csvec: bincount", "5 ×"),
        ("the largest 1%", "torch.topk(|x|, 1%)", "15 ×"),
    ]


def test_a_ratio_is_held_to_its_bar() -> None:
    """Bars of 3; a load that reads 8 bytes of an element reads at twice its rate."""

    def idle(begin: int, end: int) -> None:
        """Do nothing."""

    bar = rates.Bar("other", 3)
    loads = [
        rates.Load("at", idle, bar=bar),
        rates.Load("under", idle, bar=bar),
        rates.Load("reads", idle, read_bytes=8, bar=bar),
        rates.Load("other", idle),
    ]

    rows = rates.held(loads, {"at": 6e9, "under": 5.9e9, "reads": 4e9, "other": 2e9, "of none": 1.0})

    assert rows == [
        ("at", "other", "3 ×", "3.00 ×", "ok"),
        ("under", "other", "3 ×", "2.95 ×", "below"),
        ("reads", "other", "3 ×", "4.00 ×", "ok"),
    ]


def test_sketches_are_those_of_the_formulation_beside_them() -> None:
    """With our buckets and signs, PyTorch's tables, estimates and choice are the same."""
    load = beside.Sketches(ELEMENTS)
    hashes = Hashes(beside.ROWS, load.columns, 32, 1)
    places = [[hashes.of(row, element) for element in range(ELEMENTS)] for row in range(beside.ROWS)]
    load.buckets[:], load.signs[:] = torch.tensor(places).permute(2, 0, 1)
    load.bincount(0, ELEMENTS)
    gathered = torch.median(torch.gather(load.table, 1, load.buckets) * load.signs, dim=0).values
    estimates = estimate(load.rows, load.sketch, ELEMENTS)
    chosen = torch.topk(load.tensor.abs(), load.chosen).indices

    assert np.abs(load.table.numpy().ravel() - load.sketch).max() < 1e-5
    assert np.abs(gathered.numpy() - estimates).max() < 1e-5
    assert largest(load.values, load.chosen).tolist() == sorted(chosen.tolist())


def test_w1_takes_the_ideal_time_and_two_hops_a_packet() -> None:
    run = loads.w1(1000)

    assert run.simulated_ms == (1000 * 80_000 + 80_000 + 2 * 10**6) / 1e9
    assert run.packet_hops == 16_000
    # Acknowledgements: the 15 full batches of 64, the last packet, two hops each, less what is under way.
    assert run.packet_hops <= run.events <= run.packet_hops + 2 * 8 * 16


def test_w2_takes_six_hops_or_fewer_on_all_hosts() -> None:
    run, theirs = loads.w2(50, k=4), nspy.w2(50, k=4)

    assert sorted(loads.permutation(16)) == list(range(16))
    assert all(host != target for host, target in enumerate(loads.permutation(16)))
    assert run.packet_hops == theirs.packet_hops
    assert 2 * 16 * 50 < run.packet_hops <= 6 * 16 * 50
    assert run.packet_hops <= run.events <= run.packet_hops * 1.1
    # Packets are sent at once or at the rate of the link, and ns.py's first one waits for its own time on it.
    assert abs(theirs.simulated_ms - run.simulated_ms - 8e-5) < 1e-9


def test_w4_sums_every_word_in_two_events_a_packet() -> None:
    buffers = loads.w4_words(256 * 1000)
    run = loads.w4(buffers)

    assert run.events == run.packet_hops == 2 * 8 * 1000
    right = sum(words for words, _ in buffers)
    assert all(np.array_equal(sums, right) for _, sums in buffers)


def test_w3_takes_the_ideal_time_and_a_packet_more_for_each_step() -> None:
    hosts, words = 8, 8 * 10 * rings.FRAME.elements
    run, _ = rings.ring(hosts, words)

    assert run.simulated_ms == rings.stored_ms(hosts, words)
    assert run.packet_hops == 2 * 2 * 7 * 8 * 10
    assert run.packet_hops <= run.events <= 1.2 * run.packet_hops


def test_rings_merge_the_words_of_all() -> None:
    run, result = rings.ring(5, 1000, times=2, merge=Merge.ADD)

    assert set(result.tolist()) == {15}
    assert run.packet_hops == 2 * 2 * 2 * 4 * 5
