"""The index, whichever way it travels: what workers agree on, what it costs, and what they refuse."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import DecodeError
from netfold.homomorphic.index.bloom import design_filter
from netfold.homomorphic.index.membership import IndexKind, IndexMemory, exchange_index, own_index
from netfold.homomorphic.merge import merge_all
from netfold.homomorphic.message import Gradient, Merge, Message, Work
from netfold.homomorphic.round import Round
from tests.examples import examples
from tests.homomorphic.gradients import sparse
from tests.homomorphic.index.indexes import exchange, index_of, is_named
from tests.reference.codecs import index as reference

KINDS = get_args(IndexKind)


def index_bytes(kind: IndexKind, union: np.ndarray) -> int:
    """What an exact index takes, in closed form."""
    flat_bytes = 4 * -(-union.size // 32)
    blocks = np.add.reduceat(union, np.arange(0, union.size, 64)) if union.size else union
    two_level_bytes = 4 * -(-blocks.size // 32) + 8 * np.count_nonzero(blocks)
    return flat_bytes if kind == "flat" else two_level_bytes


@st.composite
def drifting(draw: st.DrawFn) -> list[list[Gradient]]:
    """Gradients of some workers, whose density goes anywhere from one round to the next."""
    elements = draw(st.one_of(st.integers(1, 300), st.integers(1000, 20_000)))
    workers = draw(st.sampled_from([1, 2, 3, 8, 33]))
    pattern = draw(st.sampled_from(["iid", "rows", "columns"]))
    densities = draw(
        st.lists(st.sampled_from([0.0, 1e-4, 0.001, 0.01, 0.05, 0.3, 1.0]), min_size=1, max_size=4)
    )
    seed = draw(st.integers(0, 2**32))
    return [sparse(elements, density, workers, pattern, seed + i) for i, density in enumerate(densities)]


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(rounds=drifting())
def test_all_workers_agree_on_all_members_at_the_announced_cost(
    kind: IndexKind, rounds: list[list[Gradient]]
) -> None:
    workers = len(rounds[0])
    memories = [IndexMemory() for _ in range(workers)]
    for step, gradients in enumerate(rounds):
        union = np.any(np.array(gradients) != 0, axis=0)
        expected = memories[0].expected_members(0)
        result = exchange(kind, gradients, memories, step)

        for membership, gradient in zip(result.memberships, gradients, strict=True):
            assert index_of(gradient != 0).tolist() == membership.own.tolist()
            assert result.memberships[0].union.tolist() == membership.union.tolist()
            assert membership.members == int(np.bitwise_count(membership.union).sum(dtype=np.int64))
            assert membership.merged == ()
        index = result.memberships[0].union
        named = is_named(index, 64 * index.size)
        assert not named[union.size :].any()
        if kind == "bloom":
            assert (named[: union.size] | ~union).all()
            assert bloom_bytes(gradients, expected) == result.index_bytes
        else:
            assert (named[: union.size] == union).all()
            assert index_bytes(kind, union) == result.index_bytes


def bloom_bytes(gradients: Sequence[Gradient], expected: int | None) -> int:
    """A count where none is known and a filter may pay; then a filter where it does."""
    elements = gradients[0].size
    flat_bytes = 4 * -(-elements // 32)
    if design_filter(elements, 1) is None:
        return flat_bytes
    count_bytes = 0
    if expected is None:
        count_bytes, expected = 4, sum(int(np.count_nonzero(one)) for one in gradients)
    size = design_filter(elements, expected)
    return count_bytes + (flat_bytes if size is None else 8 * size.words)


@examples(25)
@given(rounds=drifting())
def test_words_are_those_of_the_reference(rounds: list[list[Gradient]]) -> None:
    gradients = [one[:5000] for one in rounds[0][:8]]
    plain = [one.tolist() for one in gradients]
    flat, two_level = exchange("flat", gradients), exchange("two_level", gradients)
    first, second = reference.two_level(plain)

    merged = merge_all(Merge.OR, [messages[0].words for messages in flat.operations[0]])
    assert reference.flat(plain) == merged.tolist()
    merged = merge_all(Merge.OR, [messages[0].words for messages in two_level.operations[0]])
    assert first == merged.tolist()
    sent = [messages[0].words.tolist() for messages in two_level.operations[1]] if any(first) else []
    assert (second if any(first) else []) == sent


@pytest.mark.parametrize("kind", KINDS)
def test_messages_beside_travel_in_the_first_operation_only(kind: IndexKind) -> None:
    """In bloom's first round that is the count's, later the filter's."""

    def beside(rank: int) -> tuple[Message, ...]:
        return (
            Message(np.array([rank, -rank], np.int32), Merge.MAX, "exponents"),
            Message(np.array([1], np.int32), Merge.ADD, "values"),
        )

    memories = [IndexMemory() for _ in range(3)]
    for step in range(2):
        result = exchange(kind, sparse(10_000, 0.01, 3), memories, step, beside)

        index_labels = {"flat": [], "two_level": [["index"]], "bloom": [["index"]] if step == 0 else []}
        assert [["exponents", "values"], *index_labels[kind]] == [result.labels[0][1:], *result.labels[1:]]
        for membership in result.memberships:
            assert [merged.words.tolist() for merged in membership.merged] == [[2, 0], [3]]


