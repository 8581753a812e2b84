"""What a state has sent, and what its codec reports."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import polars as pl
from rich.table import Table

from netfold.homomorphic.round import Note
from netfold.sim.report.style import Shown
from netfold.sim.results.parquet import frame

ROUNDS_KEPT = 10_000  # of the last rounds, and of their notes; totals are of all


@dataclass(frozen=True, slots=True)
class RoundSent:
    """One worker's part in one round."""

    step: int
    bucket: int
    elements: int
    operations: int
    gradient_bytes: int  # of the gradient, in the type that the model has
    payload_bytes: int  # of the messages that the codec sent, as a run's `payload_bytes_up`
    carried_bytes: int  # given to collectives: the payload, what workers agree on, and shares passed on
    exchange_s: float  # from the gradient to the decoded total


@dataclass(frozen=True, slots=True)
class NoteMade:
    """One note of the codec on one round."""

    step: int
    bucket: int
    kind: str  # choice, redo, forecast, estimate, infinite
    text: str
    count: int  # parts or elements that it is about …
    total: int  # … out of this many


@dataclass
class BucketTotals:
    """Sums over all rounds of a bucket."""

    name: str
    rounds: int = 0
    gradient_bytes: int = 0
    payload_bytes: int = 0
    carried_bytes: int = 0
    exchange_s: float = 0.0
    notes: dict[str, int] = field(default_factory=dict)  # how often, by kind; of choices by name


class Log:
    """Collects the rounds of a state."""

    def __init__(self) -> None:
        self.rounds: deque[RoundSent] = deque(maxlen=ROUNDS_KEPT)
        self.notes: deque[NoteMade] = deque(maxlen=ROUNDS_KEPT)
        self.totals: dict[int, BucketTotals] = {}

    def add(self, sent: RoundSent, name: str, notes: list[Note]) -> None:
        """Add a round of a bucket with a name."""
        self.rounds.append(sent)
        total = self.totals.setdefault(sent.bucket, BucketTotals(name))
        total.rounds += 1
        total.gradient_bytes += sent.gradient_bytes
        total.payload_bytes += sent.payload_bytes
        total.carried_bytes += sent.carried_bytes
        total.exchange_s += sent.exchange_s
        for note in notes:
            kind = note.kind.value
            self.notes.append(NoteMade(sent.step, sent.bucket, kind, note.text, note.count, note.total))
            key = f"{kind} {note.name}" if kind == "choice" else kind
            total.notes[key] = total.notes.get(key, 0) + 1


class Report(Shown):
    """What one worker has sent so far; `print` shows a line for each bucket.

    Attributes
    ----------
    rounds
        A row for every bucket and step, see `RoundSent`: the last 10,000.
    notes
        What the codec reported, see `NoteMade`: the last 10,000.
    gradient_bytes, payload_bytes, carried_bytes
        Of all rounds.
    """

    def __init__(self, log: Log) -> None:
        self.rounds: pl.DataFrame = frame(RoundSent, list(log.rounds))
        self.notes: pl.DataFrame = frame(NoteMade, list(log.notes))
        self._totals = [log.totals[bucket] for bucket in sorted(log.totals)]
        self.gradient_bytes = sum(one.gradient_bytes for one in self._totals)
        self.payload_bytes = sum(one.payload_bytes for one in self._totals)
        self.carried_bytes = sum(one.carried_bytes for one in self._totals)

    @property
    def compression(self) -> float:
        """Bytes of gradients for each byte of payload; infinite if nothing was sent."""
        return _ratio(self.gradient_bytes, self.payload_bytes)

    def table(self) -> Table:
        """A line for each bucket."""
        table = Table(title="What one worker sent")
        table.add_column("bucket")
        for name in ("rounds", "gradient", "payload", "compression", "given to collectives", "time"):
            table.add_column(name, justify="right")
        table.add_column("notes")
        for one in self._totals:
            rounds = max(1, one.rounds)
            sizes = (one.gradient_bytes, one.payload_bytes, one.carried_bytes)
            gradient, payload, carried = (f"{size / rounds / 1e3:,.1f} kB" for size in sizes)
            table.add_row(
                one.name,
                str(one.rounds),
                gradient,
                payload,
                f"{_ratio(one.gradient_bytes, one.payload_bytes):.3g}",
                carried,
                f"{1e3 * one.exchange_s / rounds:.1f} ms",
                ", ".join(f"{name}: {count}" for name, count in one.notes.items()),
            )
        table.caption = "bytes and times are means of a round"
        return table


def _ratio(bytes_before: int, bytes_after: int) -> float:
    return bytes_before / bytes_after if bytes_after else float("inf")
