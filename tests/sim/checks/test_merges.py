"""Merges are examined: who is in a sum, whether it is fair, and controls in which it is wrong on purpose."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.merge import Holders, Merge, Merged
from netfold.homomorphic.message import EXPONENT_MIN, Message, Scaling, merged_message
from netfold.sim.checks import merged_signs as fairness
from netfold.sim.checks.merged_signs import SignCheck as Signs
from netfold.sim.checks.merged_signs import StretchSums, allowed, allowed_over_rounds, worst
from netfold.sim.checks.merged_words import check_message
from netfold.sim.checks.round_findings import MessagePlace, Tallies
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import Overflow
from netfold.sim.results.summary import summarize
from netfold.sim.run.variant import VariantResult
from tests.examples import nightly
from tests.reference.codecs.digits import right_merge
from tests.registry import registered
from tests.sim.checks.test_hosts_merge import chosen, correlated, examine, words_of
from tests.sim.scenes import simulate
from tests.sim.toys import (
    FloatCodec,
    SignCodec,
    failures,
    ignore_weights,
    scenario,
)

RING = {"kind": "ring", "frame": "roce-1024"}
SWITCHML = {"kind": "in_network", "program": "switchml", "frame": "udp-256", "slots": 16}
DAMAGE = [{"kind": "corruption", "detected": False, "rate": "30%", "links": ["h1->s0"]}]
ANY_MERGE = "topology.switch=ideal"
LARGE = "codec={kind: fixed_point, factor: 4.5e8}"  # some sums leave int32: their units are sent as floats
ATP = "collective={kind: in_network, program: atp, frame: atp}"
BOTH = pytest.mark.parametrize("codec", ["toy_sign", "toy_float"])
LONG = {"kind": "synthetic", "elements": 262_144, "steps": 2}


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    with registered(SignCodec, FloatCodec):
        yield


FLOATS = {"merges_are_right", "sum_is_right"}  # a sum that lacks a worker is far from the gradients', too


@BOTH
def test_damaged_packets_on_one_uplink(codec: str) -> None:
    given = scenario(codec, collective=SWITCHML)

    assert failures(given) == {}
    failed = failures(given | {"faults": DAMAGE})

    assert set(failed) == (FLOATS if codec == "toy_float" else {"merges_are_right"})
    place = {
        "toy_sign": r"\d+ of 3750 merged sign words are wrong, first at worker 0, word \d+ of 'signs' "
        r"\(step \d, bucket 0, operation 0\) \(no worker sent its bits 0x[0-9a-f]{8}\)",
        "toy_float": r"\d+ of 120000 merged float32 words are not within .* of the words sent, first in "
        r"step \d, bucket 0, worker 0, word \d+ of 'values' \(received .*, the sum is .*\)",
    }
    slot = r": slot \d+, version \d, unit \d+ of stream \d"
    assert re.fullmatch(place[codec] + slot, failed["merges_are_right"])


def test_damaged_results_at_one_worker() -> None:
    """On the way down: where sent bits differ, a flipped one is some worker's, but no other received it."""
    damage = [{"kind": "corruption", "detected": False, "rate": "30%", "links": ["s0->h2"]}]

    failed = failures(scenario("toy_sign", collective=SWITCHML, faults=damage))

    assert set(failed) == {"merges_are_right", "replicas_agree"}
    assert "first at worker 2, word " in failed["merges_are_right"]
    assert re.search(r"\(received 0x\w{8}, worker 0 received 0x\w{8}\): slot ", failed["merges_are_right"])


