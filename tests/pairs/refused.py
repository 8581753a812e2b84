"""A row for each combination that netfold has to refuse."""

from __future__ import annotations

from typing import NamedTuple

from tests.pairs.array import Combination, Row, row_with
from tests.pairs.factors import Refusal, Space

TRIES = 20


class RefusedRow(NamedTuple):
    """A row, and the reasons for which it may be refused: more than one where no row has only the one."""

    row: Row
    reasons: tuple[Refusal, ...]


def refused_row(space: Space, combination: Combination) -> RefusedRow:
    """The row with the fewest other reasons."""
    row = row_with(space.factors, combination, space.excluded, seed=0)
    if row is None:
        # What shares a choice with it is allowed, too: gathering goes with in_network as little as with each
        # program that this has to have.
        others = space.meaningless | {other for other in space.refusals if not other & combination}
        rows = [row_with(space.factors, combination, others, seed) for seed in range(TRIES)]
        row = min((made for made in rows if made is not None), key=lambda made: len(_reasons(space, made)))
    return RefusedRow(row, _reasons(space, row))


def _reasons(space: Space, row: Row) -> tuple[Refusal, ...]:
    return tuple(refusal for choices, refusal in space.refusals.items() if choices <= row.items())
