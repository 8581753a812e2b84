"""Fits the costs of a bucket's stages to samples."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from netfold.sim.workload.fusion_weighing import Cost, Sample, Stages


def fitted(samples: Sequence[Sample]) -> Stages:
    """Linear costs of all stages, by least squares, over samples of several sizes."""
    sizes = [one.elements for one in samples]
    return Stages(*(fitted_cost(sizes, [one[stage] for one in samples]) for stage in (1, 2, 3)))


def fitted_cost(elements: Sequence[int], times_ps: Sequence[int]) -> Cost:
    """The cost start + element · n with the least sum of squared deviations; neither is negative.

    The deviations of such a line add up to 0, so it is right for many buckets together, even where that of a
    single small one is not on a line, as in a network of packets. Computed exactly, so it is the same on
    every machine.
    """
    count, total, total_ps = len(elements), sum(elements), sum(times_ps)
    squares = sum(size * size for size in elements)
    products = sum(size * time_ps for size, time_ps in zip(elements, times_ps, strict=True))
    spread = count * squares - total * total
    if spread == 0:  # one size does not tell a start from a rate
        return Cost(element_ps=float(Fraction(total_ps, total)))
    slope = Fraction(count * products - total * total_ps, spread)
    start = (total_ps - slope * total) / count
    if slope < 0:
        return Cost(start_ps=float(Fraction(total_ps, count)))
    if start < 0:
        return Cost(element_ps=float(Fraction(products, squares)))
    return Cost(float(start), float(slope))
