"""What a bucket's next round will be like, from its last ones: how many members, which numbers.

A sketch that is sent together with the index must be sized, and its numbers chosen, before anybody knows the
union. All workers have seen the same unions, so they forecast alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Round
from netfold.homomorphic.numbers.formats import Agreed, NumberFormat

ROUNDS = 4  # looked back upon …
STEPS = 8  # … none of them so many steps ago: gradients will have changed since
GROWTH = 1.05  # of the largest count seen, on top of three standard deviations of a random one


class Seen(NamedTuple):
    """What a round was like; or what one is expected to be."""

    members: NDArray[np.int64]  # (blocks,)
    agreed: Agreed


class _Record(NamedTuple):
    """A round that is remembered."""

    step: int
    elements: int  # of the bucket
    seen: Seen


@dataclass
class History:
    """The last rounds of every bucket."""

    _records: dict[int, deque[_Record]] = field(default_factory=dict)

    def add(self, round: Round, elements: int, seen: Seen) -> None:
        """Remember a round of a bucket with so many elements."""
        records = self._records.setdefault(round.bucket, deque(maxlen=ROUNDS))
        records.append(_Record(round.step, elements, seen))

    def recent(self, round: Round, elements: int) -> list[Seen]:
        """What a round can go by, oldest first: rounds of its bucket and length, not long ago."""
        return [
            record.seen
            for record in self._records.get(round.bucket, ())
            if record.elements == elements and round.step - record.step < STEPS
        ]

    def forecast(self, round: Round, elements: int, numbers: NumberFormat[Any]) -> Seen | None:
        """What to expect of a round of so many elements; None without any to go by."""
        seen = self.recent(round, elements)
        return forecast_of(seen, numbers) if seen else None


def forecast_of(rounds: Sequence[Seen], numbers: NumberFormat[Any]) -> Seen:
    """A round at least as dense as each of these (one at least), with numbers that suit them."""
    largest = np.maximum.reduce([one.members for one in rounds])
    return Seen(largest, numbers.forecast([one.agreed for one in rounds]))


def with_margin(members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Members to make room for, where so many are expected."""
    return np.where(members > 0, np.ceil(GROWTH * members + 3 * np.sqrt(members)), 0).astype(np.int64)
