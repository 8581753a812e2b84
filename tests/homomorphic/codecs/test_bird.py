"""BIRD and BIRD+ beside the published algorithm in plain Python, with and without shared seeds."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Codec, DecodeError, EncodeError, LockStepError, Request
from netfold.homomorphic.codec_driver import advance
from netfold.homomorphic.codecs import bird_shared as shared
from netfold.homomorphic.codecs.bird import Bird
from netfold.homomorphic.codecs.bird_plus import BirdPlus
from netfold.homomorphic.codecs.bird_rows import (
    DigitLanes,
    Rider,
    RowGroup,
    RowsEncoder,
    RowsServer,
    correct,
    gamma_for,
    groups_of,
    norms_of,
    relative,
    sign_fields,
    workers_max,
)
from netfold.homomorphic.codecs.bird_shared import BirdShared
from netfold.homomorphic.fold import AllReduceResult, fold
from netfold.homomorphic.merge import Merge, Merged
from netfold.homomorphic.message import Gradient, Round, Tensor
from netfold.testing import check_round
from tests.examples import examples
from tests.reference.systems import bird as twin
from tests.reference.systems.bird import Layer

Shapes = Sequence[tuple[int, int, int]]  # of layers: rows, elements of a row, vectors that ride along


def tensors_of(shapes: Shapes) -> tuple[Tensor, ...]:
    """In gradient-ready order: of each layer the first rider, the weight, the other riders."""
    tensors: list[Tensor] = []
    start = 0
    for number, (rows, row_elements, riders) in enumerate(shapes):
        own = [(rows,)] * riders
        own.insert(min(1, riders), (rows, row_elements))
        for place, shape in enumerate(own):
            tensors.append(Tensor(f"{number}.{place}", shape, f"layer{number}", start))
            start += tensors[-1].elements
    return tuple(tensors)


def layers_of(gradient: Gradient, shapes: Shapes) -> list[Layer]:
    """The same as plain lists."""
    layers, place = [], 0
    tensors = tensors_of(shapes)
    for rows, row_elements, riders in shapes:
        own = tensors[place : place + 1 + riders]
        place += 1 + riders
        weight = own[min(1, riders)]
        values = gradient[weight.place].reshape(rows, row_elements).tolist()
        layers.append(Layer(values, [gradient[one.place].tolist() for one in own if one is not weight]))
    return layers


def places_of(shapes: Shapes) -> list[list[int]]:
    """Of each layer: the places of its tensors in the bucket, the weight's first."""
    places, first = [], 0
    for _, _, riders in shapes:
        weight = first + min(1, riders)
        places.append([weight, *(one for one in range(first, first + 1 + riders) if one != weight)])
        first += 1 + riders
    return places


def flat(layers: Sequence[Layer], shapes: Shapes) -> Gradient:
    """A bucket from plain lists."""
    gradient = np.zeros(sum(one.elements for one in tensors_of(shapes)), np.float32)
    tensors = tensors_of(shapes)
    for layer, (weight, *riders) in zip(layers, places_of(shapes), strict=True):
        gradient[tensors[weight].place] = np.array(layer.rows, np.float32).ravel()
        for rider, values in zip(riders, layer.riders, strict=True):
            gradient[tensors[rider].place] = values
    return gradient


def round_of(shapes: Shapes, workers: int = 1, step: int = 0, seed: int = 7, bucket: int = 0) -> Round:
    return Round(step, bucket, workers, seed, tensors=tensors_of(shapes))


def folded(codec: Codec, gradients: Sequence[Gradient], round: Round) -> AllReduceResult:
    """One round of new encoders, with the codec's server part."""
    workers = round.workers
    encoders = [codec.worker(rank, workers, 0) for rank in range(workers)]
    return fold(encoders, gradients, round, server=codec.server(workers, 0))


def drawn(shapes: Shapes, seed: int) -> Gradient:
    """Normal values; rows of very different magnitudes, some of zeros."""
    random = np.random.default_rng(seed)
    gradient = np.zeros(sum(one.elements for one in tensors_of(shapes)), np.float32)
    for tensor in tensors_of(shapes):
        rows = tensor.shape[0]
        values = random.standard_normal(tensor.elements).reshape(rows, -1)
        if len(tensor.shape) > 1:
            values *= 10.0 ** random.uniform(-2, 1, (rows, 1)) * (random.random((rows, 1)) < 0.9)
        gradient[tensor.place] = values.ravel()
    return gradient


