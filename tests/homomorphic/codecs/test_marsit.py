"""Codec `marsit` against its plain reference, and its rounds of signs and in full precision."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import EncodeError, Promise
from netfold.homomorphic.codecs.dense import Dense
from netfold.homomorphic.codecs.marsit import Marsit, MarsitEncoder, step_of
from netfold.homomorphic.codecs.none import Uncompressed
from netfold.homomorphic.codecs.sign_bits import keep_rest, pack_owed, pack_signs, unpack_signs, words_of
from netfold.homomorphic.error_bounds import Sums
from netfold.homomorphic.fold import AllReduceResult, fold
from netfold.homomorphic.merge import Merge
from netfold.homomorphic.message import Gradient, Round, Step
from netfold.testing import check_codec, check_round
from tests.examples import examples

RATE = 0.01


def team(codec: Marsit, workers: int) -> list[MarsitEncoder]:
    return [MarsitEncoder(codec) for _ in range(workers)]


def stepped(
    encoders: Sequence[MarsitEncoder], gradients: list[Gradient], step: int, rate: float = RATE
) -> AllReduceResult:
    """One step of a training with one bucket."""
    for encoder in encoders:
        encoder.begin(Step(step, rate))
    return fold(encoders, gradients, Round(step, 0, len(encoders), seed=3))


# -- Kernels


@examples(60)
@given(
    st.lists(st.sampled_from([-2.5, -1e-45, -0.0, 0.0, 1e-45, 3.0, 1e30]), max_size=100),
    st.integers(0, 2**32),
)
def test_bits_are_signs_and_zero_is_positive(values: list[float], seed: int) -> None:
    own = np.array(values, np.float32)
    held = np.random.default_rng(seed).choice(own, own.size) if own.size else own
    alone, owed = np.empty((2, words_of(own.size)), np.uint32)
    pack_signs(own, alone)
    pack_owed(own, held, owed)

    def bits(words: np.ndarray) -> list[int]:
        return [int(words[place // 32]) >> place % 32 & 1 for place in range(32 * words.size)]

    padding = [0] * (32 * alone.size - own.size)
    assert bits(alone) == [int(value >= 0) for value in values] + padding
    assert bits(owed) == [int(float(a) + float(b) >= 0) for a, b in zip(own, held, strict=True)] + padding

    total = np.empty_like(own)
    unpack_signs(owed, np.float32(0.5), total)
    assert total.tolist() == [0.5 if bit else -0.5 for bit in bits(owed)[: own.size]]
    rest = held.copy()
    keep_rest(owed, np.float32(0.5), own, rest)
    assert rest.tolist() == ((own + held) - total).tolist()


def test_signs_of_values_and_sums_at_any_place_and_of_any_value() -> None:
    """Vector instructions pack whole words: unaligned parts, sums of zero, values that are no numbers."""
    random = np.random.default_rng(8)
    own = np.ldexp(random.standard_normal(3000), random.integers(-160, 120, 3000)).astype(np.float32)
    held = np.where(random.random(3000) < 0.3, -own, random.permutation(own)).astype(np.float32)
    own[[5, 77, 900]] = np.nan, np.inf, -np.inf
    for first, last in ((0, 3000), (1, 2999), (3, 68), (7, 39), (9, 40), (11, 12)):
        alone, owed = np.full((2, words_of(last - first)), 0xFFFFFFFF, np.uint32)
        pack_signs(own[first:last], alone)
        pack_owed(own[first:last], held[first:last], owed)
        with np.errstate(invalid="ignore"):
            sums = own[first:last] + held[first:last]
        for words, values in ((alone, own[first:last]), (owed, sums)):
            right = np.packbits(values >= 0, bitorder="little")
            assert words.view(np.uint8)[: right.size].tolist() == right.tolist()
            assert not words.view(np.uint8)[right.size :].any()


@pytest.mark.parametrize("workers", [1, 3, 8, 31, 64])
@pytest.mark.parametrize("size", [1e-3, 0.1, 7.7, 3e-44, 1e29])
def test_a_step_is_exactly_the_workers_shares(workers: int, size: float) -> None:
    step, share = step_of(size, workers)

    assert Fraction(float(step)) == workers * Fraction(float(share))
    assert abs(float(step) - size) <= workers * (2.0**-22 * size + 2.0**-149)
    if workers & (workers - 1) == 0 and size > 1e-30:
        assert step == np.float32(size)


# -- Rounds of signs


@pytest.mark.parametrize("workers", [1, 5])
@pytest.mark.parametrize("elements", [1, 33, 1000])
def test_a_round_of_signs(workers: int, elements: int) -> None:
    """One bit up for each element, ±u for all, what each owed less u stays; all workers decode the same."""
    random = np.random.default_rng(elements)
    encoders = team(Marsit(every=0, eta_s=0.004), workers)
    owed = [np.zeros(elements, np.float64)] * workers
    for step in range(5):
        gradients = list(random.standard_normal((workers, elements)).astype(np.float32))
        done = stepped(encoders, gradients, step)
        total = done.decoded[0]

        ((message,),) = done.messages[0][:1]
        assert message.merge is Merge.SIGN
        assert message.size_bytes == 4 * -(-elements // 32)
        u = float(step_of(0.004, workers)[0])
        assert set(np.abs(total).tolist()) == {np.float32(u)}
        assert all(one.is_update for one in done.results)
        assert all(one.tobytes() == total.tobytes() for one in done.decoded)
        for rank, encoder in enumerate(encoders):
            own = owed[rank] + gradients[rank]
            signs = np.where((done.contributions[rank] > 0), 1, -1)
            certain = np.abs(own) > 1e-5
            assert (signs == np.where(own >= 0, 1, -1))[certain].all()
            owed[rank] = own - total / RATE
            held = encoder._residuals[0]
            assert np.abs(held - owed[rank]).max() < 1e-5
        if workers == 1:
            assert np.array_equal(total, done.contributions[0])


def test_the_bound_is_that_of_two_values_and_zero_where_all_agree() -> None:
    codec = Marsit()
    sums = Sums(0, np.array([-3.0, -1.0, 1.0, 3.0]), np.full(4, 3.0))
    assert codec.error_bound([]).of(sums).tolist() == [0, 4, 4, 0]
    assert codec.variance([]).of(sums).tolist() == [0, 8, 8, 0]  # u² − (Σ)²: 4 p (1 − p) · 9


@pytest.mark.parametrize("options", [{}, {"compensation": False}])
def test_signs_are_unbiased_and_a_biased_merge_is_found(options: dict[str, bool]) -> None:
    """A merge with a weight of one half, among three, is no chance: its errors add up."""
    random = np.random.default_rng(4)
    gradients = list(random.standard_normal((3, 3000)).astype(np.float32))
    gradients[0] = np.abs(gradients[0])
    codec = Marsit(every=0, eta_s=0.5, **options)
    check_round(codec, gradients)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("netfold.homomorphic.merge.keep_threshold", lambda held, arriving: 2**31)
        with pytest.raises(AssertionError, match="totals are biased"):
            check_round(codec, gradients)


@pytest.mark.parametrize(
    "codec",
    [
        Marsit(every=3),
        Marsit(every=0, eta_s=0.3, compensation=False),
        Marsit(every=2, values="exact", block_elements=64),
    ],
    ids=repr,
)
def test_the_law(codec: Marsit) -> None:
    check_codec(codec, cases=4)


# -- Rounds in full precision


def test_full_precision_every_k_steps_and_nothing_is_held_after_it() -> None:
    encoders = team(Marsit(every=4, eta_s=0.1), 3)
    random = np.random.default_rng(1)
    for step in range(9):
        gradients = list(random.standard_normal((3, 50)).astype(np.float32))
        before = [encoder._residuals.get(0, np.float32(0)) for encoder in encoders]
        owed = [gradient + held for gradient, held in zip(gradients, before, strict=True)]
        done = stepped(encoders, gradients, step)
        is_full = step % 4 == 0

        assert done.results[0].is_update is not is_full
        assert [message.merge for (message,) in done.messages[0]] == [
            Merge.FLOAT_ADD if is_full else Merge.SIGN
        ] * 3
        assert [0 in encoder._residuals for encoder in encoders] == [not is_full] * 3
        if is_full:
            assert done.decoded[0].tobytes() == (owed[0] + owed[1] + owed[2]).tobytes()


def test_the_default_step_is_twice_the_mean_magnitude_of_the_last_full_round() -> None:
    """Of gradients alone, not of what is held back; all workers learn it from one more element."""
    encoders = team(Marsit(every=3), 2)
    random = np.random.default_rng(1)
    mean = 0.0
    for step in range(8):
        gradients = list((10.0**step * random.standard_normal((2, 64))).astype(np.float32))
        done = stepped(encoders, gradients, step)
        if step % 3 == 0:
            mean = float(np.mean(np.abs(gradients)))
            assert done.announced_bytes(0) == 4 * 65
            assert done.decoded[0].size == done.contributions[0].size == 64
        else:
            assert done.announced_bytes(0) == 4 * 2
            assert np.abs(done.decoded[0]) == pytest.approx(2 * RATE * mean, rel=1e-6)


def test_a_bucket_without_gradients_waits_in_full_precision() -> None:
    """A mean of zero is no step, so the next round is in full precision too; buckets are apart."""
    encoders = team(Marsit(), 2)
    zeros, ones = [np.zeros(40, np.float32)] * 2, [np.ones(40, np.float32)] * 2
    sent = [
        stepped(encoders, own, step).messages[0][0][0].merge
        for step, own in enumerate((zeros, zeros, ones, ones))
    ]
    assert sent == [Merge.FLOAT_ADD] * 3 + [Merge.SIGN]
    other = fold(encoders, ones, Round(5, 1, 2, seed=3))
    assert other.messages[0][0][0].merge is Merge.FLOAT_ADD


@pytest.mark.parametrize("values", ["float32", "block_exponent", "exact", "factor"])
def test_k_of_one_is_the_dense_codec_bit_for_bit(values: str) -> None:
    dense = Dense(values, factor=1e6 if values == "factor" else None)
    codec = Marsit(every=1, values=values, factor=dense.factor)
    encoders, plain = team(codec, 4), [dense.worker(rank, 4, 1) for rank in range(4)]
    random = np.random.default_rng(1)

    for step in range(3):
        gradients = list(random.standard_normal((4, 777)).astype(np.float32))
        one = stepped(encoders, gradients, step)
        other = fold(plain, gradients, Round(step, 0, 4, seed=3))
        assert one.decoded[0].tobytes() == other.decoded[0].tobytes()
        assert one.announced_bytes(0) == other.announced_bytes(0)
        assert not one.results[0].is_update
    assert codec.merges == dense.merges
    assert codec.promise is dense.promise
    assert codec.state_bytes == 0


def test_sums_are_judged_as_dense_ones_and_updates_as_random_ones() -> None:
    codec = Marsit(values="exact")
    assert codec.promise is codec.judged_by(True).promise is Promise.UNBIASED
    assert codec.judged_by(False).promise is Promise.EXACT
    assert Uncompressed().judged_by(False) == Uncompressed()


def test_bits_per_element() -> None:
    """(K − 1 + 32) / K, as announced in K rounds of a bucket without padding."""
    for every in (2, 10, 100):
        codec = Marsit(every=every, eta_s=0.1)
        encoders = team(codec, 2)
        gradients = [np.ones(64, np.float32)] * 2
        announced = sum(stepped(encoders, gradients, step).announced_bytes(0) for step in range(every))
        bits = codec.bits_per_element(2)
        assert bits is not None
        assert Fraction(8 * announced, 64 * every) == Fraction(every - 1 + 32, every)
        assert bits.up == bits.down == (every - 1 + 32) / every
    assert Marsit(every=0).bits_per_element(2) == (1, 1)
    assert Marsit().bits_per_element(2) == (1.31, 1.31)  # left out, K is 100
    assert Marsit(values="exact").bits_per_element(2) is None


# -- What is refused


def test_values_that_are_not_finite_are_refused() -> None:
    for value in (np.nan, np.inf):
        with pytest.raises(EncodeError, match=rf"gradient\[1\] is {value}: it cannot be made up for"):
            check_round(Marsit(every=0, eta_s=1.0), [np.array([1, value], np.float32)] * 2)


def test_signs_need_the_learning_rate() -> None:
    encoders = team(Marsit(every=0, eta_s=1.0), 1)
    with pytest.raises(ValueError, match="codec marsit needs the learning rate"):
        fold(encoders, [np.ones(3, np.float32)], Round(0, 0, 1, 1))


def test_a_bucket_keeps_its_length() -> None:
    encoders = team(Marsit(every=0, eta_s=1.0), 1)
    stepped(encoders, [np.ones(3, np.float32)], 0)
    with pytest.raises(ValueError, match="bucket 0 has 4 elements, 3 are held back for it"):
        stepped(encoders, [np.ones(4, np.float32)], 1)


def test_a_step_too_long_to_be_made_up_for() -> None:
    """At learning rate 0.01, 1.1e28 is 1.1e30 in units of the gradient; 0.9e28 is short enough."""
    gradients = [np.ones(3, np.float32)] * 2
    text = r"a step of 1.1e\+28 per sign is 1.1e\+30 in units of the gradient: at most 1e\+30"
    with pytest.raises(EncodeError, match=text):
        stepped(team(Marsit(every=0, eta_s=1.1e28), 2), gradients, 0)
    held = stepped(team(Marsit(every=0, eta_s=0.9e28), 2), gradients, 0).decoded[0]
    assert (held == np.float32(0.9e28)).all()


# Marsit's virtual iterate: weights less the mean of what is held back are uncompressed SGD.


def noisy(step: int, weights: np.ndarray, target: np.ndarray, workers: int) -> list[Gradient]:
    """Gradients of |x − target|² / 2, with heavy-tailed noise of each worker's own."""
    random = np.random.default_rng([11, step])
    noise = random.standard_t(4, (workers, target.size))
    return list((weights - target + 0.5 * noise).astype(np.float32))


