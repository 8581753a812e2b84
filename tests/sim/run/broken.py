"""A codec of integers that does one thing wrong: worker 3, in step 1."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from netfold.homomorphic.bounds import ErrorBound, FactorBound
from netfold.homomorphic.codec import Codec, Decoded, Encoder
from netfold.homomorphic.message import Gradient, Merge, Message, Work
from netfold.homomorphic.round import Round, Step
from netfold.sim.errors import InvariantError

PER_UNIT = 1024
FAULTY = 3  # the worker
STEP = 1
RAISED: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("no scale is right"),
    "memory": lambda: MemoryError("no room"),
    "interrupt": KeyboardInterrupt,
    "invariant": lambda: InvariantError("bytes are missing"),
    "stop": StopIteration,
    "text": lambda: RuntimeError("\ud800" + "x" * 1000),
}


@dataclass(frozen=True)
class Broken(Codec):
    """Whole numbers of 1/1024.

    fault: what goes wrong.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "toy_broken"

    fault: str = "none"

    @property
    def merges(self) -> frozenset[Merge]:
        return frozenset({Merge.ADD, Merge.FLOAT_ADD})

    @property
    def is_linear(self) -> bool:
        return True

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        if rank == FAULTY and self.fault == "worker raises":
            raise KeyError("rank")
        if rank == FAULTY and self.fault == "worker returns":
            return None  # type: ignore[return-value]
        return BrokenEncoder(self.fault, rank)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        if self.fault == "bound raises":
            raise ZeroDivisionError("no workers")
        return FactorBound(len(contributions), PER_UNIT, may_be_float=False)


class BrokenEncoder(Encoder):
    per_unit = PER_UNIT

    def __init__(self, fault: str, rank: int) -> None:
        self._fault, self._rank = fault, rank

    def begin(self, step: Step) -> None:
        if self._fault == "begin raises":
            raise OSError("no weights")

    def exchange(self, gradient: Gradient, round: Round) -> Any:
        is_faulty = (self._rank, round.step) == (FAULTY, STEP)
        if is_faulty and self._fault == "no generator":
            return gradient
        return _exchange(gradient, round, self._fault if is_faulty else "none")


def _exchange(gradient: Gradient, round: Round, fault: str) -> Generator[Any, Any, Any]:
    words = np.rint(gradient.astype(np.float64) * PER_UNIT).astype(np.int32)
    message = Message(words, Merge.ADD, "steps")
    if fault == "skips":
        return Decoded(np.zeros_like(gradient), gradient)
    if fault == "raises at once":
        raise RAISED["value"]()
    (merged,) = yield YIELDED.get(fault, lambda one: (one,))(message)
    if fault in RAISED:
        raise RAISED[fault]()
    if fault == "extra":
        yield (Message(words, Merge.ADD, "more"),)
    if fault == "elsewhere":
        json.loads("{")
    if fault == "index":
        words[words.size]
    decoded = Decoded((merged.words / PER_UNIT).astype(np.float32), gradient)
    return RETURNED.get(fault, lambda one: one)(decoded)


YIELDED: dict[str, Callable[[Message], Any]] = {
    "longer": lambda one: (replace(one, words=np.append(one.words, np.int32(0))),),
    "digest": lambda one: (replace(one, digest=7),),
    "undeclared": lambda one: (replace(one, merge=Merge.OR, words=one.words.view(np.uint32)),),
    "sound work": lambda one: (replace(one, work=Work(1, 1)),),
}
RETURNED: dict[str, Callable[[Decoded], Any]] = {
    "returns short": lambda one: replace(one, total=one.total[1:])
}
