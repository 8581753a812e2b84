"""The local driver and its refusals; small encoders show what the contract can express."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.codec import Decoded, Encoder, Exchange
from netfold.homomorphic.codecs.dense.kinds import FixedPoint, Uncompressed
from netfold.homomorphic.fold import Folded, LockStepError, fold
from netfold.homomorphic.message import Gradient, Merge, Merged, Message, Scaling
from netfold.homomorphic.numbers.exponents import block_exponents
from netfold.homomorphic.round import Round
from tests.homomorphic.gradients import folded

THC_TABLE = np.array([0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30], np.int32)

Script = Generator[tuple[Message, ...], tuple[Merged, ...], Any]  # returns the total


class Scripted(Encoder):
    """An encoder that is one generator function of rank, gradient and round."""

    def __init__(self, script: Callable[[int, Gradient, Round], Script], rank: int) -> None:
        self.script, self.rank = script, rank

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        return Decoded((yield from self.script(self.rank, gradient, round)), gradient)


def run(script: Callable[[int, Gradient, Round], Script], workers: int, seed: int = 0) -> Folded:
    gradients = [np.full(4, rank, np.float32) for rank in range(workers)]
    return fold([Scripted(script, rank) for rank in range(workers)], gradients, Round(0, 0, workers, seed))


def test_scaled_messages_are_staged_as_exponents_and_integers() -> None:
    gradients = [np.array([0.5, 3, 1000], np.float32), np.array([0.25, 9, 0], np.float32)]
    (exponents, values) = folded(FixedPoint(2), gradients).messages

    assert [message.words.tolist() for (message,) in exponents] == [[2, 10], [4, -97]]
    assert (exponents[0][0].label, exponents[0][0].merge) == ("values exponents", Merge.MAX)
    assert (values[0][0].label, values[0][0].merge, values[0][0].scaling) == ("values", Merge.ADD, None)
    assert values[0][0].words.tolist() == [2**25, 3 * 2**26, 1000 * 2**20]


def test_scaled_and_plain_messages_share_an_operation() -> None:
    def script(rank: int, gradient: Gradient, round: Round) -> Script:
        scaling = Scaling(block_exponents(gradient, 4, round.workers), 4, round.workers)
        total, largest = yield (
            Message(gradient, Merge.ADD, "values", scaling=scaling),
            Message(np.array([rank], np.int32), Merge.MAX, "largest"),
        )
        assert (total.words.dtype, total.exponents.tolist()) == (np.int32, [2])
        return largest.words.astype(np.float32)

    result = run(script, 3)

    assert [one.tolist() for one in result.decoded] == [[2]] * 3
    assert [len(operation[0]) for operation in result.messages] == [2, 1]


def test_one_bit_votes_are_expressible() -> None:
    """Marsit: sign bits, merged by chance with worker counts, the same bits for all."""

    def script(rank: int, gradient: Gradient, round: Round) -> Script:
        (merged,) = yield (Message(np.array([2**32 - 1 if rank else 0], np.uint32), Merge.SIGN, "signs"),)
        assert merged.workers == round.workers
        return merged.words.astype(np.float32)

    first, second, other = run(script, 2, seed=1), run(script, 2, seed=1), run(script, 2, seed=2)

    assert first.decoded[0] == first.decoded[1] == second.decoded[0] != other.decoded[0]


def test_a_norm_by_max_then_table_codes_are_expressible() -> None:
    """THC: float norms as integers of the same order, then four-bit codes that come back as wider sums."""

    def script(rank: int, gradient: Gradient, round: Round) -> Script:
        norm = np.linalg.norm(gradient).astype(np.float32).reshape(1)
        (largest,) = yield (Message(norm.view(np.int32), Merge.MAX, "norm"),)
        assert largest.words.view(np.float32) == np.float32(4)
        codes = np.array([0x76543210 + rank], np.uint32)
        (total,) = yield (Message(codes, Merge.TABLE_ADD, "codes", table=THC_TABLE),)
        return total.words.astype(np.float32)

    assert run(script, 3).decoded[1].tolist() == [0 + 3 + 5, *(3 * THC_TABLE[1:8]).tolist()]


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


def test_gathered_messages_may_differ_in_length() -> None:
    """SASG, BIRD: what cannot be merged is delivered; a worker that skips sends no words."""

    def script(rank: int, gradient: Gradient, round: Round) -> Script:
        (merged,) = yield (Message(np.full(rank, rank, np.float32), Merge.GATHER, "rows"),)
        return np.concatenate(merged.parts)

    result = run(script, 3)

    assert result.decoded[0].tolist() == [1, 2, 2]
    assert [result.announced_bytes(rank) for rank in range(3)] == [0, 4, 8]


def test_workers_that_send_different_things_are_stopped() -> None:
    def lengths(rank: int, gradient: Gradient, round: Round) -> Exchange:
        yield (Message(np.zeros(3 + rank, np.int32), Merge.ADD, "values"),)
        return gradient

    text = (
        "worker 1 sends 'values' (add of 4 int32 words), but worker 0 sends 'values' (add of 3 int32 words): "
        "all workers of a round must send the same messages; "
        "were they given different codecs, gradients or merged words?"
    )
    with pytest.raises(LockStepError, match=f"^{re.escape(text)}$"):
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
        "words) and 'rest' (gather of float32 words) and 'values exponents' (max of 1 int32 words): "
        "all workers of a round must send the same messages; "
        "were they given different codecs, gradients or merged words?"
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
