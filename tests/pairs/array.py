"""Covering arrays: few rows in which every combination of `strength` values of different factors occurs.

Greedy, as AETG (Cohen et al., IEEE TSE 23(7), 1997): a row begins with a combination that is still missing,
and gets for every other factor the value that adds most. Combinations that are refused occur in no row.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

Factors = Mapping[str, Sequence[str]]
Choice = tuple[str, str]  # a factor and its value
Combination = frozenset[Choice]
Row = dict[str, str]  # by factor

TRIES = 4  # rows that are made for each that is kept


class CoveringArray(NamedTuple):
    """The rows, and the combinations that no row can have, because of what is refused."""

    rows: list[Row]
    impossible: list[Combination]


def covering_array(
    factors: Factors, strength: int, refused: Collection[Combination] = (), seed: int = 0
) -> CoveringArray:
    """Rows with all combinations that are not refused; the same for the same arguments."""
    rows: list[Row] = []
    impossible = []
    builder = _Builder(factors, strength, refused, seed)
    while builder.missing:
        first = next(iter(builder.missing))
        candidates = [builder.row_with(first) for _ in range(TRIES)]
        if (row := max((row for row in candidates if row), key=builder.gain, default=None)) is None:
            impossible.append(first)
            del builder.missing[first]
            continue
        for combination in combinations_in(row, strength):
            builder.missing.pop(combination, None)
        rows.append(row)
    return CoveringArray(rows, impossible)


def combinations_in(row: Mapping[str, str], strength: int) -> Iterator[Combination]:
    """The combinations that a row has."""
    return map(frozenset, itertools.combinations(row.items(), strength))


def combinations_of(factors: Factors, strength: int) -> Iterator[Combination]:
    """All combinations of values of different factors."""
    for names in itertools.combinations(factors, strength):
        for values in itertools.product(*(factors[name] for name in names)):
            yield frozenset(zip(names, values, strict=True))


def row_with(
    factors: Factors, chosen: Combination, refused: Collection[Combination], seed: int
) -> Row | None:
    """A row that has these choices, and nothing that is refused unless they are."""
    others = [excluded for excluded in refused if not excluded <= chosen]
    return _Builder(factors, 0, others, seed).row_with(chosen)


class _Builder:
    """Makes rows; `missing` are the combinations that none has so far, in the order of the factors."""

    def __init__(self, factors: Factors, strength: int, refused: Collection[Combination], seed: int) -> None:
        self.factors, self.strength = factors, strength
        self.chance = random.Random(seed)
        self.refused: dict[Choice, list[Combination]] = {}  # by a choice that each has
        for combination in refused:
            for choice in combination:
                self.refused.setdefault(choice, []).append(combination)
        combinations = combinations_of(factors, strength) if strength else ()
        self.missing = dict.fromkeys(
            wanted for wanted in combinations if not self._is_refused(wanted, wanted)
        )

    def gain(self, row: Row) -> int:
        """How many missing combinations a row has."""
        return sum(each in self.missing for each in combinations_in(row, self.strength))

    def row_with(self, chosen: Combination) -> Row | None:
        """A row with these choices; None if what is refused leaves none."""
        names = [name for name in self.factors if name not in dict(chosen)]
        self.chance.shuffle(names)
        # Factors without refusals come last: a search that fails does so without them.
        limits = {name for name, _ in self.refused}
        names.sort(key=lambda name: name not in limits)
        whole = self._completed(dict(chosen), names) if not self._is_refused(chosen, chosen) else None
        return None if whole is None else {name: whole[name] for name in self.factors}

    def _completed(self, row: Row, names: Sequence[str]) -> Row | None:
        if not names:
            return row
        had = frozenset(row.items())
        parts = [frozenset(part) for part in itertools.combinations(had, max(0, self.strength - 1))]
        scores = []
        for value in self.factors[names[0]]:
            choice = (names[0], value)
            if not self._is_refused([choice], had | {choice}):
                score = sum(part | {choice} in self.missing for part in parts)
                scores.append((-score, self.chance.random(), value))
        for _, _, value in sorted(scores):
            if (whole := self._completed({**row, names[0]: value}, names[1:])) is not None:
                return whole
        return None

    def _is_refused(self, choices: Iterable[Choice], had: Combination) -> bool:
        """Whether any of the choices is in a refused combination that is among those there are."""
        return any(refused <= had for choice in choices for refused in self.refused.get(choice, ()))
