"""Gradients of several workers that have broken encodings before, their indexes, and rounds in lock-step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from netfold.homomorphic.block_floating_point import all_of
from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange
from netfold.homomorphic.codec_driver import advance
from netfold.homomorphic.error_bounds import whole_bound
from netfold.homomorphic.fold import AllReduceResult, check_lock_step, fold
from netfold.homomorphic.merge import Merge, Merged, merge_all
from netfold.homomorphic.message import Gradient, Message, Note, NoteKind, Round
from netfold.homomorphic.number_formats import Agreed, NumberFormat
from netfold.homomorphic.union_index import AgreedUnion, IndexKind, IndexMemory, exchange_index, own_index
from netfold.testing import PATTERNS, VALUES, Steps, support, values


class Sample(NamedTuple):
    gradients: list[Gradient]
    round: Round
    order: list[int]


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    workers = draw(st.sampled_from([*range(1, 9), 32, 64]))
    elements = draw(st.one_of(st.integers(1, 100), st.integers(1000, 6000)))
    density = draw(st.sampled_from([0.0, 0.003, 0.02, 0.1, 0.3, 0.6, 1.0]))
    pattern = draw(st.sampled_from(PATTERNS))
    kind = draw(st.sampled_from(VALUES))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    gradients = [
        np.where(
            support(pattern, elements, density, random=random), values(kind, elements, random), np.float32(0)
        )
        for _ in range(workers)
    ]
    round = Round(draw(st.integers(0, 9)), draw(st.integers(0, 9)), workers, draw(st.integers(0, 2**63)))
    return Sample(gradients, round, random.permutation(workers).tolist())


def rows_of(
    values: st.SearchStrategy[float], elements_max: int, workers_max: int
) -> st.SearchStrategy[list[list[float]]]:
    """As many values of each worker."""
    return st.integers(1, elements_max).flatmap(
        lambda n: st.lists(st.lists(values, min_size=n, max_size=n), min_size=1, max_size=workers_max)
    )


class Kind(NamedTuple):
    """Of a round: where its members are, and how large."""

    density: float
    exponent: int = 0  # values are of this magnitude, times 1 to 2
    begin: float = 0.0  # members lie between these shares of the bucket …
    end: float = 1.0
    dense_to: float = 0.0  # … and all elements up to here are members


def drawn(kind: Kind, workers: int, elements: int, seed: int) -> list[Gradient]:
    random = np.random.default_rng([seed, workers])
    place = np.arange(elements) / elements
    gradients = []
    for _ in range(workers):
        wanted = (random.random(elements) < kind.density) & (kind.begin <= place) & (place < kind.end)
        wanted |= place < kind.dense_to
        magnitudes = np.ldexp(1 + random.random(elements), kind.exponent) * random.choice([-1, 1], elements)
        gradients.append(np.where(wanted, magnitudes, 0).astype(np.float32))
    return gradients


def folded(
    codec: Codec, gradients: list[Gradient], order: list[int] | None = None, step: int = 0
) -> AllReduceResult:
    workers = len(gradients)
    encoders = [codec.worker(rank, workers, 0) for rank in range(workers)]
    Steps(workers).begin(encoders, gradients, step)
    return fold(encoders, gradients, Round(step, 0, workers, 7), order, codec.server(workers, 0))


def bound_of(codec: Any, gradients: list[Gradient], **more: bool) -> np.ndarray:
    """The error bound of every element, of a codec or a number format."""
    return whole_bound(codec.error_bound(gradients, **more), gradients)


def sparse(
    elements: int, density: float, workers: int, pattern: str = "iid", seed: int = 1
) -> list[Gradient]:
    """Normal values; every worker's own elements."""
    random = np.random.default_rng([seed, workers])
    return [
        np.where(
            support(pattern, elements, density, random=random),
            random.standard_normal(elements, np.float32),
            np.float32(0),
        )
        for _ in range(workers)
    ]


def labels(result: AllReduceResult) -> list[str]:
    """Of worker 0's messages."""
    return [message.label for operation in result.messages for message in operation[0]]


def agreed(form: NumberFormat, gradients: list[Gradient]) -> Agreed:
    """What the workers agree on of a number format, block by block."""
    round = Round(0, 0, len(gradients), 0)
    sent = [form.announce(all_of(gradient, form.block_elements), round) for gradient in gradients]
    merged = [
        Merged(merge_all(Merge.MAX, [one.words for one in part]), len(gradients))
        for part in zip(*sent, strict=True)
    ]
    return form.agree(gradients[0].size, sent[-1], merged, round)


