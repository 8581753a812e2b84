"""Fits the costs of a bucket's stages to samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netfold.sim.workload.fusion.costs import Cost, Sample, Stages


def fitted(samples: Sequence[Sample]) -> Stages:
    """Linear costs of all stages, by least squares of relative deviations, over samples of several sizes."""
    sizes = [one.elements for one in samples]
    return Stages(*(fitted_cost(sizes, [one[stage] for one in samples]) for stage in (1, 2, 3)))


def fitted_cost(elements: Sequence[int], times_ps: Sequence[int]) -> Cost:
    """The cost start + element · n with the least sum of squared relative deviations; neither is negative.

    Relative, because a step of many small buckets pays the time of a small one many times.
    """
    sizes, times = np.asarray(elements, np.float64), np.asarray(times_ps, np.float64)
    weights = 1 / np.maximum(times, 1)
    columns = {"element_ps": sizes, "start_ps": np.ones(sizes.size)}
    if np.unique(sizes).size == 1:
        del columns["start_ps"]  # one size does not tell them apart
    while columns:
        matrix = np.stack(list(columns.values()), axis=1) * weights[:, None]
        scale = np.linalg.norm(matrix, axis=0)
        found = np.linalg.lstsq(matrix / scale, times * weights, rcond=None)[0] / scale
        negative = [name for name, value in zip(columns, found, strict=True) if value < 0]
        if not negative:
            return Cost(**{name: float(value) for name, value in zip(columns, found, strict=True)})
        del columns[negative[0]]
    return Cost()
