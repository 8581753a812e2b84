"""Series over time against what each single picosecond says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from netfold.sim.engine.engine_views import OUTSTANDING, STATES, Samples
from netfold.sim.results.time_series import BINS, LINK_BUSY, LOST, QUEUE, UNITS, series_records

SPANS = ((100, 250), (250, 310), (400, 400 + 7 * BINS))  # nobody waits from 310 to 400
BUSY = ({0: 150, 1: 30}, {1: 60}, {0: 7 * BINS})
OUT = ((4.0, 2.0), (1.0, 0.0), (0.5, 8.0))  # by job
QUEUES_PS = (5_000_000, 0, 2_000_000)


def samples() -> Samples:
    links = np.full((3, 2), -1, np.int32)
    busy = np.zeros((3, 2), np.int64)
    for row, shares in enumerate(BUSY):
        for place, (link, busy_ps) in enumerate(shares.items()):
            links[row, place], busy[row, place] = link, busy_ps
    waiting = np.zeros((3, 2, STATES))
    waiting[:, :, OUTSTANDING] = OUT
    start_ps, end_ps = (np.array(ends, np.int64) for ends in zip(*SPANS, strict=True))
    flags = np.zeros(3, np.bool_)
    queues = np.array(QUEUES_PS, np.int64)
    return Samples(start_ps, end_ps, links, busy, waiting, queues, flags, flags, np.zeros(3, np.int32))


def test_series_are_means_over_equal_stretches() -> None:
    records = series_records("ring", samples(), ["a->b", "b->a", "c->a"], [150 + 7 * BINS, 90, 0])
    first, last = SPANS[0][0], SPANS[-1][1]
    units, link, queue = (np.zeros(last - first) for _ in range(3))
    for (start, end), waiting, busy, queue_ps in zip(SPANS, OUT, BUSY, QUEUES_PS, strict=True):
        units[start - first : end - first] = sum(waiting)
        link[start - first : end - first] = busy.get(1, 0) / (end - start)
        queue[start - first : end - first] = queue_ps / 1e6

    assert len(records) == BINS * 5  # three links, the queue, units
    assert {record.where for record in records if record.quantity == LINK_BUSY} == {"a->b", "b->a", "c->a"}
    assert not [record for record in records if record.quantity == LOST]
    for name, where, level, of in (
        (UNITS, "", units, np.mean),
        (LINK_BUSY, "b->a", link, np.mean),
        (QUEUE, "", queue, np.max),
    ):
        rows = [record for record in records if (record.quantity, record.where) == (name, where)]
        assert [rows[0].start_ps, rows[-1].end_ps, len(rows)] == [first, last, BINS]
        for before, after in pairwise(rows):
            assert before.end_ps == after.start_ps
        for record in rows:
            expected = of(level[record.start_ps - first : record.end_ps - first])
            assert record.value == pytest.approx(float(expected), rel=6e-4)


def test_without_samples_there_is_no_series() -> None:
    assert series_records("ring", Samples.none(3), ["a->b"] * 3, [0, 0, 0]) == []
