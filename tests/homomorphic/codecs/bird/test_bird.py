"""Codec `bird` against its plain twin, and what BIRD says of its sampling."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import EncodeError, Promise
from netfold.homomorphic.codecs.bird import payload
from netfold.homomorphic.codecs.bird.published import Bird
from netfold.homomorphic.codecs.bird.rows import Group, Rider, groups_of
from netfold.homomorphic.message import Merge
from netfold.homomorphic.round import Round, Tensor
from netfold.testing import check_round
from tests.examples import examples
from tests.homomorphic.codecs.bird.expectation import SMALL, expected_norms, farthest, row_norms, uneven
from tests.homomorphic.codecs.bird.layers import (
    Shapes,
    buckets,
    drawn,
    flat,
    folded,
    layers_of,
    places_of,
    round_of,
    tensors_of,
)
from tests.reference.systems import bird as twin

SHAPES: Shapes = [(12, 40, 1), (5, 27, 2), (30, 8, 0)]


@examples(40)
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


@examples(40)
@given(bucket=buckets(), down=st.sampled_from(["sum", "rows"]), share=st.sampled_from([0.1, 1.0]))
def test_the_law_for_layers(bucket: tuple[Shapes, int], down: str, share: float) -> None:
    shapes, seed = bucket
    gradients = [drawn(shapes, seed + worker) for worker in range(4)]

    check_round(Bird(share, down=down), gradients, round_of(shapes, 4))


DRAWS = 4000


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_every_row_keeps_its_l1_norm_in_expectation(share: float) -> None:
    """With one sampling, and with the second one at work; 5 standard errors, for fixed seeds."""
    gradient = uneven(SMALL)
    found = row_norms(Bird(share), gradient, SMALL, DRAWS)

    assert farthest(found, expected_norms(SMALL, gradient)) < 5


def test_without_the_factor_of_the_second_sampling_norms_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test above."""
    from netfold.homomorphic.codecs.bird import published

    real = published.thinned
    monkeypatch.setattr(published, "thinned", lambda *given: (real(*given)[0], 1.0))
    gradient = uneven(SMALL)

    assert farthest(row_norms(Bird(0.25), gradient, SMALL, 500), expected_norms(SMALL, gradient)) > 5


def test_the_prototype_s_norm_makes_rows_larger() -> None:
    """By sqrt(n) · L2 / L1: it is no control that passes, it fails the test above."""
    gradient = uneven(SMALL)
    norms = expected_norms(SMALL, gradient)
    ratios = np.array(
        [
            math.sqrt(len(row)) * twin.l2(row) / twin.l1(row)
            for layer in layers_of(gradient, SMALL)
            for row in layer.rows
        ]
    )
    found = row_norms(Bird(1.0, "l2"), gradient, SMALL, 2000)

    assert farthest(found, norms * ratios) < 5
    assert farthest(found, norms) > 5


@pytest.mark.parametrize(
    ("magnitudes", "ratio"),
    [
        (lambda random: np.ones(20_000), 1.0),
        (lambda random: random.standard_normal(20_000), math.sqrt(math.pi / 2)),
    ],
)
def test_how_much_larger(magnitudes: object, ratio: float) -> None:
    """Rows of equal magnitudes keep their norm; normal values get sqrt(π / 2) = 1.253 times theirs."""
    row = magnitudes(np.random.default_rng(1)).astype(np.float32)  # type: ignore[operator]
    row[::2] *= -1
    (own,) = folded(Bird(1.0, "l2"), [row], round_of([(1, row.size, 0)])).contributions

    assert np.abs(own).sum() / np.abs(row).sum() == pytest.approx(ratio, rel=0.01)


def test_the_largest_row_is_always_kept_and_rows_of_zeros_never() -> None:
    shapes: Shapes = [(20, 6, 1)]
    gradient = drawn(shapes, 2)
    layer = layers_of(gradient, shapes)[0]
    layer.rows[4] = [0.0, -0.0] * 3
    layer.rows[7] = [100.0] * 6
    gradient = flat([layer], shapes)
    kept, counts = np.zeros(20), []
    for step in range(300):
        found = folded(Bird(0.5), [gradient], round_of(shapes, step=step))
        read = payload.read(found.messages[0][0][0].words, groups_of(tensors_of(shapes)), 0).kept[0]
        counts.append(read.rows.size)
        kept[read.rows] += 1

    assert kept[7] == 300  # no more than 10 rows are likely here, so there is no second sampling
    assert kept[4] == 0
    assert max(counts) <= 10
    assert 0 < kept[np.arange(20) != 7].max() < 300


@pytest.mark.parametrize(("share", "rows", "most"), [(0.1, 1, 1), (0.1, 10, 1), (0.1, 11, 2), (0.34, 50, 17)])
def test_at_most_a_share_of_the_rows_is_sent(share: float, rows: int, most: int) -> None:
    gradient = np.ones(rows * 4, np.float32)  # every row is kept by the first sampling
    for step in range(5):
        found = folded(Bird(share), [gradient], round_of([(rows, 4, 0)], step=step))
        assert np.count_nonzero(found.decoded[0]) == 4 * most
        assert found.decoded[0].max() == np.float32(rows / most)


