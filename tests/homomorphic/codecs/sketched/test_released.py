"""Lossless as published, against the released code's behaviour in plain Python; and what it is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import EncodeError
from netfold.homomorphic.codecs.sketched.lossless import Lossless
from netfold.homomorphic.message import Gradient, Merge
from netfold.homomorphic.round import NoteKind
from tests.examples import examples
from tests.homomorphic.gradients import sparse
from tests.homomorphic.played import Played, encoders_of, play
from tests.reference.codecs import released as plain
from tests.reference.codecs import sketch as integers
from tests.reference.codecs.codecs import index_words, wrapping_sum
from tests.reference.codecs.quantise import quantise, scale_of

LANES = plain.LANES
BLOCK_ELEMENTS = 4096


def published(**options: object) -> Lossless:
    return Lossless("published", **options)


def played(codec: Lossless, gradients: list[Gradient]) -> Played:
    return play(encoders_of(codec, len(gradients)), gradients)


@st.composite
def gradients(draw: st.DrawFn) -> list[Gradient]:
    """With and without a tail, from all peeled to nothing peeled."""
    elements = draw(st.integers(1, 5)) * LANES + draw(st.sampled_from([0, 1, 63, 64, 100, 961, 1023]))
    density = draw(st.sampled_from([0.0, 0.01, 0.1, 0.4]))
    workers = draw(st.integers(1, 4))
    return sparse(elements, density, workers, draw(st.sampled_from(["iid", "rows", "columns"])))


def part(result: Played, label: str) -> list[np.ndarray]:
    """Every worker's words of the message with this label."""
    return [
        message.words
        for operation in result.operations
        for messages in operation
        for message in messages
        if message.label == label
    ]


def added(parts: list[list[np.float32]]) -> list[np.float32]:
    """Float32 sums, worker after worker."""
    total = [np.float32(word) for word in parts[0]]
    for words in parts[1:]:
        total = [one + np.float32(two) for one, two in zip(total, words, strict=True)]
    return total


@examples(8)
@given(sample=gradients(), ratio=st.sampled_from([1.0, 1.5, 3.0, 10.0]))
def test_floats_are_flagged_added_and_peeled_as_the_release_does(
    sample: list[Gradient], ratio: float
) -> None:
    """Words to the bit; sums, whose rounding depends on an order within rounds, to a part of the largest."""
    lists = [one.tolist() for one in sample]
    elements, members = sample[0].size, plain.members(lists)
    rows = plain.rows(elements, ratio)
    chosen = plain.choices(members, rows)
    tables = [plain.sketch(values, chosen, rows * LANES) for values in lists]
    expected = plain.peel(added(tables), chosen)

    result = played(published(ratio=ratio), sample)

    assert [[float(word) for word in table] for table in tables] == [
        words.tolist() for words in part(result, "values")
    ]
    assert_estimates_are_reported(result, expected, len(members))
    total = np.sum(sample, axis=0, dtype=np.float64)
    slack = 1e-5 * (np.abs(total).max() + max(map(abs, expected.estimates.values()), default=0))
    for element, value in {**expected.values, **expected.estimates}.items():
        assert abs(result.decoded[element] - value) <= slack
    for element in expected.values:
        assert abs(result.decoded[element] - total[element]) <= slack
        assert result.decoded[element].view(np.uint32) & 1 == 0
    untouched = np.ones(elements, np.bool_)
    untouched[members] = False
    tail = elements // LANES * LANES
    assert (result.decoded[:tail][untouched[:tail]] == 0).all()
    assert added([one[tail:] for one in sample]) == result.decoded[tail:].tolist()


