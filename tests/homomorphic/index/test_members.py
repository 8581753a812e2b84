"""Members gathered, encoded, decoded and put back, against loops over lists."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.index import members
from netfold.homomorphic.index.bits import (
    count_members,
    first_missing,
    gather_words,
    scatter_words,
    write_index,
)
from netfold.homomorphic.index.members import (
    decode,
    encode,
    full_support,
    gather,
    members_message,
    members_of,
    report_infinite,
    scatter,
    word_layout,
)
from netfold.homomorphic.kernels.threads import VARIABLE
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.numbers.block_exponent import AgreedExponents
from netfold.homomorphic.numbers.compact import all_of
from netfold.homomorphic.numbers.exact import AgreedRanges
from netfold.homomorphic.numbers.formats import Agreed, number_format
from netfold.homomorphic.round import Note, NoteKind, Round
from netfold.testing import support, values
from tests.examples import examples
from tests.homomorphic.gradients import agreed, bound_of
from tests.homomorphic.index.indexes import index_of
from tests.reference.codecs import codecs as plain
from tests.reference.codecs import digits
from tests.reference.codecs.quantise import quantise

GUARD = 8  # words before and after what may be written
FORMATS = ["block_exponent", "float32", "exact"]


class Case(NamedTuple):
    """An index with full words among others, and a gradient whose magnitudes differ from block to block."""

    index: np.ndarray
    gradient: Gradient
    block_elements: int
    group_blocks: int

    @property
    def positions(self) -> list[int]:
        return plain.members(self.index.tolist(), 64)

    @property
    def blocks(self) -> list[list[int]]:
        """Members of every block."""
        count = -(-self.gradient.size // self.block_elements)
        return [[one for one in self.positions if one // self.block_elements == b] for b in range(count)]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    elements = draw(st.integers(1, 1500))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    wanted = random.random(elements) < draw(st.sampled_from([0.0, 0.01, 0.3, 0.9, 1.0]))
    full = random.random(-(-elements // 64)) < draw(st.sampled_from([0.0, 0.5]))
    wanted |= np.repeat(full, 64)[:elements]
    kind = draw(st.sampled_from(["normal", "wide", "denormal"]))
    gradient = values(kind, elements, random) if kind != "wide" else _by_block(elements, random)
    return Case(
        index_of(wanted),
        np.where(random.random(elements) < 0.9, gradient, np.float32(0)),
        draw(st.sampled_from([64, 128, 256])),
        draw(st.integers(1, 5)),
    )


def _by_block(elements: int, random: np.random.Generator) -> Gradient:
    """Blocks of 64 that need one digit, and some that need many."""
    exponents = np.repeat(random.integers(-30, 30, -(-elements // 64)), 64)[:elements]
    return np.ldexp(random.integers(-4, 5, elements), exponents).astype(np.float32)


def guarded(size: int, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """A buffer of 99s, and the part of it that may be written."""
    buffer = np.full(size + 2 * GUARD, 99, dtype)
    return buffer, buffer[GUARD : GUARD + size]


def is_unhurt(buffer: np.ndarray) -> bool:
    return bool((buffer[:GUARD] == 99).all() and (buffer[-GUARD:] == 99).all())


def expected_words(case: Case, agreement: Agreed) -> list[float]:
    """Words of the members, from the definitions of the formats."""
    by_block = [[float(case.gradient[one]) for one in block] for block in case.blocks]
    if isinstance(agreement, AgreedExponents):
        exponents = np.maximum(agreement.exponents, -96).tolist()
        return [
            word
            for block, exponent in zip(by_block, exponents, strict=True)
            for word in quantise(np.array(block, np.float32), exponent, 1)
        ]
    if isinstance(agreement, AgreedRanges):
        ranges = agreement.ranges
        return digits.layout(
            by_block, ranges.lows.tolist(), ranges.digits.tolist(), (ranges.digit_bits, case.group_blocks)
        )
    return [value for block in by_block for value in block]


@examples(25)
@given(case=cases())
def test_values_of_members_are_gathered_in_order_and_scattered_where_they_were(case: Case) -> None:
    positions, elements = case.positions, case.gradient.size
    buffer, compact = guarded(len(positions), np.float32)

    gather(case.index, case.gradient, compact)

    assert [float(case.gradient[one]) for one in positions] == compact.tolist()
    assert is_unhurt(buffer)
    for clear in (True, False):
        buffer, restored = guarded(elements, np.float32)
        scatter(case.index, compact, restored, clear)

        expected = [0.0 if clear else 99.0] * elements
        for position, value in zip(positions, compact.tolist(), strict=True):
            expected[position] = value
        assert expected == restored.tolist()
        assert is_unhurt(buffer)


@pytest.mark.parametrize("elements", [1, 63, 64, 65, 128, 1000])
def test_the_full_support_has_all_elements_and_no_others(elements: int) -> None:
    assert list(range(elements)) == plain.members(full_support(elements).tolist(), 64)


@pytest.mark.parametrize("name", FORMATS)
@examples(25)
@given(case=cases(), chunk_elements=st.sampled_from([64, 512, 1 << 19]), threads=st.sampled_from(["1", "2"]))
def test_words_are_those_of_the_definitions_for_any_chunks_and_threads(
    name: str, case: Case, chunk_elements: int, threads: str
) -> None:
    """And with one worker they decode to its values: to the bit, or for block_exponent to half a step."""
    form = number_format(name, case.block_elements)
    agreement = agreed(form, [case.gradient])
    place = word_layout(members_of(case.index, case.block_elements), agreement, case.group_blocks)
    expected = expected_words(case, agreement)
    assert len(expected) == place.offsets[-1]
    elements = case.gradient.size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members, "CHUNK_ELEMENTS", chunk_elements)
        patch.setenv(VARIABLE, threads)
        buffer, words = guarded(len(expected), form.dtype)
        source = all_of(case.gradient, case.block_elements)
        encode(place, source, words)
        from_all, words[:] = words.tobytes(), 0
        values = np.empty(place.members.count, np.float32)
        gather(case.index, case.gradient, values)
        encode(place, source._replace(values=values), words)
        assert from_all == words.tobytes()
        outcomes = []
        for clear in (True, False):
            guarded_decoded, decoded = guarded(elements, np.float32)
            assert decode(place, words, decoded, clear) == 0
            assert is_unhurt(guarded_decoded)
            outcomes.append(decoded)

    assert expected == words.tolist()
    assert is_unhurt(buffer)
    wanted = np.zeros(elements, np.bool_)
    wanted[case.positions] = True
    cleared, kept = outcomes
    assert (cleared[~wanted] == 0).all()
    assert (kept[~wanted] == 99).all()
    assert cleared[wanted].tobytes() == kept[wanted].tobytes()
    errors = np.abs(cleared.astype(np.float64) - case.gradient)[wanted]
    bound = bound_of(form, [case.gradient], is_forecast=False)[wanted]
    assert (errors <= (bound if name == "block_exponent" else 0)).all()


@pytest.mark.parametrize("chunk_elements", [64, 1 << 19])
def test_sums_beyond_float32_are_counted_in_every_chunk_and_named(
    monkeypatch: pytest.MonkeyPatch, chunk_elements: int
) -> None:
    """The last of the chunks has none."""
    monkeypatch.setattr(members, "CHUNK_ELEMENTS", chunk_elements)
    largest = np.finfo(np.float32).max
    gradient = np.ones(300, np.float32)
    gradient[[5, 70, 130]] = [largest, -largest, largest]
    form = number_format("exact", 64)
    place = word_layout(members_of(full_support(300), 64), agreed(form, [gradient, gradient]))
    message = members_message(gradient, place, form, "values")
    notes: list[Note] = []
    decoded = np.empty(300, np.float32)

    infinite = decode(place, 2 * message.words, decoded, clear=True)
    report_infinite(infinite, decoded, Round(0, 0, 2, 0, report=notes.append))

    (note,) = notes
    assert note.kind is NoteKind.INFINITE
    assert (note.count, note.total, note.elements.tolist()) == (3, 300, [5, 70, 130])
    assert note.text == "3 sums are beyond the range of float32 and became infinite"
    assert decoded[[5, 70, 130]].tolist() == [np.inf, -np.inf, np.inf]
    assert (np.delete(decoded, [5, 70, 130]) == 2).all()


# Kernels over indexes against plain loops, at every density and on every edge of a word.


@st.composite
def sparse_values(draw: st.DrawFn) -> list[float]:
    elements = draw(st.one_of(st.integers(1, 300), st.sampled_from([63, 64, 65, 127, 128, 129, 4096, 4097])))
    density = draw(st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.7, 0.99, 1.0]))
    pattern = draw(st.sampled_from(["iid", "rows", "columns"]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    chosen = support(pattern, elements, density, random=random)
    return (random.integers(-3, 4, elements) * chosen).tolist()


UNTOUCHED = 77  # in front of and behind what a kernel may write


def wide_index(wanted: list[bool]) -> np.ndarray:
    return np.array(plain.index_words(wanted, 64), np.uint64)


@examples(25)
@given(values=sparse_values())
def test_an_index_is_that_of_the_reference(values: list[float]) -> None:
    narrow = np.empty(-(-len(values) // 32), np.uint32)
    write_index(np.array(values, np.float32), narrow)

    assert plain.index_words(values, 32) == narrow.tolist()
    assert np.count_nonzero(values) == count_members(wide_index([value != 0 for value in values]))


@examples(25)
@given(words=st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]), min_size=1, max_size=200))
def test_words_with_a_member_are_found_gathered_and_put_back(words: list[int]) -> None:
    whole = np.array(words, np.uint64)
    narrow = np.empty(-(-whole.size // 32), np.uint32)
    write_index(whole, narrow)
    chosen = wide_index([word != 0 for word in words])
    gathered = np.full(sum(word != 0 for word in words) + 2, UNTOUCHED, np.uint64)
    back = np.full_like(whole, UNTOUCHED)

    gather_words(chosen, whole, gathered[1:-1])
    scatter_words(chosen, gathered[1:-1], back)

    assert plain.index_words(words, 32) == narrow.tolist()
    assert [UNTOUCHED, *(word for word in words if word), UNTOUCHED] == gathered.tolist()
    assert [word or UNTOUCHED for word in words] == back.tolist()
    assert sum(word.bit_count() for word in words) == count_members(whole)


@examples(25)
@given(
    part=st.lists(st.integers(0, 3), max_size=50),
    whole=st.lists(st.integers(0, 3), min_size=50, max_size=50),
)
def test_the_first_word_with_a_bit_too_many(part: list[int], whole: list[int]) -> None:
    missing = first_missing(np.array(part, np.uint32), np.array(whole[: len(part)], np.uint32))

    contradictions = [w for w, word in enumerate(part) if word & ~whole[w]]
    assert min(contradictions, default=len(part)) == missing
