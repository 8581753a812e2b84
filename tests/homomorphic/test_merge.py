"""Merge kernels against NumPy and plain loops, and the errors of merges that cannot be."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from netfold.homomorphic.codec import Decoded, Encoder, LockStepError, Request, Server, fault_of
from netfold.homomorphic.codecs.fp16 import HalfAdd
from netfold.homomorphic.fold import check_lock_step, fold
from netfold.homomorphic.merge import (
    LANE_BITS,
    Hop,
    HostHop,
    Merge,
    Merged,
    Words,
    Work,
    add_words,
    combine,
    float_add_words,
    join_host,
    lift,
    max_words,
    merge_all,
    or_words,
    replay,
    split_host,
)
from netfold.homomorphic.message import Message, Round, Scaling
from netfold.kernels.keyed_random import mix_plain
from netfold.testing import check_codec
from tests.examples import examples
from tests.reference.codecs.digits import right_merge
from tests.reference.switch.merging import words_per_word
from tests.sim.host_codecs import Codes, Votes

int32s = st.integers(-(2**31), 2**31 - 1)


@given(data=st.data(), size=st.integers(0, 70))
def test_kernels_are_the_numpy_expressions(data: st.DataObject, size: int) -> None:
    floats = st.floats(-(2.0**100), 2.0**100, width=32)
    for kernel, expression, dtype, elements in (
        (add_words, np.add, np.int32, int32s),
        (or_words, np.bitwise_or, np.int32, int32s),
        (max_words, np.maximum, np.int32, int32s),
        (float_add_words, np.add, np.float32, floats),
    ):
        first, second = (data.draw(arrays(dtype, size, elements=elements)) for _ in range(2))
        merged = first.copy()
        kernel(merged, second)

        assert expression(first, second).tobytes() == merged.tobytes()


@pytest.mark.parametrize(
    ("merge", "parts", "text"),
    [
        (Merge.ADD, [], "nothing to merge: give the words of at least one worker"),
        (
            Merge.ADD,
            [np.zeros(2, np.int32), np.zeros(3, np.int32)],
            "add merges equal lengths, found 2 and 3 words",
        ),
        (
            Merge.TABLE_ADD,
            [np.zeros((2, 1), np.float32)],
            "table_add merges 1-D arrays of uint32 or int32, found float32 of shape (2, 1)",
        ),
        (
            Merge.TABLE_ADD,
            [np.zeros(2, np.uint32)],
            "table_add needs the message's table to read packed codes",
        ),
        (
            Merge.GATHER,
            [np.zeros(2, np.int32)],
            "gather cannot be merged: use a collective that delivers every message, such as all_gather",
        ),
    ],
)
def test_what_cannot_be_merged(merge: Merge, parts: list[np.ndarray], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        merge_all(merge, parts)


def test_a_table_has_sixteen_values() -> None:
    text = "table_add needs a table of 16 int32 values, one per 4-bit code, found int64 of shape (3,)"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        lift(np.zeros(1, np.uint32), np.zeros(3, np.int64))


# Sums in lanes of 4, 8, 16 and 32 bits on hosts: against plain integers, and at the ends of every lane.

TYPES = {8: np.int8, 16: np.int16, 32: np.int32}
WIDTHS = st.sampled_from(LANE_BITS)


def int32(words: Sequence[int]) -> NDArray[np.int32]:
    return np.array(words, np.int64).astype(np.int32)


def messages(merge: Merge, lane_bits: int, workers: int, size: int, seed: int) -> list[Message]:
    """Random words of all bits; a table with both ends of the lane."""
    random = np.random.default_rng(seed)
    half = 2 ** (lane_bits - 1)
    table = random.integers(-half, half, 16).astype(np.int32) if merge is Merge.TABLE_ADD else None
    if table is not None:
        table[[3, 12]] = -half, half - 1
    dtype = np.uint32 if table is not None else np.int32
    return [
        Message(
            random.integers(0, 2**32, size, np.uint32).view(dtype),
            merge,
            "sums",
            table=table,
            lane_bits=lane_bits,
        )
        for _ in range(workers)
    ]


@given(
    merge=st.sampled_from([Merge.ADD, Merge.TABLE_ADD]),
    lane_bits=WIDTHS,
    workers=st.integers(1, 20),
    size=st.integers(0, 20),
    seed=st.integers(0, 2**32),
)
def test_lanes_wrap_each_for_itself_in_any_grouping(
    merge: Merge, lane_bits: int, workers: int, size: int, seed: int
) -> None:
    if merge is Merge.TABLE_ADD:
        lane_bits = max(8, lane_bits)
    sent = messages(merge, lane_bits, workers, size, seed)
    parts, table = [one.words for one in sent], sent[0].table
    right = right_merge(sent).words

    assert merge_all(merge, parts, 0, table, lane_bits).tolist() == right
    assert len(right) == sent[0].merged_size == words_per_word(merge, lane_bits) * size
    if workers > 1:
        first = Merged(merge_all(merge, parts[:1], 0, table, lane_bits), 1)
        rest = Merged(merge_all(merge, parts[1:], 0, table, lane_bits), workers - 1)
        together = combine(merge, rest, first, lane_bits=lane_bits)
        assert (together.words.tolist(), together.workers) == (right, workers)


@pytest.mark.parametrize("lane_bits", [8, 16])
def test_a_table_must_fit_its_lanes(lane_bits: int) -> None:
    most = 2 ** (lane_bits - 1) - 1
    codes, table = np.zeros(1, np.uint32), np.zeros(16, np.int32)
    table[:2] = -most - 1, most
    assert merge_all(Merge.TABLE_ADD, [codes], 0, table, lane_bits).size == lane_bits // 4
    for place, value in ((0, -most - 2), (1, most + 1)):
        wrong = table.copy()
        wrong[place] = value
        text = (
            f"a table for lanes of {lane_bits} bits has values from {-most - 1} to {most}, "
            f"found {wrong.min()} to {wrong.max()}"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
            merge_all(Merge.TABLE_ADD, [codes], 0, wrong, lane_bits)


@pytest.mark.parametrize(
    ("merge", "lane_bits", "text"),
    [
        (Merge.ADD, 12, "add merges lanes of 4, 8, 16 or 32 bits, found 12"),
        (Merge.TABLE_ADD, 4, "table_add merges lanes of 8, 16 or 32 bits, found 4"),
        (Merge.OR, 8, "or merges lanes of 32 bits, found 8"),
        (Merge.FLOAT_ADD, 16, "float_add merges lanes of 32 bits, found 16"),
    ],
)
def test_widths_that_a_merge_does_not_have(merge: Merge, lane_bits: int, text: str) -> None:
    words = np.zeros(1, merge.dtypes[0])
    with pytest.raises(ValueError, match=f"^{text}$"):
        merge_all(merge, [words], lane_bits=lane_bits)
    with pytest.raises(ValueError, match=f"^{text}$"):
        combine(merge, Merged(words, 1), Merged(words, 1), lane_bits=lane_bits)


def test_lanes_of_two_widths_do_not_merge() -> None:
    """Workers that disagree break lock-step; nothing is merged."""
    words = np.zeros(2, np.int32)
    sent = [(Message(words, Merge.ADD, "sums", lane_bits=bits),) for bits in (8, 16)]
    text = (
        "worker 1 sends 'sums' (add of 2 int32 words in 16-bit lanes), but worker 0 sends 'sums' "
        "(add of 2 int32 words in 8-bit lanes)"
    )
    with pytest.raises(LockStepError, match=f"^{re.escape(text)}"):
        check_lock_step(sent)


def test_messages_have_the_lanes_that_their_codec_declares() -> None:
    class Normed(Votes):
        merges = frozenset({Merge.ADD, Merge.MAX})

    words, codec = np.zeros(2, np.int32), Normed()
    fine = (Message(words, Merge.ADD, "votes", lane_bits=4), Message(words, Merge.MAX, "norm"))
    assert [fault_of(message, codec) for message in fine] == [""] * len(fine)
    for message, said, wanted in (
        (Message(words, Merge.ADD, "votes", lane_bits=8), 8, 4),
        (Message(words, Merge.ADD, "votes"), 32, 4),
        (Message(words, Merge.MAX, "norm", lane_bits=4), 4, 32),
    ):
        assert (
            fault_of(message, codec)
            == f"it is in lanes of {said} bits, codec {codec.kind!r} declares {wanted}"
        )
    floats = np.zeros(2, np.float32)
    scaling = Scaling(np.zeros(1, np.int8), 2, 1)
    for message in (
        Message(words, Merge.ADD, "votes", lane_bits=4, floats=floats),
        Message(floats, Merge.ADD, "votes", lane_bits=4, scaling=scaling),
    ):
        assert "scaled or with floats, in lanes of 4 bits: only words" in fault_of(message, codec)
    table = np.full(16, 128, np.int32)
    codes = Message(words.view(np.uint32), Merge.TABLE_ADD, "codes", table=table, lane_bits=8)
    assert "a table for lanes of 8 bits has values" in fault_of(codes, Codes(lane_width=8))
    with pytest.raises(AssertionError, match=r"message 'codes': it is in lanes of .* declares 8"):
        check_codec(Codes(lane_width=8, sent_width=16), cases=1)


def test_counters_limit_workers_and_need_adders_that_wrap() -> None:
    """15 workers fit, 16 do not; by the base class, so that no codec forgets it."""
    assert Votes().refusal(15, "wrap") is None
    many, clipped = Votes().refusal(16, "wrap"), Votes().refusal(15, "saturate")
    assert many is not None
    assert many.reason == "votes has room for 15 workers, found 16"
    assert clipped is not None
    assert clipped.reason == (
        "votes needs adders that wrap: adders of 32 bits add its lanes of 4 bits, up to the sign bit"
    )
    assert Codes(lane_width=8).refusal(8, "saturate") is None
    eight, sixteen = Codes(lane_width=8).refusal(9, "wrap"), Codes(lane_width=16).refusal(9, "wrap")
    assert (eight is None, sixteen is None) == (False, True)


class Words32:
    """Merges by writing down who merged what: an operation that is neither commutative nor associative."""

    def split(self, words: Words, count: int) -> list[Words]:
        return np.array_split(words, count)

    def merge(self, accumulated: Words, arriving: Words, hop: Hop) -> Words:
        head = np.array([hop.accumulated_workers, hop.arriving_workers, hop.key % 2**32], np.uint32)
        return np.concatenate([head, accumulated, arriving])

    def join(self, parts: Sequence[Words]) -> Words:
        return np.concatenate([*parts, np.array([len(parts)], np.uint32)])

    def work(self, accumulated: Words, arriving: Words) -> Work:
        return Work()


class Floats(Words32):
    def merge(self, accumulated: Words, arriving: Words, hop: Hop) -> Words:
        return accumulated.astype(np.float32)


def words(*values: int) -> Words:
    return np.array(values, np.uint32)


def told(hop: tuple[int, int, int], *operands: Sequence[int]) -> list[int]:
    """What `Words32` makes of operands, in plain Python."""
    return [*hop[:2], hop[2] % 2**32, *(value for operand in operands for value in operand)]


def test_all_are_merged_first_to_last_each_with_a_key_of_its_own() -> None:
    merged = merge_all(Words32(), [words(5), words(6), words(7)], key=9)

    first = told((1, 1, mix_plain(9, 1)), [5], [6])
    assert told((2, 1, mix_plain(9, 2)), first, [7]) == merged.tolist()


@pytest.mark.parametrize(
    ("merge", "parts", "said"),
    [
        (Merge.HOST, [words(1), words(2)], "host merges need the codec's function: give Message.host_merge"),
        (Words32(), [words(1), np.zeros(1, np.int32)], "host merges 1-D arrays of uint32, found int32"),
        (Words32(), [np.zeros((1, 1), np.uint32)] * 2, r"found uint32 of shape \(1, 1\)"),
        (Floats(), [words(1), words(2)], "host merges 1-D arrays of uint32, found float32"),
    ],
)
def test_what_cannot_be_merged_says_why(merge: Any, parts: list[Words], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        combine(merge, Merged(parts[0], 1), Merged(parts[1], 1))


def test_a_split_must_make_as_many_parts_as_asked_for() -> None:
    class Short(Words32):
        def split(self, words: Words, count: int) -> list[Words]:
            return [words[:1]]

    with pytest.raises(ValueError, match=r"Short.split makes 1 parts, asked for 3"):
        split_host(Short(), words(1), 3)
    assert [one.tolist() for one in split_host(Short(), words(4, 5), 1)] == [[4, 5]]  # not asked
    assert join_host(Words32(), [words(3)]).tolist() == [3]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_halves_are_split_into_ranges_of_nearly_equal_length(count: int) -> None:
    parts = split_host(HalfAdd(), words(*range(5)), count)

    assert join_host(HalfAdd(), parts).tolist() == [0, 1, 2, 3, 4]
    assert {one.size for one in parts} <= {5 // count, 5 // count + 1}


@given(data=st.data())
@examples(60)
def test_a_replay_is_the_tree_of_its_hops(data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, 6))
    count = data.draw(st.integers(1, 4))
    sent = [words(*range(100 * rank, 100 * rank + 4)) for rank in range(workers)]
    order, right = [], []
    for part in range(count):
        trees: dict[int, tuple[int, list[int]]] = {
            rank: (1, (np.array_split(own, count)[part] if count > 1 else own).tolist())
            for rank, own in enumerate(sent)
        }
        hops = []
        while len(trees) > 1:
            into, taken = data.draw(st.permutations(sorted(trees)))[:2]
            key = data.draw(st.integers(0, 2**63))
            (a, left), (b, right_words) = trees[into], trees.pop(taken)
            trees[into] = a + b, told((a, b, key), left, right_words)
            hops.append(HostHop(into, taken, key))
        order.append(hops)
        right.append(trees.popitem()[1][1])
    whole = [value for one in right for value in one] + ([count] if count > 1 else [])

    assert whole == replay(Words32(), sent, order).tolist()


class Sending(Encoder):
    """Sends its gradient's bits in two operations, HOST and GATHER."""

    def exchange(self, gradient: Any, round: Round) -> Generator[Any, Any, Decoded]:
        own = gradient.view(np.uint32)
        (first,) = yield (Message(own, Merge.HOST, "host", host_merge=Words32()),)
        (second,) = yield (Message(own[: round.bucket], Merge.GATHER, "gather"),)
        self.found = first, second
        return Decoded(gradient, gradient)


