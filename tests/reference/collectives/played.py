"""Carries out schedules in plain Python, by the contract in `sim/engine/schedule.py` alone."""

from __future__ import annotations

import random
from typing import Any

from netfold.sim.engine.schedule import NONE, Schedule

Value = Any


def rows(schedule: Schedule) -> list[tuple[int, int, range, bool, int, list[int]]]:
    """Source, target, chunks, merges, follows, and what is awaited, of each transfer."""
    found = []
    for t in range(schedule.transfers):
        first, end = int(schedule.waits_first[t]), int(schedule.waits_first[t + 1])
        chunks = range(int(schedule.first[t]), int(schedule.first[t] + schedule.count[t]))
        pair = int(schedule.source[t]), int(schedule.target[t])
        awaited = schedule.waits_for[first:end].tolist()
        found.append((*pair, chunks, bool(schedule.merges[t]), int(schedule.follows[t]), awaited))
    return found


def in_any_order(schedule: Schedule, seed: int) -> list[list[Value]]:
    """What each worker holds of each chunk in the end, if transfers take any time at all.

    Raises
    ------
    ValueError
        A transfer sends or merges into a cell that was merged away, or one that is replaced is not whole; or
        some transfer never begins or is never processed.
    """
    choose = random.Random(seed)
    table = rows(schedule)
    cells: list[list[Value]] = [[w] * schedule.chunks for w in range(schedule.workers)]
    sent: dict[int, list[Value]] = {}
    done: set[int] = set()
    unsent = set(range(len(table)))
    while len(done) < len(table):
        ready = [t for t in unsent if all(one in done for one in table[t][5])]
        arrived = [t for t in sent if table[t][4] == NONE or table[t][4] in done]
        if not ready and not arrived:
            raise ValueError(f"nothing can go on: {sorted(unsent)[:5]} are not sent")
        number = choose.choice([*ready, *arrived])
        source, target, chunks, merges, *_ = table[number]
        if number in unsent:
            unsent.remove(number)
            sent[number] = [cells[source][chunk] for chunk in chunks]
            if any(value is None for value in sent[number]):
                raise ValueError(f"transfer {number} sends a cell that was merged away")
            if merges:
                for chunk in chunks:
                    cells[source][chunk] = None
            continue
        for chunk, value in zip(chunks, sent.pop(number), strict=True):
            if merges and cells[target][chunk] is None:
                raise ValueError(f"transfer {number} merges into a cell that was merged away")
            cells[target][chunk] = (value, cells[target][chunk]) if merges else value
        done.add(number)
    return cells
