"""What is true of random plans in either engine: packets are counted, sums are right where they must be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Fate, Job, Overflow, Rule
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from tests.reference.codecs.quantise import quantise
from tests.reference.switch.merging import lanes_of, lifted, unchanged_by
from tests.sim.engine.plans.plans import Plan, Words
from tests.sim.engine.plans.play import Opened, Play, floats_of
from tests.sim.engine.small import check_conservation


def check_whatever_goes_wrong(play: Play) -> None:
    """No packet gets lost without being counted, and completed streams are right where they must be."""
    check_conservation(play.engine)
    for stream in play.streams:
        job = play.plan.jobs[stream.job][0]
        if stream.is_done and is_exact(job, play.plan):
            check_results(job, stream)


def check_everything_arrived(play: Play) -> None:
    """All streams and flows are done, and right."""
    plan = play.plan
    streams = sum(len(job.hosts) * len(exchanges) for job, exchanges in plan.jobs)
    assert len(play.completions) == streams + len(plan.flows)
    for stream in play.streams:
        check_results(plan.jobs[stream.job][0], stream)
    for received, (_, flow) in zip(play.received, sorted(plan.flows, key=lambda each: each[0]), strict=True):
        assert np.array_equal(received, np.asarray(flow.words))
    check_conservation(play.engine)


def is_exact(job: Job, plan: Plan) -> bool:
    """Whether completed streams of a job must be right: no word is changed, no packet comes out of line."""
    fates = {rule.fate for rule in plan.rules if rule.probability > 0}
    is_cleared = any(change.name == "clear" for change in plan.changes)
    if Fate.FLIP in fates or is_cleared:
        return False
    if job.program is TIMED:  # turns tell old packets from new ones
        return True
    if job.program is TREE:  # takes a copy of the last packet for a new round's first
        return not fates & {Fate.DUPLICATE, Fate.REORDER}
    return not any(is_late(rule) for rule in plan.rules)


def is_late(rule: Rule) -> bool:
    return rule.fate in (Fate.DUPLICATE, Fate.REORDER) and rule.probability > 0 and rule.delay_ps > 0


def check_results(job: Job, stream: Opened) -> None:
    """The results are what the workers sent, merged; under TIMED what those sent who are in it."""
    if stream.scaled is not None:
        check_scaled(job, stream)
        return
    elements = job.frame.elements
    for segment, words in zip(stream.segments, stream.exchange.segments, strict=True):
        lanes = segment.result.size // segment.size
        for start in range(0, segment.size, elements):
            holders = [rank for rank, own in enumerate(words.by_worker) if own.size]
            if segment.holders is not None:
                bitmap = int(segment.holders[start // elements])
                assert not bitmap & ~sum(1 << rank for rank in holders)
                holders = [rank for rank in holders if bitmap >> rank & 1]
            if segment.members is not None:
                bitmap = sum(1 << rank for rank in holders)
                assert segment.members[start // elements].tolist() == [len(holders), bitmap]
            sent = [words.by_worker[rank][start : start + elements] for rank in holders]
            end = min(start + elements, segment.size)
            if segment.is_float is not None and segment.is_float[start // elements]:
                floats = [floats_of(one) for one in sent]
                check_float_sum(floats, segment.result[start:end].view(np.float32))
                continue
            check_packet(job, words, sent, segment.result[lanes * start : lanes * end])


def check_packet(job: Job, words: Words, sent: list[NDArray[Any]], result: NDArray[Any]) -> None:
    if not sent:  # those who would have sent are absent; or a slot with a timer has gone on
        unchanged = {unchanged_by(words.merge)} | ({0} if job.program is TIMED else set())
        assert set(result.view(np.int32).tolist()) in [{word} for word in unchanged]
        return
    if words.merge is Merge.TABLE_ADD:
        assert words.table is not None
        table, bits = words.table.tolist(), words.lane_bits
        check_sum(job, [np.array(lifted(one.tolist(), table, bits), np.int32) for one in sent], result, bits)
    elif words.merge is Merge.ADD:
        check_sum(job, sent, result, words.lane_bits)
    elif words.merge is Merge.OR:
        assert np.array_equal(np.bitwise_or.reduce(sent), result)
    elif words.merge is Merge.MAX:
        assert np.array_equal(np.maximum.reduce(sent), result)
    elif words.merge is Merge.SIGN:  # where all agree there is nothing to draw
        assert not (np.bitwise_and.reduce(sent) & ~result).any()
        assert not (result & ~np.bitwise_or.reduce(sent)).any()
    else:
        check_float_sum(sent, result)


def check_sum(job: Job, sent: list[NDArray[Any]], result: NDArray[Any], lane_bits: int) -> None:
    """Exact modulo a lane's width if sums wrap, and where no order of addition leaves the lane."""
    bits = 32 if lane_bits == 4 else lane_bits  # counters are added as words
    wide = np.array([[lane for word in one.tolist() for lane in lanes_of(word, bits)] for one in sent])
    found = np.array([lane for word in result.tolist() for lane in lanes_of(word, bits)])
    half = 2 ** (bits - 1)
    total = (wide.sum(axis=0) + half) % (2 * half) - half
    is_safe = np.abs(wide).sum(axis=0) < half - 1
    if job.overflow is Overflow.WRAP:
        is_safe[:] = True
    assert np.array_equal(total[is_safe], found[is_safe])


def check_float_sum(sent: list[NDArray[Any]], result: NDArray[Any]) -> None:
    """As near as float32 sums in any order are, where they stay finite."""
    wide = np.array(sent, np.float64)
    magnitude = np.abs(wide).sum(axis=0)
    is_finite = magnitude < 3e38
    error = np.abs(wide.sum(axis=0) - result.astype(np.float64))[is_finite]
    assert (error <= len(sent) * 2.0**-24 * magnitude[is_finite] + 1e-44).all()


def check_scaled(job: Job, stream: Opened) -> None:
    """Agreed exponents are the largest, words the sums of what they quantise to."""
    assert stream.scaled is not None
    block = job.unit_packets * job.frame.elements
    members = {rank for rank, own in enumerate(stream.exchange.segments[0].by_worker) if own.size}
    (segment,), (words,) = stream.segments, stream.exchange.segments
    total = np.zeros(segment.result.size, np.int64)
    for own in words.by_worker:
        for number, start in enumerate(range(0, own.size, block)):
            exponent = int(stream.scaled.agreed[number])
            total[start : start + block] += quantise(own[start : start + block], exponent, len(job.hosts))
    assert np.array_equal(total, segment.result)
    assert segment.members is not None
    carried = segment.members[: -(-segment.size // job.frame.elements)]
    assert (carried == [len(members), sum(1 << rank for rank in members)]).all()
