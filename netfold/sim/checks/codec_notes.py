"""Counts of a codec's notes on one round, and the elements that they exempt from the error bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.errors import InvariantError
from netfold.homomorphic.round import Note, NoteKind

_NAMING_ELEMENTS = (NoteKind.ESTIMATE, NoteKind.INFINITE)


class Exempt(NamedTuple):
    """Elements of a decoded sum to which the codec's bound does not apply, each in ascending order."""

    estimates: NDArray[np.int64]
    infinities: NDArray[np.int64]  # these must be infinite


NOTHING_EXEMPT = Exempt(np.empty(0, np.int64), np.empty(0, np.int64))


class NoteCounts(NamedTuple):
    """Counts of worker 0's notes on a round."""

    agree: bool  # all workers noted the same
    choice: str | None  # the part of its note before the ":"; several are joined by " + "
    redone_parts: int
    forecast_misses: int
    exempt: Exempt


def count_notes(notes: Sequence[Sequence[Note]], elements: int) -> NoteCounts:
    """Count the notes on a round of `elements` elements; `notes[worker]` are those of one worker.

    Raises
    ------
    InvariantError
        A note on estimates or infinities does not name its elements, or not in ascending order.
    """
    first = notes[0]
    for note in first:
        _require_elements(note, elements)
    choices = [note.name for note in first if note.kind is NoteKind.CHOICE]
    return NoteCounts(
        agree=all(_are_equal(first, other) for other in notes[1:]),
        choice=" + ".join(choices) or None,
        redone_parts=sum(note.count for note in first if note.kind is NoteKind.REDO),
        forecast_misses=sum(note.count for note in first if note.kind is NoteKind.FORECAST),
        exempt=Exempt(_named(first, NoteKind.ESTIMATE), _named(first, NoteKind.INFINITE)),
    )


def _require_elements(note: Note, elements: int) -> None:
    """Require that a note on estimates or infinities names its elements, which are counted and exempted."""
    named = note.elements
    if named is None:
        if note.kind in _NAMING_ELEMENTS:
            raise InvariantError(f"a note of kind '{note.kind.value}' names no elements: {note.text}")
    elif named.size and not (named[0] >= 0 and np.all(named[1:] > named[:-1]) and named[-1] < elements):
        raise InvariantError(
            f"a note of kind '{note.kind.value}' must name elements from 0 to {elements - 1} in ascending "
            f"order, each once: {note.text}"
        )


def _named(notes: Sequence[Note], kind: NoteKind) -> NDArray[np.int64]:
    """Elements that the notes of a kind name."""
    named = [note.elements for note in notes if note.kind is kind and note.elements is not None]
    return np.unique(np.concatenate(named)) if named else np.empty(0, np.int64)


def _are_equal(notes: Sequence[Note], others: Sequence[Note]) -> bool:
    """Whether kinds, counts and elements are the same, in order; texts may differ between workers."""
    return len(notes) == len(others) and all(
        (one.kind, one.count, one.total) == (other.kind, other.count, other.total)
        and _have_equal_elements(one.elements, other.elements)
        for one, other in zip(notes, others, strict=True)
    )


def _have_equal_elements(named: NDArray[np.int64] | None, others: NDArray[np.int64] | None) -> bool:
    if named is None or others is None:
        return named is others
    return np.array_equal(named, others)
