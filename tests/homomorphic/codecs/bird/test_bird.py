"""Codec `bird` against its plain twin, and what BIRD says of its sampling."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Codec, DecodeError, EncodeError, Request
from netfold.homomorphic.codecs.bird.gathered import RowsEncoder, RowsServer
from netfold.homomorphic.codecs.bird.plus import BirdPlus
from netfold.homomorphic.codecs.bird.published import Bird
from netfold.homomorphic.codecs.bird.rows import Group, Rider, groups_of
from netfold.homomorphic.codecs.bird.shared import BirdShared
from netfold.homomorphic.message import Merged
from netfold.homomorphic.round import Round, Tensor
from netfold.testing import check_round
from tests.examples import examples
from tests.homomorphic.codecs.bird.layers import (
    SMALL,
    Shapes,
    buckets,
    drawn,
    expected_norms,
    farthest,
    flat,
    folded,
    layers_of,
    places_of,
    round_of,
    row_norms,
    tensors_of,
    uneven,
)
from tests.reference.systems import bird as twin

SHAPES: Shapes = [(12, 40, 1), (5, 27, 2), (30, 8, 0)]


@examples(15)
@given(bucket=buckets(), share=st.sampled_from([0.01, 0.1, 0.34, 1.0]), norm=st.sampled_from(["l1", "l2"]))
def test_a_round_by_the_plain_twin(bucket: tuple[Shapes, int], share: float, norm: str) -> None:
    shapes, seed = bucket
    gradients = [drawn(shapes, seed + worker) for worker in range(3)]
    round = round_of(shapes, 3, step=seed % 5, bucket=2)

    found = folded(Bird(share, norm), gradients, round)

    total = np.zeros(gradients[0].size)
    for rank, gradient in enumerate(gradients):
        layers = layers_of(gradient, shapes)
        sent = [
            twin.bird(layer, (7, round.step, 2, rank, number), share, norm)
            for number, layer in enumerate(layers)
        ]
        words = found.messages[0][rank][0].words
        expected = np.frombuffer(twin.message(layers, sent, places_of(shapes)), np.uint32)
        scales = len(tensors_of(shapes))
        assert words[scales:].tolist() == expected[scales:].tolist()
        assert words[:scales].view(np.float32) == pytest.approx(expected[:scales].view(np.float32), rel=2e-7)
        own = flat([twin.decoded(layer, one) for layer, one in zip(layers, sent, strict=True)], shapes)
        assert found.contributions[rank] == pytest.approx(own, rel=2e-7)
        total += own
    assert found.decoded[0] == pytest.approx(total, rel=1e-6, abs=1e-6 * np.abs(total).max())


@pytest.mark.parametrize(
    "codec",
    [
        Bird(0.1),
        Bird(1.0, down="rows"),
        BirdPlus(of="values", gamma=2.0, scales="row", share=0.5),
        BirdPlus(ratio=1.0, down="rows"),
        BirdShared(0.3, 4),
        BirdShared(0.3, 16),
    ],
    ids=repr,
)
@examples(8)
@given(bucket=buckets(), workers=st.integers(1, 7))
def test_the_law_for_layers(codec: Codec, bucket: tuple[Shapes, int], workers: int) -> None:
    shapes, seed = bucket
    gradients = [drawn(shapes, seed + worker) for worker in range(workers)]

    found = check_round(codec, gradients, round_of(shapes, workers))

    if isinstance(codec, BirdShared):
        together = np.sum([one.astype(np.float64) for one in found.contributions], axis=0)
        assert found.decoded[0].tolist() == together.astype(np.float32).tolist()


DRAWS = 1500


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_every_row_keeps_its_l1_norm_in_expectation(share: float) -> None:
    """With one sampling, and with the second one at work; 5 standard errors, for fixed seeds."""
    gradient = uneven(SMALL)
    found = row_norms(Bird(share), gradient, SMALL, DRAWS)

    assert farthest(found, expected_norms(SMALL, gradient)) < 5


@pytest.mark.parametrize(("share", "rows", "most"), [(0.1, 1, 1), (0.1, 10, 1), (0.1, 11, 2), (0.34, 50, 17)])
def test_at_most_a_share_of_the_rows_is_sent(share: float, rows: int, most: int) -> None:
    gradient = np.ones(rows * 4, np.float32)  # every row is kept by the first sampling
    for step in range(5):
        found = folded(Bird(share), [gradient], round_of([(rows, 4, 0)], step=step))
        assert np.count_nonzero(found.decoded[0]) == 4 * most
        assert found.decoded[0].max() == np.float32(rows / most)


def test_layers_without_a_row_do_not_shift_the_scales_of_others() -> None:
    """The prototype leaves them out of its list of scales, which then belong to the wrong layers."""
    shapes: Shapes = [(4, 8, 1), (3, 5, 2), (6, 7, 1)]
    gradient = uneven(shapes)
    tensors = tensors_of(shapes)
    gradient[tensors[3].place] = 0  # the weight of the second layer; its riders are not zero

    found = folded(Bird(1.0), [gradient], round_of(shapes))

    layers = layers_of(gradient, shapes)
    sent = [twin.bird(layer, (7, 0, 0, 0, number), 1.0) for number, layer in enumerate(layers)]
    right = flat([twin.decoded(layer, one) for layer, one in zip(layers, sent, strict=True)], shapes)
    assert found.contributions[0] == pytest.approx(right, rel=2e-7)
    assert not found.contributions[0][tensors[2].start : tensors[4].start + 3].any()
    words = found.messages[0][0][0].words
    scales = words[: len(tensors)].view(np.float32)
    assert (scales != 0).tolist() == [True, True, False, False, False, True, True]


@pytest.mark.parametrize("codec", [Bird(), Bird(down="rows")])
def test_a_bucket_of_zeros_is_an_empty_message_that_all_understand(codec: Bird) -> None:
    gradients = [np.zeros(480 + 12, np.float32)] * 3
    found = folded(codec, gradients, round_of([(12, 40, 1)], 3))

    assert not found.decoded[0].any()
    assert found.messages[0][0][0].words.tolist() == [0, 0, 0, 0]  # scales, no signs, no rows
    assert not folded(codec, gradients, Round(0, 0, 3, 1)).decoded[0].any()  # of tensors that nobody knows


def test_which_tensors_are_rows_and_which_ride() -> None:
    tensors = (
        Tensor("conv.bias", (6,), "conv", 0),
        Tensor("conv.weight", (6, 3, 2, 2), "conv", 6),
        Tensor("norm.weight", (6,), "conv", 78),
        Tensor("conv.odd", (5,), "conv", 84),
        Tensor("lstm.ih", (8, 3), "lstm", 89),
        Tensor("lstm.hh", (8, 2), "lstm", 113),
        Tensor("lstm.bias", (8,), "lstm", 129),
        Tensor("scale", (), "", 137),
        Tensor("alone", (6,), "", 138),
    )
    assert groups_of(tensors) == (
        Group("conv.weight", 1, 6, 6, 12, (Rider(0, 0), Rider(2, 78))),
        Group("conv.odd", 3, 84, 1, 5),
        Group("lstm.ih", 4, 89, 8, 3, (Rider(6, 129),)),
        Group("lstm.hh", 5, 113, 8, 2),
        Group("scale", 7, 137, 1, 1),
        Group("alone", 8, 138, 1, 6),
    )


def test_nothing_is_kept_between_rounds_and_little_is_needed_in_one() -> None:
    """Up to its message an encoder needs norms and draws of rows, and the message: no other gradient."""
    shapes: Shapes = [(1000, 1000, 1)] * 4
    gradient = np.random.default_rng(1).standard_normal(4 * 1_001_000).astype(np.float32)
    round = round_of(shapes)
    encoder = Bird().worker(0, 1, 0)
    next(encoder.exchange(gradient, round))  # compiles
    tracemalloc.start()
    try:
        (message,) = next(encoder.exchange(gradient, round))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert Bird().state_bytes == 0
    assert encoder.state() == {}
    assert encoder.residual(0) is None
    assert peak < 100 * 1000 + 3 * message.words.nbytes < 0.05 * gradient.nbytes


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, math.nan])
def test_shares_that_are_none(share: float) -> None:
    with pytest.raises(ValueError, match=r"must be above 0 and at most 1, 0\.1 is usual"):
        Bird(share)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("element", [3, 13, 490])
def test_elements_that_are_not_finite(value: float, element: int) -> None:
    gradient = drawn(SHAPES[:1], 1)
    gradient[element] = value

    with pytest.raises(
        EncodeError, match=rf"gradient\[{element}\] of 0.1 is -?(nan|inf): its row has no norm"
    ):
        folded(Bird(), [gradient], round_of(SHAPES[:1]))


def test_sums_beyond_float32_are_refused() -> None:
    gradient = np.full(4, 1.7e38, np.float32)
    folded(Bird(1.0), [gradient], round_of([(2, 2, 0)]))

    with pytest.raises(EncodeError, match=r"sums of 2 workers may leave float32, up to 8\.5"):
        folded(Bird(1.0), [gradient] * 2, round_of([(2, 2, 0)], 2))


def test_work_is_that_of_reading_twice_at_most() -> None:
    gradient = drawn([(100, 50, 0)], 1)
    (message,) = next(Bird(0.1).worker(0, 1, 0).exchange(gradient, round_of([(100, 50, 0)])))
    sent = int(message.words[1])

    assert message.work.read_bytes == gradient.nbytes + 4 * sent + 8 * 100
    assert message.work.written_bytes == message.words.nbytes + 8 * 100
    server = Bird().server(1, 0)
    assert server is not None
    work = server.work([message.words], gradient)
    assert work.read_bytes >= message.words.nbytes + 4 * sent
    assert work.written_bytes >= gradient.nbytes + 4 * sent


# Messages of rows that were damaged on the way.


def damaged(change: str) -> np.ndarray:
    shapes: Shapes = [(8, 4, 0)]
    words = folded(Bird(0.5), [np.ones(32, np.float32)], round_of(shapes)).messages[0][0][0].words.copy()
    assert words.size == 1 + 1 + 1 + 4 + 1  # scale, count, signs, indices, rows of the layer
    match change:
        case "short":
            return words[:2]
        case "longer":
            return np.append(words, np.uint32(4))
        case "signs":
            words[1] = 17
        case "rows":
            words[-1] = 9
        case "index":
            words[-2] = 8
        case "order":
            words[3] = words[4]
    return words


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("short", "has 2 words, too few for 1 scales"),
        ("longer", "has 9 words and 16 signs, its rows need 8 and 16"),
        ("signs", "has 8 words and 17 signs, its rows need 8 and 16"),
        ("rows", "has more rows than their layer"),
        ("index", "its indices are not ascending rows of 8"),
        ("order", "its indices are not ascending rows of 8"),
    ],
)
def test_damaged_messages(change: str, reason: str) -> None:
    request = Request(0, 0, 0, "rows", tensors_of([(8, 4, 0)]))

    with pytest.raises(DecodeError, match=f"worker 1's message of rows is damaged: .*{reason}"):
        RowsServer(False).merge([damaged(""), damaged(change)], request)


def test_a_sum_of_another_length() -> None:
    exchange = RowsEncoder(Bird(), 0).exchange(np.ones(4, np.float32), Round(0, 0, 1, 1))
    next(exchange)

    with pytest.raises(DecodeError, match="has 3 elements, not 4"):
        exchange.send((Merged(np.ones(3, np.float32), 1),))


# Sizes of BIRD's messages: the prototype's, those of real ones, and top-k's at the same density.

RESNET = [(64, 3 * 49, 2)]  # rows, elements of a row, vectors that ride along
for before, after, blocks in ((64, 64, 2), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
    for block in range(blocks):
        RESNET += [(after, 9 * (before if block == 0 else after), 2), (after, 9 * after, 2)]
        if block == 0 and before != after:
            RESNET.append((after, before, 2))
RESNET += [(256, 512, 1), (10, 256, 1)]
BIAS = 64  # of the first convolution: the prototype sends it whole
COUNTERS = 20  # of batches, one for each norm: the prototype sends a scale for each, and nothing else
ELEMENTS = 11_310_474


@pytest.mark.parametrize(
    ("share", "size_bytes", "ratio"),
    [(1.0, 1_434_419, 31.5), (0.1, 146_164, 309.5), (0.05, 73_707, 613.8), (0.01, 17_539, 2579)],
)
def test_the_sizes_of_the_prototype(share: float, size_bytes: int, ratio: float) -> None:
    """Its ResNet-18: a convolution of 7 × 7 with a bias at first, two linear layers at the end."""
    assert sum(rows * (n + riders) for rows, n, riders in RESNET) + BIAS == ELEMENTS

    found = twin.published_bytes(RESNET, share, BIAS, COUNTERS)

    assert found == size_bytes
    assert 4 * ELEMENTS / found == pytest.approx(
        ratio, rel=2e-4 if ratio > 1000 else 2e-3 if ratio < 100 else 1e-4
    )


def resnet_tensors() -> tuple[Tensor, ...]:
    """The bias of the first convolution rides along here."""
    return tensors_of([(64, 147, 3), *RESNET[1:]])


def test_the_size_of_a_real_message_for_resnet() -> None:
    """All rows have the same norm, so that every layer sends its share."""
    round = Round(0, 0, 1, 1, tensors=resnet_tensors())
    gradient = np.ones(ELEMENTS, np.float32)
    exchange = Bird(0.1).worker(0, 1, 0).exchange(gradient, round)

    (message,) = next(exchange)

    assert message.size_bytes == pytest.approx(146_164, rel=0.005)
    assert 4 * ELEMENTS / message.size_bytes == pytest.approx(309.5, rel=0.005)
    indices = sum(math.ceil(0.1 * rows) for rows, _, _ in RESNET)
    assert 4 * indices / message.size_bytes == pytest.approx(0.014, abs=0.001)
