"""Sign bits: membership and fairness, against counts by hand, fair merges, and merges that are not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.merge import merge_all
from netfold.homomorphic.message import Merge
from netfold.sim.checks.rounds.merges import fairness
from netfold.sim.checks.rounds.merges.signs import (
    STRETCH_WORDS,
    STRETCHES_MAX,
    Signs,
    _edges,
    _share,
    _tallied,
)
from tests.examples import examples
from tests.sim.checks.signs import chosen, correlated, examine, words_of

ALL = 2**32 - 1


def words(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


@given(st.integers(1, 5), st.integers(1, 40), st.sampled_from([0.0, 0.5, 0.9]), st.integers(0, 2**32))
@examples(30)
def test_sums_of_stretches_by_hand(workers: int, size: int, agreement: float, seed: int) -> None:
    """One position at a time, in fractions; a merged bit that nobody sent is in no sum."""
    random = np.random.default_rng(seed)
    bits = correlated(random, workers, size, agreement)
    merged = chosen(random, bits)
    merged[::7] ^= True
    edges = np.array([0, size // 3, size // 3, size])

    wrong, sums = _tallied(list(words_of(bits)), words_of(merged), edges)

    for stretch in range(3):
        deviations, variance = [Fraction(0)] * (workers + 1), Fraction(0)
        for position in range(32 * edges[stretch], 32 * edges[stretch + 1]):
            ones = Fraction(int(bits[:, position].sum()), workers)
            if ones not in (0, 1):
                excess = int(merged[position]) - ones
                variance += ones * (1 - ones)
                for worker in range(workers):
                    deviations[worker] += excess if bits[worker, position] else -excess
                deviations[workers] += excess
        assert sums.deviations[stretch].tolist() == pytest.approx([float(one) for one in deviations])
        assert sums.variances[stretch] == pytest.approx(float(variance))
    agreed = bits.all(axis=0) | ~bits.any(axis=0)
    is_wrong = (agreed & (merged != bits[0])).reshape(-1, 32).any(axis=1)
    assert wrong == np.count_nonzero(is_wrong)


@pytest.mark.parametrize(
    ("bit", "word", "common"),
    [(0, 0, 0), (1, 4095, 1), (17, 4096, 0), (31, 5000, 1), (31, 4096, 1), (0, 5000, 0)],
)
def test_a_bit_that_nobody_sent(bit: int, word: int, common: int) -> None:
    """At a place where all agree, in any part of a long message; elsewhere both values are some worker's."""
    random = np.random.default_rng(3)
    bits = random.random((3, 32 * 5001)) < 0.5
    bits[:, 32 * word + bit] = common
    merged = words_of(chosen(random, bits))
    wrong = merged.copy()
    wrong[word] ^= np.uint32(1 << bit)

    fair, unfair = Signs(), Signs()
    examine(fair, list(words_of(bits)), [merged] * 3)
    examine(unfair, list(words_of(bits)), [wrong] * 3, step=2, bucket=4)

    assert (fair.words, fair.wrong_words, fair.first_wrong) == (3 * 5001, 0, None)
    assert unfair.wrong_words == 3
    assert str(unfair.first_wrong) == (
        f"worker 0, word {word} of 'signs' (step 2, bucket 4, operation 0) (no worker sent its bits "
        f"{1 << bit:#010x}): at (0, (2, 4, 0), 0, {word})"
    )
    assert (fair.first_unfair, unfair.first_unfair) == (None, None)


@pytest.mark.parametrize("odd", [0, 1, 2])
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_worker_that_received_other_bits_is_named(odd: int, is_shared: bool) -> None:
    """Though both are some worker's: a merged message has one value, the one that most received."""
    sent = [words(0, 0b11), words(0, 0b01), words(0, 0b00)]
    usual = words(0, 0b01)
    received = [words(0, 0b11) if rank == odd else usual if is_shared else usual.copy() for rank in range(3)]
    signs = Signs()
    examine(signs, sent, received)

    assert signs.wrong_words == 1
    assert str(signs.first_wrong) == (
        f"worker {odd}, word 1 of 'signs' (step 0, bucket 0, operation 0) (received 0x00000003, worker "
        f"{0 if odd else 1} received 0x00000001): at ({odd}, (0, 0, 0), 0, 1)"
    )


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_result_of_another_length_is_wrong_as_a_whole(size: int) -> None:
    signs = Signs()
    examine(signs, [words(0, 0)] * 2, [words(0, 0), words(*[0] * size)])

    assert signs.wrong_words == 2
    assert f"(it has {size} words, 2 were sent)" in str(signs.first_wrong)


def test_absent_workers_have_no_bits() -> None:
    """What worker 1 would have sent is not known; the others' bits are held to their own two."""
    signs = Signs()
    examine(signs, [words(0b11), None, words(0b01)], [words(0b01)] * 3)
    assert (signs.words, signs.wrong_words) == (3, 0)

    examine(signs, [words(0b11), None, words(0b01)], [words(0b00)] * 3)
    assert signs.wrong_words == 3
    both = Signs()  # where workers disagree, either is right
    examine(both, [words(0b11), words(0b01)], [words(0b11)] * 2)
    assert both.wrong_words == 0


