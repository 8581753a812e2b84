"""Lossless homomorphic compression: what is sent and recovered, beside the authors' released code, too."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic import peeling as tables
from netfold.homomorphic import sketch
from netfold.homomorphic import sketch as tiled
from netfold.homomorphic.codec import EncodeError
from netfold.homomorphic.codecs.exact import DenseExact
from netfold.homomorphic.codecs.fixed_point import FixedPoint
from netfold.homomorphic.codecs.lossless import Lossless, cells_refusal
from netfold.homomorphic.merge import Merge
from netfold.homomorphic.message import Gradient, Message, NoteKind
from netfold.homomorphic.number_formats import AgreedNothing
from netfold.homomorphic.sketch import Seen
from tests.examples import examples
from tests.homomorphic.gradients import Played, bound_of, encoders_of, folded, labels, play, sparse
from tests.reference.codecs import released as plain
from tests.reference.codecs import sketch as integers
from tests.reference.codecs.codecs import index_words, quantise, scale_of, wrapping_sum


@pytest.mark.parametrize(("density", "pattern"), [(0.001, "iid"), (0.1, "rows"), (0.5, "columns")])
def test_a_million_elements_of_any_pattern(density: float, pattern: str) -> None:
    gradients = sparse(1_000_000, density, 2, pattern)
    result = folded(Lossless(), gradients)
    union = np.count_nonzero((gradients[0] != 0) | (gradients[1] != 0))

    assert folded(FixedPoint(4096), gradients).decoded[0].tobytes() == result.decoded[0].tobytes()
    overhead = result.announced_bytes(0) - 125_000 - 4 * union / 0.77
    assert overhead <= 4 * 245 + 4 * 34 * len(result.messages) * (1 + union // sketch.TILE_MEMBERS)


def test_hashes_change_with_every_round() -> None:
    gradients = sparse(10_000, 0.1, 1)
    first, again, next_step = (
        folded(Lossless(), gradients, step=step).messages[1][0][0].words for step in (0, 0, 1)
    )

    assert first.tolist() == again.tolist()
    assert first.size == next_step.size
    assert first.tolist() != next_step.tolist()


def test_tables_that_are_too_small_fail_and_are_sent_again_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = sparse(200_000, 0.3, 3)
    expected = folded(Lossless(), gradients)
    sized = tables.rows_needed
    monkeypatch.setattr(tiled, "rows_needed", lambda members, load, lanes: sized(members, 0.9, lanes))

    result = folded(Lossless(), gradients)

    assert labels(expected) == ["index", "exponents", "values"]
    assert labels(result) == ["index", "exponents", "values", "fallback"]
    assert expected.decoded[0].tobytes() == result.decoded[0].tobytes()
    union = np.count_nonzero(np.any([gradient != 0 for gradient in gradients], axis=0))
    assert union == result.messages[2][0][0].words.size


def test_fast_and_general_kernels_make_the_same_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's own members may be few enough for the fast ones where the union's are not."""
    gradients = sparse(20_000, 0.03, 3)  # about 600 members each, 1750 together
    monkeypatch.setattr(sketch, "TILE_MEMBERS", 900)
    expected = folded(Lossless(), gradients)
    monkeypatch.setattr(sketch, "MEMBERS_MAX", 400)

    result = folded(Lossless(), gradients)

    assert expected.decoded[0].tobytes() == result.decoded[0].tobytes()
    assert labels(expected) == labels(result)
    for one, other in zip(expected.messages[1], result.messages[1], strict=True):
        assert one[0].words.tobytes() == other[0].words.tobytes()


@pytest.mark.parametrize("more", [0, 1])
def test_a_table_of_more_members_than_fast_kernels_number_goes_the_general_way(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table for the bucket: it may have any number of members, and the fast kernels would refuse it."""
    gradients = sparse(20_000, 0.02, 3)
    members = int(np.any(gradients, axis=0).sum())
    for module in (sketch, tables):
        monkeypatch.setattr(module, "MEMBERS_MAX", members - more)
    ways: list[str] = []
    for name, module, function in (("fast", tables, "peel"), ("general", tables, "replay")):
        inner = getattr(module, function)

        def spy(*words: Any, name: str = name, inner: Any = inner, **more: Any) -> Any:
            ways.append(name)
            return inner(*words, **more)

        monkeypatch.setattr(module, function, spy)
    decoded = folded(Lossless("rotated"), gradients).decoded[0]

    assert set(ways) == {"general" if more else "fast"}
    assert decoded.tobytes() == folded(FixedPoint(4096), gradients).decoded[0].tobytes()


@pytest.mark.parametrize("setting", ["repaired", "rotated"])
@pytest.mark.parametrize("fault", [-1e-2, 1e30, np.nan])
def test_a_damaged_float_counter_shows_too(setting: str, fault: float) -> None:
    gradients = sparse(20_000, 0.05, 3)
    codec = Lossless(setting, values="float32")

    def damage(number: int, message: Message, words: np.ndarray) -> None:
        if message.label == "values":
            words[:1] += np.float32(fault)

    played = play(encoders_of(codec, 3), gradients, damage=damage)

    assert len(played.notes_of(NoteKind.FALLBACK)) == 1
    total = np.sum(gradients, axis=0, dtype=np.float64)
    assert (np.abs(played.decoded - total) <= bound_of(codec, gradients)).all()


def test_an_infinity_spoils_no_other_element() -> None:
    gradients = sparse(20_000, 0.05, 3)
    gradients[1][7] = np.inf
    played = play(encoders_of(Lossless(values="float32"), 3), gradients)

    assert np.flatnonzero(~np.isfinite(played.decoded)).tolist() == [7]


def test_a_table_is_no_larger_than_its_tile_for_any_digits() -> None:
    """One tiny value gives its block, and so a whole table, many digits; a tile sent whole pays them once."""
    gradients = sparse(200_000, 0.12, 8)
    for gradient in gradients:
        gradient[5] = 1e-38
    sketched, dense = (folded(codec, gradients) for codec in (Lossless(values="exact"), DenseExact()))

    assert sketched.decoded[0].tobytes() == dense.decoded[0].tobytes()
    assert sketched.announced_bytes(0) <= dense.announced_bytes(0) + 200_000 / 8


@pytest.mark.parametrize(("elements", "is_whole"), [(44, True), (45, True), (46, False)])
def test_a_tile_that_is_as_large_as_its_table_is_sent_whole(elements: int, is_whole: bool) -> None:
    """Ten members take 13 counters at a load of 0.77, and 32 to spare: 45, which is three rows of 15."""
    seen = Seen(np.array([10]), AgreedNothing(1))
    layout = tiled.layout_of(sketch.REPAIRED_TILING, 0.77, elements, seen, 64)

    assert (layout.is_whole.tolist(), layout.rows.tolist()) == ([is_whole], [0 if is_whole else 15])


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


@pytest.mark.parametrize(("overflow", "most"), [("wrap", 15), ("saturate", 7), ("sticky", 7)])
def test_so_many_workers_as_cells_of_four_bits_can_count(overflow: str, most: int) -> None:
    """8 · 2^28 leaves int32, which only sums that wrap may do."""
    assert cells_refusal(most, overflow) is None
    refusal = cells_refusal(most + 1, overflow)
    assert refusal is not None
    assert str(most) in refusal.reason


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
