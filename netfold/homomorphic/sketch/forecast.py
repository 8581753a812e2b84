"""Forecasts of a bucket's next round from its last ones: members and numbers.

A sketch that is sent together with the index needs its size and numbers before any worker knows the union.
All workers have seen the same unions, so they forecast alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import State, part_of, prefixed, prefixes
from netfold.homomorphic.numbers.formats import Agreed, NumberFormat
from netfold.homomorphic.round import Round

ROUNDS = 4  # that a forecast uses
STEPS = 8  # age from which a round is forgotten, because gradients have changed
GROWTH = 1.05  # of the largest count, in addition to three standard deviations of a random count


class Seen(NamedTuple):
    """Members and numbers of a round, observed or expected."""

    members: NDArray[np.int64]  # (blocks,)
    agreed: Agreed


class _Record(NamedTuple):
    """A recorded round."""

    step: int
    elements: int  # of the bucket
    workers: int
    seen: Seen


@dataclass
class History:
    """The last rounds of every bucket."""

    _records: dict[int, deque[_Record]] = field(default_factory=dict)

    def add(self, round: Round, elements: int, seen: Seen) -> None:
        """Record a round of a bucket."""
        records = self._records.setdefault(round.bucket, deque(maxlen=ROUNDS))
        records.append(_Record(round.step, elements, round.workers, seen))

    def recent(self, round: Round, elements: int) -> list[Seen]:
        """Recent rounds of the same bucket and length, oldest first."""
        return [
            record.seen
            for record in self._records.get(round.bucket, ())
            if record.elements == elements and round.step - record.step < STEPS
        ]

    def forecast(self, round: Round, elements: int, numbers: NumberFormat[Any]) -> Seen | None:
        """Forecast a round; None without recent rounds."""
        seen = self.recent(round, elements)
        return forecast_of(seen, numbers) if seen else None

    def state(self, numbers: NumberFormat[Any]) -> State:
        """The recorded rounds: for each its place, members and numbers, under "bucket/index of the round"."""
        state: State = {}
        for bucket, records in self._records.items():
            for index, (step, elements, workers, seen) in enumerate(records):
                own = {"place": np.array([step, elements, workers]), "members": seen.members}
                own["numbers"] = numbers.record(seen.agreed)
                state |= prefixed(f"{bucket}/{index}", own)
        return state

    def restore(self, state: Mapping[str, NDArray[Any]], numbers: NumberFormat[Any]) -> None:
        """Continue from a state with the same number format."""
        self._records.clear()
        for bucket in prefixes(state):
            own = part_of(state, bucket)
            records = self._records.setdefault(int(bucket), deque(maxlen=ROUNDS))
            for index in prefixes(own):
                step, elements, workers = own[f"{index}/place"].tolist()
                agreed = numbers.recall(own[f"{index}/numbers"], workers)
                records.append(_Record(step, elements, workers, Seen(own[f"{index}/members"], agreed)))


def forecast_of(rounds: Sequence[Seen], numbers: NumberFormat[Any]) -> Seen:
    """A round at least as dense as each of these (at least one), with numbers that cover them."""
    largest = np.maximum.reduce([one.members for one in rounds])
    return Seen(largest, numbers.forecast([one.agreed for one in rounds]))


def with_margin(members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Members to make room for, with a margin over the expected ones."""
    return np.where(members > 0, np.ceil(GROWTH * members + 3 * np.sqrt(members)), 0).astype(np.int64)
