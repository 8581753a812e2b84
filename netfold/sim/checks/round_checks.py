"""Checks of every round: merged words and decoded sums against independently computed sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec, Decoded, Promise
from netfold.homomorphic.error_bounds import PART_ELEMENTS, Drift, Sums, count_inexact, sums_of_parts
from netfold.homomorphic.fold import check_lock_step
from netfold.homomorphic.merge import Holders
from netfold.homomorphic.message import Gradient
from netfold.kernels.bits import same_bits
from netfold.sim.checks import error_metrics
from netfold.sim.checks.error_metrics import Beyond, ErrorMetrics
from netfold.sim.checks.merged_words import check_message
from netfold.sim.checks.round_findings import (
    NOTHING_EXEMPT,
    Exempt,
    Findings,
    Held,
    MessagePlace,
    RecordedOperation,
    Tallies,
)
from netfold.sim.engine.engine_data import Overflow

# Decoded totals compared, in parts, with the ideal of the contributions, against the codec's promise.


NMSE_MAX = 1e-3
"""NMSE of totals to which whole gradients were contributed, at most: more is no rounding."""
ROUNDING = 2.0**-10  # relative error of the coarsest numbers that are sent, of half precision


class Errors(NamedTuple):
    """Largest errors of decoded totals."""

    bounded: float = 0.0
    """Largest error of elements with a bound."""
    estimated: float = 0.0
    over_bound: float = 0.0
    """Largest error relative to its bound."""
    worst_element: int = 0
    """The element whose error is largest relative to its bound."""
    worst_magnitude: float = 0.0
    """Σ|x| at the worst element."""

    def joined(self, other: Errors) -> Errors:
        """The larger errors of the two."""
        worst = other if other.over_bound > self.over_bound else self
        bounded, estimated = max(self.bounded, other.bounded), max(self.estimated, other.estimated)
        return worst._replace(bounded=bounded, estimated=estimated)


class Compared(NamedTuple):
    """The findings on the totals of one round."""

    errors: Errors
    loss: ErrorMetrics  # against the sum of the gradients
    inexact: int = 0  # elements that are not the exact sum, if the codec promises it
    drift: Drift | None = None
    """Drift of a codec that promises to be unbiased."""
    is_far: bool = False
    """Whether the total is far from the sum of the gradients, though these are what workers contributed."""
    beyond: Beyond | None = None


class Totals(NamedTuple):
    """What workers used and contributed in one round."""

    gradients: Sequence[Gradient]
    contributions: Sequence[Gradient]
    decoded: Sequence[tuple[Gradient, Holders | None]]  # worker 0's total and those that differ; None: of all
    is_float: bool = False  # some words were added as float32


def compare(codec: Codec, totals: Totals, exempt: Exempt) -> Compared:
    """Compare decoded totals, each with the workers it holds, with the ideal of their contributions.

    The loss is that of worker 0's total against the sum of all gradients.
    """
    first, whole = totals.decoded[0][0], [total for total, holders in totals.decoded if holders is None]
    bound = codec.error_bound(totals.contributions)
    variance = codec.variance(totals.contributions) if codec.promise is Promise.UNBIASED else None
    errors, loss, inexact = Errors(), ErrorMetrics(), 0
    drift = None if variance is None else Drift.empty(first.size)
    buffers = np.empty((2, min(PART_ELEMENTS, first.size)))
    is_all = all(a is b for a, b in zip(totals.contributions, totals.gradients, strict=True))
    is_judged = is_all and codec.promise is Promise.EXACT and totals.decoded[0][1] is None
    for sums in sums_of_parts(totals.contributions):
        span = slice(sums.first, sums.first + sums.total.size)
        if is_all:
            _add_loss(loss, totals, span, sums, is_judged)
        if not whole:
            continue
        ideal, allowed = codec.ideal(sums), bound.of(sums)
        part = _Part(sums.first, ideal, allowed, sums.magnitude)
        errors = _of_part(errors, part, whole, exempt=exempt, buffers=buffers)
        if drift is not None and variance is not None:
            spread = variance.together * variance.of(sums), variance.together * allowed
            drift.add(part.first, whole[0][span] - ideal, ideal, *spread)
        if codec.promise is Promise.EXACT:
            inexact += count_inexact(whole[0][span], [addend[span] for addend in totals.contributions])
    for decoded, holders in totals.decoded:
        if holders is not None:
            for sums in sums_of_parts(totals.contributions, holders.bitmaps, holders.unit_words):
                part = _Part(sums.first, codec.ideal(sums), bound.of(sums), sums.magnitude)
                errors = _of_part(errors, part, [decoded], exempt=exempt, buffers=buffers)
    if not is_all:
        for sums in sums_of_parts(totals.gradients):
            span = slice(sums.first, sums.first + sums.total.size)
            _add_loss(loss, totals, span, sums)
    loss.is_exact = loss.is_exact and not (is_judged and inexact)
    is_far = drift is None and bool(whole) and whole[0] is first and _is_far(totals, loss)
    return Compared(errors, loss, inexact, drift, is_far, _beyond(totals, loss))


def _is_far(totals: Totals, loss: ErrorMetrics) -> bool:
    """Whether workers contributed their whole gradients, and the error is above `NMSE_MAX`.

    Where sums cancel, what the rounding of their parts explains is no fault: `ROUNDING` of Σ|x|.
    """
    error, right = float(loss.sums[0]), float(loss.sums[1])
    pairs = zip(totals.contributions, totals.gradients, strict=True)
    if error <= NMSE_MAX * right or not all(same_bits(addend, gradient) for addend, gradient in pairs):
        return False
    magnitudes = sum(float(np.square(sums.magnitude).sum()) for sums in sums_of_parts(totals.gradients))
    return not error <= ROUNDING**2 * magnitudes


def _beyond(totals: Totals, loss: ErrorMetrics) -> Beyond | None:
    """The first infinity among worker 0's totals, if there is one."""
    infinite = () if np.isfinite(loss.largest) else np.flatnonzero(np.isinf(totals.decoded[0][0]))
    for element in infinite[:1]:
        addends = [float(contribution[element]) for contribution in totals.contributions]
        return Beyond(int(element), sum(addends), len(addends))
    return None


