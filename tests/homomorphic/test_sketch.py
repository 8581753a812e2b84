"""Sketches: hashing, counts, peeling in the fast and in the general decoder, and forecasts of their sizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netfold.homomorphic.block_floating_point import largest_so_far
from netfold.homomorphic.codecs.count_sketch import LANES, count, estimate, make_rows
from netfold.homomorphic.hashing import (
    POSITIONS_SPARE,
    PUBLISHED,
    REPAIRED,
    ROTATED,
    Hashing,
    empty_counters,
    find_positions,
    find_signs,
    murmur3,
    place,
)
from netfold.homomorphic.message import Round
from netfold.homomorphic.number_formats import AgreedNothing, number_format
from netfold.homomorphic.peeling import (
    MEMBERS_MAX,
    Hypergraph,
    TileTables,
    TileWords,
    add,
    hypergraph,
    peel,
    peeling_order,
    replay,
    rows_needed,
    scratch_for,
)
from netfold.homomorphic.peeling import add_general as add_values
from netfold.homomorphic.peeling import estimate as estimate_values
from netfold.homomorphic.sketch import ROTATED_TILING, History, Seen, with_margin
from netfold.kernels.compiled import kernel
from netfold.kernels.keyed_random import splitmix64_plain
from tests.examples import examples, nightly
from tests.homomorphic.gradients import index_of
from tests.reference.codecs import codecs
from tests.reference.codecs import sketch as plain
from tests.reference.systems.count_sketch import Hashes, estimates_of, sketch_of

# Of the four bytes of 0, 1, 2, 3, lowest first; agree with the published C++ code of MurmurHash3_x86_32.
VECTORS = {
    0: [0x2362F9DE, 0xFBF1402A, 0x40B23B7F, 0x32850971],
    1: [0x78ED212D, 0x5E11E574, 0xDB9A7E8C, 0xCF6CC8A9],
    2: [0x06DFADFC, 0x13D35112, 0x2CDEFD20, 0xDE0EB68B],
}

keys = st.integers(0, 2**64 - 1)
all_lanes = st.integers(0, 10).map(lambda exponent: 2**exponent)


@kernel
def murmurs(blocks: np.ndarray, seed: int, hashes: np.ndarray) -> None:
    for i in range(blocks.size):
        hashes[i] = murmur3(blocks[i], seed)


def compiled_murmurs(blocks: list[int], seed: int) -> list[int]:
    hashes = np.empty(len(blocks), np.uint32)
    murmurs(np.array(blocks, np.uint64), np.uint64(seed), hashes)
    return hashes.tolist()


def choices(hashing: Hashing, positions: list[int]) -> list[plain.Choices]:
    counters, negative = empty_counters(len(positions)), np.empty(len(positions), np.uint8)
    place(hashing, np.array(positions, np.uint32), counters)
    find_signs(hashing, np.array(positions, np.uint32), negative)
    signs = [[-1 if bits >> j & 1 else 1 for j in range(3)] for bits in negative.tolist()]
    return [
        list(zip(three, of_three, strict=True))
        for three, of_three in zip(zip(*(one.tolist() for one in counters), strict=True), signs, strict=True)
    ]


@pytest.mark.parametrize("seed", VECTORS)
def test_murmur_gives_the_published_vectors(seed: int) -> None:
    assert VECTORS[seed] == compiled_murmurs([0, 1, 2, 3], seed)
    assert VECTORS[seed] == [plain.murmur3(block, seed) for block in range(4)]


@given(bits=st.lists(st.integers(0, 2**64 - 1).map(lambda word: word & word >> 3), max_size=6))
@example(bits=[2**64 - 1, 0, 1, 2**63, 255, 511])
def test_positions_are_those_of_set_bits(bits: list[int]) -> None:
    expected = codecs.members(bits, 64)
    positions = np.full(len(expected) + POSITIONS_SPARE + 1, 77, np.uint32)

    assert find_positions(np.array(bits, np.uint64), positions[:-1]) == len(expected)
    assert positions[: len(expected)].tolist() == expected
    assert positions[-1] == 77


@given(
    positions=st.sets(st.integers(0, 2**32 - 1), max_size=20).map(sorted),
    lanes=all_lanes,
    rows=st.integers(1, 2**18),
    key=keys,
)
@examples(60)
def test_counters_are_those_of_the_reference_in_every_setting(
    positions: list[int], lanes: int, rows: int, key: int
) -> None:
    for setting, expected in (
        (PUBLISHED, [plain.published(one, lanes, rows) for one in positions]),
        (ROTATED, [plain.rotated(one, lanes, rows, key) for one in positions]),
        (REPAIRED, [plain.repaired(one, lanes, rows, key) for one in positions]),
    ):
        assert expected == choices(Hashing(setting, lanes, rows, np.uint64(key)), positions)


def normal(elements: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(elements, np.float32)


def estimates(rows: int, columns: int, key: int, values: np.ndarray) -> np.ndarray:
    own = make_rows(rows, columns, key)
    return estimate(own, count(own, values), values.size)


def errors(rows: int, columns: int, values: np.ndarray, keys: int) -> np.ndarray:
    """`(keys, elements)`."""
    return np.array([estimates(rows, columns, key, values) - values.astype(float) for key in range(keys)])


@examples(30)
@given(
    values=st.lists(st.integers(-1000, 1000), min_size=1, max_size=150),
    rows=st.sampled_from([1, 3, 5, 7]),
    columns=st.one_of(st.integers(1, 70), st.just(LANES), st.just(LANES - 1), st.integers(200, 5000)),
    key=st.integers(0, 2**64 - 1),
)
def test_plain_python(values: list[int], rows: int, columns: int, key: int) -> None:
    """Integers, so that float32 sums are exact."""
    hashes = Hashes(rows, columns, 32 if columns >= 32 else 1, key)
    table = sketch_of(values, hashes)
    own = make_rows(rows, columns, key)
    sketch = count(own, np.array(values, np.float32))

    assert sketch.reshape(rows, columns).tolist() == table
    assert estimate(own, sketch, len(values)).tolist() == estimates_of(table, hashes, len(values))


def test_large_ones_by_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks of several threads, and a block that is not whole."""
    monkeypatch.setenv("NETFOLD_THREADS", "2")
    values = np.round(100 * normal((1 << 18) + 4097)).astype(np.float32)
    own = make_rows(3, 30000, 5)
    sketch = count(own, values)
    found = estimate(own, sketch, values.size)
    hashes = Hashes(3, 30000, 32, 5)
    some = [0, 31, 32, 2047, 2048, 65535, 65536, (1 << 18) - 1, 1 << 18, values.size - 1]
    for element in some:
        places = [hashes.of(row, element) for row in range(3)]
        counters = [sketch[30000 * row + counter] * sign for row, (counter, sign) in enumerate(places)]

        assert found[element] == sorted(counters)[1]
    by_counter = np.zeros(30000)
    for element, value in enumerate(values[:50000].tolist()):
        counter, sign = hashes.of(2, element)
        by_counter[counter] += sign * value

    assert count(own, values[:50000]).reshape(3, -1)[2].tolist() == by_counter.tolist()


