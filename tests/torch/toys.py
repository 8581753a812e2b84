"""Codecs that break the rules at one worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from netfold.homomorphic.bounds import ErrorBound
from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange
from netfold.homomorphic.message import Gradient, Merge, Message
from netfold.homomorphic.round import Round

FAULTS = ("longer", "more", "early", "late error", "other bits", "update", "no tuple")


@dataclass(frozen=True)
class Faulty(Codec):
    """Adds float32 words twice, and does something else at one worker."""

    fault: str
    at: int = 1
    kind: ClassVar[str] = "faulty"

    @property
    def merges(self) -> frozenset[Merge]:
        return frozenset({Merge.FLOAT_ADD})

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return _FaultyEncoder(self.fault if rank == self.at or self.fault == "update" else "")

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        raise AssertionError("nothing here asks for it")


class _FaultyEncoder(Encoder):
    def __init__(self, fault: str) -> None:
        self._fault = fault

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        fault = self._fault if round.step == 1 or self._fault == "update" else ""
        words = np.append(gradient, np.float32(0)) if fault == "longer" else gradient
        messages = [Message(words, Merge.FLOAT_ADD, "values")] * (8 if fault == "more" else 7)
        (merged, *_) = yield tuple(messages) if fault != "no tuple" else messages  # type: ignore[misc]
        if fault == "early":
            return Decoded(merged.words, gradient)
        yield (Message(gradient, Merge.FLOAT_ADD, "again"),)
        if fault == "late error":
            raise KeyError("what the codec says")
        total = merged.words.copy()
        if fault == "other bits":
            total[0] = np.nextafter(total[0], np.float32(np.inf))
        return Decoded(total, gradient, is_update=fault == "update")