def _add_loss(loss: ErrorMetrics, totals: Totals, place: slice, sums: Sums, is_judged: bool = False) -> None:
    """Add a part of worker 0's total; one that is judged by its codec's promise is not judged again."""
    total, gradients = totals.decoded[0][0][place], [gradient[place] for gradient in totals.gradients]
    loss.add(total, gradients, sums)
    if not is_judged:
        loss.judge(total, gradients, sums, totals.is_float)


class _Part(NamedTuple):
    """What a part of a total should be."""

    first: int  # element
    ideal: NDArray[np.float64]
    bound: NDArray[np.float64]
    magnitude: NDArray[np.float64]  # Σ|x| of the contributions


def _of_part(
    errors: Errors,
    part: _Part,
    decoded: Sequence[Gradient],
    *,
    exempt: Exempt,
    buffers: NDArray[np.float64],
) -> Errors:
    """Add the errors of one part of the totals; `buffers` are two rows to work in."""
    size = part.ideal.size
    part_exempt = Exempt(*(_within(elements, part.first, size) for elements in exempt))
    is_exempt = part_exempt.estimates.size or part_exempt.infinities.size
    for total in decoded:
        values = total[part.first : part.first + size]
        off_by, relative = buffers[0, :size], buffers[1, :size]
        error_metrics.measure_errors(values, part.ideal, part.bound, off_by, relative)
        largest, worst = float(off_by.max()), float(relative.max())
        if is_exempt or not (np.isfinite(largest) and np.isfinite(worst)):
            part_errors = _with_exempt(values, part.ideal, part.bound, part_exempt)
        else:
            element = int(np.argmax(relative)) if worst > errors.over_bound else 0
            part_errors = Errors(largest, 0.0, worst, element)
        worst_index = part_errors.worst_element
        part_errors = part_errors._replace(
            worst_element=part.first + worst_index, worst_magnitude=float(part.magnitude[worst_index])
        )
        errors = errors.joined(part_errors)
    return errors


def _within(elements: NDArray[np.int64], start: int, count: int) -> NDArray[np.int64]:
    """The ascending elements that lie in a part, counted from its start."""
    first, end = np.searchsorted(elements, (start, start + count))
    return elements[first:end] - start


def _with_exempt(
    decoded: Gradient, ideal: NDArray[np.float64], bound: NDArray[np.float64], exempt: Exempt
) -> Errors:
    """Errors against the ideal; estimates have no bound, and right infinities no error.

    Infinities are those that the codec notes and those in the total: float32 additions may overflow.
    """
    with np.errstate(invalid="ignore"):
        error = np.abs(decoded - ideal)
    error[np.isnan(error)] = np.inf
    infinities = np.union1d(exempt.infinities, np.flatnonzero(np.isinf(decoded)))
    is_right = _are_infinite(decoded, ideal, bound, infinities)
    error[infinities[is_right]] = 0.0
    estimated = float(error[exempt.estimates].max(initial=0.0))
    relative = error_over_bound(error, bound)
    error[exempt.estimates] = relative[exempt.estimates] = relative[infinities[is_right]] = 0.0
    relative[np.isnan(decoded)] = relative[infinities[~is_right]] = np.inf
    worst = int(np.argmax(relative))
    return Errors(float(error.max()), estimated, float(relative[worst]), worst)


