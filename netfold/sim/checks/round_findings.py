"""What the checks of a round are given, and what they find: operations, wrong words, errors of a sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.errors import InvariantError
from netfold.homomorphic.error_bounds import PART_ELEMENTS, Drift
from netfold.homomorphic.merge import Holders, Merged
from netfold.homomorphic.message import Message, Note, NoteKind
from netfold.kernels.bits import identity
from netfold.sim.checks.error_metrics import Beyond, ErrorMetrics

# Counts of a codec's notes on one round, and the elements that they exempt from the error bound.


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
    fallback_parts: int
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
        fallback_parts=sum(note.count for note in first if note.kind is NoteKind.FALLBACK),
        forecast_misses=sum(note.count for note in first if note.kind is NoteKind.FORECAST),
        exempt=Exempt(_named_elements(first, NoteKind.ESTIMATE), _named_elements(first, NoteKind.INFINITE)),
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


def _named_elements(notes: Sequence[Note], kind: NoteKind) -> NDArray[np.int64]:
    """Elements that the notes of a kind name."""
    element_arrays = [note.elements for note in notes if note.kind is kind and note.elements is not None]
    return np.unique(np.concatenate(element_arrays)) if element_arrays else np.empty(0, np.int64)


def _are_equal(notes: Sequence[Note], others: Sequence[Note]) -> bool:
    """Whether kinds, counts and elements are the same, in order; texts may differ between workers."""
    return len(notes) == len(others) and all(
        (note.kind, note.count, note.total) == (other.kind, other.count, other.total)
        and _have_equal_elements(note.elements, other.elements)
        for note, other in zip(notes, others, strict=True)
    )


def _have_equal_elements(named: NDArray[np.int64] | None, others: NDArray[np.int64] | None) -> bool:
    if named is None or others is None:
        return named is others
    return np.array_equal(named, others)


# The operations of a round that are examined, and the findings.


@dataclass
class RecordedOperation:
    """One network operation: what each worker sent and received."""

    sent: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    received: dict[int, tuple[Merged, ...]] = field(default_factory=dict)
    number: int = 0
    """Its number among its workers' operations over the whole run."""

    @property
    def sent_bytes(self) -> int:
        return sum(message.size_bytes for messages in self.sent.values() for message in messages)

    @property
    def received_bytes(self) -> int:
        """Payload of all workers' merged messages; of GATHER without a worker's own."""
        return sum(
            merged.size_bytes - (self.sent[worker][part].size_bytes if merged.parts else 0)
            for worker, received in self.received.items()
            for part, merged in enumerate(received)
        )

    def contributes(self, worker: int) -> bool:
        return any(message.words.size and not message.is_absent for message in self.sent[worker])


@dataclass(frozen=True)
class WrongWord:
    """A merged word that is not the sum of the words sent, or whose exponent is not the largest."""

    operation: int  # its number
    part: int  # message of the operation
    label: str
    worker: int
    word: int
    received: int | float | None  # None if there is no word, or if the exponent is wrong
    right: int | float | None
    allowed: float = 0.0  # largest error of float32 additions
    place: str = ""
    lane: int | None = None
    """The lane of the word, where it has several."""
    claim: str = ""  # what its message wrongly says of its contributors

    def __str__(self) -> str:
        lane = "" if self.lane is None else f"lane {self.lane} of "
        return f"worker {self.worker}, {lane}word {self.word} of '{self.label}'{self._values}: {self.place}"

    @property
    def _values(self) -> str:
        if self.received is None:
            return f" ({self.claim})" if self.claim else ""
        if isinstance(self.received, int):
            return f" (received {self.received}, the sum is {self.right})"
        return f" (received {self.received:.9g}, the sum is {self.right:.9g} within {self.allowed:.3g})"


@dataclass
class AtHosts:
    """What hosts merged by a codec's own functions, and messages that they passed on as they are."""

    words: int = 0  # examined, over all workers
    wrong: int = 0  # words or messages that differ from a replay
    first: str = ""  # the first of these

    def add(self, count: int, place: str) -> None:
        """Count wrong words; the first place is kept."""
        self.wrong += count
        self.first = self.first or place


class Held(NamedTuple):
    """How many workers the results of a round hold."""

    fewest: int
    mean: float


