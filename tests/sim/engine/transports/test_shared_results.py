"""Results that workers share are stored once, and all workers read the same words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.in_network.results import Results
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Fate, Job, Rule, Scaled, Segment
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import Network, compile_network
from tests.sim.engine.small import FAST, FRAME, job, run

MESSAGE = OperationPlace(0, 0, 0), 0
WORKERS, PACKETS, UNIT_PACKETS = 3, 40, 2
ELEMENTS = PACKETS * FRAME.elements - 3  # the last packet is not full
TIMEOUT_PS = 20 * FAST.delay_ps
Words = NDArray[np.int32]


def network_and_job() -> tuple[Network, Job]:
    network = compile_network(star(WORKERS, FAST))
    plan = job(network, 4 * UNIT_PACKETS, FRAME, UNIT_PACKETS)
    timeouts = {"timeout_ps": TIMEOUT_PS, "first_timeout_ps": TIMEOUT_PS, "timeout_max_ps": TIMEOUT_PS}
    return network, replace(plan, **timeouts)  # type: ignore[arg-type]


def faults(network: Network, downlinks_only: bool = False) -> tuple[Rule, ...]:
    """Words that flip unseen and packets that are lost: late copies can keep SwitchML from ever ending."""
    links = tuple(range(len(network.link_names)))
    down = tuple(link for link in links if network.is_host[network.link_target[link]])
    flips = Rule(Fate.FLIP, 0.2, down if downlinks_only else links)
    if downlinks_only:
        return (flips,)
    return (flips, Rule(Fate.LOSS, 0.05, links))


def words_of(worker: int) -> Words:
    return np.arange(ELEMENTS, dtype=np.int32) * (worker + 1) - 7


def separate(seed: int, rules: tuple[Rule, ...]) -> list[Words]:
    """Every worker's result in separate memory."""
    network, plan = network_and_job()
    engine = Engine(network, seed, rules)
    number = engine.add_job(plan)
    results = [np.zeros(ELEMENTS, np.int32) for _ in range(WORKERS)]
    for worker, result in enumerate(results):
        engine.open_stream(number, worker, [Segment(words_of(worker), result, Merge.ADD)])
    run(engine, WORKERS)
    return results


def shared(seed: int, rules: tuple[Rule, ...]) -> list[Words]:
    """The same, with results in common."""
    network, plan = network_and_job()
    engine = Engine(network, seed, rules)
    number = engine.add_job(plan)
    unit_words = UNIT_PACKETS * FRAME.elements
    results = Results(WORKERS, unit_words, UNIT_PACKETS)
    segments = []
    for worker in range(WORKERS):
        buffer = results.allocate(MESSAGE, -(-ELEMENTS // unit_words), ELEMENTS, np.int32)
        segments.append(
            Segment(words_of(worker), buffer.result, Merge.ADD, shared=buffer.shared, own=buffer.own)
        )
        engine.open_stream(number, worker, [segments[-1]])
    run(engine, WORKERS)
    return [results.take(worker, MESSAGE, segment) for worker, segment in enumerate(segments)]


def test_without_faults_all_workers_have_one_object() -> None:
    found = shared(1, ())

    assert found[0] is found[1] is found[2]
    assert found[0].tolist() == sum(words_of(worker).astype(np.int64) for worker in range(WORKERS)).tolist()


@pytest.mark.parametrize("seed", range(1, 4))
def test_with_faults_every_worker_has_what_came_to_it(seed: int) -> None:
    network, _ = network_and_job()
    wanted, found = separate(seed, faults(network)), shared(seed, faults(network))

    for own, right in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(own, right)


def test_a_worker_whose_words_were_flipped_has_its_own() -> None:
    """Flips on the way down only: every worker's words differ from the sum, at other places."""
    network, _ = network_and_job()
    rules = faults(network, downlinks_only=True)
    found = shared(1, rules)
    right = sum(words_of(worker).astype(np.int64) for worker in range(WORKERS))

    wrong = [set(np.flatnonzero(own != right).tolist()) for own in found]
    assert all(wrong)
    assert len({frozenset(places) for places in wrong}) == WORKERS
    for own, other in zip(found, separate(1, rules), strict=True):
        np.testing.assert_array_equal(own, other)


def test_what_is_shared_must_fit() -> None:
    network, plan = network_and_job()
    engine = Engine(network, 1)
    number = engine.add_job(plan)
    results = Results(WORKERS, UNIT_PACKETS * FRAME.elements, UNIT_PACKETS)
    buffer = results.allocate(MESSAGE, PACKETS // UNIT_PACKETS, ELEMENTS, np.int32)
    alone = Segment(words_of(0), buffer.result, Merge.ADD, shared=buffer.shared)
    with pytest.raises(ValueError, match="shared and own go together"):
        engine.open_stream(number, 0, [alone])
    short = replace(alone, own=np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match=r"seen and own must be uint8 of shape \(40,\)"):
        engine.open_stream(number, 0, [short])


def test_agreed_exponents_stay_each_workers_own() -> None:
    network, plan = network_and_job()
    unit_words = UNIT_PACKETS * FRAME.elements
    units = -(-ELEMENTS // unit_words)
    engine = Engine(network, 1)
    number = engine.add_job(plan)
    results = Results(WORKERS, unit_words, UNIT_PACKETS)
    kept = []
    for worker in range(WORKERS):
        buffer = results.allocate(MESSAGE, units, ELEMENTS, np.int32)
        values = words_of(worker).astype(np.float32)
        segment = Segment(values, buffer.result, Merge.ADD, shared=buffer.shared, own=buffer.own)
        scaled = Scaled(np.full(units, 10 + worker, np.int8), np.zeros(units, np.int8))
        engine.open_stream(number, worker, [segment], scaled)
        kept.append((segment, scaled))
    run(engine, WORKERS)

    words = [results.take(worker, MESSAGE, segment) for worker, (segment, _) in enumerate(kept)]
    assert words[0] is words[1] is words[2]
    assert all(scaled.agreed.tolist() == [10 + WORKERS - 1] * units for _, scaled in kept)
