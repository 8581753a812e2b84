"""Jobs that are added while packets of others are on their way, and slots that pass from one to another."""

from __future__ import annotations

import numpy as np
import pytest

from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Job
from tests.sim.engine.small import Words, gradients, job, segment, star_of, wrapping_sum

HOSTS = 4
SLOTS = 8
SOON_PS = 3_000_000  # packets are on their way, none is back
NETWORK = star_of(HOSTS)


def pair(first_host: int, slot_base: int = 0) -> Job:
    return job(NETWORK, SLOTS, hosts=(first_host, first_host + 1), routes=(0, 0), slot_base=slot_base)


def opened(engine: Engine, number: int, words: list[Words]) -> list[Words]:
    """Start the streams of a job; returns what its workers will receive."""
    segments = [segment(own) for own in words]
    for worker, own in enumerate(segments):
        engine.open_stream(number, worker, [own])
    return [own.result for own in segments]


def finish(engine: Engine) -> None:
    """Run until streams are complete: timers never fire."""
    while engine.world.streams["is_open"].any():
        engine.run(10**12)


def test_a_job_cannot_come_later_without_room() -> None:
    engine = Engine(NETWORK, 1)
    opened(engine, engine.add_job(pair(0)), gradients(2, 1000))
    engine.run(SOON_PS)

    with pytest.raises(RuntimeError, match="once packets have been sent"):
        engine.add_job(pair(2, SLOTS))
    with pytest.raises(RuntimeError, match="slots cannot be reserved"):
        engine.reserve_slots({HOSTS: 2 * SLOTS})


def test_a_job_that_comes_while_another_sends_changes_nothing_of_it() -> None:
    engine = Engine(NETWORK, 1)
    engine.reserve_slots({HOSTS: 2 * SLOTS})
    words, others = gradients(2, 1000, 1), gradients(2, 1500, 2)
    received = opened(engine, engine.add_job(pair(0)), words)
    engine.run(SOON_PS)
    assert engine.next_event_ps() is not None  # it is not done
    later = opened(engine, engine.add_job(pair(2, SLOTS)), others)
    finish(engine)

    for found in received:
        np.testing.assert_array_equal(found, wrapping_sum(words))
    for found in later:
        np.testing.assert_array_equal(found, wrapping_sum(others))


def test_released_slots_are_as_new() -> None:
    """Each job's first packets are version 0 of its slots, whatever the last job left there."""
    engine = Engine(NETWORK, 1)
    engine.reserve_slots({HOSTS: SLOTS})
    for number, hosts in enumerate((0, 2, 1)):
        words = gradients(2, 1000 + 64 * number, number)
        received = opened(engine, engine.add_job(pair(hosts)), words)
        finish(engine)
        engine.release_job(number)
        for found in received:
            np.testing.assert_array_equal(found, wrapping_sum(words))
        assert not engine.world.registers.slots["bitmap"].any()
