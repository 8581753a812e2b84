"""Tables against plain dictionaries, every fault found, and how rarely a sound table fails."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.kernels.keyed import splitmix64_plain
from netfold.homomorphic.sketch.hashing import REPAIRED, ROTATED
from netfold.homomorphic.sketch.tables import (
    MEMBERS_MAX,
    Tables,
    TileWords,
    add,
    peel,
    rows_needed,
    scratch_for,
)
from tests.examples import examples, nightly
from tests.homomorphic.index.indexes import index_of
from tests.reference.codecs import codecs
from tests.reference.codecs import sketch as plain

GUARD = 77  # in words no kernel may touch


class Bucket(NamedTuple):
    """Integers of every worker in a bucket cut into tiles."""

    tables: Tables
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
) -> Tables:
    rows = rows_needed(np.diff(starts_of(union, tile_elements)), load, lanes)
    word_starts = np.concatenate([[0], np.cumsum(3 * lanes * rows)])
    return Tables(setting, lanes, tile_elements, rows, word_starts, np.uint64(key))


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
        tables = Tables(REPAIRED, 1, 192, np.array([1]), np.array([0, 3]), np.uint64(0))
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


def test_a_tile_with_too_many_members_is_refused() -> None:
    tables = Tables(REPAIRED, 1, 2**22, np.array([5, 0]), np.array([0, 15, 15]), np.uint64(0))
    scratch_for(tables, np.array([0, MEMBERS_MAX, 2**24]))

    with pytest.raises(ValueError) as refused:
        scratch_for(tables, np.array([0, MEMBERS_MAX + 1, 2**24]))

    assert (
        str(refused.value)
        == "a tile of 4194304 elements has 2097153 members: a table holds at most 2097152; make tiles smaller"
    )
