"""Fits the costs of a bucket's stages to samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netfold.sim.workload.fusion.costs import Cost, Sample, Stages


def fitted(samples: Sequence[Sample]) -> Stages:
    """Linear costs of all stages, by least squares, over samples of several sizes."""
    sizes = [one.elements for one in samples]
    return Stages(*(fitted_cost(sizes, [one[stage] for one in samples]) for stage in (1, 2, 3)))


def fitted_cost(elements: Sequence[int], times_ps: Sequence[int]) -> Cost:
    """The cost start + element · n with the least sum of squared deviations; neither is negative.

    The deviations of such a line add up to 0, so it is right for many buckets together, even where that of a
    single small one is not on a line, as in a network of packets.
    """
    sizes, times = np.asarray(elements, np.float64), np.asarray(times_ps, np.float64)
    columns = {"start_ps": np.ones(sizes.size), "element_ps": sizes}
    if np.unique(sizes).size == 1:
        del columns["start_ps"]  # one size does not tell them apart
    while columns:
        matrix = np.stack(list(columns.values()), axis=1)
        scale = np.linalg.norm(matrix, axis=0)
        found = np.linalg.lstsq(matrix / scale, times, rcond=None)[0] / scale
        least = min(zip(found, columns, strict=True))
        if least[0] >= 0:
            return Cost(**{name: float(value) for name, value in zip(columns, found, strict=True)})
        del columns[least[1]]
    return Cost()