@dataclass(frozen=True)
class Findings:
    wrong_words: int  # merged words (or lanes), over all workers, that are not the sum in integers
    is_integer: bool  # all its messages merge as integers, so `wrong_words` covers all of them
    replicas_agree: bool
    max_bounded_error: float
    """Largest error of elements with a bound of the codec."""
    max_estimate_error: float
    """Largest error of elements without a bound of the codec."""
    max_error_over_bound: float
    worst_element: int
    """The element whose error is largest relative to its bound."""
    nonzeros: int
    union_nonzeros: int
    loss: ErrorMetrics  # against the sum of all gradients
    is_held_back: bool  # some worker contributed something else than its gradient
    held: Held
    first_wrong: WrongWord | None = None
    clipped_words: int = 0  # integer words (or lanes) that differ from their sum as overflow allows
    first_clipped: WrongWord | None = None
    integer_words: int = 0  # merged words, over all workers, that were compared with integers
    float_words: int = 0  # merged words, over all workers, that were added as float32
    wrong_floats: int = 0  # those farther from the sum than float32 additions can be
    first_wrong_float: WrongWord | None = None
    worst_magnitude: float = 0.0  # Σ|x| at the worst element
    inexact_elements: int = 0
    """Elements that are not the exact sum, if the codec promises it."""
    drift: Drift | None = None
    """Drift of a codec that promises to be unbiased."""
    is_far: bool = False  # worker 0's total from the sum of the gradients, though all of them went in
    beyond: Beyond | None = None  # a sum that float32 does not have
    at_hosts: AtHosts = field(default_factory=AtHosts)
    is_checked: bool = True

    @classmethod
    def unchecked(cls, held: Held) -> Findings:
        """Those of a round whose packets carry no words."""
        loss = ErrorMetrics(largest=np.nan)
        loss.sums += np.nan
        return cls(
            wrong_words=0,
            is_integer=False,
            replicas_agree=True,
            max_bounded_error=np.nan,
            max_estimate_error=np.nan,
            max_error_over_bound=np.nan,
            worst_element=0,
            nonzeros=0,
            union_nonzeros=0,
            loss=loss,
            is_held_back=False,
            held=held,
            is_checked=False,
        )

    @property
    def max_abs_error(self) -> float:
        """Largest distance from the sum of all gradients; infinities that are right have none."""
        return (
            self.loss.largest if self.is_held_back else max(self.max_bounded_error, self.max_estimate_error)
        )

    @property
    def bit_exact(self) -> bool | None:
        is_exact = self.loss.is_exact and self.replicas_agree
        # None: words were added as float32, in some order, and the total is within the errors of that.
        return None if not self.is_checked or (is_exact and self.float_words) else is_exact

    def merges_verified(self, was_resent: bool = False) -> bool | None:
        # Adders may have clipped words of a round of which parts were sent again. None: there are no words.
        if not self.is_checked:
            return None
        clipped = 0 if was_resent else self.clipped_words
        return not (self.wrong_words or clipped or self.wrong_floats or self.at_hosts.wrong)


# The distinct results of one message, and the errors found in them.


@dataclass(frozen=True)
class MessagePlace:
    """Identifies a message: its operation, its index there, and its label."""

    operation: int
    part: int
    label: str

    def __str__(self) -> str:
        return f"'{self.label}', message {self.part} of operation {self.operation}"


@dataclass
class Tally:
    """Number of words with one kind of error, and the first of them."""

    count: int = 0
    first: WrongWord | None = None

    def add(self, count: int, first: WrongWord | None) -> None:
        """Count more errors; the first one is stored."""
        self.count += count
        if self.first is None and count:
            self.first = first


@dataclass
class Tallies:
    """Counts over the merged words so far."""

    wrong: Tally = field(default_factory=Tally)
    clipped: Tally = field(default_factory=Tally)
    wrong_floats: Tally = field(default_factory=Tally)
    integer_words: int = 0
    float_words: int = 0
    is_integer: bool = True


class Slice(NamedTuple):
    """A range of words of a message; for each of them, lanes that are merged, and merged words."""

    first: int
    last: int
    lanes: int = 1
    merged_words: int = 1

    @property
    def size(self) -> int:
        return self.lanes * (self.last - self.first)

    @property
    def merged(self) -> slice:
        return slice(self.merged_words * self.first, self.merged_words * self.last)


@dataclass
class Result:
    """One result and the workers that received it; shared arrays are examined once."""

    merged: Merged
    workers: list[int]
    wrong: Tally = field(default_factory=Tally)
    clipped: Tally = field(default_factory=Tally)
    wrong_floats: Tally = field(default_factory=Tally)

    def wrong_word(
        self,
        place: MessagePlace,
        word: int,
        values: tuple[Any, Any],
        allowed: float = 0.0,
        claim: str = "",
    ) -> WrongWord:
        """A wrong word, as the first worker received it and as it should be."""
        where = place.operation, place.part, place.label, self.workers[0], word
        return WrongWord(*where, *values, allowed=allowed, claim=claim)


def distinct(received: Sequence[Merged]) -> list[Result]:
    results: dict[tuple[Any, ...], Result] = {}
    for worker, merged in enumerate(received):
        bitmaps = None if merged.holders is None else merged.holders.bitmaps
        arrays = merged.words, merged.exponents, merged.is_float, bitmaps, *merged.parts
        present = None if merged.present is None else merged.present.tobytes()
        key = (*map(identity, arrays), merged.workers, present, merged.is_mixed)
        if key in results:
            results[key].workers.append(worker)
        else:
            results[key] = Result(merged, [worker])
    return list(results.values())


def by_holders(results: Sequence[Result]) -> list[tuple[Holders | None, list[Result]]]:
    """Results grouped by the workers they hold in each unit; None: all workers."""
    groups: dict[tuple[int, bytes], tuple[Holders | None, list[Result]]] = {}
    for result in results:
        holders = result.merged.holders
        key = (0, b"") if holders is None else (holders.unit_words, holders.bitmaps.tobytes())
        groups.setdefault(key, (holders, []))[1].append(result)
    return list(groups.values())


def complete(place: MessagePlace, results: Sequence[Result], wanted: int, kind: str) -> list[Result]:
    """Results of the expected length; all words of the others are counted as wrong, in the named tally."""
    for result in results:
        size = result.merged.words.size
        if size != wanted:
            lost = result.wrong_word(place, min(size, wanted), (None, None))
            getattr(result, kind).add(max(size, wanted), lost)
    return [result for result in results if result.merged.words.size == wanted]


def slices(size: int, lanes: int = 1, merged_words: int = 1) -> Iterator[Slice]:
    """Ranges that cover `size` words, each small enough for the cache; the rest as in `Slice`."""
    for first in range(0, size, PART_ELEMENTS):
        yield Slice(first, min(first + PART_ELEMENTS, size), lanes, merged_words)


def holds(holders: Holders, elements: Slice, rank: int) -> NDArray[np.bool_]:
    """Whether a result holds a worker, for every lane."""
    units = np.arange(elements.first, elements.last) // holders.unit_words
    is_held = holders.bitmaps[units] >> np.uint32(rank) & np.uint32(1) != 0
    return np.repeat(is_held, elements.lanes)
