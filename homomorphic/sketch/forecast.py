"""What a bucket's next round will be like, from its last ones: how many members, which numbers.

A sketch that is sent together with the index must be sized, and its numbers chosen, before anybody knows the
union. All workers have seen the same unions, so they forecast alike.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from homomorphic.numbers.formats import Agreed, Format

ROUNDS = 4  # looked back upon
GROWTH = 1.05  # of the largest count seen, on top of three standard deviations of a random one


class Seen(NamedTuple):
    """What a round was like; or what one is expected to be."""

    members: NDArray[np.int64]  # (blocks,)
    agreed: Agreed


@dataclass
class History:
    """The last rounds of every bucket."""

    _seen: dict[int, deque[Seen]] = field(default_factory=dict)

    def add(self, bucket: int, seen: Seen) -> None:
        """Remember a round."""
        self._seen.setdefault(bucket, deque(maxlen=ROUNDS)).append(seen)

    def forecast(self, bucket: int, numbers: Format[Any]) -> Seen | None:
        """A round at least as dense as each of the last, with numbers that suit them; None without any."""
        seen = self._seen.get(bucket)
        if not seen:
            return None
        largest = np.maximum.reduce([one.members for one in seen])
        return Seen(largest, numbers.forecast([one.agreed for one in seen]))


def with_margin(members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Members to make room for, where so many are expected."""
    return np.where(members > 0, np.ceil(GROWTH * members + 3 * np.sqrt(members)), 0).astype(np.int64)
