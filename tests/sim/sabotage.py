"""Faults of merges that compiled code carries out, for tests that demand that the checks notice them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.sim.engine.carrying import EngineSchedules
from netfold.sim.engine.schedules.operation import Operation
from netfold.sim.engine.tables.world import Table
from netfold.sim.network.fabric import Fabric


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