class Echo(Server):
    def __init__(self) -> None:
        self.requests: list[Request] = []

    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        self.requests.append(request)
        return np.concatenate([*parts, words(len(self.requests))])


def test_fold_merges_by_the_codecs_function_in_the_order_asked_for() -> None:
    encoders = [Sending() for _ in range(3)]
    gradients = [np.array([rank], np.float32) for rank in range(3)]
    fold(encoders, gradients, Round(4, 1, 3, 8), order=[2, 0, 1])

    key = mix_plain(mix_plain(8, 4, 1, 0), 0)
    bits = [gradient.view(np.uint32).tolist() for gradient in gradients]
    first = told((1, 1, mix_plain(key, 1)), bits[2], bits[0])
    merged, gathered = encoders[1].found
    assert told((2, 1, mix_plain(key, 2)), first, bits[1]) == merged.words.tolist()
    assert bits == [part.tolist() for part in gathered.parts]


def test_a_server_answers_gathered_messages_and_keeps_its_state() -> None:
    encoders, server = [Sending() for _ in range(2)], Echo()
    gradients = [np.array([rank], np.float32) for rank in range(2)]
    for step in range(2):
        fold(encoders, gradients, Round(step, 1, 2, 8), server=server)

    _, answer = encoders[0].found
    bits = [value for gradient in gradients for value in gradient.view(np.uint32).tolist()]
    assert [*bits, 2] == answer.words.tolist()
    assert (answer.parts, answer.workers) == ((), 2)
    assert [Request(0, 1, 1, "gather"), Request(1, 1, 1, "gather")] == server.requests
