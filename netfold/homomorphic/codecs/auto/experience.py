"""A record of one bucket's rounds, and the expected time of its next round in every encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.carrier import Carrier
from netfold.homomorphic.codec import State, part_of, prefixed
from netfold.homomorphic.codecs.auto.costs import (
    Counts,
    RoundCost,
    bitmap_cost,
    concurrent_cost,
    dense_cost,
    packed_cost,
    round_ps,
    two_level_cost,
)
from netfold.homomorphic.codecs.auto.union import Observed, UnionMemory
from netfold.homomorphic.codecs.sketched.lossless import Lossless
from netfold.homomorphic.codecs.sparse.block_sparse import BLOCK_ELEMENTS
from netfold.homomorphic.index.bits import WORD_ELEMENTS, WideIndex
from netfold.homomorphic.index.members import members_of
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.numbers.formats import NumberFormat, Values
from netfold.homomorphic.round import Round
from netfold.homomorphic.sketch.forecast import History, Seen, forecast_of, with_margin
from netfold.homomorphic.sketch.sketch import REPAIRED_TILING
from netfold.homomorphic.sketch.tiled import Layout, forecast_layout, redone_members, sketch_size


class Choice(StrEnum):
    """The encodings to choose from; the first wins a tie."""

    DENSE = "dense"
    PACKED = "packed"
    TWO_LEVEL = "packed, two_level"
    BITMAP = "block_sparse, bitmap"
    CONCURRENT = "lossless, concurrent"


@dataclass
class Experience:
    """One worker's record of one bucket; the same at all workers.

    A sketch that travels with its index fails where rounds differ. The last rounds say how often: for each,
    in any encoding, what a forecast from the others would have missed. The next round is assumed to be like
    one of these. Jumps do not count: later forecasts include them.
    """

    values: Values
    numbers: NumberFormat[Any]
    unit_elements: int  # of dense block_exponent
    history: History  # the record of all rounds, from which the sketch forecasts
    _union: UnionMemory = field(default_factory=UnionMemory)
    _counts: Counts | None = None

    @property
    def counts(self) -> Counts | None:
        """Counts of the last round's union; None before the first."""
        return self._counts

    def learn(self, decoded: Gradient, observed: Observed, round: Round) -> Seen | None:
        """Learn a round; return its record for the history, None if its numbers were not agreed on."""
        index = self._union.learn(decoded, observed)
        seen = None
        if self.numbers.label in observed or not self.numbers.label:
            pairs = [observed[self.numbers.label]] if self.numbers.label else []
            sent, merged = [one for one, _ in pairs], [one for _, one in pairs]
            members = np.diff(members_of(index, self.numbers.block_elements).starts)
            seen = Seen(members, self.numbers.agree(decoded.size, sent, merged, round))
        digits = None if seen is None else seen.agreed.digits
        counts = count(decoded.size, index, self.values, self.numbers.block_elements, digits)
        # Between an equal share and all members.
        self._counts = counts._replace(own_members=(1 + 1 / round.workers) / 2 * counts.members)
        return seen

    def state(self) -> State:
        """The counts of the last union, and the unions themselves."""
        state = prefixed("union", self._union.state())
        return state if self._counts is None else state | {"counts": np.array(self._counts[1:], np.float64)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        self._union.restore(part_of(state, "union"))
        if "counts" in state:
            figures = state["counts"].tolist()
            elements, members, own_members, *others = figures
            whole = [int(figure) for figure in others]
            self._counts = Counts(self.values, int(elements), int(members), own_members, *whole)

    def times_ps(self, carrier: Carrier, round: Round) -> dict[Choice, int]:
        """Expected time of a round, in each encoding that can be estimated."""
        return {
            choice: sum(round_ps(cost, carrier) for cost in costs) // len(costs)
            for choice, costs in self.costs(round).items()
        }

    def costs(self, round: Round) -> dict[Choice, list[RoundCost]]:
        """Possible costs of a round; several costs are equally likely."""
        counts = self._counts
        assert counts is not None, "a bucket's first round has no record"
        found = {
            Choice.DENSE: [dense_cost(counts, self.unit_elements)],
            Choice.PACKED: [packed_cost(counts)],
            Choice.TWO_LEVEL: [two_level_cost(counts)],
            Choice.BITMAP: [bitmap_cost(counts)],
        }
        rounds = self.history.recent(round, counts.elements)
        if rounds:
            forecast = forecast_of(rounds, self.numbers)
            size = sketch_size(self._layout(forecast), counts.elements, forecast.agreed)
            found[Choice.CONCURRENT] = [
                concurrent_cost(counts, size, redone) for redone in self._redone(rounds) or [0]
            ]
        return found

    def _redone(self, rounds: list[Seen]) -> list[int]:
        """For each round except jumps: the members that a forecast from all others would have missed."""
        totals = np.array([int(seen.members.sum()) for seen in rounds])
        missed = []
        for index, seen in enumerate(rounds if totals.size > 1 else ()):
            if totals[index] <= with_margin(np.delete(totals, index)).max():
                others = rounds[:index] + rounds[index + 1 :]
                forecast = forecast_of(others, self.numbers)
                missed.append(redone_members(self._layout(forecast), forecast, seen))
        return missed

    def _layout(self, forecast: Seen) -> Layout:
        assert self._counts is not None
        sketch, block_elements = Lossless(), self.numbers.block_elements
        return forecast_layout(REPAIRED_TILING, sketch.load, self._counts.elements, forecast, block_elements)


def count(
    elements: int, index: WideIndex, values: Values, block_elements: int, digits: NDArray[np.int64] | None
) -> Counts:
    """Count a union as if one worker had it all; `digits`: words per value, `(blocks,)`, default 1."""
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
