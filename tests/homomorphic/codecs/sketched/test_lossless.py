"""The lossless codec end to end: exactness, sizes, failures that heal and contradictions that do not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import DecodeError
from netfold.homomorphic.codecs.dense.kinds import DenseExact, FixedPoint
from netfold.homomorphic.codecs.sketched.lossless import Lossless
from netfold.homomorphic.message import Gradient, Message
from netfold.homomorphic.numbers.formats import AgreedNothing
from netfold.homomorphic.round import NoteKind
from netfold.homomorphic.sketch import sketch, tables, tiled
from netfold.homomorphic.sketch.forecast import Seen
from tests.homomorphic.gradients import Sample, bound_of, folded, labels, samples, sparse
from tests.homomorphic.played import encoders_of, play


def exchange(gradients: list[Gradient], damage: dict[str, int]) -> tuple[Gradient, list[str]]:
    """Like `fold`, but the first word of some merged messages is off by `damage[label]`."""

    def change(number: int, message: Message, words: np.ndarray) -> None:
        words[:1] = (words[:1].astype(np.int64) + damage.get(message.label, 0)).astype(words.dtype)

    result = play(encoders_of(Lossless(), len(gradients)), gradients, damage=change)
    return result.decoded, [label for labels in result.labels for label in labels]


@given(
    sample=samples(),
    load=st.sampled_from([0.05, 0.5, 0.77, 0.81]),
    block_elements=st.sampled_from([64, 128, 4096, 65_536]),
    setting=st.sampled_from(["repaired", "rotated"]),
)
def test_decoded_bits_are_those_of_dense_fixed_point(
    sample: Sample, load: float, block_elements: int, setting: str
) -> None:
    codec = Lossless(setting, load=load, block_elements=block_elements)
    compressed = folded(codec, sample.gradients, sample.order)
    dense = folded(FixedPoint(block_elements), sample.gradients)

    assert dense.decoded[0].tobytes() == compressed.decoded[0].tobytes()


@pytest.mark.parametrize("workers", [1, 3, 64])
@pytest.mark.parametrize("elements", [1, 31, 33, 4095, 4097, 65_537])
@pytest.mark.parametrize("density", [0.0, 0.01, 1.0])
def test_sizes_densities_and_worker_counts(elements: int, density: float, workers: int) -> None:
    gradients = sparse(elements, density, workers)

    assert (
        folded(FixedPoint(4096), gradients).decoded[0].tobytes()
        == folded(Lossless(), gradients).decoded[0].tobytes()
    )


@pytest.mark.parametrize("pattern", ["iid", "rows", "columns"])
@pytest.mark.parametrize("density", [0.001, 0.01, 0.1, 0.5])
def test_a_million_elements_of_any_pattern(density: float, pattern: str) -> None:
    gradients = sparse(1_000_000, density, 2, pattern)
    result = folded(Lossless(), gradients)
    union = np.count_nonzero((gradients[0] != 0) | (gradients[1] != 0))

    assert folded(FixedPoint(4096), gradients).decoded[0].tobytes() == result.decoded[0].tobytes()
    overhead = result.announced_bytes(0) - 125_000 - 4 * union / 0.77
    assert overhead <= 4 * 245 + 4 * 34 * len(result.messages) * (1 + union // sketch.TILE_MEMBERS)


def test_where_members_crowd_some_tiles_go_dense_and_some_are_empty() -> None:
    gradient = np.zeros(1_000_000, np.float32)
    gradient[:400_000] = 1
    gradient[700_000::100] = 2
    result = folded(Lossless(), [gradient, gradient])

    assert (2 * gradient).tolist() == result.decoded[0].tolist()
    sketched, whole = result.messages[1][0]
    assert (sketched.label, whole.label) == ("values", "dense tiles")
    assert 400_000 < sketched.words.size + whole.words.size < 450_000


def test_dense_gradients_cost_their_index_and_exponents_only() -> None:
    result = folded(Lossless(), sparse(1_000_000, 1.0, 1))

    assert result.announced_bytes(0) == 4_000_000 + 125_000 + 4 * 245


def test_an_all_zero_gradient_sends_its_index_only() -> None:
    result = folded(Lossless(), [np.full(10_000, -0.0, np.float32)] * 3)

    assert labels(result) == ["index", "exponents"]
    assert not result.decoded[0].any()
    assert not np.signbit(result.decoded[0]).any()


def test_members_that_cancel_decode_to_zero() -> None:
    gradient = sparse(10_000, 0.1, 1)[0]

    assert not folded(Lossless(), [gradient, -gradient]).decoded[0].any()


def test_hashes_change_with_every_round() -> None:
    gradients = sparse(10_000, 0.1, 1)
    first, again, next_step = (
        folded(Lossless(), gradients, step=step).messages[1][0][0].words for step in (0, 0, 1)
    )

    assert first.tolist() == again.tolist()
    assert first.size == next_step.size
    assert first.tolist() != next_step.tolist()


def test_tables_that_are_too_small_fail_and_are_redone_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = sparse(200_000, 0.3, 3)
    expected = folded(Lossless(), gradients)
    sized = tables.rows_needed
    monkeypatch.setattr(tiled, "rows_needed", lambda members, load, lanes: sized(members, 0.9, lanes))

    result = folded(Lossless(), gradients)

    assert labels(expected) == ["index", "exponents", "values"]
    assert labels(result) == ["index", "exponents", "values", "redo"]
    assert expected.decoded[0].tobytes() == result.decoded[0].tobytes()
    union = np.count_nonzero(np.any([gradient != 0 for gradient in gradients], axis=0))
    assert union == result.messages[2][0][0].words.size


@pytest.mark.parametrize("setting", ["repaired", "rotated"])
@pytest.mark.parametrize("members_max", [0, 400, 800])
def test_fast_and_general_kernels_make_the_same_messages(
    monkeypatch: pytest.MonkeyPatch, setting: str, members_max: int
) -> None:
    """A worker's own members may be few enough for the fast ones where the union's are not."""
    gradients = sparse(20_000, 0.03, 3)  # about 600 members each, 1750 together
    monkeypatch.setattr(sketch, "TILE_MEMBERS", 900)
    expected = folded(Lossless(setting), gradients)
    monkeypatch.setattr(sketch, "MEMBERS_MAX", members_max)

    result = folded(Lossless(setting), gradients)

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
    for name, module, function in (("fast", tables, "peel"), ("general", sketch.hypergraph, "replay")):
        inner = getattr(module, function)

        def spy(*words: Any, name: str = name, inner: Any = inner, **more: Any) -> Any:
            ways.append(name)
            return inner(*words, **more)

        monkeypatch.setattr(module, function, spy)
    decoded = folded(Lossless("rotated"), gradients).decoded[0]

    assert set(ways) == {"general" if more else "fast"}
    assert decoded.tobytes() == folded(FixedPoint(4096), gradients).decoded[0].tobytes()


@pytest.mark.parametrize("fault", [1, -1, 12_345, 2**30])
def test_a_damaged_counter_costs_a_redo_and_no_accuracy(fault: int) -> None:
    gradients = sparse(20_000, 0.05, 3)

    decoded, seen = exchange(gradients, {"values": fault})

    assert seen == ["index", "exponents", "values", "redo"]
    expected = folded(Lossless(), gradients).decoded[0]
    assert expected.tobytes() == decoded.tobytes()


@pytest.mark.parametrize("setting", ["repaired", "rotated"])
@pytest.mark.parametrize("fault", [7.0, -1e-2, 1e30, np.inf, np.nan])
def test_a_damaged_float_counter_shows_too(setting: str, fault: float) -> None:
    gradients = sparse(20_000, 0.05, 3)
    codec = Lossless(setting, values="float32")

    def damage(number: int, message: Message, words: np.ndarray) -> None:
        if message.label == "values":
            words[:1] += np.float32(fault)

    played = play(encoders_of(codec, 3), gradients, damage=damage)

    assert len(played.notes_of(NoteKind.REDO)) == 1
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


def test_a_counter_that_misses_one_worker_is_found_every_time() -> None:
    gradients = sparse(5_000, 0.05, 3)
    first_counters = folded(Lossless(), gradients).messages[1]
    lost = [int(messages[0].words[0]) for messages in first_counters]

    for rank, word in enumerate(lost):
        decoded, seen = exchange(gradients, {"values": -word})

        assert ("redo" in seen) == (word != 0), rank
        assert folded(Lossless(), gradients).decoded[0].tobytes() == decoded.tobytes()


def test_a_lost_index_is_refused() -> None:
    gradients = [np.ones(64, np.float32)] * 2
    text = (
        "the merged index lacks elements this worker sent, first in word 0: "
        "a worker's index was lost or damaged on the way"
    )
    with pytest.raises(DecodeError, match=f"^{re.escape(text)}$"):
        exchange(gradients, {"index": -1})


def test_an_index_beyond_the_gradient_is_refused() -> None:
    text = "the merged index has elements beyond the last, 2: a worker's index was damaged on the way"
    with pytest.raises(DecodeError, match=f"^{re.escape(text)}$"):
        exchange([np.ones(3, np.float32)], {"index": 8})


@pytest.mark.parametrize(("fault", "found"), [(-1, 0), (127, 128)])
def test_exponents_out_of_range_are_refused(fault: int, found: int) -> None:
    text = f"the merged exponent of block 0 is {found}: must be between 1, which this worker sent, and 127"
    with pytest.raises(DecodeError, match=f"^{re.escape(text)}$"):
        exchange([np.ones(3, np.float32)], {"exponents": fault})


@pytest.mark.parametrize("load", [0.0, 0.82, float("nan")])
def test_loads_that_cannot_work(load: float) -> None:
    text = (
        f"load is {load}: members per counter must be between 0.05 and 0.81; "
        "above 0.818 a sketch with three hashes cannot be peeled, 0.77 is a good choice"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        Lossless(load=load)


@pytest.mark.parametrize("block_elements", [0, 32, 100, 1 << 17])
def test_blocks_that_cannot_work(block_elements: int) -> None:
    text = (
        f"block_elements is {block_elements}: must be a power of two from 64 to 65536, 4096 is a good choice"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        Lossless(block_elements=block_elements)


def test_work_counts_the_bytes_of_every_pass() -> None:
    gradient = sparse(8192, 0.1, 1)[0]
    nonzeros = np.count_nonzero(gradient)
    (index, exponents), (values,) = (operation[0] for operation in folded(Lossless(), [gradient]).messages)
    peeled_bytes = 2 * 3 * 8 * int(0.77 * values.words.size)

    assert (gradient.nbytes, index.size_bytes) == (index.work.read_bytes, index.work.written_bytes)
    assert (4 * nonzeros, exponents.size_bytes) == (
        exponents.work.read_bytes,
        exponents.work.written_bytes,
    )
    assert index.size_bytes + (4 + 12) * nonzeros == values.work.read_bytes
    assert values.size_bytes + 12 * nonzeros == values.work.written_bytes
    assert index.size_bytes + values.size_bytes + peeled_bytes == values.decode_work.read_bytes
    assert gradient.nbytes + values.size_bytes + peeled_bytes == values.decode_work.written_bytes
