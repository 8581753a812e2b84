"""Lossless, concurrent: rounds that grow, move and jump; always right, with the notes of a plain twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic import sketch
from netfold.homomorphic.codecs.exact import DenseExact
from netfold.homomorphic.codecs.lossless import Lossless
from netfold.homomorphic.message import Gradient, NoteKind
from netfold.kernels.compiled import VARIABLE
from tests.examples import examples
from tests.homomorphic.gradients import Kind, Played, bound_of, drawn, encoders_of, folded, play
from tests.reference.codecs import forecast as plain

BLOCK_ELEMENTS = 64
TILE_MEMBERS = 200
ELEMENTS = 6400


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "TILE_MEMBERS", TILE_MEMBERS)


def concurrent(**options: object) -> Lossless:
    return Lossless(schedule="concurrent", block_elements=BLOCK_ELEMENTS, **options)


def assert_right(codec: Lossless, gradients: list[Gradient], decoded: Gradient) -> None:
    if codec.values == "exact":
        assert folded(DenseExact(), gradients).decoded[0].tobytes() == decoded.tobytes()
    total = np.sum(gradients, axis=0, dtype=np.float64)
    assert (np.abs(decoded - total) <= bound_of(codec, gradients)).all()


def rounds_of(codec: Lossless, kinds: list[Kind], workers: int = 2, elements: int = ELEMENTS) -> list[Played]:
    """Rounds of one bucket, all of them right."""
    encoders = encoders_of(codec, workers)
    results = []
    for step, kind in enumerate(kinds):
        gradients = drawn(kind, workers, elements, step)
        results.append(play(encoders, gradients, step))
        assert_right(codec, gradients, results[-1].decoded)
    return results


kinds_of_rounds = st.lists(
    st.builds(
        Kind,
        density=st.sampled_from([0.0, 0.005, 0.02, 0.1, 0.5]),
        exponent=st.sampled_from([0, 0, 0, 1, 2, -3, 20, -40]),
        begin=st.sampled_from([0.0, 0.0, 0.4]),
        end=st.sampled_from([1.0, 1.0, 0.5]),
        dense_to=st.sampled_from([0.0, 0.0, 0.2, 1.0]),
    ),
    min_size=2,
    max_size=7,
)


@pytest.mark.parametrize("values", ["block_exponent", "float32", "exact"])
@examples(12)
@given(
    rounds=kinds_of_rounds,
    setting=st.sampled_from(["repaired", "repaired", "rotated"]),
    index=st.sampled_from(["flat", "two_level", "bloom"]),
    load=st.sampled_from([0.3, 0.77, 0.81]),
    workers=st.integers(1, 4),
    elements=st.one_of(st.integers(0, 300), st.integers(3000, ELEMENTS)),
)
def test_any_rounds_are_right_and_take_one_operation_where_the_forecast_holds(
    values: str, rounds: list[Kind], setting: str, index: str, load: float, workers: int, elements: int
) -> None:
    codec = concurrent(setting=setting, values=values, index=index, load=load)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "TILE_MEMBERS", TILE_MEMBERS)
        first, *others = rounds_of(codec, rounds, workers, elements)

    assert not first.notes_of(NoteKind.FORECAST)
    for result in others:
        again = result.notes_of(NoteKind.FORECAST) + result.notes_of(NoteKind.FALLBACK)
        assert len(again) == len(result.notes)
        of_index = 1 + (index == "two_level" and ["index"] in result.labels)
        assert len(result.operations) == of_index + bool(again)
        assert (["fallback"] in result.labels) == bool(again)


@examples(20)
@given(
    rounds=kinds_of_rounds,
    load=st.sampled_from([0.3, 0.77]),
    workers=st.integers(1, 3),
    elements=st.integers(1000, ELEMENTS),
)
def test_the_tiles_that_outgrow_their_forecast_are_those_of_the_plain_one(
    rounds: list[Kind], load: float, workers: int, elements: int
) -> None:
    codec, history = concurrent(load=load), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketch, "TILE_MEMBERS", TILE_MEMBERS)
        results = rounds_of(codec, rounds, workers, elements)

    for step, (kind, result) in enumerate(zip(rounds, results, strict=True)):
        gradients = [one.tolist() for one in drawn(kind, workers, elements, step)]
        actual = plain.seen(gradients, BLOCK_ELEMENTS)
        if history:
            sizes = plain.Sizes(elements, BLOCK_ELEMENTS, TILE_MEMBERS, load)
            outgrown, populated = plain.missed(history, actual, sizes)
            notes = [(note.count, note.total) for note in result.notes_of(NoteKind.FORECAST)]
            assert notes == ([(outgrown, populated)] if outgrown else [])
        history.append(actual)


def test_a_jump_is_reported_and_sent_again_packed_and_then_known() -> None:
    results = rounds_of(concurrent(), [Kind(0.03), Kind(0.03), Kind(0.3), Kind(0.3)])
    jumped = results[2]

    (note,) = jumped.notes_of(NoteKind.FORECAST)
    assert note.text == "7 of 7 tiles were not as forecast: their members were sent again, packed"
    assert (note.count, note.total) == (7, 7)
    (again,) = jumped.operations[-1][0]
    members = np.count_nonzero(np.any(drawn(Kind(0.3), 2, ELEMENTS, 2), axis=0))
    assert (again.label, again.words.size) == ("fallback", members)
    assert not results[3].notes_of(NoteKind.FORECAST)


@pytest.mark.parametrize(
    ("values", "growth"),
    [
        *(("block_exponent", growth) for growth in (-60, -3, -2, 1, 2, 60)),
        *(("exact", growth) for growth in (-60, -2, 1, 2, 60)),
    ],
)
@pytest.mark.parametrize("dense_to", [0.0, 1.0])
def test_values_that_grow_beyond_the_forecast_are_sent_again(
    values: str, growth: int, dense_to: float
) -> None:
    """A bit upwards and two downwards are allowed for; exact may have more to spare at the lower end."""
    is_missed = not -2 <= growth <= 1
    codec = concurrent(values=values, load=0.3)
    one, result = rounds_of(codec, [Kind(0.05, 0, dense_to=dense_to), Kind(0.05, growth, dense_to=dense_to)])

    assert not one.notes
    assert bool(result.notes_of(NoteKind.FORECAST)) == is_missed
    assert (["fallback"] in result.labels) == (is_missed or bool(result.notes_of(NoteKind.FALLBACK)))


@pytest.mark.parametrize("values", ["block_exponent", "float32", "exact"])
def test_threads_make_no_difference(monkeypatch: pytest.MonkeyPatch, values: str) -> None:
    """Not to messages, and not to sums."""
    kinds = [Kind(0.05, dense_to=0.3), Kind(0.05, dense_to=0.3), Kind(0.2)]
    outcomes: list[list[bytes]] = []
    for threads in ("1", "3"):
        monkeypatch.setenv(VARIABLE, threads)
        results = rounds_of(concurrent(values=values), kinds)
        sent = [message.words for one in results for operation in one.operations for message in operation[0]]
        outcomes.append([words.tobytes() for words in (*sent, *(one.decoded for one in results))])

    assert outcomes[0] == outcomes[1]


def test_an_infinite_sum_that_is_sent_again_is_reported_once() -> None:
    """It is found in a whole tile that had outgrown its forecast, and again in what replaces it."""
    encoders = encoders_of(concurrent(values="exact"), 2)
    gradients = [np.full(ELEMENTS, 2.0**127, np.float32), np.full(ELEMENTS, -(2.0**126), np.float32)]
    play(encoders, gradients, 0)
    gradients[1][:2] = 2.0**127, 2.0**-100

    result = play(encoders, gradients, 1)

    assert result.labels == [["index", "ranges", "dense tiles"], ["fallback"]]
    (note,) = result.notes_of(NoteKind.INFINITE)
    assert (note.count, note.elements.tolist()) == (1, [0])
    assert note.text == "1 sums are beyond the range of float32 and became infinite"
    assert np.isinf(result.decoded).sum() == 1
