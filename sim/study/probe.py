"""One worker's encoder with a watch and an ear: CPU time, messages, notes."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import NamedTuple

from netfold.homomorphic.codec import Encoder, Exchange, Gradient, Merged, Note, Round, advance
from netfold.homomorphic.stage import stage
from netfold.sim.checks.journal import REDO_LABEL


class Sent(NamedTuple):
    """A message as it was announced."""

    label: str
    size_bytes: int


class Times(NamedTuple):
    """CPU time of one round."""

    encode_s: float
    decode_s: float

    @property
    def sum_s(self) -> float:
        """Both together: what is more in one encoding may be less in another."""
        return self.encode_s + self.decode_s


class Probe:
    """An encoder that does what another does, and remembers what it cost.

    Encoding is everything up to the hand-over of the last operation that is no redo, what happens between
    operations included; decoding everything after. Blocks that a network would scale count as encoding.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.fastest = Times(math.inf, math.inf)  # of its rounds
        self.operations: list[list[Sent]] = []  # of the last round
        self.notes: list[Note] = []
        self._encoder = encoder

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """The other encoder's exchange, with scaled messages staged."""
        self.operations, self.notes = [], []
        listening = replace(round, report=self.notes.append)
        exchange = stage(self._heard(self._encoder.exchange(gradient, listening)))
        encode_s = decode_s = 0.0
        answers: tuple[Merged, ...] | None = None
        while True:
            started_s = time.process_time()
            sent = advance(exchange, answers)
            decode_s += time.process_time() - started_s
            if not isinstance(sent, tuple):
                break
            if any(message.label != REDO_LABEL for message in sent):
                encode_s, decode_s = encode_s + decode_s, 0.0
            answers = yield sent
        self.fastest = min(self.fastest, Times(encode_s, decode_s), key=lambda times: times.sum_s)
        return sent

    def _heard(self, exchange: Exchange) -> Exchange:
        """An exchange whose messages are noted as they were announced."""
        answers: tuple[Merged, ...] | None = None
        while True:
            sent = advance(exchange, answers)
            if not isinstance(sent, tuple):
                return sent
            self.operations.append([Sent(message.label, message.size_bytes) for message in sent])
            answers = yield sent