@pytest.mark.parametrize(("rows", "constant"), [(1, 1.00), (3, 0.35), (5, 0.20)])
def test_mean_squared_error(rows: int, constant: float) -> None:
    values = normal(40_000)
    found = (errors(rows, 20_000, values, 20) ** 2).mean() * 20_000 / (values.astype(float) ** 2).sum()

    assert abs(found - constant) < 0.01


GUARD = 77  # in words no kernel may touch


class Bucket(NamedTuple):
    """Integers of every worker in a bucket cut into tiles."""

    tables: TileTables
    union: np.ndarray  # (elements,) bool
    values: np.ndarray  # (workers, elements) int32; zero where a worker has no value


def starts_of(wanted: np.ndarray, tile_elements: int) -> np.ndarray:
    members = [int(tile.sum()) for tile in np.split(wanted, range(tile_elements, wanted.size, tile_elements))]
    return np.cumsum([0, *members])


def members_of(wanted: np.ndarray, words: np.ndarray, tile_elements: int) -> TileWords:
    return TileWords(index_of(wanted), starts_of(wanted, tile_elements), words)


def tables_for(
    union: np.ndarray,
    tile_elements: int,
    key: int,
    load: float = 0.77,
    lanes: int = 1,
    setting: int = REPAIRED,
) -> TileTables:
    rows = rows_needed(np.diff(starts_of(union, tile_elements)), load, lanes)
    word_starts = np.concatenate([[0], np.cumsum(3 * lanes * rows)])
    return TileTables(setting, lanes, tile_elements, rows, word_starts, np.uint64(key))