def test_a_ring_that_ignores_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An arriving bit survives with probability 1/2, so each segment prefers another worker.

    Only stretches of the words show it.
    """
    given = scenario("toy_sign", 8, workload=LONG, collective=RING)
    assert failures(given) == {}
    ignore_weights(monkeypatch)

    failed = failures(given)

    assert set(failed) == {"merges_are_right"}
    found = re.fullmatch(
        r"worker (\d)'s bits survive more often than its weight allows in words (\d+) to (\d+) of 'signs' "
        r"\(step 0, bucket 0, operation 0\): \d+ bits off the mean \((\d+\.\d) standard deviations\), at "
        r"most \d+ allowed",
        failed["merges_are_right"],
    )
    assert found is not None
    worker, first, last = (int(found[group]) for group in (1, 2, 3))
    assert (
        first // 1024 == last // 1024 == (worker + 1) % 8
    )  # it is the last to merge its successor's segment
    assert float(found[4]) > 25


@pytest.mark.parametrize(
    ("collective", "place"),
    [
        (RING, "around the ring"),
        ({"kind": "torus_2d", "rows": 2}, "on the torus, as worker 0 (row 0, column 0) got it"),
    ],
    ids=["ring", "torus"],
)
def test_floats_of_a_worker_that_are_dropped(
    monkeypatch: pytest.MonkeyPatch, collective: dict[str, Any], place: str
) -> None:
    """Worker 4 puts in zeros; the other end of each merge is told nothing of it."""
    begin = Engine.begin

    def beginning(self: Engine, number: int, worker: int, words: Any, *more: Any) -> None:
        begin(self, number, worker, words * (worker != 4), *more)

    monkeypatch.setattr(Engine, "begin", beginning)
    failed = failures(scenario("toy_float", 5, collective=collective))

    assert set(failed) == FLOATS
    assert " merged float32 words are not within " in failed["merges_are_right"]
    assert place in failed["merges_are_right"]


def published(ratio: int) -> tuple[str, ...]:
    """The released code's sketch in float32, most of whose members are estimates."""
    codec = f"codec={{kind: lossless, setting: published, values: float32, index_bits: 1, ratio: {ratio}}}"
    sizes = "topology.hosts=8", "workers=8", "workload.elements=50000", "workload.density=30%"
    return codec, ANY_MERGE, *sizes, "collective.slots=8"


def failed_of(result: VariantResult) -> dict[str, str]:
    return {check.name: check.detail for check in result.checks if check.verdict == "fail"}


def test_estimates_are_made_of_sums_that_were_added_right(tmp_path: Path) -> None:
    result = simulate(tmp_path, *published(5))

    (said,) = failed_of(result).items()
    assert said[0] == "sum_is_right"  # not merges_are_right
    assert said[1].startswith("totals are far from the sums of the gradients, which workers contribute whole")


@pytest.mark.parametrize(
    ("ratio", "fault"),
    [
        (5, "{kind: duplicate, rate: 2%, delay: 20us}"),
        (50, "{kind: corruption, detected: false, rate: 20%, links: ['h0->*']}"),
    ],
    ids=["copies", "flips"],
)
def test_wrong_sums_do_not_pass_as_approximate(tmp_path: Path, ratio: int, fault: str) -> None:
    result = simulate(tmp_path, *published(ratio), f"faults=[{fault}]")

    assert result.faults[0].count > 0
    assert summarize(result.facts, result.records)["verdict"] == "fail"
    assert " merged float32 words are not within " in failed_of(result)["merges_are_right"]
    assert ": slot " in failed_of(result)["merges_are_right"]


def test_atp_s_float_units_are_held_to_the_words_sent(tmp_path: Path) -> None:
    (job,) = simulate(tmp_path, ATP, LARGE).jobs
    checks = {check.name: (check.verdict, check.detail) for check in job.checks}

    assert {passed for passed, _ in checks.values()} == {"pass"}
    assert checks["merges_are_right"][1].endswith(
        " merged float32 words are within (n − 1) · 2⁻²⁴ · Σ|x| of the words sent"
    )
    count = int(checks["merges_are_right"][1].split()[1])
    assert 0 < count < 3000
    assert checks["merges_are_exact"][1] == "all merged integer words of 1 rounds equal their integer sums"


PLACE = MessagePlace(operation=0, part=0, label="values")
SIZE, WORKERS = 5, 4
MERGES = [Merge.ADD, Merge.OR, Merge.MAX, Merge.FLOAT_ADD, Merge.TABLE_ADD, Merge.SIGN]
TABLE = np.arange(-8, 8, dtype=np.int32)


def sent(merge: Merge, absent: set[int], workers: int = WORKERS) -> list[Message]:
    random = np.random.default_rng(1)
    messages = []
    for rank in range(workers):
        words: Any = random.integers(0, 2**31, SIZE, dtype=np.uint32).astype(merge.dtypes[0])
        size = SIZE if rank in absent else 0
        table = TABLE if merge is Merge.TABLE_ADD else None
        kept = words[:0] if size else words
        messages.append(Message(kept, merge, "values", table=table, absent_words=size))
    return messages


def found(messages: list[Message], received: list[Merged], overflow: Overflow = Overflow.WRAP) -> Tallies:
    tallies = Tallies()
    check_message(PLACE, messages, received, overflow, tallies)
    return tallies


def wrong(tallies: Tallies) -> int:
    return tallies.wrong.count + tallies.wrong_floats.count


