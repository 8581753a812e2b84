"""What an engine tells of its inside, read from the tables of one that cannot tell it itself yet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.engine.engine import Engine
from sim.engine.model import Outstanding, SlotState


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give `Engine` the methods that it lacks."""
    for method in (outstanding, slot_state, job_points, leaks):
        if not hasattr(Engine, method.__name__):
            monkeypatch.setattr(Engine, method.__name__, method, raising=False)


def outstanding(self: Any, job: int) -> list[Outstanding]:
    plan, found = self.world.jobs[job], []
    for worker in range(int(plan.workers_count)):
        row = int(plan.first_stream) + worker
        stream = self.world.streams[row]
        for slot in range(int(plan.window) if stream.is_open else 0):
            window = self.world.windows[row, slot]
            if window.unit >= 0:
                place = int(plan.slot_base) + slot * int(plan.unit_packets)
                what = (int(stream.serial), int(window.unit), place, int(window.version))
                found.append(Outstanding(worker, *what, int(window.attempt), self.now_ps, False))
    return found


def slot_state(self: Any, job: int, point: int, slot: int, version: int) -> SlotState:
    assert point == 0
    plan, registers = self.world.jobs[job], self.world.registers
    row = 2 * (int(plan.register_base) + slot) + version
    seen = int(registers.bitmap[row])
    last = int(np.log2(seen)) if seen else -1
    counts = (int(plan.workers_count), int(registers.counter[row]))
    return SlotState(seen, *counts, self.now_ps if seen else -1, last, "CONSUMED" if seen else "", False)


def job_points(self: Any, job: int) -> list[tuple[int, list[tuple[str, int]]]]:
    plan = self.world.jobs[job]
    return [(int(plan.switch), [("worker", worker) for worker in range(int(plan.workers_count))])]


def leaks(self: Any, job: int) -> list[str]:
    plan = self.world.jobs[job]
    count = 2 * int(plan.window * plan.unit_packets)
    first = 2 * int(plan.register_base + plan.slot_base)
    return [
        f"slot {row // 2}, version {row % 2}"
        for row in range(first, first + count)
        if self.world.registers.counter[row]
    ]
