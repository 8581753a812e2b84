"""Effects of one lost contribution: a counter, or a word, that lacks one worker's value."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from docs.findings.patterns import index_of, support
from docs.findings.table import Cells, Line, Table, digits
from netfold.homomorphic import peeling as hypergraph
from netfold.homomorphic.codec import Codec, Encoder, Exchange, codec_kinds
from netfold.homomorphic.fold import fold
from netfold.homomorphic.hashing import REPAIRED, Hashing
from netfold.homomorphic.message import Gradient, Note, NoteKind, Round
from netfold.kernels.keyed_random import mix_plain

WORKERS = 4
MEMBERS = 20_000
TABLES, TRIALS = 30, 100  # tables, and trials in each; in each trial one counter loses a contribution
LOADS = (0.4, 0.6, 0.75)
PLANES = {"int32": 1, "exact": 2}  # words of a member: block_exponent, and two digits of exact

ELEMENTS = 2**17
DENSITY = 0.1
CODEC_TRIALS = 100
RATIO = 6.0  # elements per published counter: a load of 0.6
CODECS: dict[str, tuple[str, dict[str, object]]] = {
    "`fixed_point`": ("fixed_point", {}),
    "`exact`": ("exact", {}),
    "`packed`": ("packed", {}),
    "`lossless`, published": ("lossless", {"setting": "published", "ratio": RATIO}),
    "`lossless`, published, integers": (
        "lossless",
        {"setting": "published", "ratio": RATIO, "values": "block_exponent"},
    ),
    "`lossless`, rotated": ("lossless", {"setting": "rotated"}),
    "`lossless`, repaired": ("lossless", {}),
    "`lossless`, repaired, exact": ("lossless", {"values": "exact"}),
}


class Damage(NamedTuple):
    """Effects of lost contributions to counters of a table, one per trial."""

    wrong: tuple[int, ...]  # per trial: members with a wrong word
    is_noticed: tuple[bool, ...]  # of the trials in which the contribution was not zero


def damaged(load: float, planes: int, seed: int, trials: int = TRIALS, members: int = MEMBERS) -> Damage:
    """In each trial a random counter of a table loses one worker's contribution, which may be zero."""
    random = np.random.default_rng([seed, planes])
    hashing = Hashing(REPAIRED, 1, math.ceil(members / load / 3), np.uint64(mix_plain(seed)))
    graph = hypergraph.hypergraph(hashing, index_of(np.ones(members, np.bool_))[: -(-members // 64)])
    order = hypergraph.peeling_order(graph)
    sums = random.integers(-(2**28), 2**28, (WORKERS, planes * members)).astype(np.int32)
    tables = np.zeros((WORKERS, planes * graph.size), np.int32)
    for words, table in zip(sums, tables, strict=True):
        hypergraph.add_general(graph, words, table)
    right, merged = sums.sum(axis=0, dtype=np.int32), tables.sum(axis=0, dtype=np.int32)
    found = np.empty_like(right)
    wrong, is_noticed = [], []
    for _ in range(trials):
        worker, counter = random.integers(WORKERS), random.integers(merged.size)
        left = merged.copy()
        left[counter : counter + 1] -= tables[worker, counter : counter + 1]  # slices wrap
        is_sound = hypergraph.replay(graph, order, left, found)
        is_wrong = (found != right).reshape(planes, members).any(axis=0)
        wrong.append(int(is_wrong.sum()))
        if tables[worker, counter]:
            is_noticed.append(not is_sound)
    return Damage(tuple(wrong), tuple(is_noticed))


def counter_figures(load: float, planes: int) -> Cells:
    """Cells for all trials in all tables."""
    damage = [damaged(load, planes, seed) for seed in range(TABLES)]
    wrong = [one for table in damage for one in table.wrong]
    is_noticed = [one for table in damage for one in table.is_noticed]
    return (
        digits(sum(wrong) / len(wrong)),
        str(max(wrong)),
        f"{sum(is_noticed)} of {len(is_noticed)}",
    )


@dataclass(frozen=True)
class LossyEncoder(Encoder):
    """An encoder that loses one non-zero word of its values."""

    encoder: Encoder
    share: float  # of the non-zero words, before the lost one

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """The encoder's exchange, with the word set to zero."""
        inner = self.encoder.exchange(gradient, round)
        messages = next(inner)
        while True:
            sent = []
            for message in messages:
                lost = message
                if message.label == "values":
                    words = message.words.copy()
                    nonzero = np.flatnonzero(words)
                    words[nonzero[int(self.share * nonzero.size)]] = 0
                    lost = replace(message, words=words)
                sent.append(lost)
            merged = yield tuple(sent)
            try:
                messages = inner.send(merged)
            except StopIteration as stop:
                return stop.value


def codec_trial(codec: Codec, seed: int) -> tuple[int, bool]:
    """Number of elements that a lost word makes wrong, and whether the codec reports a failure."""
    random = np.random.default_rng(seed)
    wanted = support("iid", ELEMENTS, DENSITY, 1, random)
    gradients = [
        np.where(wanted, random.standard_normal(ELEMENTS), 0).astype(np.float32) for _ in range(WORKERS)
    ]
    notes: list[Note] = []
    round = Round(0, 0, WORKERS, seed)
    encoders = [codec.worker(rank, WORKERS, 0) for rank in range(WORKERS)]
    right = fold(encoders, gradients, round).decoded[0]
    lossy: list[Encoder] = [codec.worker(rank, WORKERS, 0) for rank in range(WORKERS)]
    lossy[1] = LossyEncoder(lossy[1], random.random())
    found = fold(lossy, gradients, replace(round, report=notes.append)).decoded[0]
    is_noticed = any(note.kind is NoteKind.FALLBACK for note in notes)
    return int((found.view(np.uint32) != right.view(np.uint32)).sum()), is_noticed


def codec_figures(kind: str, options: dict[str, object]) -> Cells:
    """Cells for all trials."""
    trials = [codec_trial(codec_kinds()[kind](**options), seed) for seed in range(CODEC_TRIALS)]
    wrong = [one for one, _ in trials]
    return (digits(sum(wrong) / len(wrong)), str(max(wrong)), str(sum(noticed for _, noticed in trials)))


COUNTERS = Table(
    "lost-counter",
    ("load", "words", "wrong members, mean", "most", "noticed by what is left"),
    tuple(
        Line((digits(load), name), functools.partial(counter_figures, load, planes), True)
        for name, planes in PLANES.items()
        for load in LOADS
    ),
)
MESSAGES = Table(
    "lost-word",
    ("codec", "wrong elements, mean", "most", f"noticed, of {CODEC_TRIALS}"),
    tuple(
        Line((name,), functools.partial(codec_figures, kind, options), False)
        for name, (kind, options) in CODECS.items()
    ),
)