def wrong_words(messages: list[Message], words: Sequence[int]) -> int:
    """Wrong words over all workers, all of which receive these."""
    present = np.array([not one.is_absent for one in messages])
    merged = Merged(np.array(words, messages[0].words.dtype), int(present.sum()), present=present)
    return wrong(found(messages, [merged] * len(messages)))


@pytest.mark.parametrize("absent", [set(), {1}, {0, 2, 3}, {0, 1, 2, 3}])
@pytest.mark.parametrize("merge", MERGES)
def test_right_results_of_those_who_are_there(merge: Merge, absent: set[int]) -> None:
    messages = sent(merge, absent)
    right = merged_message(messages)

    for overflow in Overflow:
        if overflow is Overflow.WRAP or merge not in (Merge.ADD, Merge.TABLE_ADD):
            assert wrong(found(messages, [right] * WORKERS, overflow)) == 0


@pytest.mark.parametrize("merge", MERGES)
def test_a_missing_worker_is_noticed_although_another_is_absent(merge: Merge) -> None:
    """Worker 3 has words, and is left out; whether the result admits that or not."""
    messages = sent(merge, {1})
    fewer = merged_message(sent(merge, {1, 3}))
    claiming = replace(fewer, workers=3, present=np.array([True, False, True, True]))

    assert wrong(found(messages, [fewer] * WORKERS)) > 0
    if merge is not Merge.SIGN:  # where nothing but the claim tells
        assert wrong(found(messages, [claiming] * WORKERS)) > 0


