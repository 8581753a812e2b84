"""The correct decoded sums, by plain NumPy and exact fractions, independent of netfold's verification.

Bounds come from a codec's documentation, not from its `error_bound`. The largest error of an element for
which n workers have the values x, where M is the largest magnitude of the round:

    floats, dense          n · 2^-24 · Σ|x|, and the smallest denormal for each addition
    floats of a sketch     n · 2^-12 · M: counters lose small values beside large ones
    a constant factor f    n / (2 f), and the error of floats where ATP sends them instead of integers
    block exponents        n² · 2^-30 · M: words so small that n of them cannot leave int32, each rounded once
                           to a step that is never finer than n · 2^-127; eight times that where the exponents
                           may be a forecast, which may be three too high
    exact                  the correctly rounded sum
    a codec that is new here   what it declares for these contributions, if that is more
    unbiased random k      of k elements of n, n / k times the sum; of the others 0
    halves                 n · 2^-11 · Σ|x|, and half of the smallest half: every addition rounds to a half
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.error_bounds import Sums

BOUNDED = ("none", "fixed_point", "exact", "packed", "block_sparse", "lossless", "auto", "dense")
NO_SUM = ("majority", "marsit", "cascaded_sign", "count_sketch")  # totals are signs, or of a sketch
# Others that have been read: what they contribute, their totals have to the last bits.
READ = ("bird", "bird_plus", "bird_shared", "fp16", "random_k", "sasg", "sasg_summed", "topk")
VOTES = ("majority", "cascaded_sign")
TINY = 2.0**-149
LARGEST = float(np.finfo(np.float32).max)
Doubles = NDArray[np.float64]


def has_documented_bound(codec: Any) -> bool:
    """Whether the codec sums gradients, and its documentation says how well."""
    return codec.kind in BOUNDED


def is_sum(codec: Any, decoded: Sequence[Any]) -> bool:
    """Whether a total is the sum of contributions."""
    return codec.kind not in NO_SUM and not decoded[0].is_update


def broken_promise(codec: Any, gradients: Sequence[NDArray[Any]], totals: Sequence[NDArray[Any]]) -> str:
    """What every total has to be, whatever the codec: of the gradient's shape, and finite if that is."""
    largest = max(float(np.abs(np.asarray(one, np.float64)).max(initial=0.0)) for one in gradients)
    for worker, own in enumerate(totals):
        if own.shape != gradients[0].shape:
            return f"worker {worker}: a total of shape {own.shape} for gradients of {gradients[0].shape}"
        if largest * len(gradients) < math.sqrt(LARGEST) and not np.isfinite(own).all():
            return f"worker {worker}: a total that is not finite, of gradients up to {largest:.3g}"
    return ""


def broken_vote(codec: Any, contributions: Sequence[NDArray[Any]], totals: Sequence[NDArray[Any]]) -> str:
    """What totals of signs have to be: what all workers agree on, and of `majority` what most want."""
    if codec.kind not in VOTES:
        return ""
    votes = np.array([np.sign(one) for one in contributions])
    balance = votes.sum(axis=0)
    right = len(votes) * np.sign(balance)
    for worker, own in enumerate(totals):
        is_wrong = own != right if codec.kind == "majority" else np.sign(own) != np.sign(balance)
        if codec.kind != "majority":
            is_wrong &= np.abs(balance) == len(votes)
        if is_wrong.any():
            first = int(np.argmax(is_wrong))
            return (
                f"worker {worker}: element {first} is {own[first]}, of the votes {votes[:, first].tolist()}"
            )
    return ""


def nmse(gradients: Sequence[NDArray[Any]], total: NDArray[Any]) -> float:
    """‖total − Σ gradients‖² / ‖Σ gradients‖²; infinite where that has no number."""
    true = sums(np.array(gradients, np.float64))
    error, right = (math.fsum(one * one) for one in (np.float64(total) - true, true))
    return 0.0 if error == 0 else error / right if right > 0 and math.isfinite(error) else math.inf