def added(bucket: Bucket, worker: int) -> np.ndarray:
    values = bucket.values[worker]
    own = members_of(values != 0, values[values != 0], bucket.tables.tile_elements)
    message = np.full(bucket.tables.word_starts[-1], GUARD, np.int32)
    tiles = np.arange(bucket.tables.rows.size)
    add(bucket.tables, tiles, own, message, scratch_for(bucket.tables, own.starts))
    return message


def peeled(bucket: Bucket, merged: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the union's members, and which tiles failed."""
    union = members_of(
        bucket.union, np.full(int(bucket.union.sum()), GUARD, np.int32), bucket.tables.tile_elements
    )
    is_failed = np.ones(bucket.tables.rows.size, np.bool_)
    scratch = scratch_for(bucket.tables, union.starts)
    before = merged.copy()
    peel(bucket.tables, np.arange(is_failed.size), union, merged, is_failed, scratch)

    assert (before == merged).all()
    return union.words, is_failed


def merged_of(bucket: Bucket) -> np.ndarray:
    return np.sum([added(bucket, worker) for worker in range(len(bucket.values))], axis=0, dtype=np.int32)


def pattern(name: str, elements: int, members: int, random: np.random.Generator) -> np.ndarray:
    """About `members` of the elements, as gradients have them."""
    density = members / elements
    if name.startswith("rows"):
        width = int(name.removeprefix("rows of "))
        return np.repeat(random.random(elements // width + 1) < density, width)[:elements]
    if name == "columns":
        return np.tile(random.random(4096) < density, elements // 4096 + 1)[:elements]
    return random.random(elements) < density


@st.composite
def buckets(draw: st.DrawFn) -> Bucket:
    elements = draw(st.one_of(st.integers(1, 70), st.integers(71, 900)))
    tile_elements = draw(st.sampled_from([64, 128, 512]))
    lanes = draw(st.sampled_from([1, 2, 16, 64]))
    workers = draw(st.integers(1, 4))
    density = draw(st.sampled_from([0.0, 0.02, 0.2, 0.7, 1.0]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = pattern(draw(st.sampled_from(["iid", "rows of 64"])), elements, int(density * elements), random)
    values = random.integers(-(2**31), 2**31, (workers, elements)).astype(np.int32)
    values *= shape & (random.random(values.shape) < 0.8)
    union = values.any(axis=0) | (shape & (random.random(elements) < 0.1))  # some members are zero everywhere
    tables = tables_for(
        union,
        tile_elements,
        draw(st.integers(0, 2**64 - 1)),
        draw(st.sampled_from([0.3, 0.77])),
        lanes,
        draw(st.sampled_from([ROTATED, REPAIRED])),
    )
    return Bucket(tables, union, values)


def choices_of(bucket: Bucket, tile: int) -> dict[int, plain.Choices]:
    """Of a tile's members, by element of the bucket."""
    tables = bucket.tables
    choose = plain.rotated if tables.setting == ROTATED else plain.repaired
    key = splitmix64_plain(int(tables.key) + tile)
    first = tile * tables.tile_elements
    elements = np.flatnonzero(bucket.union[first : first + tables.tile_elements]).tolist()
    return {first + one: choose(one, tables.lanes, int(tables.rows[tile]), key) for one in elements}


@given(bucket=buckets())
@examples(60)
def test_adding_and_peeling_are_those_of_the_reference(bucket: Bucket) -> None:
    merged = merged_of(bucket)
    sums, is_failed = peeled(bucket, merged)
    sum_of = dict(zip(np.flatnonzero(bucket.union).tolist(), sums.tolist(), strict=True))

    for tile in range(bucket.tables.rows.size):
        choices = choices_of(bucket, tile)
        begin, end = bucket.tables.word_starts[tile : tile + 2]
        totals = {one: codecs.wrap(int(bucket.values[:, one].sum(dtype=np.int64))) for one in choices}
        assert plain.sketch(totals, choices, end - begin) == merged[begin:end].tolist()
        expected = plain.peel(merged[begin:end].tolist(), choices)
        assert bool(expected.estimates) == is_failed[tile]
        if not is_failed[tile]:
            assert totals == expected.values == {one: sum_of[one] for one in choices}


@given(bucket=buckets(), counter=st.integers(0, 10**6), fault=st.integers(1, 2**32 - 1))
@examples(60)
def test_a_fault_in_any_counter_fails_its_tile_and_no_other(bucket: Bucket, counter: int, fault: int) -> None:
    merged = merged_of(bucket)
    sums, is_failed = peeled(bucket, merged)
    if not merged.size:
        return
    counter %= merged.size
    merged[counter] = codecs.wrap(int(merged[counter]) + fault)
    struck = int(np.searchsorted(bucket.tables.word_starts, counter, side="right")) - 1
    sums_after, is_failed_after = peeled(bucket, merged)

    assert is_failed_after[struck]
    elsewhere = np.arange(is_failed.size) != struck
    assert (is_failed == is_failed_after)[elsewhere].all()
    tile_of_member = np.flatnonzero(bucket.union) // bucket.tables.tile_elements
    assert (sums == sums_after)[tile_of_member != struck].all()


def test_only_the_tiles_asked_for_are_touched() -> None:
    random = np.random.default_rng(3)
    union = random.random(640) < 0.2
    values = random.integers(1, 2**31, (1, 640)).astype(np.int32) * union
    tables = tables_for(union, 64, key=4)
    tables.rows[4] = 0  # no table: its words are not ours
    own = members_of(union, values[0][union], 64)
    scratch = scratch_for(tables, own.starts)
    message = np.full(tables.word_starts[-1], GUARD, np.int32)
    sums, is_failed = np.full(own.words.size, GUARD, np.int32), np.ones(10, np.bool_)
    tiles = np.array([1, 4, 5])

    add(tables, tiles, own, message, scratch)
    peel(tables, tiles, own._replace(words=sums), message, is_failed, scratch)

    for tile in range(10):
        words = message[tables.word_starts[tile] : tables.word_starts[tile + 1]]
        of_tile = slice(own.starts[tile], own.starts[tile + 1])
        if tile in (1, 5):
            assert not is_failed[tile]
            assert own.words[of_tile].tolist() == sums[of_tile].tolist()
        else:
            assert (words == GUARD).all()
            assert (sums[of_tile] == GUARD).all()
            assert is_failed[tile] == (tile != 4)


def test_a_crowded_counter_fails_its_tile() -> None:
    """The degree of a cell has six bits; nothing may run over into its value."""
    for members in (31, 32, 64, 65, 129):
        tables = TileTables(REPAIRED, 1, 192, np.array([1]), np.array([0, 3]), np.uint64(0))
        values = np.zeros((1, 192), np.int32)
        values[0, :members] = 1 << 20
        bucket = Bucket(tables, values[0] != 0, values)
        assert peeled(bucket, merged_of(bucket))[1].all()


@pytest.mark.parametrize("name", ["iid", "rows of 256", "columns"])
@pytest.mark.parametrize("members", [1000, pytest.param(8192, marks=nightly)])
def test_tables_of_any_pattern_fail_as_rarely_as_random_ones(name: str, members: int) -> None:
    """Two members of m share all counters with a probability of about 6 / m, for any structure."""
    elements, tables_count = 2**16, 50
    random = np.random.default_rng(members)
    failures = 0
    for key in range(tables_count):
        union = pattern(name, elements, members, random)
        values = random.integers(1, 2**31, (1, elements)).astype(np.int32) * union
        bucket = Bucket(tables_for(union, elements, key), union, values)
        sums, is_failed = peeled(bucket, merged_of(bucket))
        assert is_failed[0] or (sums == values[0][union]).all()
        failures += int(is_failed[0])

    assert failures <= 1 + 4 * tables_count * 6 / members  # 2.2 and 1.1 for 0.3 and 0.04 expected


def test_rows_follow_from_members_and_load() -> None:
    """ceil((ceil(members / load) + 32) / (3 · lanes)); nothing for no members."""
    members = np.array([0, 1, 100, 32_768])

    assert rows_needed(members, 0.77).tolist() == [0, 12, 54, 14_196]
    assert rows_needed(members, 0.77, lanes=16).tolist() == [0, 1, 4, 888]


def test_a_tiling_that_does_not_cut_has_one_tile_of_whole_rows() -> None:
    """A row of 1024 lanes is four blocks of 256 elements."""
    assert [ROTATED_TILING.tile_blocks(blocks, 256, 10**6) for blocks in (1, 4, 5, 100)] == [4, 4, 8, 100]


def test_a_tile_with_too_many_members_is_refused() -> None:
    tables = TileTables(REPAIRED, 1, 2**22, np.array([5, 0]), np.array([0, 15, 15]), np.uint64(0))
    scratch_for(tables, np.array([0, MEMBERS_MAX, 2**24]))

    with pytest.raises(ValueError) as refused:
        scratch_for(tables, np.array([0, MEMBERS_MAX + 1, 2**24]))

    assert (
        str(refused.value)
        == "a tile of 4194304 elements has 2097153 members: a table holds at most 2097152; make tiles smaller"
    )


def choices_in_graph(graph: Hypergraph) -> dict[int, plain.Choices]:
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
    add_values(graph, words, table)
    choices = choices_in_graph(graph)
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
        missing = estimate_values(graph, order, left, plane)
        assert missing.tolist() == sorted(peeled.estimates)
        assert [int(plane[m]) for m in missing] == [codecs.wrap(int(peeled.estimates[m])) for m in missing]


def test_flags_in_the_lowest_bit_of_a_mantissa_are_cleared() -> None:
    """As released: every word has its flag set, and costs the sums an error of about an ulp of their lane."""
    random = np.random.default_rng(4)
    graph = hypergraph(Hashing(REPAIRED, 1, 1000, np.uint64(4)), index_of(random.random(40_000) < 0.05))
    words = random.standard_normal(graph.negative.size).astype(np.float32)
    words.view(np.uint32)[:] |= 1
    table = np.zeros(graph.size, np.float32)
    add_values(graph, words, table)
    sums = np.zeros(words.size, np.float32)

    assert replay(graph, peeling_order(graph), table, sums, is_flagged=True)
    assert not (sums.view(np.uint32) & 1).any()
    assert abs(sums - words).max() < 2e-6 * abs(words).max()


def test_a_history_goes_by_what_is_recent_and_of_the_same_length() -> None:
    numbers, history = number_format("float32", 64), History()
    for step, elements, members in [(0, 128, 9), (1, 64, 3), (3, 128, 5), (4, 100, 60)]:
        blocks = -(-elements // 64)
        seen = Seen(np.full(blocks, members, np.int64), AgreedNothing(blocks))
        history.add(Round(step, 0, 2, 7), elements, seen)

    def expected(step: int, elements: int, bucket: int = 0) -> list[int] | None:
        forecast = history.forecast(Round(step, bucket, 2, 7), elements, numbers)
        return None if forecast is None else forecast.members.tolist()

    assert [expected(step, 128) for step in (5, 7, 8, 10, 11)] == [[9, 9], [9, 9], [5, 5], [5, 5], None]
    assert (expected(5, 64), expected(5, 100), expected(5, 127)) == ([3], [60, 60], None)
    assert expected(5, 128, bucket=1) is None


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([[3, 1], [2, 5]], [3, 5]),
        ([[9, 9, 4, 9, 7, 9]], [4, 4, 4, 7, 7, 7]),  # the only neighbour, or the larger of two
        ([[9, 7, 9, 9, 4, 9]], [7, 7, 7, 7, 4, 4]),
        ([[9, 9, 9]], [9, 9, 9]),
    ],
)
def test_blocks_that_were_empty_take_the_larger_of_their_neighbours(
    rounds: list[list[int]], expected: list[int]
) -> None:
    """9 stands for empty; where a round has another number that counts."""
    known = [np.where(np.array(one) == 9, -99, one).astype(np.int32) for one in rounds]

    assert largest_so_far(known, -99).tolist() == [-99 if one == 9 else one for one in expected]


def test_margins_are_a_twentieth_and_three_standard_deviations() -> None:
    assert with_margin(np.array([0, 1, 100, 10_000])).tolist() == [0, 5, 135, 10_800]
