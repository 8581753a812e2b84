"""What the rounds of one bucket were like, and what its next one is expected to take in every encoding."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from homomorphic.block_sparse import BLOCK_ELEMENTS
from homomorphic.choice.costs import (
    Cost,
    Counts,
    bitmap_cost,
    concurrent_cost,
    dense_cost,
    packed_cost,
    time_us,
    two_level_cost,
)
from homomorphic.codec import Carrier, Gradient, Merged, Message, Round
from homomorphic.index.bits import WORD_ELEMENTS, WideIndex
from homomorphic.index.members import members_of
from homomorphic.index.membership import own_index
from homomorphic.lossless import Lossless
from homomorphic.numbers.formats import Format, Values
from homomorphic.sketch.forecast import ROUNDS, History, Seen, with_margin
from homomorphic.sketch.sketch import REPAIRED_SHAPE
from homomorphic.sketch.tiled import Layout, forecast_layout, redone_members, sketch_size


class Choice(StrEnum):
    """The encodings to choose from; of equals the first."""

    DENSE = "dense"
    PACKED = "packed"
    TWO_LEVEL = "packed, two_level"
    BITMAP = "block_sparse, bitmap"
    CONCURRENT = "lossless, concurrent"


@dataclass
class Experience:
    """One worker's, of one bucket; the same at all workers.

    A sketch that goes with its index fails where rounds differ. How often is told by the last rounds: what a
    forecast from the others would have missed in each, however it was encoded. The next round is taken to be
    like one of these. A jump is not among them: later forecasts know about it.
    """

    values: Values
    numbers: Format[Any]
    unit_elements: int  # of dense block_exponent
    _counts: Counts | None = None
    _rounds: deque[Seen] = field(default_factory=lambda: deque(maxlen=ROUNDS))

    @property
    def counts(self) -> Counts | None:
        """What the last sum was like; None before the first."""
        return self._counts

    def learn(
        self, decoded: Gradient, announced: Sequence[tuple[Message, Merged]], round: Round
    ) -> Seen | None:
        """Keep what a round was like; return it, or None where its numbers announced nothing to go by."""
        index = own_index(decoded)
        members = np.diff(members_of(index, self.numbers.block_elements).starts)
        seen = None
        if announced or not self.numbers.label:
            sent, merged = [one for one, _ in announced], [one for _, one in announced]
            seen = Seen(members, self.numbers.agree(decoded.size, sent, merged, round))
            self._rounds.append(seen)
        digits = None if seen is None else seen.agreed.digits
        counts = count(decoded.size, index, self.values, self.numbers.block_elements, digits)
        # Anything from an equal share to all of them.
        self._counts = counts._replace(own_members=(1 + 1 / round.workers) / 2 * counts.members)
        return seen

    def times_us(self, carrier: Carrier) -> dict[Choice, float]:
        """How long the next round is expected to take, in each encoding that can be judged."""
        return {
            choice: float(np.mean([time_us(cost, carrier) for cost in costs]))
            for choice, costs in self.costs(carrier).items()
        }

    def costs(self, carrier: Carrier) -> dict[Choice, list[Cost]]:
        """What the next round may ask for; of several, each is as likely."""
        counts = self._counts
        assert counts is not None, "a bucket's first round is chosen without experience"
        is_ahead = carrier.has_exponents_ahead and self.unit_elements == carrier.unit_elements
        found = {
            Choice.DENSE: [dense_cost(counts, self.unit_elements, is_ahead)],
            Choice.PACKED: [packed_cost(counts)],
            Choice.TWO_LEVEL: [two_level_cost(counts)],
            Choice.BITMAP: [bitmap_cost(counts)],
        }
        if self._rounds:
            forecast = self._forecast(self._rounds)
            size = sketch_size(self._layout(forecast), counts.elements, forecast.agreed)
            found[Choice.CONCURRENT] = [
                concurrent_cost(counts, size, redone) for redone in self._redone() or [0]
            ]
        return found

    def _redone(self) -> list[int]:
        """Members that a forecast from all other rounds would have missed in each that was no jump."""
        totals = np.array([int(seen.members.sum()) for seen in self._rounds])
        missed = []
        for index, seen in enumerate(self._rounds if totals.size > 1 else ()):
            if totals[index] <= with_margin(np.delete(totals, index)).max():
                forecast = self._forecast(one for other, one in enumerate(self._rounds) if other != index)
                missed.append(redone_members(self._layout(forecast), forecast, seen))
        return missed

    def _forecast(self, rounds: Iterable[Seen]) -> Seen:
        history = History()
        for seen in rounds:
            history.add(0, seen)
        forecast = history.forecast(0, self.numbers)
        assert forecast is not None, "a forecast needs a round"
        return forecast

    def _layout(self, forecast: Seen) -> Layout:
        assert self._counts is not None
        sketch, block_elements = Lossless(), self.numbers.block_elements
        return forecast_layout(REPAIRED_SHAPE, sketch.load, self._counts.elements, forecast, block_elements)


def count(
    elements: int, index: WideIndex, values: Values, block_elements: int, digits: NDArray[np.int64] | None
) -> Counts:
    """Counts of one worker's sum; `digits` are words per value `(blocks,)`, None if each has one."""
    starts = np.arange(0, index.size, block_elements // WORD_ELEMENTS)
    members = np.add.reduceat(np.bitwise_count(index), starts, dtype=np.int64)
    is_live = index != 0
    run_words = BLOCK_ELEMENTS // WORD_ELEMENTS
    live_runs = np.add.reduceat(is_live, np.arange(0, index.size, run_words), dtype=np.int64) > 0
    sizes = np.minimum(BLOCK_ELEMENTS, elements - BLOCK_ELEMENTS * np.arange(live_runs.size))
    live = np.add.reduceat(
        live_runs * sizes, np.arange(0, sizes.size, block_elements // BLOCK_ELEMENTS), dtype=np.int64
    )
    in_block = np.minimum(block_elements, elements - block_elements * np.arange(starts.size))
    each = np.ones_like(members) if digits is None else digits
    return Counts(
        values=values,
        elements=elements,
        members=int(members.sum()),
        own_members=float(members.sum()),
        live_runs=int(np.count_nonzero(is_live)),
        live_elements=int(live.sum()),
        block_elements=block_elements,
        dense_words=int(in_block @ each),
        member_words=int(members @ each),
        live_words=int(live @ each),
    )
