"""Whether a random merge of bits is fair: how far a worker's agreement with the result may be from its mean.

**What is random.** SIGN keeps, at each bit position, the bit of one of the n present workers, each with
probability 1/n. Given the bits sent, with m ones among n, the merged bit r is 1 with probability p = m/n,
independently of all other positions. Bits may be correlated between workers and between positions: they are
given. Worker w agrees with r with probability p where its bit is 1, and 1 − p where it is 0. So its
agreements minus their mean, over any set of positions, are

    D_w = Σ σ_w (r − m/n),    σ_w = +1 where its bit is 1, −1 where it is 0,

a sum of independent terms with mean 0 and at most 1 in size. Its variance V = Σ (m/n)(1 − m/n) is the same
for all workers. Where all agree nothing is random. The sum with σ = 1 is the *ones*: no value of a bit may
survive more often than it was sent.

**How far D may be.** Over rounds D is a martingale: what is sent may depend on earlier results, but the mean
of each term given the past is 0. Freedman's inequality ("On tail probabilities for martingales", Annals of
Probability 3(1), 1975; for one round it is Bernstein's) says

    P(D ≥ x while V ≤ v, at any time) ≤ exp(−x² / (2 (v + x/3))).

`allowed` solves for the x at which the right side is exp(−level). V of one round is known before its bits
are drawn. V of several rounds is not: it is rounded up to a grid v_j = 2^(j/4), j = 0, 1, …, and grid point j
gets the share 1/((j + 1)(j + 2)) of the false alarms, which sum to 1 (`allowed_over_rounds`).

**Rounding.** Merges draw with probabilities that are multiples of 2⁻³², so after n − 1 merges p is off by at
most n · 2⁻³³ at each position; the positions number at most V n² / (n − 1). This is added to V and to x.

**False alarms.** A job may raise one with probability `FALSE_ALARMS` = 1e-8 at most, so a run of up to a
hundred jobs with less than 1e-6. It is divided by a union bound, which needs no independence:

* half for statistics of single rounds, half for sums over rounds;
* of each half, the t-th message (or sum), t = 1, 2, …, gets the share 1/(t (t + 1)): these sum to 1, however
  long the job runs;
* a message is divided into 1, 2, 4, … equal stretches of words; each of these divisions gets an equal share,
  and so does each stretch of one;
* of each stretch, each worker and the ones get an equal share, half for either side.

Stretches find merges with wrong weights whose favourites differ from place to place, as in a ring, where each
segment starts at another worker, and as in switches, where each unit has another last arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.compiled import kernel
from netfold.kernels.functions import LN2, exps, logs

Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Signs = NDArray[np.uint32]

FALSE_ALARMS = 1e-8  # of one job
_GRID = 4  # points per doubling of a variance that is not known in advance


class Sums(NamedTuple):
    """Sums over equal stretches of messages."""

    deviations: Doubles  # (stretches, workers + 1): D of each worker, and of the ones
    variances: Doubles  # (stretches,): V


class Unfair(NamedTuple):
    """The statistic that is farthest beyond what is allowed."""

    worker: int | None  # None: the ones
    stretch: int
    stretches: int  # that the message is divided into
    excess: float  # agreements above the mean; negative: below
    allowed: float
    sigmas: float  # the excess in standard deviations


def allowed(variances: Doubles, level: Doubles | float) -> Doubles:
    """The excess that a sum reaches with probability exp(−level) at most (see above), given its variance."""
    third = np.asarray(level) / 3
    return np.asarray(third + np.sqrt(third * third + 2 * variances * level))


def allowed_over_rounds(variances: Doubles, level: Doubles | float) -> Doubles:
    """The same for variances that depend on what was drawn before, at any number of rounds."""
    point = np.maximum(np.ceil(logs(np.maximum(variances, 1.0)) * (_GRID / LN2)), 0)
    return allowed(exps(point, LN2 / _GRID), level + logs((point + 1) * (point + 2)))


def worst(sums: Sums, share: float, is_over_rounds: bool) -> Unfair | None:
    """The statistic farthest beyond what is allowed, if any is, with `share` of the job's false alarms."""
    found: Unfair | None = None
    divisions = list(_divisions(sums))
    statistics = sums.deviations.shape[1]
    workers = statistics - 1
    for deviations, variances in divisions:
        stretches = variances.size
        count = len(divisions) * stretches * statistics * 2
        level = math.log(count) - math.log(share) - math.log(FALSE_ALARMS)
        rounding = variances * (workers**3 / max(workers - 1, 1) * 2.0**-33)
        limit = (allowed_over_rounds if is_over_rounds else allowed)(variances + rounding, level) + rounding
        over = np.abs(deviations) - limit[:, np.newaxis]
        stretch, statistic = map(int, np.unravel_index(int(np.argmax(over)), over.shape))
        if over[stretch, statistic] <= 0:
            continue
        excess = float(deviations[stretch, statistic])
        sigmas = excess / math.sqrt(max(float(variances[stretch]), 5e-324))
        if found is None or abs(sigmas) > abs(found.sigmas):
            worker = statistic if statistic < workers else None
            found = Unfair(worker, stretch, stretches, excess, float(limit[stretch]), sigmas)
    return found


def halved(sums: Sums) -> Sums:
    """The same sums with half as many stretches."""
    pairs = sums.deviations.reshape(-1, 2, sums.deviations.shape[1])
    return Sums(pairs.sum(axis=1), sums.variances.reshape(-1, 2).sum(axis=1))


def _divisions(sums: Sums) -> Iterator[Sums]:
    """The sums of the finest division, and of all coarser ones."""
    yield sums
    while sums.variances.size > 1:
        sums = halved(sums)
        yield sums


@kernel
def tally(sent: Signs, result: Signs, first: int, edges: Longs, ones: Longs, sums: Longs) -> int:
    """Add a part of a merged message of bits to the sums of its stretches; count words with unsent bits.

    `sent` (workers, words) and `result` begin with word `first` of the message; stretch s begins with word
    `edges[s]`; `ones` (32,) is scratch. `sums` (stretches, workers + 2) has n times the deviation of each
    worker and of the ones, and n² times the variance. A bit that no worker sent has neither.
    """
    workers = sent.shape[0]
    wrong, stretch = 0, 0
    for i in range(result.size):
        while first + i >= edges[stretch + 1]:
            stretch += 1
        for bit in range(32):
            ones[bit] = 0
        for worker in range(workers):
            word = sent[worker, i]
            for bit in range(32):
                ones[bit] += np.int64((word >> np.uint32(bit)) & np.uint32(1))
        merged, is_wrong, spread, excess = result[i], False, np.int64(0), np.int64(0)
        for bit in range(32):
            held = ones[bit]
            deviation = workers * np.int64((merged >> np.uint32(bit)) & np.uint32(1)) - held
            is_unsent = deviation == workers or deviation == -workers
            is_wrong |= is_unsent
            spread += held * (workers - held)
            ones[bit] = 0 if is_unsent else deviation
            excess += ones[bit]
        wrong += is_wrong
        for worker in range(workers):
            word, agreed = sent[worker, i], np.int64(0)
            for bit in range(32):
                agreed += ones[bit] * (2 * np.int64((word >> np.uint32(bit)) & np.uint32(1)) - 1)
            sums[stretch, worker] += agreed
        sums[stretch, workers] += excess
        sums[stretch, workers + 1] += spread
    return wrong
