"""Merges that only hosts can do, and a codec's server part, in one process."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import Decoded, Encoder, Request, Server
from netfold.homomorphic.fold import fold
from netfold.homomorphic.host_merge import HostHop, join_host, replay, split_host
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.merge import combine, merge_all
from netfold.homomorphic.message import Hop, Merge, Merged, Message, Words, Work
from netfold.homomorphic.round import Round
from tests.examples import examples


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
            return [words]

    with pytest.raises(ValueError, match=r"Short.split makes 1 parts, asked for 3"):
        split_host(Short(), words(1), 3)
    assert [one.tolist() for one in split_host(Short(), words(4, 5), 1)] == [[4, 5]]  # not asked
    assert join_host(Words32(), [words(3)]).tolist() == [3]


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