CLAIMS = {
    "too few": ({"workers": 2}, "it claims 2 contributors, 3 sent words"),
    "too many": ({"workers": 4, "present": None}, "it claims 4 contributors, 3 sent words"),
    "others": (
        {"present": np.array([True, True, True, False])},
        "it claims words of workers 0, 1, 2; they were sent by workers 0, 2, 3",
    ),
    "unnamed": ({"present": None}, "it does not say who contributed"),
    "mixed": ({"is_mixed": True}, "parts of it claim different contributors"),
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("merge", MERGES)
def test_wrong_claims(merge: Merge, claim: str) -> None:
    """At one worker of four: all its words count as wrong."""
    messages = sent(merge, {1})
    right = merged_message(messages)
    changes, words = CLAIMS[claim]
    tallies = found(messages, [right, right, replace(right, **changes), right])

    assert wrong(tallies) == right.words.size
    tally = tallies.wrong_floats if merge is Merge.FLOAT_ADD else tallies.wrong
    assert tally.first is not None
    assert str(tally.first).startswith(f"worker 2, word 0 of 'values' ({words})")


def test_wrong_words_are_not_counted_again() -> None:
    messages = sent(Merge.ADD, {1})
    right = merged_message(messages)
    words = right.words.copy()
    words[3] ^= 4
    damaged = replace(right, words=words, workers=2)

    assert found(messages, [damaged] + [right] * 3).wrong.count == 1


def test_bits_are_named_only_where_they_have_room() -> None:
    """Of 32 workers a result says who; of 33 only how many."""
    for workers, count in ((32, 32 * SIZE), (33, 0)):
        messages = sent(Merge.ADD, {1}, workers)
        unnamed = replace(merged_message(messages), present=None)
        assert found(messages, [unnamed] * workers).wrong.count == count


@pytest.mark.parametrize(
    ("merge", "dtype", "right"),
    [
        (Merge.ADD, np.int32, [-3, -7]),
        (Merge.MAX, np.int32, [-1, -3]),  # an absent worker has no zero
        (Merge.OR, np.uint32, [7, 5]),
        (Merge.FLOAT_ADD, np.float32, [-3, -7]),
    ],
)
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_absent_workers_have_no_words(
    merge: Merge, dtype: type[np.generic], right: list[int], missing: int
) -> None:
    """Two of three workers send; one word more than their sum is wrong at each worker."""
    rows = [[6, 5], [3, 4]] if merge is Merge.OR else [[-1, -3], [-2, -4]]
    messages = [Message(np.array(row, dtype), merge, "values") for row in rows]
    messages.insert(missing, Message(np.empty(0, dtype), merge, "values", absent_words=2))

    assert wrong_words(messages, right) == 0
    assert wrong_words(messages, [right[0], right[1] + 1]) == 3


@pytest.mark.parametrize(("words", "count"), [([], 4), ([0, 0], 0), ([0, 1], 2), ([0, 0, 0], 6)])
@pytest.mark.parametrize(
    ("merge", "dtype", "least"),
    [
        (Merge.ADD, np.int32, 0),
        (Merge.OR, np.uint32, 0),
        (Merge.SIGN, np.uint32, 0),
        (Merge.FLOAT_ADD, np.float32, 0),
        (Merge.MAX, np.int32, -(2**31)),
    ],
)
def test_words_of_nobody_change_no_others(
    merge: Merge, dtype: type[np.generic], least: int, words: list[int], count: int
) -> None:
    """Zeros, or the smallest of all: as many as the others' would be, at each of two workers."""
    messages = [Message(np.empty(0, dtype), merge, "values", absent_words=2)] * 2
    assert wrong_words(messages, [least + word for word in words]) == count


def test_the_word_that_is_wrong_is_named() -> None:
    """The last of three: of a message that nobody has words for, and of one that is gathered."""
    nobody = [Message(np.empty(0, np.int32), Merge.ADD, "values", absent_words=3)] * 2
    gathered = [Message(np.array([1, 2, 3], np.uint32), Merge.GATHER, "values")] * 2
    parts = (gathered[0].words, np.array([1, 2, 7], np.uint32))
    for messages, merged, right in (
        (nobody, Merged(np.array([0, 0, 7], np.int32), 0, present=np.zeros(2, np.bool_)), 0),
        (gathered, Merged(np.empty(0, np.uint32), 2, parts=parts), 3),
    ):
        first = str(found(messages, [merged] * 2).wrong.first)
        assert first.startswith(f"worker 0, word 2 of 'values' (received 7, the sum is {right})")


def test_float_sums_have_no_addition_for_absent_workers() -> None:
    """One worker's words arrive as they are."""
    messages = [
        Message(np.array([1.0], np.float32)[rank:], Merge.FLOAT_ADD, "values", absent_words=min(rank, 1))
        for rank in range(3)
    ]
    near = Merged(np.nextafter(messages[0].words, np.float32(2)), 1, present=np.arange(3) == 0)
    tallies = found(messages, [near] * 3)
    assert (tallies.float_words, tallies.wrong_floats.count) == (3, 3)


def test_holders_are_some_of_those_who_sent_words() -> None:
    """Of slots with timers: fewer may be right, an absent one is wrong."""
    messages = sent(Merge.ADD, {1})
    for bitmap, count in ((0b1001, 0), (0b1011, SIZE)):
        ranks = [rank for rank in range(WORKERS) if bitmap >> rank & 1]
        words = right_merge([messages[rank] for rank in ranks if rank != 1]).words
        merged = Merged(
            np.array(words, np.int32),
            len(ranks),
            holders=Holders(np.array([bitmap], np.uint32), 64),
            present=np.array([bool(bitmap >> rank & 1) for rank in range(WORKERS)]),
        )
        assert found(messages, [merged]).wrong.count == count


@pytest.mark.parametrize("exponent", [EXPONENT_MIN, -127])
def test_exponents_that_nobody_announced(exponent: int) -> None:
    scaling = Scaling(np.zeros(3, np.int8), 2, WORKERS)
    message = Message(np.empty(0, np.float32), Merge.ADD, "values", scaling=scaling, absent_words=SIZE)
    nobody = Merged(
        np.zeros(SIZE, np.int32), 0, np.full(3, exponent, np.int8), present=np.zeros(WORKERS, np.bool_)
    )

    is_right = exponent == EXPONENT_MIN
    assert (found([message] * WORKERS, [nobody] * WORKERS).wrong.count == 0) == is_right


def log_tail(count: int, share: float, excess: float) -> float:
    """The logarithm of P(X − count · share ≥ excess) of a binomial X, exact but for float64."""
    first = math.ceil(count * share + excess - 1e-9)
    terms = [
        math.lgamma(count + 1)
        - math.lgamma(k + 1)
        - math.lgamma(count - k + 1)
        + k * math.log(share)
        + (count - k) * math.log1p(-share)
        for k in range(first, count + 1)
    ]
    if not terms:
        return -math.inf
    largest = max(terms)
    return largest + math.log(sum(math.exp(term - largest) for term in terms))


@pytest.mark.parametrize("level", [1.0, 5.0, 20.0, 45.0])
@pytest.mark.parametrize("share", [1 / 32, 1 / 3, 7 / 8])
@pytest.mark.parametrize("count", [1, 100, 3000])
def test_what_is_allowed_is_exceeded_as_rarely_as_it_must(count: int, share: float, level: float) -> None:
    """Against binomial tails; and in long messages at two thirds of it, no longer so rarely."""
    variance = count * share * (1 - share)
    excess = float(allowed(np.array([variance]), level)[0])

    assert log_tail(count, share, excess) <= -level
    if level >= 5 and variance > 20 * level:
        assert log_tail(count, share, excess * 2 / 3) > -level


@pytest.mark.parametrize("level", [5.0, 30.0])
def test_variances_that_are_not_known_have_shares_that_add_up(level: float) -> None:
    """Each grid point's level gives it a share of the false alarms; a variance is rounded up to its point."""
    points = np.exp2(np.arange(400) / 4)
    excess = allowed_over_rounds(points * (1 - 1e-9), level)
    levels = excess**2 / (2 * (points + excess / 3))  # what `allowed` solves

    assert np.exp(level - levels).sum() <= 1
    between = points[:-1] * 2 ** (1 / 8)
    assert np.allclose(allowed_over_rounds(between, level), excess[1:])
    assert allowed_over_rounds(np.array([0.0, 0.3, 1.0]), level) == pytest.approx([excess[0]] * 3)


@pytest.mark.parametrize("is_over_rounds", [False, True])
@pytest.mark.parametrize("stretches", [1, 2, 64])
def test_the_shares_of_all_statistics_add_up(
    stretches: int, is_over_rounds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sides, each worker and the ones, each stretch of each division: together the share, and no more."""
    spent = []
    name = "allowed_over_rounds" if is_over_rounds else "allowed"
    original = getattr(fairness, name)

    def recording(variances: np.ndarray, level: float) -> np.ndarray:
        spent.append(variances.size * 6 * 2 * math.exp(-level))
        found: np.ndarray = original(variances, level)
        return found

    monkeypatch.setattr(fairness, name, recording)
    worst(StretchSums(np.zeros((stretches, 6)), np.full(stretches, 1e6)), 0.25, is_over_rounds)

    assert len(spent) == math.log2(stretches) + 1
    assert sum(spent) == pytest.approx(0.25 * fairness.FALSE_ALARMS)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("worker", [0, 1, 2])
def test_just_inside_and_just_outside(sign: int, worker: int) -> None:
    """Of one stretch; the last column is the ones."""
    variances = np.full(4, 1000.0)
    level = math.log(3 * 4 * 3 * 2) - math.log(0.5) - math.log(fairness.FALSE_ALARMS)
    limit = float(allowed(variances[:1], level)[0])
    deviations = np.zeros((4, 3))

    deviations[2, worker] = sign * limit * (1 - 1e-6)
    assert worst(StretchSums(deviations, variances), 0.5, is_over_rounds=False) is None
    deviations[2, worker] = sign * limit * (1 + 1e-6)
    found = worst(StretchSums(deviations, variances), 0.5, is_over_rounds=False)

    assert found is not None
    assert (found.worker, found.stretch, found.stretches) == (None if worker == 2 else worker, 2, 4)
    assert found.excess == deviations[2, worker]
    assert found.sigmas == pytest.approx(deviations[2, worker] / math.sqrt(1000))


def alarms(runs: int, rounds: int) -> int:
    """Honest runs with an alarm; what is sent depends on what was merged, as in training."""
    found = 0
    for run in range(runs):
        random = np.random.default_rng([7, run])
        workers, size = int(random.integers(2, 5)), int(random.integers(1, 9))
        signs, bias = Signs(), 0.5
        for step in range(rounds):
            bits = correlated(random, workers, size, agreement=0.3) ^ (random.random(32 * size) < bias)
            merged = chosen(random, bits)
            bias = float(merged.mean())
            examine(signs, list(words_of(bits)), [words_of(merged)] * workers, step)
        found += signs.first_unfair is not None
        assert signs.wrong_words == 0
    return found


@pytest.mark.parametrize(
    ("share", "runs", "least", "most"),
    [
        pytest.param(0.5, 200, 0, 100, marks=nightly),  # one in two may raise one if told so
        (None, 50, 0, 0),  # with the probability that is used none does
        (50, 20, 4, 20),  # allowed fifty each, many do
    ],
)
def test_honest_runs_raise_as_few_alarms_as_they_say(
    share: float | None, runs: int, least: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if share is not None:
        monkeypatch.setattr(fairness, "FALSE_ALARMS", share)

    assert least <= alarms(runs, 10) <= most
