"""What switches hold at the end of a plan: the same registers in both engines."""

from __future__ import annotations

import numpy as np

from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Job
from tests.reference.atp.atp_job import AtpJob
from tests.reference.atp.switch import FREE
from tests.reference.engine.engine import ReferenceEngine
from tests.reference.engine.point import PointTree
from tests.reference.switch.merging import Register
from tests.reference.switch.switchml import SwitchmlReference
from tests.reference.switch.timed import TimedJob
from tests.reference.switch.tree import TreeReference


def assert_same_registers(ours: Engine, theirs: ReferenceEngine, number: int) -> None:
    """All that the switches of a job hold is equal."""
    twin = theirs.jobs[number]
    job = theirs.numbered[number].job
    if isinstance(twin, AtpJob):
        assert_same_entries(ours, theirs, number, job)
        return
    bases = ours.world.points["register_base"][ours.world.points["job"] == number]
    for point, base in enumerate(bases.tolist()):
        for slot in range(job.slots_count):
            row = 2 * (base + job.slot_base + slot)
            if isinstance(twin, TimedJob):
                assert_same_turns(ours, twin, slot, row)
                continue
            assert isinstance(twin, PointTree)
            state = twin.points[point].state
            if isinstance(state, TreeReference):
                held = state.rows[slot]
                assert ours.world.registers.slots[row].bitmap == held.bitmap
                assert_same_register(ours, row, held.register)
                continue
            assert isinstance(state, SwitchmlReference)
            pair = state.slots[slot]
            for version in range(2):
                mine = ours.world.registers.slots[row + version]
                assert (mine.bitmap, bool(mine.is_answered)) == (pair.bitmap[version], pair.answered[version])
                if state.workers > 1:  # one worker needs no counter
                    assert mine.counter == pair.counter[version]
                assert_same_register(ours, row + version, pair.registers[version])


def split_counters(theirs: ReferenceEngine, number: int) -> list[int]:
    """Results that each split of a job has split, by split."""
    job, splits = theirs.jobs[number], theirs.numbered[number].job.splits
    if not splits:
        return []
    assert isinstance(job, PointTree | TimedJob)
    points = [job.switch] if isinstance(job, TimedJob) else job.points
    found = {one.number: one.packets for point in points for one in point.splitters}
    return [found.get(len(points) + index, 0) for index in range(len(splits))]


def assert_same_turns(ours: Engine, twin: TimedJob, slot: int, row: int) -> None:
    """A slot with timers: its turn, its workers, and whether it has answered."""
    for version, held in enumerate(twin.switch.state.rows[slot]):
        mine = ours.world.registers.slots[row + version]
        assert (mine.turn, mine.bitmap, bool(mine.is_emitted)) == (held.turn, held.bitmap, held.is_emitted)
        assert_same_register(ours, row + version, held.register, has_exponents=False)


def assert_same_register(ours: Engine, row: int, held: Register, *, has_exponents: bool = True) -> None:
    """Words, how many workers are in them, and their exponent if there ever were words."""
    mine = ours.world.registers.slots[row]
    assert (mine.workers, mine.members) == (held.workers, held.members)
    if has_exponents and held.workers:
        assert mine.exponent == held.exponent
    words = ours.world.registers.values[row]
    assert np.array_equal(words, np.array(held.read(words.size), np.int64).astype(np.int32))


def assert_same_entries(ours: Engine, theirs: ReferenceEngine, number: int, job: Job) -> None:
    """ATP: the identity that claims an entry, its workers, its mark and its words."""
    server = ours.world.servers[ours.world.jobs[number].server]
    for entry in range(int(server.entries)):
        mine = ours.world.entries.rows[int(server.entry_base) + entry]
        held = theirs.entries[job.switch].entries.get(entry)
        if held is None:
            assert (mine.identity, mine.bitmap, mine["count"], mine.is_marked) == (FREE, 0, 0, 0)
            continue
        found = (mine.identity != FREE, mine.bitmap, mine["count"], bool(mine.is_marked))
        assert found == (held.identity != FREE, held.bitmap, held.count, held.mark)
        words = ours.world.entries.values[int(server.entry_base) + entry]
        values = held.values + [0] * (words.size - len(held.values))
        assert np.array_equal(words, np.array(values, np.int64).astype(np.int32))
