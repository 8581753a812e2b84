"""A duplicated packet leaves a slot's sign bits and its count of workers as they are.

A merge of the same packet twice would give its worker two lots, and every later one a weight too small.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.message import Merge
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Fate, Rule, Segment
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import compile_network
from tests.reference.switch.merging import Operand, Register
from tests.sim.engine.small import DELAY_PS, FAST, FRAME, job

WORKERS = 4
COPY_PS = DELAY_PS // 4  # after its packet: before the next worker's arrives
PACE_PS = DELAY_PS  # between workers
State = tuple[int, int, tuple[int, ...]]  # workers, their bitmap, words


def words_of(worker: int) -> NDArray[np.uint32]:
    return np.random.default_rng(worker).integers(0, 2**32, FRAME.elements, dtype=np.uint32)


def played(copied: set[int]) -> tuple[list[State], list[list[int]], int]:
    """The states that a slot goes through, the results, and the copies; worker r starts at r · PACE_PS."""
    network = compile_network(star(WORKERS, FAST))
    uplinks = tuple(network.link_names.index(f"h{worker}->s0") for worker in copied)
    rules = [Rule(Fate.DUPLICATE, 1.0, uplinks, delay_ps=COPY_PS)] if copied else []
    engine = Engine(network, 1, rules)
    number = engine.add_job(replace(job(network, 1, FRAME), timeout_ps=10**12, timeout_max_ps=10**12))
    results = [np.zeros(FRAME.elements, np.uint32) for _ in range(WORKERS)]
    states: list[State] = []
    for tick in range(40 * WORKERS):
        now_ps = tick * PACE_PS // 16
        engine.run(now_ps)
        if tick % 16 == 0 and tick // 16 < WORKERS:
            worker = tick // 16
            engine.open_stream(number, worker, [Segment(words_of(worker), results[worker], Merge.SIGN)])
        slot = engine.world.registers.slots[0]
        held = engine.world.registers.values[0, : FRAME.elements].view(np.uint32)
        state = int(slot.workers), int(slot.bitmap), tuple(held.tolist())
        if not states or states[-1] != state:
            states.append(state)
    return states, [one.tolist() for one in results], sum(engine.rule_counters())


@pytest.mark.parametrize("copied", [{0}, {1, 2}, {WORKERS - 1}, set(range(WORKERS))], ids=str)
def test_copies_change_neither_bits_nor_counts(copied: set[int]) -> None:
    plain, results, none = played(set())
    states, with_copies, copies = played(copied)

    assert none == 0
    assert copies == len(copied)
    assert states == plain
    assert with_copies == results
    counts = [workers for workers, *_ in states if workers]
    assert counts == list(range(1, WORKERS + 1))


def test_merged_bits_are_some_worker_s_and_differ_from_a_plain_union() -> None:
    _, results, _ = played(set())
    own = np.array([words_of(worker) for worker in range(WORKERS)])
    merged = np.array(results[0], np.uint32)
    assert not (merged & ~np.bitwise_or.reduce(own)).any()
    assert not (~merged & np.bitwise_and.reduce(own)).any()
    assert (merged != np.bitwise_or.reduce(own)).any()
    assert (merged != np.bitwise_and.reduce(own)).any()


def test_the_control_a_register_that_merges_a_copy() -> None:
    """It counts its worker twice: the state after it differs in what the test above compares."""
    register = Register()
    register.overwrite(Operand([5], Merge.SIGN))
    once = register.workers
    register.merge(Operand([5], Merge.SIGN, key=1), 0)
    assert register.workers == once + 1