def starts_of(elements: int, block_elements: int) -> np.ndarray:
    return np.append(np.arange(0, elements, block_elements), elements).astype(np.int64)


Damage = Callable[[int, Message, np.ndarray], None]  # number of the operation, a message, its merged words


class Played(NamedTuple):
    decoded: Gradient  # the same at every worker
    operations: list[list[tuple[Message, ...]]]  # by operation and worker
    notes: list[Note]  # the same at every worker

    @property
    def labels(self) -> list[list[str]]:
        return [[message.label for message in messages[0]] for messages in self.operations]

    @property
    def announced_bytes(self) -> int:
        return sum(message.size_bytes for messages in self.operations for message in messages[0])

    def notes_of(self, kind: NoteKind) -> list[Note]:
        return [note for note in self.notes if note.kind is kind]


def encoders_of(codec: Codec, workers: int) -> list[Encoder]:
    return [codec.worker(rank, workers, 0) for rank in range(workers)]


def play(
    encoders: Sequence[Encoder],
    gradients: Sequence[Gradient],
    step: int = 0,
    bucket: int = 0,
    damage: Damage = lambda number, message, words: None,
) -> Played:
    """One round; `damage` changes merged words on their way back."""
    workers = len(gradients)
    notes: list[list[Note]] = [[] for _ in gradients]
    exchanges = [
        encoder.exchange(gradient, Round(step, bucket, workers, 7, report=own.append))
        for encoder, gradient, own in zip(encoders, gradients, notes, strict=True)
    ]
    operations: list[list[tuple[Message, ...]]] = []
    decoded: list[Gradient] = []
    answers: tuple[Merged, ...] | None = None
    while not decoded:
        found = [advance(exchange, answers) for exchange in exchanges]
        check_lock_step(found)
        sent = [one for one in found if isinstance(one, tuple)]
        decoded = [one.total for one in found if isinstance(one, Decoded)]
        if sent:
            merged = []
            for part in zip(*sent, strict=True):
                words = merge_all(part[0].merge, [message.words for message in part])
                damage(len(operations), part[0], words)
                merged.append(Merged(words, workers))
            operations.append(sent)
            answers = tuple(merged)
    for other, own in zip(decoded, notes, strict=True):
        assert decoded[0].tobytes() == other.tobytes()
        assert list(map(_content, notes[0])) == list(map(_content, own))
    return Played(decoded[0], operations, notes[0])


def _content(note: Note) -> tuple[object, ...]:
    elements = None if note.elements is None else note.elements.tolist()
    return note.kind, note.text, note.count, note.total, elements


def index_of(wanted: np.ndarray) -> np.ndarray:
    """64-bit words of an index, by NumPy's own packing."""
    padded = np.zeros(-(-wanted.size // 64) * 64, np.bool_)
    padded[: wanted.size] = wanted
    return np.packbits(padded, bitorder="little").view(np.uint64)


def is_named(index: np.ndarray, elements: int) -> np.ndarray:
    """Which elements an index names."""
    return np.unpackbits(index.view(np.uint8), bitorder="little")[:elements] != 0


class Exchanged(NamedTuple):
    memberships: list[AgreedUnion]
    operations: list[list[tuple[Message, ...]]]  # by operation and worker
    labels: list[list[str]]

    @property
    def index_messages(self) -> list[Message]:
        return [messages[0][0] for messages in self.operations]

    @property
    def index_bytes(self) -> int:
        return sum(message.size_bytes for message in self.index_messages)


class IndexAlone(Encoder):
    """Agrees on an index, and does nothing with it."""

    membership: AgreedUnion

    def __init__(self, kind: IndexKind, memory: IndexMemory, beside: tuple[Message, ...]) -> None:
        self.kind, self.memory, self.beside = kind, memory, beside

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        self.membership = yield from exchange_index(
            own_index(gradient), gradient.size, round, self.kind, self.beside, self.memory
        )
        return Decoded(np.zeros(gradient.size, np.float32), gradient)


def exchange(
    kind: IndexKind,
    gradients: Sequence[Gradient],
    memories: Sequence[IndexMemory] | None = None,
    step: int = 0,
    beside: Callable[[int], tuple[Message, ...]] = lambda rank: (),
    damage: Callable[[Message, np.ndarray], None] = lambda message, words: None,
) -> Exchanged:
    """All workers in lock-step; `damage` changes merged words on their way back."""
    own = memories or [IndexMemory() for _ in gradients]
    encoders = [IndexAlone(kind, memory, beside(rank)) for rank, memory in enumerate(own)]
    done = play(encoders, gradients, step, damage=lambda number, message, words: damage(message, words))
    return Exchanged([one.membership for one in encoders], done.operations, done.labels)
