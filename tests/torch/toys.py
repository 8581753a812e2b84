"""Codecs that break the rules at one worker, and one whose server counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import ErrorBound
from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange, Request, Server, State
from netfold.homomorphic.message import Gradient, Merge, Message, Words
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


@dataclass(frozen=True)
class Counting(Codec):
    """The server adds the gradients, and the number of its answers so far to every element."""

    kind: ClassVar[str] = "counting"

    @property
    def merges(self) -> frozenset[Merge]:
        return frozenset({Merge.ADD, Merge.GATHER})

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return _GatheredEncoder()

    def server(self, workers: int, seed: int) -> Server:
        return _CountingServer()

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        raise AssertionError("nothing here asks for it")


class _GatheredEncoder(Encoder):
    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        nothing = Message(np.empty(0, np.int32), Merge.ADD, "nothing")
        _, merged = yield (nothing, Message(gradient, Merge.GATHER, "values"))
        return Decoded(merged.words, gradient)


class _CountingServer(Server):
    def __init__(self) -> None:
        self._answers = 0

    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        self._answers += 1
        total = np.float32(self._answers) + sum(parts)
        return np.asarray(total, np.float32)

    def state(self) -> State:
        return {"answers": np.array(self._answers)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._answers = int(state["answers"])
