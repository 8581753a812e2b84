"""Codecs that only tests know, and faults of merges that checks have to notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange, Promise
from netfold.homomorphic.error_bounds import Doubles, ErrorBound, Sums
from netfold.homomorphic.merge import Merge, Words
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.sim.engine.engine import EngineSchedules
from netfold.sim.engine.engine_data import Operation
from netfold.sim.engine.tables import Table
from netfold.sim.network.fabric import Fabric
from tests.sim.scenes import simulated, verdict_of


def failures(scenario: dict[str, Any]) -> dict[str, str]:
    """Failed checks of a run, whose verdict they are."""
    result = simulated(scenario)
    failed = {check.name: check.detail for check in result.checks if check.verdict != "pass"}
    assert (verdict_of(result) == "fail") == bool(failed)
    return failed


@dataclass(frozen=True)
class Wide:
    """The same bound for all elements."""

    bound: float

    def of(self, sums: Sums) -> Doubles:
        return np.full(sums.total.size, self.bound)


def packed(signs: Gradient) -> Words:
    """A bit for each element, 1 where it is not negative; the last word is filled with zeros."""
    bits = np.packbits(signs >= 0, bitorder="little")
    return np.pad(bits, (0, -bits.size % 4)).view(np.uint32)


def unpacked(words: Words, elements: int) -> Gradient:
    """+1 for a bit that is set, else −1."""
    bits = np.unpackbits(words.view(np.uint8), count=elements, bitorder="little")
    return 2 * bits.astype(np.float32) - 1


@dataclass(frozen=True)
class SignCodec(Codec):
    """Signs: the merged bit of an element, times the workers, has the sum of the signs as its mean."""

    kind: ClassVar[str] = "toy_sign"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.SIGN})
    promise: ClassVar[Promise] = Promise.BOUNDED

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return SignEncoder()

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """Whatever bit survives, the total is within this: only the checks of merges can fail."""
        return Wide(2 * len(contributions))


class SignEncoder(Encoder):
    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        own = packed(gradient)
        (merged,) = yield (Message(own, Merge.SIGN, "signs"),)
        total = round.workers * unpacked(merged.words, gradient.size)
        return Decoded(total, unpacked(own, gradient.size))


@dataclass(frozen=True)
class FloatCodec(Codec):
    """Float32 sums with a bound that no wrong sum of a test exceeds."""

    kind: ClassVar[str] = "toy_float"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.FLOAT_ADD})
    is_order_free: ClassVar[bool] = False

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return FloatEncoder()

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return Wide(1e300)


class FloatEncoder(Encoder):
    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        (merged,) = yield (Message(gradient, Merge.FLOAT_ADD, "values"),)
        return Decoded(merged.words.copy(), gradient)


def scenario(codec: str, workers: int = 3, **sections: Any) -> dict[str, Any]:
    """A star of ideal switches; `sections` replace its own."""
    return {
        "name": "toy",
        "topology": {"kind": "star", "hosts": workers, "switch": "ideal"},
        "workers": workers,
        "workload": {"kind": "synthetic", "elements": 20_000, "steps": 2},
        "codec": {"kind": codec},
        "collective": {"kind": "in_network", "frame": "udp-256", "slots": 16},
        **sections,
    }


class Due(NamedTuple):
    """A merge that is about to be carried out. Writing to the cells changes what is merged."""

    source: int
    target: int
    arriving: Table  # (chunks,) cells of the transfer at its source
    own: Table  # (chunks,) those at its target


def before_merges(monkeypatch: pytest.MonkeyPatch, strike: Callable[[Due], None]) -> None:
    """Call `strike` before each merge of a schedule's words; the engine merges what is there after it."""
    original = Fabric.open_schedule

    def open_schedule(self: Fabric, operation: Operation, name: str, answer: Callable[[int], None]) -> int:
        schedule = operation.schedule

        def struck(transfer: int) -> None:
            cells = self.engine._schedules[number].cells
            source, target = int(schedule.source[transfer]), int(schedule.target[transfer])
            first = int(schedule.first[transfer])
            chunks = slice(first, first + int(schedule.count[transfer]))
            strike(Due(source, target, cells[source, chunks], cells[target, chunks]))
            answer(transfer)

        asking = replace(operation, asks=tuple(range(schedule.workers)))
        number = original(self, asking, name, struck)
        return number

    monkeypatch.setattr(Fabric, "open_schedule", open_schedule)


def ignore_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every merge take both operands for one worker's. What workers are told of it stays right."""

    def strike(due: Due) -> None:
        for cells in (due.arriving, due.own):
            cells["workers"] = np.minimum(cells["workers"], 1)

    def contributors(self: EngineSchedules, number: int, worker: int) -> NDArray[np.int32]:
        opened = self._schedules[number]
        return np.full(opened.cells.shape[1], opened.cells.shape[0], np.int32)

    before_merges(monkeypatch, strike)
    monkeypatch.setattr(EngineSchedules, "contributors", contributors)