def test_the_second_sampling_takes_all_rows_alike() -> None:
    gradient = np.ones(40, np.float32)
    kept = np.zeros(10)
    for step in range(3000):
        (own,) = folded(Bird(0.3), [gradient], round_of([(10, 4, 0)], step=step)).contributions
        kept += own.reshape(10, 4)[:, 0] > 0

    assert kept.sum() == 3 * 3000
    assert np.abs(kept - 900).max() < 5 * math.sqrt(3000 * 0.3 * 0.7)


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


def test_signs_and_riders_of_rows_that_are_kept() -> None:
    gradient = drawn(SHAPES, 9)
    tensors = tensors_of(SHAPES)
    (own,) = folded(Bird(0.5), [gradient], round_of(SHAPES)).contributions

    for places in places_of(SHAPES):
        weight, *riders = (own[tensors[place].place] for place in places)
        rows = tensors[places[0]].shape[0]
        is_kept = weight.reshape(rows, -1).any(axis=1)
        assert 0 < is_kept.sum() <= math.ceil(0.5 * rows)
        for place, one in zip(places, (weight, *riders), strict=True):
            of_rows = np.repeat(is_kept, tensors[place].elements // rows)
            signs = np.where(gradient[tensors[place].place] < 0, -1, 1) * of_rows
            assert np.sign(one).tolist() == signs.tolist()
        assert len(np.unique(np.abs(np.concatenate([weight, *riders])))) == 2  # one scale, and zero


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


def test_tensors_that_have_no_elements() -> None:
    tensors = (
        Tensor("a", (0, 5), "a", 0),
        Tensor("b", (4, 0), "b", 0),
        Tensor("c", (0,), "c", 0),
        Tensor("d", (2, 2), "d", 0),
    )
    found = folded(Bird(1.0), [np.ones(4, np.float32)], Round(0, 0, 1, 1, tensors=tensors))

    assert found.decoded[0].tolist() == [1.0] * 4


def test_the_same_seed_gives_the_same_bits_and_others_differ() -> None:
    gradient = drawn([(64, 16, 1)], 5)

    def rows(rank: int = 0, step: int = 0, seed: int = 7, bucket: int = 0) -> bytes:
        encoder = Bird(0.5).worker(rank, 4, 0)
        (message,) = next(encoder.exchange(gradient, round_of([(64, 16, 1)], 4, step, seed, bucket)))
        return message.words.tobytes()

    assert rows() == rows()
    assert len({rows(), rows(rank=1), rows(step=1), rows(seed=8), rows(bucket=1)}) == 5


def test_workers_and_layers_draw_independently() -> None:
    """Rows kept with a probability of 1/2: counts of equal choices of two streams are binomial."""
    shapes: Shapes = [(101, 2, 0), (101, 2, 0)]
    gradient = np.full(404, 0.5, np.float32)
    gradient[0:2] = gradient[202:204] = 1  # the largest row of each layer
    kept = []
    for step in range(40):
        found = folded(Bird(1.0), [gradient] * 2, round_of(shapes, 2, step))
        kept.append([one.reshape(2, 101, 2)[:, 1:, 0] > 0 for one in found.contributions])
    draws = np.array(kept)  # (steps, workers, layers, rows)
    streams = {
        "workers": draws[:, 0] == draws[:, 1],
        "layers": draws[:, :, 0] == draws[:, :, 1],
        "steps": draws[1:] == draws[:-1],
        "rows": draws[..., 1:] == draws[..., :-1],
    }
    for name, equal in streams.items():
        assert abs(equal.mean() - 0.5) < 5 * 0.5 / math.sqrt(equal.size), name
    assert abs(draws.mean() - 0.5) < 5 * 0.5 / math.sqrt(draws.size)


def test_what_is_expected_is_the_sign_of_each_row_scaled_and_not_the_gradient() -> None:
    gradient = uneven(SMALL)
    draws = np.array(
        [folded(Bird(1.0), [gradient], round_of(SMALL, step=step)).contributions[0] for step in range(2000)]
    )
    tensors = tensors_of(SMALL)
    for places in places_of(SMALL):
        own = gradient[tensors[places[0]].place].reshape(tensors[places[0]].shape)
        expected = np.sign(own) * np.abs(own).mean(axis=1, keepdims=True)
        found = draws[:, tensors[places[0]].place]
        assert farthest(found, expected.ravel()) < 5
        assert farthest(found, own.ravel()) > 5


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


def test_what_it_declares() -> None:
    codec = Bird()

    assert codec.merges == {Merge.GATHER}
    assert codec.promise is Promise.BOUNDED
    assert codec.origin.status == "published"
    assert codec.refusal(10**6, "sticky") is None


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


def test_the_server_s_sum_is_that_of_the_messages() -> None:
    gradients = [drawn(SHAPES, worker) for worker in range(5)]
    round = round_of(SHAPES, 5)

    by_server, by_workers = (folded(Bird(0.3, down=down), gradients, round) for down in ("sum", "rows"))

    assert by_server.decoded[0].tobytes() == by_workers.decoded[0].tobytes()
    assert not by_server.decoded[0].flags.writeable


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
