"""Schedules and replays against dictionaries, and the released code's behaviour as it is known."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.sketch.hashing import (
    PUBLISHED,
    REPAIRED,
    ROTATED,
    Counters,
    Hashing,
)
from netfold.homomorphic.sketch.hypergraph import Hypergraph, add, estimate, hypergraph, peeling_order, replay
from tests.examples import examples
from tests.homomorphic.index.indexes import index_of
from tests.reference.codecs import codecs
from tests.reference.codecs import sketch as plain


def drawn(text: str) -> Hypergraph:
    """A graph from one word per member, such as `+0-2+3`: signs and counters of the three hashes."""
    words = text.split()
    counters = np.array([[int(word[at]) for at in (1, 3, 5)] for word in words], np.uint32).T.copy()
    negative = np.array([sum((word[2 * j] == "-") << j for j in range(3)) for word in words], np.uint8)
    return Hypergraph(Counters(*counters), negative, int(counters.max()) + 1)


def choices_of(graph: Hypergraph) -> dict[int, plain.Choices]:
    return {
        member: [
            (int(chosen[member]), -1 if graph.negative[member] >> j & 1 else 1)
            for j, chosen in enumerate(graph.counters)
        ]
        for member in range(graph.negative.size)
    }


@st.composite
def graphs(draw: st.DrawFn) -> Hypergraph:
    """Of every setting, sound and overloaded, with hashes that coincide where there are few rows."""
    elements = draw(st.integers(1, 400))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    wanted = random.random(elements) < draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    lanes = draw(st.sampled_from([1, 4, 64]))
    rows = draw(st.integers(1, 1 + int(wanted.sum()) // lanes))
    hashing = Hashing(
        draw(st.sampled_from([PUBLISHED, ROTATED, REPAIRED])),
        lanes,
        rows,
        np.uint64(draw(st.integers(0, 2**64 - 1))),
    )
    return hypergraph(hashing, index_of(wanted))


def integers(members: int, random: np.random.Generator) -> np.ndarray:
    return random.integers(-(2**31), 2**31, members).astype(np.int32)


@given(graph=graphs(), planes=st.integers(1, 4), seed=st.integers(0, 2**32))
@examples(150)
def test_integers_of_any_number_of_planes_peel_as_in_the_reference(
    graph: Hypergraph, planes: int, seed: int
) -> None:
    members = graph.negative.size
    words = integers(planes * members, np.random.default_rng(seed))
    table = np.zeros(planes * graph.size, np.int32)
    add(graph, words, table)
    choices = choices_of(graph)
    expected = []
    for plane in words.reshape(planes, members):
        of_plane = plain.sketch(dict(enumerate(plane.tolist())), choices, graph.size)
        expected.append(plain.peel(of_plane, choices))

    order = peeling_order(graph)
    sums = np.full(planes * members, 77, np.int32)
    is_whole = replay(graph, order, table, sums)

    assert is_whole == (not expected[0].estimates)
    assert order.rounds == expected[0].rounds
    for peeled, plane, left in zip(
        expected, sums.reshape(planes, members), table.reshape(planes, -1), strict=True
    ):
        assert {m: int(plane[m]) for m in order.members.tolist()} == peeled.values
        assert {int(plane[m]) for m in peeled.estimates} <= {77}  # left alone
        assert left.tolist() == peeled.left
        missing = estimate(graph, order, left, plane)
        assert missing.tolist() == sorted(peeled.estimates)
        assert [int(plane[m]) for m in missing] == [codecs.wrap(int(peeled.estimates[m])) for m in missing]


def test_the_example_in_the_released_code_peels_in_two_rounds() -> None:
    """Counters (x + z, z − y, x − y, y − x, −z): z is alone in the last, then x and y in the first two."""
    graph = drawn("+0+2-3 -1-2+3 +0+1-4")
    x, y, z = 3, 20, 100
    table = np.zeros(5, np.int32)
    add(graph, np.array([x, y, z], np.int32), table)
    order = peeling_order(graph)
    sums = np.zeros(3, np.int32)

    assert table.tolist() == [x + z, z - y, x - y, y - x, -z]
    assert (order.members.tolist(), order.hashes.tolist(), order.rounds) == ([2, 0, 1], [2, 0, 0], 2)
    assert replay(graph, order, table, sums)
    assert sums.tolist() == [x, y, z]


def test_flags_in_the_lowest_bit_of_a_mantissa_are_cleared() -> None:
    """As released: every word has its flag set, and costs the sums an error of about an ulp of their lane."""
    random = np.random.default_rng(4)
    graph = hypergraph(Hashing(REPAIRED, 1, 1000, np.uint64(4)), index_of(random.random(40_000) < 0.05))
    words = random.standard_normal(graph.negative.size).astype(np.float32)
    words.view(np.uint32)[:] |= 1
    table = np.zeros(graph.size, np.float32)
    add(graph, words, table)
    sums = np.zeros(words.size, np.float32)

    assert replay(graph, peeling_order(graph), table, sums, is_flagged=True)
    assert not (sums.view(np.uint32) & 1).any()
    assert abs(sums - words).max() < 2e-6 * abs(words).max()
