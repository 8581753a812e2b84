"""What a network did over time, in few numbers: the samples of a run as means over equal stretches of it.

A variant's time, from the first sample to the end of the last, is cut into `BINS` stretches. Between samples
nobody waits for the network, and every quantity is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from netfold.sim.results.records import SeriesRecord

if TYPE_CHECKING:
    from netfold.sim.engine.engine_views import Samples

BINS = 48
LINKS_MAX = 3  # busiest links of a variant
LINK_BUSY, QUEUE = "link busy", "longest queue"
UNITS, LOST, HELD_BACK = "units waited for", "units to send again", "senders held back by windows"
QUANTITIES = (LINK_BUSY, QUEUE, UNITS, LOST, HELD_BACK)
_DIGITS = 4
Edges = NDArray[np.int64]


def series_records(
    variant: str, samples: Samples, link_names: Sequence[str], busy_ps: Sequence[int]
) -> list[SeriesRecord]:
    """The series of a variant, whose links were busy for `busy_ps` in all; none if nobody waited.

    Shares of the busiest links; the longest queue of all links, in µs on the wire; and means over time, added
    up over jobs, of what senders waited for.
    """
    from netfold.sim.engine.engine_views import BLOCKED, DEAD, OUTSTANDING  # late: a report needs no engine

    if not samples.start_ps.size or samples.end_ps[-1] - samples.start_ps[0] < BINS:
        return []
    first_ps, last_ps = int(samples.start_ps[0]), int(samples.end_ps[-1])
    edges = np.array([first_ps + (last_ps - first_ps) * at // BINS for at in range(BINS + 1)], np.int64)
    length_ps = samples.end_ps - samples.start_ps
    busiest = sorted(range(len(busy_ps)), key=lambda link: (-busy_ps[link], link))[:LINKS_MAX]
    records: list[SeriesRecord] = []
    for link in busiest:
        busy = np.where(samples.links == link, samples.busy_ps, 0).max(axis=1)
        values = _means(samples, edges, busy / length_ps)
        records += _records(variant, LINK_BUSY, link_names[link], edges, values)
    records += _records(variant, QUEUE, "", edges, _most(samples, edges, samples.queue_ps / 1e6))
    for quantity, column in ((UNITS, OUTSTANDING), (LOST, DEAD), (HELD_BACK, BLOCKED)):
        level = np.zeros(length_ps.size)
        for job in range(samples.waiting.shape[1]):
            level += samples.waiting[:, job, column]
        if level.any():
            records += _records(variant, quantity, "", edges, _means(samples, edges, level))
    return records


def _records(
    variant: str, quantity: str, where: str, edges: Edges, values: Sequence[float]
) -> Iterator[SeriesRecord]:
    for (start_ps, end_ps), value in zip(pairwise(edges.tolist()), values, strict=True):
        yield SeriesRecord(variant, quantity, where, start_ps, end_ps, float(f"{value:.{_DIGITS}g}"))


def _pieces(samples: Samples, edges: Edges) -> Iterator[tuple[int, int, int]]:
    """Each sample's parts: the sample, the stretch, and how long it is in it, in ps."""
    stretch = 0
    for row, (start_ps, end_ps) in enumerate(
        zip(samples.start_ps.tolist(), samples.end_ps.tolist(), strict=True)
    ):
        at_ps = start_ps
        while at_ps < end_ps:
            while edges[stretch + 1] <= at_ps:
                stretch += 1
            until_ps = min(end_ps, int(edges[stretch + 1]))
            yield row, stretch, until_ps - at_ps
            at_ps = until_ps


def _means(samples: Samples, edges: Edges, level: NDArray[Any]) -> list[float]:
    totals, levels = [0.0] * BINS, level.tolist()
    for row, stretch, part_ps in _pieces(samples, edges):
        totals[stretch] += levels[row] * part_ps
    return [total / int(edges[at + 1] - edges[at]) for at, total in enumerate(totals)]


def _most(samples: Samples, edges: Edges, level: NDArray[Any]) -> list[float]:
    most, levels = [0.0] * BINS, level.tolist()
    for row, stretch, _ in _pieces(samples, edges):
        most[stretch] = max(most[stretch], levels[row])
    return most
