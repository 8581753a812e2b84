"""Decoded sums compared with float64 sums of the gradients, in parts, against the codec's bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import PART_ELEMENTS, Sums, sums_of_parts
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.message import Gradient, Holders
from netfold.sim.checks.codec_notes import Exempt
from netfold.sim.checks.rounds import kernels


class Errors(NamedTuple):
    """Largest errors of decoded sums."""

    bounded: float = 0.0  # of elements with a bound
    estimated: float = 0.0
    over_bound: float = 0.0  # relative to the bound
    worst_element: int = 0  # where that is
    worst_magnitude: float = 0.0  # Σ|x| there

    def joined(self, other: Errors) -> Errors:
        """The larger errors of the two."""
        worst = other if other.over_bound > self.over_bound else self
        bounded, estimated = max(self.bounded, other.bounded), max(self.estimated, other.estimated)
        return worst._replace(bounded=bounded, estimated=estimated)


class Supports(NamedTuple):
    """How many elements are not zero."""

    first: int  # at worker 0
    union: int  # at any worker


def worst_errors(
    codec: Codec,
    gradients: Sequence[Gradient],
    decoded: Sequence[tuple[Gradient, Holders | None]],
    exempt: Exempt,
) -> tuple[Errors, Supports]:
    """Largest errors of decoded sums, each with the workers it holds (None: all); and the supports' sizes."""
    bound = codec.error_bound(gradients)
    errors, nonzeros, union = Errors(), 0, 0
    buffers = np.empty((2, min(PART_ELEMENTS, gradients[0].size)))
    whole = [own for own, holders in decoded if holders is None]
    for sums in sums_of_parts(gradients):
        nonzeros += kernels.count_nonzeros(gradients[0][sums.first : sums.first + sums.total.size])
        union += kernels.count_nonzeros(sums.magnitude)
        if whole:
            errors = _of_part(errors, sums, bound.of(sums), whole, (exempt, buffers))
    for own, holders in decoded:
        if holders is not None:
            for sums in sums_of_parts(gradients, holders.bitmaps, holders.unit_words):
                errors = _of_part(errors, sums, bound.of(sums), [own], (exempt, buffers))
    return errors, Supports(nonzeros, union)


def _of_part(
    errors: Errors,
    sums: Sums,
    bound: NDArray[np.float64],
    decoded: Sequence[Gradient],
    more: tuple[Exempt, NDArray[np.float64]],
) -> Errors:
    """Add the errors of one part of the decoded sums; `more` is the exempt elements, and two buffers."""
    exempt, buffers = more
    size = sums.total.size
    own = Exempt(*(_within(elements, sums.first, size) for elements in exempt))
    is_exempt = own.estimates.size or own.infinities.size
    for one in decoded:
        part = one[sums.first : sums.first + size]
        off_by, relative = buffers[0, :size], buffers[1, :size]
        kernels.measure_errors(part, sums.total, bound, off_by, relative)
        largest, worst = float(off_by.max()), float(relative.max())
        if is_exempt or not (np.isfinite(largest) and np.isfinite(worst)):
            found = _with_exempt(part, sums.total, bound, own)
        else:
            element = int(np.argmax(relative)) if worst > errors.over_bound else 0
            found = Errors(largest, 0.0, worst, element)
        place = found.worst_element
        found = found._replace(worst_element=sums.first + place, worst_magnitude=float(sums.magnitude[place]))
        errors = errors.joined(found)
    return errors


def _within(elements: NDArray[np.int64], start: int, count: int) -> NDArray[np.int64]:
    """The ascending elements that lie in a part, counted from its start."""
    first, end = np.searchsorted(elements, (start, start + count))
    return elements[first:end] - start


def _with_exempt(
    decoded: Gradient, total: NDArray[np.float64], bound: NDArray[np.float64], exempt: Exempt
) -> Errors:
    """Errors against the float64 sum; estimates have no bound, and right infinities no error.

    Infinities are those that the codec notes and those in the sum: float32 additions may overflow on the way.
    """
    with np.errstate(invalid="ignore"):
        error = np.abs(decoded - total)
    error[np.isnan(error)] = np.inf
    infinities = np.union1d(exempt.infinities, np.flatnonzero(np.isinf(decoded)))
    is_right = _are_infinite(decoded, total, bound, infinities)
    error[infinities[is_right]] = 0.0
    estimated = float(error[exempt.estimates].max(initial=0.0))
    relative = error_over_bound(error, bound)
    error[exempt.estimates] = relative[exempt.estimates] = 0.0
    relative[np.isnan(decoded)] = relative[infinities[~is_right]] = np.inf
    worst = int(np.argmax(relative))
    return Errors(float(error.max()), estimated, float(relative[worst]), worst)


def _are_infinite(
    decoded: Gradient, total: NDArray[np.float64], bound: NDArray[np.float64], elements: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which elements are rightly infinite: a value within the bound rounds to infinity in float32."""
    with np.errstate(over="ignore"):
        largest = (np.abs(total[elements]) + bound[elements]).astype(np.float32)
    are_infinite: NDArray[np.bool_] = decoded[elements] == np.copysign(np.inf, total[elements])
    return are_infinite & np.isinf(largest)


def error_over_bound(error: NDArray[np.float64], bound: NDArray[np.float64]) -> NDArray[np.float64]:
    """error / bound; 0 where there is no error. An infinite bound allows no error."""
    is_bounded = (bound > 0) & (bound < np.inf)
    relative: NDArray[np.float64] = np.divide(error, bound, out=np.full(error.size, np.inf), where=is_bounded)
    relative[error == 0] = 0.0
    return relative