@st.composite
def buckets(draw: st.DrawFn) -> tuple[Shapes, int]:
    """Shapes of layers, and a seed for values."""
    shapes = draw(
        st.lists(
            st.tuples(st.integers(1, 12), st.sampled_from([1, 3, 31, 32, 33, 130, 200]), st.integers(0, 3)),
            min_size=1,
            max_size=4,
        )
    )
    return shapes, draw(st.integers(0, 2**32))


# What is expected of rows over many draws.


def row_norms(codec: Codec, gradient: np.ndarray, shapes: Shapes, draws: int) -> np.ndarray:
    """L1 norms of the rows that are received, `(draws, rows)`, of all layers."""
    found = []
    for step in range(draws):
        (own,) = folded(codec, [gradient], round_of(shapes, step=step)).contributions
        layers = layers_of(np.abs(own), shapes)
        found.append([sum(row) for layer in layers for row in layer.rows])
    return np.array(found)


def farthest(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest distance of a mean from what is expected, in standard errors."""
    found = found.astype(np.float64)
    off = np.abs(found.mean(axis=0) - expected)
    errors = found.std(axis=0) / math.sqrt(len(found)) + 1e-6 * np.abs(expected) + 1e-30
    return float((off / errors).max())


def expected_norms(shapes: Shapes, gradient: np.ndarray) -> np.ndarray:
    return np.array([twin.l1(row) for layer in layers_of(gradient, shapes) for row in layer.rows])


def uneven(shapes: Shapes, seed: int = 3) -> np.ndarray:
    """Rows whose norms differ by up to 10, so that all are seen often."""
    random = np.random.default_rng(seed)
    gradient = drawn(shapes, seed)
    for tensor in tensors_of(shapes):
        rows = tensor.shape[0]
        values = random.standard_normal((rows, tensor.elements // rows)) * random.uniform(0.1, 1, (rows, 1))
        gradient[tensor.place] = values.ravel()
    return gradient


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


def test_rows_without_elements_have_a_norm_of_zero() -> None:
    found = folded(BirdShared(), [np.array([1, -2], np.float32)], round_of([(3, 0, 0), (2, 1, 0)]))

    assert found.messages[0][0][0].words.view(np.float32).tolist() == [0, 2]  # the largest of each layer


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
        RowGroup("conv.weight", 1, 6, 6, 12, (Rider(0, 0), Rider(2, 78))),
        RowGroup("conv.odd", 3, 84, 1, 5),
        RowGroup("lstm.ih", 4, 89, 8, 3, (Rider(6, 129),)),
        RowGroup("lstm.hh", 5, 113, 8, 2),
        RowGroup("scale", 7, 137, 1, 1),
        RowGroup("alone", 8, 138, 1, 6),
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


ELEMENTS = 11_310_474


def test_the_size_of_a_real_message_for_resnet() -> None:
    """All rows have the same norm, so that every layer sends its share; the first bias rides along."""
    round = round_of([(64, 147, 3), *RESNET[1:]])
    gradient = np.ones(ELEMENTS, np.float32)
    exchange = Bird(0.1).worker(0, 1, 0).exchange(gradient, round)

    (message,) = next(exchange)

    assert message.size_bytes == pytest.approx(146_164, rel=0.005)
    assert 4 * ELEMENTS / message.size_bytes == pytest.approx(309.5, rel=0.005)
    indices = sum(math.ceil(0.1 * rows) for rows, _, _ in RESNET)
    assert 4 * indices / message.size_bytes == pytest.approx(0.014, abs=0.001)


WIDE: Shapes = [(200, 5, 1)]


@examples(15)
@given(bucket=buckets(), gamma=st.sampled_from([0.0, 0.5, 1.0, 3.0]), by_row=st.booleans())
def test_a_round_of_bird_plus_by_the_plain_twin(
    bucket: tuple[Shapes, int], gamma: float, by_row: bool
) -> None:
    shapes, seed = bucket
    gradients = [drawn(shapes, seed + worker) for worker in range(2)]

    found = folded(BirdPlus(gamma=gamma, scales="row" if by_row else "layer"), gradients, round_of(shapes, 2))

    for rank, gradient in enumerate(gradients):
        layers = layers_of(gradient, shapes)
        sent = [
            twin.bird_plus(layer, (7, 0, 0, rank, number), gamma, by_row)
            for number, layer in enumerate(layers)
        ]
        own = flat([twin.decoded(layer, one) for layer, one in zip(layers, sent, strict=True)], shapes)
        if by_row:  # float16, relative to the layer's largest
            tolerance = np.zeros(own.size)
            for places in places_of(shapes):
                for place in places:
                    part = tensors_of(shapes)[place].place
                    tolerance[part] = 2.0**-24 * np.abs(own[part]).max(initial=0.0)
            assert (np.abs(found.contributions[rank] - own) <= 2.0**-10.9 * np.abs(own) + tolerance).all()
        else:
            assert found.contributions[rank] == pytest.approx(own, rel=2e-7)
            words = found.messages[0][rank][0].words
            expected = np.frombuffer(twin.message(layers, sent, places_of(shapes)), np.uint32)
            assert words[len(tensors_of(shapes)) :].tolist() == expected[len(tensors_of(shapes)) :].tolist()


def chances_of(gradient: np.ndarray, codec: BirdPlus, shapes: Shapes = WIDE) -> list[float]:
    (group,) = groups_of(tensors_of(shapes))
    return codec.probabilities(gradient, group, norms_of(gradient, group, "l1")).tolist()


@examples(30)
@given(seed=st.integers(0, 2**32), ratio=st.floats(0.01, 1.0))
def test_bisection_meets_the_ratio(seed: int, ratio: float) -> None:
    """Inside what is possible: from the rows of the largest norm to all that are not zeros."""
    gradient = drawn(WIDE, seed)
    norms = expected_norms(WIDE, gradient)
    ratios = relative(norms)
    wanted = ratio * 200

    expected = correct(ratios, gamma_for(ratios, wanted)).sum()

    assert abs(expected - min(max(wanted, 1), np.count_nonzero(norms))) < 0.01
    assert sum(chances_of(gradient, BirdPlus(ratio=ratio))) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("gamma", "share"), [(0.5, 1.0), (2.0, 1.0), (0.5, 0.2)])
def test_a_layer_keeps_its_l1_norm_in_expectation(gamma: float, share: float) -> None:
    shapes: Shapes = [(60, 9, 0)]
    gradient = uneven(shapes)
    norms = expected_norms(shapes, gradient)
    found = row_norms(BirdPlus(gamma=gamma, share=share), gradient, shapes, 1500)  # type: ignore[arg-type]

    assert found.sum(axis=1).mean() / norms.sum() == pytest.approx(1, abs=0.02)
    assert farthest(found, norms) > 5  # single rows do not


def test_how_values_are_corrected() -> None:
    chances = chances_of(
        np.array([3, 0, 0, 1, 1, 1], np.float32), BirdPlus(gamma=2.0, of="values"), [(2, 3, 0)]
    )
    assert chances == [1, pytest.approx(1 / 3)]


LANES = st.sampled_from([4, 8, 16, 32])


@examples(12)
@given(bucket=buckets(), share=st.sampled_from([0.1, 0.5, 1.0]), workers=st.integers(1, 7), lanes=LANES)
def test_a_round_with_shared_seeds_by_the_plain_twin(
    bucket: tuple[Shapes, int], share: float, workers: int, lanes: int
) -> None:
    shapes, seed = bucket
    gradients = [drawn(shapes, seed + worker) for worker in range(workers)]
    layers = [layers_of(gradient, shapes) for gradient in gradients]

    found = folded(BirdShared(share, lanes), gradients, round_of(shapes, workers))  # type: ignore[arg-type]

    total = np.zeros(gradients[0].size, np.float32)
    for number, places in enumerate(places_of(shapes)):
        rows, scale = twin.shared([one[number] for one in layers], (7, 0, 0, number), share)
        for place in places:
            tensor = tensors_of(shapes)[place]
            signs = sum(np.sign(gradient[tensor.place]).astype(int) for gradient in gradients)
            signs = signs.reshape(tensor.shape[0], -1)
            is_kept = np.isin(np.arange(tensor.shape[0]), rows)[:, None]
            total[tensor.place] = (np.float32(scale) * np.float64(1) * signs * is_kept).ravel()
    assert found.decoded[0] == pytest.approx(total, rel=2e-7)


def test_all_workers_keep_the_same_rows_and_send_no_index() -> None:
    shapes: Shapes = [(40, 12, 1)]
    gradients = [drawn(shapes, worker) + np.float32(1e-6) for worker in range(5)]  # no element is zero
    for step in range(5):
        found = folded(BirdShared(0.2), gradients, round_of(shapes, 5, step))
        supports = {tuple(np.flatnonzero(one)) for one in found.contributions}
        assert len(supports) == 1
        rows = np.count_nonzero(found.contributions[0].reshape(-1)[:40])
        assert 0 < rows <= 8
        ((one, *_), (two, *_), (three, *_)) = found.messages
        assert [one[0].merge, two[0].merge, three[0].merge] == [Merge.MAX, Merge.ADD, Merge.ADD]
        assert one[0].words.size == 1  # of the layer
        assert two[0].words.size == 40  # of each row
        assert three[0].words.size == math.ceil(rows * 13 / 7)  # 7 signs of 4 bits in a word


@pytest.mark.parametrize(("lanes", "most"), [(4, 7), (8, 127), (16, 32767), (32, 2**30 - 1)])
def test_how_many_workers_fit(lanes: int, most: int) -> None:
    codec = BirdShared(lanes=lanes)  # type: ignore[arg-type]

    assert workers_max(lanes) == codec.workers_max == most
    assert codec.refusal(most, "wrap") is None
    refusal = codec.refusal(most + 1, "wrap")
    assert refusal is not None
    assert refusal.reason == f"bird_shared has room for {most} workers, found {most + 1}"
    assert (refusal.option, refusal.remedy) == ("lanes", "lanes: 32")
    fields = sign_fields(lanes, most)
    assert fields.limit >= (most if fields.is_signed else 2 * most)


def times(words: np.ndarray, lanes: int, workers: int) -> np.ndarray:
    """The same words of some workers, added lane by lane."""
    view = words.view({8: np.int8, 16: np.int16}.get(lanes, np.int32))
    with np.errstate(over="ignore"):
        return (view * np.array(workers).astype(view.dtype)).view(np.int32)


@examples(40)
@given(lanes=LANES, workers=st.integers(1, 127), values=st.lists(st.integers(-1, 1), min_size=1, max_size=20))
def test_sums_at_the_limits_of_fields(lanes: int, workers: int, values: list[int]) -> None:
    """All workers send the same, so sums are as large as they can be; no field is wider than it must be."""
    workers = min(workers, workers_max(lanes))
    fields = sign_fields(lanes, workers)
    assert lanes < 32 or 2 ** (fields.bits - 1) <= 2 * workers < 2**fields.bits
    own = np.array(values, np.int32)
    shift = 0 if fields.is_signed else 1
    words = fields.packed(own + shift)
    summed = times(words, lanes, workers)

    found = fields.unpacked(summed, own.size) - shift * workers

    assert found.tolist() == [workers * value for value in values]


@examples(40)
@given(
    lanes=LANES, workers=st.integers(1, 127), numbers=st.lists(st.integers(0, 65535), min_size=1, max_size=9)
)
def test_sums_of_numbers_in_digits(lanes: int, workers: int, numbers: list[int]) -> None:
    workers = min(workers, workers_max(lanes))
    digits = DigitLanes.of(16, lanes, workers)
    words = digits.packed(np.array(numbers, np.int64))
    summed = times(words, lanes, workers)

    found, most = digits.unpacked(summed, len(numbers))

    assert found.tolist() == [workers * number for number in numbers]
    assert most <= workers * (digits.base - 1) <= digits.fields.limit


def test_sums_that_no_workers_have() -> None:
    gradient, round = drawn([(4, 5, 0)], 1), round_of([(4, 5, 0)], 2)

    def until(label: str) -> tuple[object, np.ndarray]:
        exchange = BirdShared(1.0).worker(0, 2, 0).exchange(gradient, round)
        (message,) = next(exchange)
        while message.label != label:
            answers = (Merged(2 * message.words if message.merge is Merge.ADD else message.words, 2),)
            (message,) = advance(exchange, answers)  # type: ignore[misc]
        return exchange, message.words

    exchange, words = until("norms")
    with pytest.raises(DecodeError, match="a sum of digits of norms is not one of 2 workers"):
        exchange.send((Merged(words + 200_000, 2),))  # type: ignore[attr-defined]
    exchange, words = until("signs")
    with pytest.raises(DecodeError, match="a sum of signs is beyond the number of workers, 2"):
        exchange.send((Merged(words | 7, 2),))  # type: ignore[attr-defined]


def test_workers_that_chose_other_rows_are_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shared.sample_rows
    calls = []

    def sampled(chances: np.ndarray, key: int) -> np.ndarray:
        calls.append(key)
        return real(chances, key)[len(calls) - 1 :]

    monkeypatch.setattr(shared, "sample_rows", sampled)
    with pytest.raises(LockStepError, match="digest"):
        folded(BirdShared(1.0), [np.ones(40, np.float32)] * 2, round_of([(10, 4, 0)], 2))


def test_elements_that_are_not_finite_or_too_large() -> None:
    round = round_of([(2, 2, 0)], 2)
    with pytest.raises(EncodeError, match="its row has no norm"):
        folded(BirdShared(), [np.array([1, 2, 3, math.inf], np.float32)] * 2, round)
    with pytest.raises(EncodeError, match="may leave float32"):
        folded(BirdShared(1.0), [np.full(4, 3e38, np.float32)] * 2, round)
