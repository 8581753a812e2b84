"""How parts of a gradient become buckets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.errors import DataError
from netfold.sim.workload.draws import keyed, shards
from netfold.sim.workload.workload import FLOAT_BYTES, GradientPart, group, make_buckets, split

sizes = st.lists(st.integers(1, 50), min_size=1, max_size=30)


@given(sizes, st.integers(1, 400))
def test_buckets_cover_the_gradient_in_order(elements: list[int], bucket_bytes: int) -> None:
    parts = [GradientPart(f"p{index}", size) for index, size in enumerate(elements)]
    buckets = make_buckets(parts, bucket_bytes)

    assert list(range(len(buckets))) == [bucket.index for bucket in buckets]
    assert [0, *(bucket.stop for bucket in buckets[:-1])] == [bucket.start for bucket in buckets]
    assert sum(elements) == buckets[-1].stop
    shares = [bucket.ready_share for bucket in buckets]
    assert sorted(shares) == shares
    assert shares[0] > 0
    assert shares[-1] == 1.0


@given(sizes, st.integers(1, 400))
def test_a_bucket_closes_with_the_part_that_fills_it(elements: list[int], bucket_bytes: int) -> None:
    parts = [GradientPart(f"p{index}", size) for index, size in enumerate(elements)]
    groups = group(parts, bucket_bytes)

    assert list(range(len(parts))) == [member for members in groups for member in members]
    for members in groups:
        without_last_bytes = sum(elements[member] for member in members[:-1]) * FLOAT_BYTES
        assert without_last_bytes < bucket_bytes
    for members in groups[:-1]:
        assert sum(elements[member] for member in members) * FLOAT_BYTES >= bucket_bytes


def test_names_say_first_and_last_part() -> None:
    buckets = make_buckets(
        [GradientPart("a", 1), GradientPart("b", 1), GradientPart("c", 9), GradientPart("d", 1)],
        bucket_bytes=12,
    )

    assert [bucket.name for bucket in buckets] == ["a..c", "d"]
    assert [bucket.ready_share for bucket in buckets] == [11 / 12, 1.0]


def test_split_gives_views() -> None:
    flat = np.arange(5, dtype=np.float32)
    first, second = split(flat, make_buckets([GradientPart("a", 2), GradientPart("b", 3)], bucket_bytes=4))
    flat += 10

    assert first.tolist() == [10, 11]
    assert second.tolist() == [12, 13, 14]


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 2**70))
def test_shards_share_all_samples_evenly(samples: int, workers: int, seed: int) -> None:
    if workers > samples:
        with pytest.raises(DataError) as caught:
            shards(samples, workers, seed)

        assert (
            f"{workers} workers cannot share {samples} samples\n  use at most {samples} workers, or more data"
        ) == str(caught.value)
        return
    parts = shards(samples, workers, seed)

    assert list(range(samples)) == sorted(np.concatenate(parts).tolist())
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_keyed_numbers_depend_on_every_part_of_the_key() -> None:
    keys = [(1, "a", 2, 3), (2, "a", 2, 3), (1, "b", 2, 3), (1, "a", 3, 2), (1, "a", 2, 4)]
    drawn = [int(keyed(*key).integers(2**62)) for key in keys]

    assert len(keys) == len(set(drawn))
    assert drawn == [int(keyed(*key).integers(2**62)) for key in keys]
