"""Codec `bird_plus`: Gamma correction, by its plain twin and by expectation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codecs.bird.plus import BirdPlus
from netfold.homomorphic.codecs.bird.rows import groups_of, norms_of
from netfold.homomorphic.codecs.bird.sampling import corrected, gamma_for, relative
from tests.examples import examples
from tests.homomorphic.codecs.bird.layers import (
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

WIDE: Shapes = [(200, 5, 1)]


@examples(15)
@given(bucket=buckets(), gamma=st.sampled_from([0.0, 0.5, 1.0, 3.0]), by_row=st.booleans())
def test_a_round_by_the_plain_twin(bucket: tuple[Shapes, int], gamma: float, by_row: bool) -> None:
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


def chances_of(gradient: np.ndarray, codec: BirdPlus) -> np.ndarray:
    (group,) = groups_of(tensors_of(WIDE))
    return codec.probabilities(gradient, group, norms_of(gradient, group, "l1"))


@examples(30)
@given(seed=st.integers(0, 2**32), ratio=st.floats(0.01, 1.0))
def test_bisection_meets_the_ratio(seed: int, ratio: float) -> None:
    """Inside what is possible: from the rows of the largest norm to all that are not zeros."""
    gradient = drawn(WIDE, seed)
    norms = expected_norms(WIDE, gradient)
    ratios = relative(norms)
    wanted = ratio * 200

    expected = corrected(ratios, gamma_for(ratios, wanted)).sum()

    assert abs(expected - min(max(wanted, 1), np.count_nonzero(norms))) < 0.01
    assert chances_of(gradient, BirdPlus(ratio=ratio)).sum() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("gamma", "share"), [(0.5, 1.0), (2.0, 1.0), (0.5, 0.2)])
def test_a_layer_keeps_its_l1_norm_in_expectation(gamma: float, share: float) -> None:
    shapes: Shapes = [(60, 9, 0)]
    gradient = uneven(shapes)
    norms = expected_norms(shapes, gradient)
    found = row_norms(BirdPlus(gamma=gamma, share=share), gradient, shapes, 1500)  # type: ignore[arg-type]

    assert found.sum(axis=1).mean() / norms.sum() == pytest.approx(1, abs=0.02)
    assert farthest(found, norms) > 5  # single rows do not


def test_how_values_are_corrected() -> None:
    shapes: Shapes = [(2, 3, 0)]
    gradient = np.array([3, 0, 0, 1, 1, 1], np.float32)
    (group,) = groups_of(tensors_of(shapes))
    codec = BirdPlus(gamma=2.0, of="values")

    assert codec.probabilities(gradient, group, norms_of(gradient, group, "l1")).tolist() == [
        1,
        pytest.approx(1 / 3),
    ]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"gamma": 1.0, "ratio": 0.1}, "gamma and ratio exclude each other"),
        ({"gamma": -0.1}, "gamma is -0.1: must be from 0"),
        ({"gamma": math.inf}, "gamma is inf: must be from 0"),
        ({"ratio": 0.0}, "ratio is 0.0: must be above 0"),
        ({"ratio": 1.5}, "ratio is 1.5: must be above 0"),
        ({"of": "values"}, "it needs a gamma"),
        ({"share": 0.0}, r"share is 0\.0: must be above 0 and at most 1, 0\.1 is usual"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        BirdPlus(**options)  # type: ignore[arg-type]
