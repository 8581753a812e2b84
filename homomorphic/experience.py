"""What the rounds of one bucket were like, and what its next one is expected to take in every encoding."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from homomorphic import costs
from homomorphic.bits import WORD_ELEMENTS
from homomorphic.block_sparse import BLOCK_ELEMENTS
from homomorphic.codec import Carrier, Gradient, Merged, Message, Round
from homomorphic.costs import Counts, time_us
from homomorphic.forecast import ROUNDS, History, Seen
from homomorphic.lossless import Lossless
from homomorphic.members import members_of
from homomorphic.membership import own_index
from homomorphic.numbers import Agreed, Format, Values
from homomorphic.sketch import REPAIRED_SHAPE
from homomorphic.tiled import Layout, forecast_layout, redone_members, sketch_size


class Choice(StrEnum):
    """The encodings to choose from; of equals the first."""

    DENSE = "dense"
    PACKED = "packed"
    TWO_LEVEL = "packed, two_level"
    CONCURRENT = "lossless, concurrent"
    BITMAP = "block_sparse, bitmap"


@dataclass
class Experience:
    """One worker's, of one bucket; the same at all workers.

    A sketch that goes with its index fails where rounds differ. Every round shows what a forecast for it
    would have missed, whether it was used or not; the mean of the last few is expected of the next.
    """

    values: Values
    numbers: Format[Any]
    history: History  # the sketch's: what it forecasts from
    unit_elements: int  # of dense block_exponent
    _counts: Counts | None = None
    _redone: deque[int] = field(default_factory=lambda: deque(maxlen=ROUNDS))  # members of each last round
    _forecast: Seen | None = None

    @property
    def counts(self) -> Counts | None:
        """What the last sum was like; None before the first."""
        return self._counts

    def learn(
        self, decoded: Gradient, announced: Sequence[tuple[Message, Merged]], round: Round, is_sketch: bool
    ) -> None:
        """Keep what a round was like: its sum, what its numbers announced, and whether it was a sketch."""
        index = own_index(decoded)
        members = np.diff(members_of(index, self.numbers.block_elements).starts)
        agreed = self._agreed(decoded.size, announced, round)
        if agreed is not None:
            seen = Seen(members, agreed)
            if self._forecast is not None:
                layout = self._layout(decoded.size, self._forecast)
                self._redone.append(redone_members(layout, self._forecast, seen))
            if not is_sketch:  # which remembers by itself
                self.history.add(round.bucket, seen)
            self._forecast = self.history.forecast(round.bucket, self.numbers)
        digits = 1.0 if agreed is None else float(np.average(agreed.digits, weights=members + 1e-9))
        words = index != 0
        blocks = np.add.reduceat(words, np.arange(0, words.size, BLOCK_ELEMENTS // WORD_ELEMENTS)) > 0
        self._counts = Counts(
            values=self.values,
            elements=decoded.size,
            members=int(members.sum()),
            live_words=int(np.count_nonzero(words)),
            live_blocks=int(np.count_nonzero(blocks)),
            block_elements=self.numbers.block_elements,
            digits=digits,
        )

    def times_us(self, carrier: Carrier, workers: int) -> dict[Choice, float]:
        """How long the next round is expected to take; of a choice that nothing is known about, nothing."""
        counts = self._counts
        assert counts is not None, "a bucket's first round is chosen without experience"
        is_ahead = carrier.has_exponents_ahead and self.unit_elements == carrier.unit_elements
        times_us = {
            Choice.DENSE: time_us(costs.dense_cost(counts, self.unit_elements, is_ahead), carrier),
            Choice.PACKED: time_us(costs.packed_cost(counts), carrier),
            Choice.TWO_LEVEL: time_us(costs.two_level_cost(counts), carrier),
            Choice.BITMAP: time_us(costs.bitmap_cost(counts), carrier),
        }
        if self._forecast is not None:
            size = sketch_size(
                self._layout(counts.elements, self._forecast), counts.elements, self._forecast.agreed
            )
            redone = self._redone or [0]
            expected = [costs.concurrent_cost(counts, size, workers, members) for members in redone]
            times_us[Choice.CONCURRENT] = float(np.mean([time_us(cost, carrier) for cost in expected]))
        return times_us

    def _agreed(
        self, elements: int, announced: Sequence[tuple[Message, Merged]], round: Round
    ) -> Agreed | None:
        """What the numbers agreed on; None if no message of theirs told."""
        if self.numbers.label and not announced:
            return None
        sent, merged = [one for one, _ in announced], [one for _, one in announced]
        agreed: Agreed = self.numbers.agree(elements, sent, merged, round)
        return agreed

    def _layout(self, elements: int, forecast: Seen) -> Layout:
        block_elements = self.numbers.block_elements
        return forecast_layout(REPAIRED_SHAPE, Lossless().load, elements, forecast, block_elements)