def wrong_elements(
    codec: Any,
    gradients: Sequence[NDArray[Any]],
    own: NDArray[Any],
    holds: NDArray[np.bool_] | None,
    known: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Which elements of one worker's decoded sum are wrong, `(elements,)`.

    `holds[worker, element]` is true for the workers in a partial sum; None: all are. `known` are elements
    that the codec reports as estimates or infinite.
    """
    wide = np.array([np.asarray(one, np.float64) for one in gradients])
    if own.shape != wide.shape[1:]:
        return np.ones(wide.shape[1:], bool)
    if holds is not None:
        wide = wide * holds
    decoded = own.astype(np.float64)
    if getattr(codec, "unbiased", False):
        return wrong_samples(codec, wide, decoded)
    true = sums(wide)
    slack = slack_of(codec, wide)
    if codec.kind not in (*BOUNDED, *NO_SUM, *READ):
        declared = codec.error_bound([row.astype(np.float32) for row in wide])
        slack = np.maximum(slack, declared.of(Sums(0, true.copy(), np.abs(wide).sum(axis=0))))
    with np.errstate(over="ignore"):
        nearest = true.astype(np.float32)
    with np.errstate(invalid="ignore"):
        wrong: NDArray[np.bool_] = ~(np.abs(decoded - true) <= slack)
    if slack_is_rounding(codec):
        for element in np.flatnonzero(decoded != nearest):
            wrong[element] = not is_rounded(float(decoded[element]), wide[:, element])
    beyond = np.abs(true) + slack >= LARGEST
    wrong[beyond & ~np.isfinite(decoded)] = False  # a sum beyond float32 has no number
    wrong[known] = False
    return wrong


def wrong_samples(codec: Any, wide: Doubles, decoded: Doubles) -> NDArray[np.bool_]:
    """Which elements of an unbiased sample are neither 0 nor the scaled sum; all, if the number is wrong."""
    elements = decoded.size
    count = math.ceil(codec.share * elements)
    scale = elements / count
    true = scale * sums(wide)
    slack = scale * slack_of(codec, wide) + 2.0**-23 * np.abs(true)
    missing = (decoded == 0) & (np.abs(true) > slack)
    if np.count_nonzero(decoded) > count or np.count_nonzero(missing) > elements - count:
        return np.ones(elements, bool)
    wrong: NDArray[np.bool_] = ~((np.abs(decoded - true) <= slack) | (decoded == 0))
    return wrong


def sums(wide: Doubles) -> Doubles:
    """The sum of each column, rounded once or nearly so: what additions round off is summed beside them.

    Neumaier, Zeitschrift für Angewandte Mathematik und Mechanik 54, 1974.
    """
    total, rest = np.zeros(wide.shape[1:]), np.zeros(wide.shape[1:])
    for row in wide:
        longer = total + row
        part = longer - total
        rest += (total - (longer - part)) + (row - part)
        total = longer
    return total + rest


def slack_of(codec: Any, wide: Doubles) -> Doubles:
    """Largest error of each element that the codec's words allow."""
    workers = len(wide)
    magnitude: Doubles = np.abs(wide).sum(axis=0)
    largest = float(np.abs(wide).max(initial=0.0))
    rounded = magnitude * 3 * 2.0**-24 + TINY  # product, conversion and quotient are float32
    if factor := float(getattr(codec, "factor", None) or 0):
        return rounded + workers * 2.0**-24 * magnitude + workers / (2 * factor)
    if codec.kind == "none":
        return workers * (2.0**-24 * magnitude + TINY)
    if codec.kind == "fp16":
        return workers * (1.01 * 2.0**-11 * magnitude + 2.0**-25)
    if is_float(codec):
        return np.full_like(magnitude, 2.0**-12 * largest * workers + workers * TINY)
    coarser = 8 if codec.kind == "auto" or getattr(codec, "schedule", "") == "concurrent" else 1
    return rounded + coarser * workers**2 * (2.0**-30 * largest + 2.0**-127)


def is_float(codec: Any) -> bool:
    """Whether words are floats; those of the published sketch are by default."""
    values = getattr(codec, "values", None)
    by_default = values is None and getattr(codec, "setting", "") == "published"
    return bool(codec.kind == "none" or values == "float32" or by_default)


def slack_is_rounding(codec: Any) -> bool:
    """Whether sums have to be the correctly rounded ones."""
    return bool(codec.kind == "exact" or getattr(codec, "values", None) == "exact")


def is_rounded(found: float, values: Doubles) -> bool:
    """Whether a float32 is one of the nearest to the exact sum of doubles."""
    if not math.isfinite(found):
        return abs(sum(map(Fraction, values), Fraction(0))) > Fraction(LARGEST)
    exact = sum(map(Fraction, values), Fraction(0))
    single = np.float32(found)
    error = abs(Fraction(found) - exact)
    below, above = (np.nextafter(single, np.float32(side)) for side in (-np.inf, np.inf))
    others = [float(one) for one in (below, above) if np.isfinite(one)]
    return all(error <= abs(Fraction(other) - exact) for other in others)


def is_exact(gradients: Sequence[NDArray[Any]], decoded: Sequence[NDArray[Any]]) -> bool:
    """Whether every worker has the sum of all, correctly rounded."""
    wide = np.array([np.asarray(one, np.float64) for one in gradients])
    with np.errstate(over="ignore"):
        true = sums(wide).astype(np.float32)
    return all(np.array_equal(own, true, equal_nan=True) for own in decoded)
