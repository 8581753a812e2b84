"""The compiled engine does what its plain-Python reference does, event for event, on random small plans.

What they do is right, too: the laws in `plans/laws.py`.

What has failed once is in `kept_plans.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.engine.engine import Engine
from tests.examples import examples
from tests.reference.engine.engine import ReferenceEngine
from tests.sim.engine.plans.held import assert_same_registers, split_counters
from tests.sim.engine.plans.kept_plans import KEPT
from tests.sim.engine.plans.laws import check_everything_arrived, check_whatever_goes_wrong
from tests.sim.engine.plans.plans import Plan, lossy_plans, plans
from tests.sim.engine.plans.play import Play, same_words
from tests.sim.engine.plans.rare_plans import (
    best_effort,
    host_plans,
    lossy_steered,
    narrow_lanes,
    scaled_trees,
    schedules_of_hosts,
    several_jobs,
    steered,
    timed_slots,
    trees_of_integers,
)
from tests.sim.engine.small import Make

HORIZON_PS = 300 * 10**6  # plans with faults may never end
END_PS = 20 * 10**9  # plans without end long before
# With a window of one packet and losses on many links, a flow may wait for timeouts for most of 20 ms.
LONG_END_PS = 10**12


@pytest.mark.parametrize("name", KEPT)
def test_kept_plans(name: str) -> None:
    assert_same(KEPT[name]())


KINDS = {
    "any": plans(),
    "scaled_trees": scaled_trees(),
    "trees_of_integers": trees_of_integers(),
    "timed_slots": timed_slots(),
    "narrow_lanes": narrow_lanes(),
    "atp": best_effort(),
    "several_jobs": several_jobs(),
    "steered": steered(),
    "schedules": schedules_of_hosts(),
    "hosts": host_plans(),
}


@pytest.mark.parametrize("kind", KINDS)
@examples(15, at_night=9)
@given(data=st.data())
def test_plans(kind: str, data: st.DataObject) -> None:
    assert_same(data.draw(KINDS[kind]))


def assert_same(plan: Plan) -> None:
    """Both engines log the same events, deliver the same words and are left in the same state."""
    reference = Play(ReferenceEngine(plan.network, plan.seed, plan.rules), plan, HORIZON_PS)
    engine = Engine(plan.network, plan.seed, plan.rules)
    engine.start_log()
    compiled = Play(engine, plan, HORIZON_PS)

    assert engine.log == [tuple(row) for row in reference.engine.log]
    assert compiled.completions == reference.completions
    assert_same_words(compiled, reference)
    check_whatever_goes_wrong(reference)
    assert engine.rule_counters() == reference.engine.rule_counters()
    for ours_link, theirs_link in zip(engine.link_counters(), reference.engine.link_counters(), strict=True):
        assert {name: ours_link[name] for name in theirs_link} == theirs_link
    for number, (job, _) in enumerate(plan.jobs):
        ours, theirs = engine.switch_counters(number), reference.engine.switch_counters(number)
        assert {name: ours[name] for name in theirs} == theirs
        assert engine.split_counters(number) == split_counters(reference.engine, number)
        for worker in range(len(job.hosts)):
            assert engine.worker_counters(number, worker) == reference.engine.worker_counters(number, worker)
        assert_same_registers(engine, reference.engine, number)
    for number in set(engine.world.flows["serial"].tolist()) - {-1}:  # not forgotten yet
        assert engine.flow_counters(number) == reference.engine.flow_counters(number)


def assert_same_words(ours: Play, theirs: Play) -> None:
    for a, b in zip(ours.received, theirs.received, strict=True):
        assert np.array_equal(a, b)
    for one, other in zip(ours.results, theirs.results, strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or np.array_equal(one, other)
    for stream, twin in zip(ours.streams, theirs.streams, strict=True):
        for mine, other in zip(stream.segments, twin.segments, strict=True):
            assert same_words(mine.result, other.result)
            assert mine.holders is None or np.array_equal(mine.holders, other.holders)
            assert mine.members is None or np.array_equal(mine.members, other.members)
            assert mine.is_float is None or np.array_equal(mine.is_float, other.is_float)
        assert stream.scaled is None or np.array_equal(stream.scaled.agreed, twin.scaled.agreed)


@examples(18, at_night=6)
@given(lossy_plans())
def test_everything_completes(engine: Make, plan: Plan) -> None:
    """Whatever is lost or dropped, every stream and flow ends within some hundred timeouts, and is right."""
    check_everything_arrived(Play(engine(plan.network, seed=plan.seed, rules=plan.rules), plan, END_PS))


@examples(15, at_night=5)
@given(lossy_steered())
def test_every_flow_completes_under_every_policy(engine: Make, plan: Plan) -> None:
    check_everything_arrived(Play(engine(plan.network, seed=plan.seed, rules=plan.rules), plan, LONG_END_PS))