def _are_infinite(
    decoded: Gradient, ideal: NDArray[np.float64], bound: NDArray[np.float64], elements: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which elements are rightly infinite: a value within the bound rounds to infinity in float32."""
    with np.errstate(over="ignore"):
        largest = (np.abs(ideal[elements]) + bound[elements]).astype(np.float32)
    are_infinite: NDArray[np.bool_] = decoded[elements] == np.copysign(np.inf, ideal[elements])
    return are_infinite & np.isinf(largest)


def error_over_bound(error: NDArray[np.float64], bound: NDArray[np.float64]) -> NDArray[np.float64]:
    """error / bound; 0 where there is no error. Nothing is within an infinite bound."""
    is_bounded = (bound > 0) & (bound < np.inf)
    relative: NDArray[np.float64] = np.divide(error, bound, out=np.full(error.size, np.inf), where=is_bounded)
    relative[(error == 0) & (bound < np.inf)] = 0.0
    return relative


# Compare a finished round with integer and float64 sums of what its workers sent and contributed.


def examine(
    codec: Codec,
    gradients: Sequence[Gradient],
    decoded: Sequence[Decoded],
    operations: Sequence[RecordedOperation],
    exempt: Exempt = NOTHING_EXEMPT,
    overflow: Overflow = Overflow.WRAP,
) -> Findings:
    """Compare what workers received and decoded with the sums of their contributions.

    A result that holds only some workers is compared with the sum of those. `overflow` is what the network
    does with integer sums that leave int32. No buffer as large as a gradient is allocated, and an array that
    workers share is examined once.
    """
    workers = range(len(gradients))
    tallies = Tallies()
    for operation in operations:
        check_lock_step([operation.sent[worker] for worker in workers])
        for part, message in enumerate(operation.sent[0]):
            check_message(
                MessagePlace(operation.number, part, message.label),
                [operation.sent[worker][part] for worker in workers],
                [operation.received[worker][part] for worker in workers],
                overflow,
                tallies,
            )
    totals = [decoding.total for decoding in decoded]
    differs = [not same_bits(totals[0], other) for other in totals[1:]]
    contributions = [decoding.contribution for decoding in decoded]
    distinct = _to_compare(totals, operations, differs)
    judge = codec.judged_by(decoded[0].is_update)
    comparison = compare(judge, Totals(gradients, contributions, distinct, tallies.float_words > 0), exempt)
    errors, loss = comparison.errors, comparison.loss
    held = count_held(operations, len(gradients))
    return Findings(
        wrong_words=tallies.wrong.count,
        is_integer=tallies.is_integer,
        replicas_agree=not any(differs),
        max_bounded_error=errors.bounded,
        max_estimate_error=errors.estimated,
        max_error_over_bound=errors.over_bound,
        worst_element=errors.worst_element,
        nonzeros=loss.nonzeros,
        union_nonzeros=loss.union_nonzeros,
        loss=loss,
        inexact_elements=comparison.inexact,
        is_far=comparison.is_far,
        beyond=comparison.beyond,
        drift=comparison.drift,
        is_held_back=any(a is not b for a, b in zip(contributions, gradients, strict=True)),
        held=held,
        first_wrong=tallies.wrong.first,
        clipped_words=tallies.clipped.count,
        first_clipped=tallies.clipped.first,
        integer_words=tallies.integer_words,
        float_words=tallies.float_words,
        wrong_floats=tallies.wrong_floats.count,
        first_wrong_float=tallies.wrong_floats.first,
        worst_magnitude=errors.worst_magnitude,
    )


def _to_compare(
    decoded: Sequence[Gradient], operations: Sequence[RecordedOperation], differs: Sequence[bool]
) -> list[tuple[Gradient, Holders | None]]:
    """Worker 0's decoded sum and those that differ from it; with the workers that a partial result holds."""
    if not operations or not operations[0].sent[0]:
        holders: list[Holders | None] = [None] * len(decoded)
    else:
        values = operations[0].sent[0][0].lanes_per_word
        word_holders = [operations[0].received[worker][0].holders for worker in range(len(decoded))]
        holders = [_of_elements(worker_holders, values) for worker_holders in word_holders]
    return [
        (total, held)
        for worker, (total, held) in enumerate(zip(decoded, holders, strict=True))
        if worker == 0 or held is not None or differs[worker - 1]
    ]


def _of_elements(holders: Holders | None, values: int) -> Holders | None:
    # In narrow lanes a word has several elements.
    return None if holders is None else replace(holders, unit_words=values * holders.unit_words)


def count_held(operations: Sequence[RecordedOperation], workers: int) -> Held:
    """Count workers per result; only linear codecs, whose round is one message, get partial results.

    Absent workers count: a result without them lacks nothing.
    """
    unit_counts = [
        np.bitwise_count(merged.holders.bitmaps)
        + sum(messages[part].is_absent for messages in operation.sent.values())
        for operation in operations
        for received in operation.received.values()
        for part, merged in enumerate(received)
        if merged.holders is not None
    ]
    counts = np.concatenate(unit_counts) if unit_counts else np.empty(0, np.uint8)
    if counts.size == 0:
        return Held(workers, float(workers))
    return Held(int(counts.min()), float(counts.mean()))
