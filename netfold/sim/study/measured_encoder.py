"""A wrapper of one worker's encoder that records CPU time, messages and notes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from netfold.homomorphic.codec import Decoded, Encoder, Exchange, advance
from netfold.homomorphic.message import Gradient, Merged, Work
from netfold.homomorphic.numbers.formats import stage
from netfold.homomorphic.round import Note, Round
from netfold.sim.checks.checks import REDO_LABEL


class Sent(NamedTuple):
    """Label and announced size of a message."""

    label: str
    size_bytes: int


class Times(NamedTuple):
    """CPU time of one round, and the work that the codec counts for it."""

    encode_s: float
    decode_s: float
    encode_work: Work = Work(launches=0)
    decode_work: Work = Work(launches=0)

    @property
    def sum_s(self) -> float:
        """Both together: one encoding may take longer to encode and another to decode."""
        return self.encode_s + self.decode_s


def together(works: Sequence[Work]) -> Work:
    """All work, one piece after the other."""
    done = [one for one in works if not one.is_free]
    return Work(
        sum(one.read_bytes for one in done),
        sum(one.written_bytes for one in done),
        sum(one.flops for one in done),
        sum(one.launches for one in done),
    )


class MeasuredEncoder(Encoder):
    """An encoder that behaves as the wrapped one and records its costs.

    Encoding is everything up to the last operation that is not a redo, including the time between operations.
    Decoding is everything after it. Blocks that a network would scale count as encoding.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.fastest = Times(math.inf, math.inf)  # of all rounds
        self.operations: list[list[Sent]] = []  # of the last round
        self.notes: list[Note] = []
        self._encoder = encoder

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """The wrapped encoder's exchange, with scaled messages staged."""
        self.operations, self.notes = [], []
        noted = replace(round, report=self.notes.append)
        exchange = stage(self._recorded(self._encoder.exchange(gradient, noted)))
        encode_s = decode_s = 0.0
        encode_work: list[Work] = []
        decode_work: list[Work] = []
        answers: tuple[Merged, ...] | None = None
        while True:
            started_s = time.process_time()
            sent = advance(exchange, answers)
            decode_s += time.process_time() - started_s
            if isinstance(sent, Decoded):
                break
            decode_work += [message.work for message in sent]
            if any(message.label != REDO_LABEL for message in sent):
                encode_s, decode_s = encode_s + decode_s, 0.0
                encode_work, decode_work = encode_work + decode_work, []
            decode_work += [message.decode_work for message in sent]
            answers = yield sent
        found = Times(encode_s, decode_s, together(encode_work), together(decode_work))
        self.fastest = min(self.fastest, found, key=lambda times: times.sum_s)
        return sent

    def _recorded(self, exchange: Exchange) -> Exchange:
        """The exchange, with its messages recorded."""
        answers: tuple[Merged, ...] | None = None
        while True:
            sent = advance(exchange, answers)
            if isinstance(sent, Decoded):
                return sent
            self.operations.append([Sent(message.label, message.size_bytes) for message in sent])
            answers = yield sent
