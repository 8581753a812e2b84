"""The lossless codec end to end: exactness, sizes, failures that heal and contradictions that do not."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.codecs.dense.kinds import DenseExact, FixedPoint
from netfold.homomorphic.codecs.sketched.lossless import Lossless
from netfold.homomorphic.message import Message
from netfold.homomorphic.numbers.formats import AgreedNothing
from netfold.homomorphic.round import NoteKind
from netfold.homomorphic.sketch import sketch, tables, tiled
from netfold.homomorphic.sketch.forecast import Seen
from tests.homomorphic.gradients import bound_of, folded, labels, sparse
from tests.homomorphic.played import encoders_of, play


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
    for name, module, function in (("fast", tables, "peel"), ("general", sketch.hypergraph, "replay")):
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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        *(
            (
                {"load": load},
                f"load is {load}: members per counter must be between 0.05 and 0.81; "
                "above 0.818 a sketch with three hashes cannot be peeled, 0.77 is a good choice",
            )
            for load in (0.04, 0.82, float("nan"))
        ),
        ({"block_elements": 32}, "block_elements is 32: must be a power of two from 64 to 65536"),
        ({"ratio": 10.0}, "ratio belongs to setting published, found setting repaired; remove it"),
        ({"index_bits": 1}, "index_bits belongs to setting published, found setting repaired; remove it"),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}"):
        Lossless(**options)
