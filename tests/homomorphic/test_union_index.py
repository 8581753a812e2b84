"""Which elements are sent: bitmaps and Bloom filters, and the union of what workers announce."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netfold.homomorphic import union_index as members
from netfold.homomorphic.block_floating_point import all_of
from netfold.homomorphic.codec import DecodeError
from netfold.homomorphic.merge import Merge, Work, merge_all
from netfold.homomorphic.message import Gradient, Message, Note, NoteKind, Round
from netfold.homomorphic.number_formats import Agreed, AgreedExponents, AgreedRanges, number_format
from netfold.homomorphic.union_index import (
    Filter,
    IndexKind,
    IndexMemory,
    count_members,
    decode,
    design_filter,
    encode,
    exchange_index,
    first_missing,
    full_support,
    gather,
    gather_words,
    insert,
    members_message,
    own_index,
    query,
    report_infinite,
    scatter,
    scatter_words,
    support_of,
    word_layout,
    write_index,
)
from netfold.kernels.compiled import VARIABLE
from netfold.testing import support, values
from tests.examples import examples
from tests.homomorphic.gradients import agreed, bound_of, exchange, index_of, is_named, sparse
from tests.reference.codecs import codecs as plain
from tests.reference.codecs import digits
from tests.reference.codecs import index as reference
from tests.reference.codecs.codecs import quantise

keys = st.integers(0, 2**64 - 1)


@given(
    elements=st.integers(1, 700),
    density=st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    size=st.builds(Filter, st.integers(1, 40), st.integers(1, 24)),
    key=keys,
    seed=st.integers(0, 2**32),
)
@example(elements=100, density=0.5, size=Filter(70_001, 3), key=5, seed=1)  # more words than 16 bits count
def test_a_filter_is_that_of_the_reference(
    elements: int, density: float, size: Filter, key: int, seed: int
) -> None:
    wanted = np.random.default_rng(seed).random(elements) < density
    own = index_of(wanted)
    words = np.zeros(size.words, np.uint64)
    answered = np.full_like(own, 77)

    inserted = insert(own, 0, size.hashes, np.uint64(key), words)
    query(words, size.hashes, np.uint64(key), 0, answered)

    filled = reference.bloom_filter(set(np.flatnonzero(wanted).tolist()), *size, key)
    assert np.count_nonzero(own) == inserted
    assert sorted(filled) == plain.members(words.tolist(), 64)
    named = reference.named(filled, elements, *size, key)
    assert sorted(named) == np.flatnonzero(is_named(answered, elements)).tolist()
    assert set(np.flatnonzero(wanted).tolist()) <= named


@given(cut=st.integers(0, 40), key=keys)
def test_slices_of_an_index_are_those_of_the_whole(cut: int, key: int) -> None:
    own = index_of(np.random.default_rng(1).random(40 * 64) < 0.1)
    words, parts = np.zeros(30, np.uint64), np.zeros(30, np.uint64)
    answered, answers = np.empty_like(own), np.empty_like(own)

    insert(own, 0, 5, np.uint64(key), words)
    query(words, 5, np.uint64(key), 0, answered)
    for part in (slice(cut, None), slice(0, cut)):
        insert(own[part], part.start, 5, np.uint64(key), parts)
        query(words, 5, np.uint64(key), part.start, answers[part])

    assert words.tolist() == parts.tolist()
    assert answered.tolist() == answers.tolist()


@pytest.mark.parametrize(
    ("elements", "members", "expected"),
    [
        # f = 0.053 · ρ / (1 − ρ); hashes = log2(1/f), rounded; bits = members · hashes / ln 2.
        (25_000_000, 25_000, Filter(7890, 14)),  # f = 5.3e-5
        (25_000_000, 250_000, Filter(61_991, 11)),  # f = 5.4e-4
        (25_000_000, 1_250_000, Filter(225_422, 8)),  # f = 2.8e-3
        (25_000_000, 0, Filter(1, 24)),  # as for one member, and no more hashes than 24
        (25_000_000, 25_000_000, None),
        (64, 1, None),
        (0, 0, None),
    ],
)
def test_sizes(elements: int, members: int, expected: Filter | None) -> None:
    assert expected == design_filter(elements, members)


def test_a_bitmap_takes_over_above_7_3_percent() -> None:
    """With any real number of hashes the two cost the same at 7.4 %; with 8 of them, a little earlier."""
    densities = [thousandth for thousandth in range(1, 200) if design_filter(10**7, 10**4 * thousandth)]

    assert densities == list(range(1, 74))


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
    place = word_layout(support_of(case.index, case.block_elements), agreement, case.group_blocks)
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
        values = np.empty(place.support.count, np.float32)
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
    place = word_layout(support_of(full_support(300), 64), agreed(form, [gradient, gradient]))
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


@examples(25)
@given(values=sparse_values())
def test_an_index_is_that_of_the_reference(values: list[float]) -> None:
    narrow = np.empty(-(-len(values) // 32), np.uint32)
    write_index(np.array(values, np.float32), narrow)

    assert plain.index_words(values, 32) == narrow.tolist()
    assert np.count_nonzero(values) == count_members(index_of(np.array(values) != 0))


@examples(25)
@given(words=st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]), min_size=1, max_size=200))
def test_words_with_a_member_are_found_gathered_and_put_back(words: list[int]) -> None:
    whole = np.array(words, np.uint64)
    narrow = np.empty(-(-whole.size // 32), np.uint32)
    write_index(whole, narrow)
    chosen = index_of(whole != 0)
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
    part=st.lists(st.integers(0, 3), max_size=50), whole=st.lists(st.integers(0, 3), min_size=50, max_size=50)
)
def test_the_first_word_with_a_bit_too_many(part: list[int], whole: list[int]) -> None:
    missing = first_missing(np.array(part, np.uint32), np.array(whole[: len(part)], np.uint32))

    contradictions = [w for w, word in enumerate(part) if word & ~whole[w]]
    assert min(contradictions, default=len(part)) == missing


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
            assert index_of(gradient != 0).tolist() == membership.own_support.tolist()
            assert result.memberships[0].union.tolist() == membership.union.tolist()
            assert membership.union_elements == int(np.bitwise_count(membership.union).sum(dtype=np.int64))
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
    assert first.memberships[0].union_elements < 1.02 * own
    assert second.labels == [["index"]]
    expected = first.memberships[0].union_elements
    expected += expected // 16 + 16
    assert second.index_messages[0].words.size == 2 * design_filter(100_000, expected).words
    assert second.memberships[0].union_elements < 1.06 * own
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