def test_a_bucket_s_members_are_counted_once() -> None:
    """The count is an upper bound; later the last union is, with a 16th and 16 to spare."""
    gradients = sparse(100_000, 0.01, 1) * 4  # the same members at all workers
    own = np.count_nonzero(gradients[0])
    memories = [IndexMemory() for _ in gradients]
    first, second = (exchange("bloom", gradients, memories, step) for step in range(2))

    assert first.labels == [["count"], ["index"]]
    assert [own] == first.index_messages[0].words.tolist()
    assert first.index_messages[1].words.size == 2 * design_filter(100_000, 4 * own).words
    assert first.memberships[0].members < 1.02 * own
    assert second.labels == [["index"]]
    expected = first.memberships[0].members
    expected += expected // 16 + 16
    assert second.index_messages[0].words.size == 2 * design_filter(100_000, expected).words
    assert second.memberships[0].members < 1.06 * own
    assert memories[0].expected_members(1) is None


def test_counts_are_cut_so_that_their_sum_stays_in_int32() -> None:
    workers = 2**20
    gradient = np.ones(100_000, np.float32)
    (message,) = next(
        exchange_index(
            own_index(gradient), gradient.size, Round(0, 0, workers, 7), "bloom", (), IndexMemory()
        )
    )

    assert message.words.tolist() == [2047]
    assert workers * 2047 < 2**31 <= workers * 2048


def test_work_counts_the_bytes_of_every_pass() -> None:
    """8224 elements: 257 words of the flat index, 129 of 64 bits, 5 words of blocks, widened to 3."""
    gradient = sparse(8192 + 32, 0.01, 1)[0]
    live = len({element // 64 for element in np.flatnonzero(gradient).tolist()})
    scan_bytes, wire, own = 4 * 8224, 4 * 257, 8 * 129

    (flat,) = exchange("flat", [gradient]).index_messages
    assert Work(scan_bytes, wire) == flat.work
    assert Work(3 * wire + own, own) == flat.decode_work

    blocks, index = exchange("two_level", [gradient]).index_messages
    assert Work(scan_bytes + own, wire + 20) == blocks.work
    assert Work(3 * 20 + 24, 24) == blocks.decode_work
    assert Work(24 + 8 * live, 8 * live) == index.work
    assert Work(3 * 8 * live + 24 + 8 * live + own, 8 * live + own + 8 * live) == index.decode_work

    count, filter = exchange("bloom", [gradient]).index_messages
    size = design_filter(8224, np.count_nonzero(gradient))
    assert Work(scan_bytes + own, wire + 4) == count.work
    insert_bytes = 8 * size.hashes * live
    assert Work(own + insert_bytes, 8 * size.words + insert_bytes) == filter.work
    query_bytes = 8 * size.hashes * 129
    assert Work(3 * 8 * size.words + query_bytes + own, 8 * size.words + own) == filter.decode_work


@pytest.mark.parametrize(
    ("kind", "label", "elements", "word", "bits", "text"),
    [
        ("flat", "index", 4000, 70, ~1, "lacks elements this worker sent, first in word 70"),
        ("two_level", "index blocks", 4000, 1, ~2, "lacks elements this worker sent, first in word 1"),
        ("two_level", "index", 4000, 5, ~16, "lacks elements this worker sent, first in word 5"),
        ("bloom", "index", 4000, 1, 0, "lacks elements this worker sent, first in word 1"),
        ("flat", "index", 3, 0, 8, "has elements beyond the last, 2"),
        ("flat", "index", 65, 2, 2, "has elements beyond the last, 64"),
        ("two_level", "index blocks", 65, 0, 4, "has blocks of 64 elements beyond the last, 1"),
        ("two_level", "index", 65, 3, 1, "has elements beyond the last, 64"),
    ],
)
def test_contradictions_are_refused(
    kind: IndexKind, label: str, elements: int, word: int, bits: int, text: str
) -> None:
    """Bits of one word are taken away, or added."""

    def damage(message: Message, words: np.ndarray) -> None:
        if message.label == label:
            words[word] = words[word] | np.uint32(bits) if bits > 0 else words[word] & np.uint32(bits % 2**32)

    gradient = np.zeros(elements, np.float32)
    gradient[:: 1 if kind != "bloom" else 100] = 1
    lost = "lost or damaged" if "lacks" in text else "damaged"
    expected = f"the merged index {text}: a worker's index was {lost} on the way"
    with pytest.raises(DecodeError, match=f"^{re.escape(expected)}$"):
        exchange(kind, [gradient] * 2, damage=damage)


@pytest.mark.parametrize("total", [39, -1])
def test_a_count_that_cannot_be_is_refused(total: int) -> None:
    def damage(message: Message, words: np.ndarray) -> None:
        words[0] = total

    gradient = np.zeros(4000, np.float32)
    gradient[::100] = 1
    text = (
        f"the merged count of members is {total}: must be between 40, which this worker sent, and "
        "2147483646: a worker's count was lost or damaged on the way"
    )
    with pytest.raises(DecodeError, match=f"^{re.escape(text)}$"):
        exchange("bloom", [gradient] * 2, damage=damage)