@examples(8)
@given(sample=gradients(), ratio=st.sampled_from([1.0, 1.5, 3.0, 10.0]))
def test_integers_are_added_peeled_and_estimated_to_the_bit(sample: list[Gradient], ratio: float) -> None:
    workers, elements = len(sample), sample[0].size
    members = plain.members([one.tolist() for one in sample])
    rows = plain.rows(elements, ratio)
    chosen = plain.choices(members, rows)
    exponents = [
        int(np.frexp(np.abs([one[first : first + BLOCK_ELEMENTS] for one in sample]).max())[1])
        for first in range(0, elements, BLOCK_ELEMENTS)
    ]
    words = [
        [
            word
            for block, exponent in enumerate(exponents)
            for word in quantise(
                one[block * BLOCK_ELEMENTS : (block + 1) * BLOCK_ELEMENTS], exponent, workers
            )
        ]
        for one in sample
    ]
    tables = [integers.sketch({one: own[one] for one in members}, chosen, rows * LANES) for own in words]
    expected = integers.peel(wrapping_sum(tables), chosen)
    sums = {**expected.values, **expected.estimates}
    for element in range(elements // LANES * LANES, elements):
        sums[element] = sum(own[element] for own in words)

    result = played(published(values="block_exponent", ratio=ratio), sample)

    assert tables == [one.tolist() for one in part(result, "values")]
    assert_estimates_are_reported(result, expected, len(members))
    assert [
        float(np.float32(sums.get(element, 0)) / scale_of(exponents[element // BLOCK_ELEMENTS], workers))
        for element in range(elements)
    ] == result.decoded.tolist()


def assert_estimates_are_reported(result: Played, expected: integers.Peeled, members: int) -> None:
    """By a note that names them all, if there are any."""
    notes = result.notes_of(NoteKind.ESTIMATE)
    assert result.notes == notes
    if not expected.estimates:
        assert notes == []
        return
    count = len(expected.estimates)
    assert [(note.count, note.total) for note in notes] == [(count, members)]
    assert notes[0].text == f"{count} of {members} members did not peel and are estimates"
    assert sorted(expected.estimates) == notes[0].elements.tolist()


@examples(8)
@given(sample=gradients())
def test_the_index_is_counted_in_cells_of_four_bits_or_merged_in_cells_of_one(sample: list[Gradient]) -> None:
    wide, narrow = played(published(), sample), played(published(index_bits=1), sample)

    for result, merge in ((wide, Merge.ADD), (narrow, Merge.OR)):
        assert {(one.label, one.merge) for (one, *_) in result.operations[0]} == {("index", merge)}
    assert [plain.cells(one.tolist()) for one in sample] == [one.tolist() for one in part(wide, "index")]
    assert [index_words(one.tolist(), 32) for one in sample] == [
        one.tolist() for one in part(narrow, "index")
    ]
    assert wide.decoded.tobytes() == narrow.decoded.tobytes()


@pytest.mark.parametrize("workers", [8, 15])
def test_cells_count_to_fifteen(workers: int) -> None:
    """The highest cell of a word is where int32 has its sign."""
    gradient = np.zeros(4 * LANES, np.float32)
    gradient[7::24] = 1

    result = played(published(ratio=1), workers * [gradient])

    assert (part(result, "index")[0] == 1 << 28).sum() == 4 * LANES // 24 + 1
    assert (result.decoded[gradient == 0] == 0).all()
    assert np.allclose(result.decoded[gradient != 0], workers, rtol=1e-5)


def test_sixteen_workers_would_overflow_them() -> None:
    gradients = 16 * [np.ones(LANES, np.float32)]
    text = "16 workers would overflow the index's 4-bit cells, which count to 15: use index_bits 1"
    with pytest.raises(EncodeError, match=f"^{re.escape(text)}$"):
        played(published(), gradients)

    assert played(published(index_bits=1, ratio=1), gradients).decoded.size == LANES


@pytest.mark.parametrize("elements", [1, 1023, 1024, 12_000])
@pytest.mark.parametrize("ratio", [None, 2.5])
@pytest.mark.parametrize("index_bits", [None, 1])
@pytest.mark.parametrize("values", [None, "block_exponent"])
def test_bytes_do_not_depend_on_the_density(
    elements: int, ratio: float | None, index_bits: int | None, values: str | None
) -> None:
    codec = published(ratio=ratio, index_bits=index_bits, values=values)
    blocks, tail = divmod(elements, LANES)
    rows = int(np.ceil(blocks / (ratio or 10)))
    index = -(-elements // (32 if index_bits else 8))
    exponents = -(-elements // BLOCK_ELEMENTS) if values else 0

    for density in (0.0, 0.3):
        announced_bytes = played(codec, sparse(elements, density, 2)).announced_bytes
        assert 4 * (index + exponents + rows * LANES + tail) == announced_bytes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"schedule": "concurrent"},
            "schedule is 'concurrent': setting published can only be 'staged'; "
            "remove it, or use setting repaired",
        ),
        (
            {"index": "bloom"},
            "index is 'bloom': setting published can only be 'flat'; remove it, or use setting repaired",
        ),
        (
            {"values": "exact"},
            "values is 'exact': setting published has counters of one word; use float32 or block_exponent, "
            "or setting repaired",
        ),
        (
            {"ratio": 0.5},
            "ratio is 0.5: elements per counter must be 1 or more, 10 is usual",
        ),
        (
            {"ratio": float("nan")},
            "ratio is nan: elements per counter must be 1 or more, 10 is usual",
        ),
    ],
)
def test_what_the_release_cannot_do_is_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        published(**options)
