"""The local driver and its refusals; small encoders show what the contract can express."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.block_floating_point import block_exponents
from netfold.homomorphic.codec import Decoded, Encoder, Exchange, LockStepError
from netfold.homomorphic.codecs.fixed_point import FixedPoint
from netfold.homomorphic.codecs.none import Uncompressed
from netfold.homomorphic.fold import AllReduceResult, fold
from netfold.homomorphic.merge import MERGEABLE, Merge, Merged, combine, merge_all, unchanged_by
from netfold.homomorphic.message import Gradient, Message, Round, Scaling, merged_message
from tests.homomorphic.gradients import folded
from tests.reference.codecs.digits import right_merge

Script = Generator[tuple[Message, ...], tuple[Merged, ...], Any]  # returns the total


class Scripted(Encoder):
    """An encoder that is one generator function of rank, gradient and round."""

    def __init__(self, script: Callable[[int, Gradient, Round], Script], rank: int) -> None:
        self.script, self.rank = script, rank

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        return Decoded((yield from self.script(self.rank, gradient, round)), gradient)


def run(script: Callable[[int, Gradient, Round], Script], workers: int, seed: int = 0) -> AllReduceResult:
    gradients = [np.full(4, rank, np.float32) for rank in range(workers)]
    return fold([Scripted(script, rank) for rank in range(workers)], gradients, Round(0, 0, workers, seed))


def test_scaled_messages_are_staged_as_exponents_and_integers() -> None:
    gradients = [np.array([0.5, 3, 1000], np.float32), np.array([0.25, 9, 0], np.float32)]
    (exponents, values) = folded(FixedPoint(2), gradients).messages

    assert [message.words.tolist() for (message,) in exponents] == [[2, 10], [4, -97]]
    assert (exponents[0][0].label, exponents[0][0].merge) == ("values exponents", Merge.MAX)
    assert (values[0][0].label, values[0][0].merge, values[0][0].scaling) == ("values", Merge.ADD, None)
    assert values[0][0].words.tolist() == [2**25, 3 * 2**26, 1000 * 2**20]


@pytest.mark.parametrize(
    ("words", "is_float"),
    [
        ((2**30, 2**30 - 2), False),
        ((2**30, 2**30 - 1), True),  # the sum is the limit, where adders stick
        ((-(2**30), 2 - 2**30), False),
        ((-(2**30), 1 - 2**30), True),
        ((2**31 - 1, -5), True),  # a word at the limit sticks, for any sum
        ((2**31 - 2, -5), False),
    ],
)
def test_floats_come_in_the_place_of_sums_from_the_limit_on(words: tuple[int, int], is_float: bool) -> None:
    def script(rank: int, gradient: Gradient, round: Round) -> Script:
        own, floats = np.array([words[rank]], np.int32), np.array([rank + 0.25], np.float32)
        (merged,) = yield (Message(own, Merge.ADD, "values", floats=floats),)
        assert merged.is_float.tolist() == [is_float]
        return merged.words.view(np.float32) if is_float else merged.words.astype(np.float64)

    assert run(script, 2).decoded[0].tolist() == [1.5 if is_float else sum(words)]


WHY = (
    "all workers of a round must send the same messages; "
    "were they given different codecs, gradients or merged words?"
)


def test_workers_that_send_different_things_are_stopped() -> None:
    def lengths(rank: int, gradient: Gradient, round: Round) -> Exchange:
        yield (Message(np.zeros(3 + rank, np.int32), Merge.ADD, "values"),)
        return gradient

    text = (
        "worker 1 sends 'values' (add of 4 int32 words), but worker 0 sends 'values' (add of 3 int32 words)"
    )
    with pytest.raises(LockStepError, match=f"^{re.escape(f'{text}: {WHY}')}$"):
        run(lengths, 2)


def test_workers_that_end_early_are_stopped() -> None:
    def early(rank: int, gradient: Gradient, round: Round) -> Script:
        scaling = Scaling(np.zeros(1, np.int8), 4, round.workers)
        if rank == 0:
            yield (
                Message(np.zeros(3, np.uint32), Merge.OR, "index"),
                Message(gradient[:0], Merge.GATHER, "rest"),
                Message(gradient, Merge.ADD, "values", scaling=scaling),
            )
        return gradient

    text = (
        "worker 1 sends nothing more, having decoded 4 elements, but worker 0 sends 'index' (or of 3 uint32 "
        f"words) and 'rest' (gather of float32 words) and 'values exponents' (max of 1 int32 words): {WHY}"
    )
    with pytest.raises(LockStepError, match=f"^{re.escape(text)}$"):
        run(early, 2)


@pytest.mark.parametrize("order", [[0], [0, 0], [1, 2]])
def test_an_order_names_every_rank_once(order: list[int]) -> None:
    text = (
        "a round of 2 workers needs as many encoders and gradients and an order that names each rank once; "
        f"found 2, 2 and {order}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        folded(Uncompressed(), [np.zeros(1, np.float32)] * 2, order)


# Workers that contribute nothing to a message that merges: the contract, and the local driver.

TABLE = np.arange(-8, 8, dtype=np.int32)
MERGES = sorted(MERGEABLE, key=lambda merge: merge.number)
SIZE = 6


def words_of(merge: Merge, seed: int) -> NDArray[Any]:
    random = np.random.default_rng(seed)
    if merge is Merge.FLOAT_ADD:
        return random.standard_normal(SIZE).astype(np.float32)
    return random.integers(0, 2**32, SIZE, dtype=np.uint32).view(merge.dtypes[0])


def messages_of(merge: Merge, workers: int, absent: set[int]) -> list[Message]:
    table = TABLE if merge is Merge.TABLE_ADD else None
    whole = [Message(words_of(merge, rank), merge, "values", table=table) for rank in range(workers)]
    return [
        Message(one.words[:0], merge, "values", table=table, absent_words=SIZE) if rank in absent else one
        for rank, one in enumerate(whole)
    ]


def merged_of(
    *columns: Sequence[Message], order: Sequence[int] | None = None
) -> tuple[AllReduceResult, list[Merged]]:
    """A round in which each worker sends its messages of all columns; and what comes back to worker 0."""
    received: list[tuple[Merged, ...]] = []

    def script(rank: int, gradient: Gradient, round: Round) -> Script:
        received.append((yield tuple(column[rank] for column in columns)))
        return gradient

    workers = len(columns[0])
    gradients = [np.zeros(1, np.float32)] * workers
    encoders = [Scripted(script, rank) for rank in range(workers)]
    done = fold(encoders, gradients, Round(0, 0, workers, 0), order)
    return done, list(received[0])


@pytest.mark.parametrize("merge", MERGES)
@given(data=st.data())
def test_the_local_driver_merges_those_who_are_there(merge: Merge, data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, 6))
    absent = data.draw(st.sets(st.integers(0, workers - 1)))
    messages = messages_of(merge, workers, absent)
    order = data.draw(st.permutations(range(workers)))
    _, (merged,) = merged_of(messages, order=order)

    present = [one for one in messages if not one.is_absent]
    assert merged.workers == len(present)
    named = [True] * workers if merged.present is None else merged.present.tolist()
    assert named == [rank not in absent for rank in range(workers)]
    assert (merged.present is None) == (not absent)
    if not present:
        word = -(2**31) if merge is Merge.MAX else 0
        lanes = 8 if merge is Merge.TABLE_ADD else 1
        assert merged.words.tolist() == [word] * (lanes * SIZE)
    elif merge is Merge.SIGN:
        sent = [one.words for one in present]
        assert not (merged.words & ~np.bitwise_or.reduce(sent)).any()
        assert not (np.bitwise_and.reduce(sent) & ~merged.words).any()
    elif merge is Merge.FLOAT_ADD:
        ranks = [rank for rank in order if rank not in absent]
        total = reduce(lambda a, b: np.float32(a + b), [messages[rank].words for rank in ranks])
        assert merged.words.tobytes() == total.tobytes()
    else:
        assert merged.words.tolist() == right_merge(present).words


@pytest.mark.parametrize("merge", MERGES)
def test_an_aggregate_of_nobody_gives_way_to_any_other(merge: Merge) -> None:
    """Whatever its words; neither is changed, and packed codes are lifted."""
    words = words_of(merge, 1)
    right = merge_all(merge, [words], table=TABLE).tolist()
    nobody = Merged(words_of(merge, 2)[:3], 0, present=np.zeros(2, np.bool_))
    someone = Merged(words, 2, present=np.array([True, True]))
    kept = words.copy(), nobody.words.copy()

    for pair in ((nobody, someone), (someone, nobody)):
        merged = combine(merge, *pair, key=5, table=TABLE)
        assert merged.words.tolist() == right
        assert merged.workers == 2
        assert merged.present is not None
        assert merged.present.tolist() == [True, True]
        merged.words[:] = 0
    assert words.tobytes() == kept[0].tobytes()
    assert nobody.words.tobytes() == kept[1].tobytes()


def test_contributors_are_united() -> None:
    left = Merged(np.ones(1, np.int32), 1, present=np.array([True, False, False]))
    right = Merged(np.ones(1, np.int32), 1, present=np.array([False, False, True]))

    united = combine(Merge.ADD, left, right)
    assert united.present is not None
    assert united.present.tolist() == [True, False, True]
    assert combine(Merge.ADD, left, Merged(np.ones(1, np.int32), 1)).present is None


@pytest.mark.parametrize("merge", MERGES)
def test_the_words_of_nobody_change_no_others(merge: Merge) -> None:
    """Of SIGN it is the missing weight that changes none."""
    words = merge_all(merge, [words_of(merge, 1)], table=TABLE)
    own = unchanged_by(merge, words.size)

    assert (own.dtype, own.size) == (words.dtype, words.size)
    weight = 0 if merge is Merge.SIGN else 1
    assert combine(merge, Merged(own, weight), Merged(words, 1)).words.tolist() == words.tolist()


def test_bits_of_a_sign_weigh_as_those_who_are_there() -> None:
    """Ones from one worker of two that vote, among eight: half of the bits survive."""
    ones, zeros = (np.full(4096, word, np.uint32) for word in (2**32 - 1, 0))
    messages = [Message(ones[:0], Merge.SIGN, "signs", absent_words=ones.size)] * 6
    messages += [Message(ones, Merge.SIGN, "signs"), Message(zeros, Merge.SIGN, "signs")]

    merged = merged_message(messages, key=7)
    share = int(np.bitwise_count(merged.words).sum()) / (32 * ones.size)
    assert merged.workers == 2
    assert abs(share - 0.5) < 5 * 0.5 / (32 * ones.size) ** 0.5


@pytest.mark.parametrize("absent", [{0}, {1}, {0, 1}])
def test_exponents_are_agreed_by_those_who_are_there(absent: set[int]) -> None:
    gradients = [np.array([0.5, 3, 1000], np.float32), np.array([0.25, 9, 0], np.float32)]
    columns = []
    for rank, own in enumerate(gradients):
        scaling = Scaling(block_exponents(own, 2, 2), 2, 2)
        size = own.size if rank in absent else 0
        kept = own[: 0 if rank in absent else None]
        columns.append(Message(kept, Merge.ADD, "values", scaling=scaling, absent_words=size))
    done, (merged,) = merged_of(columns)

    announced = [one.size_bytes for one in columns]
    assert announced == [0 if rank in absent else 3 * 4 + 2 for rank in range(2)]  # two exponents of a byte
    present = [rank for rank in range(2) if rank not in absent]
    if not present:
        right, exponents = [0, 0, 0], [-128, -128]
    else:
        found = right_merge([columns[rank] for rank in present])
        assert found.exponents is not None
        right, exponents = found.words, found.exponents
    assert merged.exponents is not None
    assert (merged.words.tolist(), merged.exponents.tolist()) == (right, exponents)
    assert merged.workers == len(present)
    for operation in done.messages:
        for rank, (message,) in enumerate(operation):
            assert message.is_absent == (rank in absent)
            assert (message.size_bytes == 0) == (rank in absent)


def test_a_gathered_message_without_words_says_the_same() -> None:
    parts = [np.array([7], np.uint32), np.empty(0, np.uint32)]
    _, (merged,) = merged_of([Message(words, Merge.GATHER, "list") for words in parts])

    assert [part.tolist() for part in merged.parts] == [[7], []]
    assert merged.workers == 1
    assert merged.present is not None
    assert merged.present.tolist() == [True, False]


def test_an_absent_worker_is_in_lock_step_if_its_message_would_be() -> None:
    messages = messages_of(Merge.ADD, 2, {1})
    merged_of(messages)

    shorter = Message(messages[1].words, Merge.ADD, "values", absent_words=SIZE - 1)
    with pytest.raises(
        LockStepError, match=r"worker 1 sends 'values' \(add of 5 int32 words, absent\), but worker 0"
    ):
        merged_of([messages[0], shorter])


@pytest.mark.parametrize(
    ("words", "merge", "absent_words"),
    [(1, Merge.ADD, 1), (0, Merge.GATHER, 1), (0, Merge.HOST, 1), (0, Merge.ADD, -1)],
)
def test_contradictions_are_refused(words: int, merge: Merge, absent_words: int) -> None:
    with pytest.raises(ValueError, match=r"message 'x': absent_words=-?1 says that its worker contributes"):
        Message(np.zeros(words, np.int32), merge, "x", absent_words=absent_words)