def test_the_rank_of_an_unfair_worker_counts_absent_ones() -> None:
    random = np.random.default_rng(1)
    bits = random.random((3, 32 * 500)) < 0.5
    sent = list(words_of(bits))
    signs = Signs()
    examine(signs, [sent[0], None, sent[1], sent[2]], [words_of(chosen(random, bits, (0.2, 0.2, 0.6)))] * 4)

    assert str(signs.first_unfair).startswith("worker 3's bits survive more often than its weight allows in ")


@pytest.mark.parametrize("size", [1, 300, 8192, 10**7])
@pytest.mark.parametrize("workers", [1, 3, 32, 100])
def test_stretches_cover_a_message(size: int, workers: int) -> None:
    """A power of two of them; at least four for each segment of a ring; short ones in a long message."""
    edges = _edges(size, workers)
    count = edges.size - 1

    assert (edges[0], edges[-1]) == (0, size)
    assert (np.diff(edges) >= 0).all()
    assert count & (count - 1) == 0
    assert min(4 * workers, STRETCHES_MAX) <= count <= STRETCHES_MAX
    assert np.diff(edges).max() <= max(STRETCH_WORDS, size // STRETCHES_MAX + 1)


def merged_by_netfold(bits: np.ndarray, key: int, order: list[int]) -> np.ndarray:
    sent = list(words_of(bits))
    return merge_all(Merge.SIGN, [sent[rank] for rank in order], key)


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_fair_merges_pass(workers: int) -> None:
    """netfold's own, in several orders, for bits that agree seldom or often, over many rounds."""
    random = np.random.default_rng(workers)
    signs = Signs()
    for step in range(30):
        bits = correlated(random, workers, 200, agreement=random.choice([0.0, 0.3, 0.95]))
        merged = merged_by_netfold(bits, key=step, order=random.permutation(workers).tolist())
        examine(signs, list(words_of(bits)), [merged] * workers, step)

    assert (signs.wrong_words, signs.first_unfair) == (0, None)


WORKERS, WORDS = 8, 131_072 // 32


def segments() -> np.ndarray:
    """Positions of each segment of a ring, as the ring divides them."""
    bounds = [WORDS * index // WORKERS for index in range(WORKERS + 1)]
    return np.repeat(np.arange(WORKERS), 32 * np.diff(bounds))


def half_weights(first: int) -> np.ndarray:
    """Each arrival takes over with probability 1/2: the last one's bits survive half of the time."""
    order = (first + np.arange(WORKERS)) % WORKERS
    weights = np.empty(WORKERS)
    weights[order] = 2.0 ** np.array([-(WORKERS - 1), *range(-(WORKERS - 1), 0)])
    return weights


def test_a_ring_that_merges_with_weight_a_half() -> None:
    """Each segment begins at another worker, so that over the whole vector all weights are the same."""
    random = np.random.default_rng(2)
    table = np.stack([half_weights(segment) for segment in range(WORKERS)])
    assert table.mean(axis=0) == pytest.approx(np.full(WORKERS, 1 / WORKERS))
    signs = Signs()
    for step in range(2):
        bits = correlated(random, WORKERS, WORDS, agreement=0.2)
        merged = words_of(chosen(random, bits, table[segments()]))
        examine(signs, list(words_of(bits)), [merged] * WORKERS, step)

    assert signs.wrong_words == 0
    unfair = signs.first_unfair
    assert unfair is not None
    assert unfair.found.worker is not None
    first, last = unfair.words
    assert WORDS * unfair.place.operation == 0
    segment = first * WORKERS // WORDS
    assert segment == last * WORKERS // WORDS  # the stretch lies in one segment
    assert unfair.found.worker == (segment - 1) % WORKERS  # who merges it last
    assert unfair.found.sigmas > 25


def test_weights_that_are_a_little_wrong_are_found_over_rounds() -> None:
    """640 elements, worker 3 has 0.2 in place of 1/8: no round shows it, the run does."""
    random = np.random.default_rng(11)
    weights = np.full(WORKERS, 0.8 / 7)
    weights[3] = 0.2
    signs, single = Signs(), 0
    step = 0
    while signs.first_unfair is None and step < 400:
        bits = correlated(random, WORKERS, 20, agreement=0.0)
        received = [words_of(chosen(random, bits, weights))] * WORKERS
        examine(signs, list(words_of(bits)), received, step, bucket=step % 2)
        alone = Signs()
        examine(alone, list(words_of(bits)), received, step)
        single += alone.first_unfair is not None
        step += 1

    assert single == 0
    assert step < 200
    found = str(signs.first_unfair)
    assert found.startswith("worker 3's bits survive more often than its weight allows in words 0 to 19 of ")
    assert f", over {step} messages: " in found


@pytest.mark.parametrize("value", [0, 1])
def test_a_union_is_no_fair_merge(value: int) -> None:
    """Of two workers' random bits none survives more often than the other's; but ones do."""
    random = np.random.default_rng(4)
    bits = random.random((2, 32 * 100)) < 0.5
    signs = Signs()
    examine(signs, list(words_of(bits)), [words_of(bits.any(axis=0) if value else bits.all(axis=0))] * 2)

    often = "more" if value else "less"
    assert str(signs.first_unfair).startswith(
        f"merged bits are one {often} often than they were sent in words "
    )


def test_alarms_are_rare_enough_for_a_hundred_jobs() -> None:
    """The shares of all messages of a job add up to a half."""
    shares = sum(_share(number) for number in range(1, 10**4))
    assert 0.5 - 1e-4 < shares < 0.5
    assert fairness.FALSE_ALARMS * 100 <= 1e-6