@pytest.mark.parametrize(
    ("codec", "is_kept"),
    [
        (Marsit(), True),
        (Marsit(eta_s=0.02), True),
        (Marsit(values="block_exponent"), True),
        (Marsit(compensation=False), False),
    ],
    ids=str,
)
def test_the_virtual_iterate_in_float32(codec: Marsit, is_kept: bool) -> None:
    """x − η · mean c follows SGD on the same gradients to 1e-5 · max|x|, over 300 steps with flushes."""
    workers, target = 5, np.random.default_rng(5).standard_normal(40)
    encoders = team(codec, workers)
    weights, sgd, worst, largest = np.zeros(40, np.float32), np.zeros(40), 0.0, 0.0
    for step in range(300):
        gradients = noisy(step, weights, target, workers)
        result = stepped(encoders, gradients, step).results[0]
        rate = np.float32(1) if result.is_update else np.float32(RATE / workers)
        weights = weights - rate * result.total
        sgd -= RATE * np.mean(gradients, axis=0, dtype=np.float64)
        held = [encoder._residuals.get(0, np.zeros(40)) for encoder in encoders]
        virtual = weights - RATE * np.mean(held, axis=0, dtype=np.float64)
        worst = max(worst, float(np.abs(virtual - sgd).max()))
        largest = max(largest, float(np.abs(weights).max()))
    assert (worst <= 1e-5 * largest) is is_kept
    if not is_kept:
        assert worst > 1e-3 * largest


def test_another_learning_rate_keeps_what_is_owed_in_weights() -> None:
    encoders = team(Marsit(every=0, eta_s=0.1), 2)
    gradients = [np.full(3, 2, np.float32), np.full(3, -1, np.float32)]
    stepped(encoders, gradients, 0, rate=0.5)
    before = [0.5 * encoder._residuals[0] for encoder in encoders]
    for encoder in encoders:
        encoder.begin(Step(1, 0.125))
    after = [0.125 * encoder._residuals[0] for encoder in encoders]
    assert np.allclose(before, after, rtol=1e-6)
