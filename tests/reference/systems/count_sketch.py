"""Count-Sketch SGD in plain Python: hashes, sketch, medians, and the steps of all workers, in float64.

Written from the description: `h` and `s` of row j and element i; S[j, h(i)] += s(i) · v[i]; the estimate is
the median over rows; u = μ · u + g, v = v + u; both are zeroed where an element was chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

MASK = 2**64 - 1


def splitmix(x: int) -> int:
    z = x + 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def mixed(first: int, *others: int) -> int:
    state = splitmix(first)
    for other in others:
        state = splitmix(state ^ other)
    return state


@dataclass(frozen=True)
class Hashes:
    """Blocks of `lanes` elements share a hash: the high half is where they begin, the low one their signs."""

    rows: int
    columns: int
    lanes: int
    key: int

    def of(self, row: int, element: int) -> tuple[int, int]:
        block, lane = divmod(element, self.lanes)
        bits = splitmix(mixed(self.key, row) + block)
        start = (bits >> 32) * self.columns >> 32
        return (start + lane) % self.columns, -1 if bits >> lane & 1 else 1


def sketch_of(values: Sequence[float], hashes: Hashes) -> list[list[float]]:
    table = [[0.0] * hashes.columns for _ in range(hashes.rows)]
    for row in range(hashes.rows):
        for element, value in enumerate(values):
            counter, sign = hashes.of(row, element)
            table[row][counter] += sign * value
    return table


def estimates_of(table: Sequence[Sequence[float]], hashes: Hashes, elements: int) -> list[float]:
    found = []
    for element in range(elements):
        places = [hashes.of(row, element) for row in range(hashes.rows)]
        found.append(median(sign * table[row][counter] for row, (counter, sign) in enumerate(places)))
    return found


def largest(values: Sequence[float], count: int) -> list[int]:
    """Places of the largest magnitudes, in ascending order; the first of equal ones."""
    ranked = sorted(range(len(values)), key=lambda place: (-abs(values[place]), place))
    return sorted(ranked[:count])


class Stepped(NamedTuple):
    total: list[float]
    contributions: list[list[float]]
    chosen: list[int]


@dataclass
class Workers:
    """All workers of one bucket; `hashes` None: every element has its own counter."""

    count: int
    elements: int
    hashes: Hashes | None
    chosen: int
    candidates: int  # of the second round; 0: there is none
    momentum: float = 0.0
    feedback: bool = True
    masking: bool = True
    velocities: list[list[float]] = field(default_factory=list)
    residuals: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.velocities = [[0.0] * self.elements for _ in range(self.count)]
        self.residuals = [[0.0] * self.elements for _ in range(self.count)]

    def step(self, gradients: Sequence[Sequence[float]]) -> Stepped:
        owed = []
        for worker, gradient in enumerate(gradients):
            velocity, residual = self.velocities[worker], self.residuals[worker]
            for i in range(self.elements):
                velocity[i] = self.momentum * velocity[i] + gradient[i]
            owed.append([residual[i] + velocity[i] for i in range(self.elements)])
        sums = [sum(column) for column in zip(*owed, strict=True)]
        values, chosen = self._choose(owed, sums)
        total = [values[i] if i in chosen else 0.0 for i in range(self.elements)]
        contributions = [[own[i] if i in chosen else 0.0 for i in range(self.elements)] for own in owed]
        for worker in range(self.count):
            for i in range(self.elements):
                kept = 0.0 if i in chosen else owed[worker][i]
                self.residuals[worker][i] = kept if self.feedback else 0.0
                if self.masking and i in chosen:
                    self.velocities[worker][i] = 0.0
        return Stepped(total, contributions, sorted(chosen))

    def _choose(
        self, owed: Sequence[Sequence[float]], sums: Sequence[float]
    ) -> tuple[Sequence[float], set[int]]:
        if self.hashes is None:
            return sums, set(largest(sums, self.chosen))
        tables = [sketch_of(own, self.hashes) for own in owed]
        added = [
            [sum(counters) for counters in zip(*rows, strict=True)] for rows in zip(*tables, strict=True)
        ]
        estimates = estimates_of(added, self.hashes, self.elements)
        if not self.candidates:
            return estimates, {i for i in largest(estimates, self.chosen) if estimates[i] != 0}
        candidates = largest(estimates, self.candidates)
        exact = [sums[i] for i in candidates]
        return sums, {candidates[i] for i in largest(exact, self.chosen)}
