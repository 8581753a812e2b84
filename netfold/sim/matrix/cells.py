"""One codec on one collective: a small training run on a star, or the reason why there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

from netfold.errors import MistakesError, RunError, ScenarioError
from netfold.homomorphic.codec import Codec
from netfold.sim.checks.checks import Journal
from netfold.sim.resolve import resolve
from netfold.sim.resolve.plan import Plan
from netfold.sim.results.summary import summarize
from netfold.sim.run.variant import run_variant
from netfold.sim.scenario import load
from netfold.sim.scenario.source import ScenarioText
from netfold.sim.workload.workload_keys import Workloads

STEPS = 3
REFUSED = "refused"


class Row(NamedTuple):
    """A codec with options."""

    name: str  # KIND or KIND:OPTION=VALUE,…
    codec: Codec | None
    why: tuple[str, str] = ("", "")  # the reason why there is no such codec, and what to do

    @property
    def section(self) -> dict[str, Any]:
        """What a scenario says of it: its kind, and options that differ from their defaults."""
        assert self.codec is not None
        known: tuple[Field[Any], ...] = fields(self.codec) if is_dataclass(self.codec) else ()
        options = {
            one.name: getattr(self.codec, one.name)
            for one in known
            if one.default is MISSING or getattr(self.codec, one.name) != one.default
        }
        return {"kind": self.codec.kind, **options}


class Column(NamedTuple):
    """A collective with the keys that decide which codecs it carries."""

    collective: str
    choice: str  # the name of these keys; empty: there is no choice
    keys: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The collective and the choice."""
        return f"{self.collective} {self.choice}".strip()


@dataclass(frozen=True)
class Cell:
    """What a codec on a collective came to: a row of the results.

    Times and bytes are means per step, bytes those of one worker.
    """

    codec: str
    promise: str  # exact, bounded or unbiased; a verdict that passes says that it was kept
    collective: str
    choice: str
    loss: str  # share of packets lost on each link, as written; empty: none
    switch: str  # profile
    verdict: str  # of a run; or "refused"
    reason: str = ""  # of a refusal, or of a run that did not pass
    hint: str = ""  # what would work
    aggregation_time_us: float | None = None
    payload_bytes_up: float | None = None
    payload_bytes_down: float | None = None
    wire_bytes_up: float | None = None
    wire_bytes_down: float | None = None
    packets_lost: int | None = None
    packets_retransmitted: int | None = None
    checked_words: int | None = None  # merged words, over all workers, that were compared with those sent
    checked_elements: int | None = None  # of totals, compared with the contributions; estimates are not

    @property
    def column(self) -> str:
        """Name of its column."""
        return f"{self.collective} {self.choice}".strip()


@dataclass
class Bench:
    """The network, gradients and faults of all cells.

    `switches` are profiles, those that can do least first: a cell has the first that carries it.
    """

    workers: int
    switches: Sequence[str]
    loss: str  # of the second run of every cell; empty: there is none
    seed: int
    workloads: Workloads = field(init=False)

    def __post_init__(self) -> None:
        self.workloads = Workloads((), self.seed)  # every cell restarts the same one

    def cells(self, row: Row, column: Column) -> list[Cell]:
        """The cells of a codec on a collective: without loss, and with it."""
        losses = ["", self.loss] if self.loss else [""]
        if row.codec is None:
            return [_refused(row, column, loss, "", *row.why) for loss in losses]
        plan, switch, refusal = self._plan(row, column, "", self.switches)
        if plan is None:
            return [_refused(row, column, loss, switch, *refusal) for loss in losses]
        return [self._cell(row, column, switch, loss) for loss in losses]

    def _cell(self, row: Row, column: Column, switch: str, loss: str) -> Cell:
        plan, _, refusal = self._plan(row, column, loss, [switch])
        if plan is None:
            return _refused(row, column, loss, switch, *refusal)
        variant = plan.variants[0]
        if loss and variant.jobs[0].collective.needs_lossless:
            reason = f"{column.name} does not recover from lost packets"
            return _refused(row, column, loss, switch, reason, "use a network without loss")
        try:
            result = run_variant(plan, variant, workloads=self.workloads)
        except RunError as error:
            return _cell(row, column, loss, switch, verdict="fail", reason=error.message, hint=error.hint)
        entry = summarize(result.facts, result.records)["variants"][0]
        return _cell(row, column, loss, switch, **_outcome(entry), **_checked(result.jobs[0].journal))

    def _plan(
        self, row: Row, column: Column, loss: str, switches: Sequence[str]
    ) -> tuple[Plan | None, str, tuple[str, str]]:
        """The plan on the first switch that carries it; else None, the last switch, and why not there."""
        why = ("", "")
        for switch in switches:
            text = json.dumps(self._scenario(row, column, loss, switch), indent=1)
            try:
                return resolve(load(ScenarioText(f"{text}\n", "<matrix>"), (), self.seed)), switch, why
            except ScenarioError as error:
                first = error.mistakes[0] if isinstance(error, MistakesError) else error
                why = first.message, first.hint
        return None, switches[-1], why

    def _scenario(self, row: Row, column: Column, loss: str, switch: str) -> dict[str, Any]:
        """Steps of the small classifier, which knows all facts of a step; half of the hosts are free."""
        return {
            "name": "matrix",
            "topology": {
                "kind": "star",
                "hosts": 2 * self.workers,
                "rate": "100Gbps",
                "delay": "1us",
                "switch": switch,
            },
            "workers": self.workers,
            "workload": {"kind": "training", "model": "mlp", "batch": 16, "steps": STEPS},
            "codec": row.section,
            "collective": {"kind": column.collective, **column.keys},
            "faults": [{"kind": "loss", "rate": loss}] if loss else [],
        }


def _refused(row: Row, column: Column, loss: str, switch: str, reason: str, hint: str) -> Cell:
    return _cell(row, column, loss, switch, verdict=REFUSED, reason=reason, hint=hint)


def _cell(row: Row, column: Column, loss: str, switch: str, **found: Any) -> Cell:
    promise = row.codec.promise.value if row.codec else ""
    return Cell(row.name, promise, column.collective, column.choice, loss, switch, **found)


def _outcome(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A cell's figures from a variant's entry in a summary."""
    metrics = entry["metrics"]
    failed = [check for check in entry["checks"] if check["verdict"] != "pass"]
    workers = metrics["workers"]
    return {
        "verdict": entry["verdict"],
        "reason": f"{failed[0]['name']}: {failed[0]['detail'].splitlines()[0]}" if failed else "",
        "wire_bytes_up": metrics["wire_bytes_up_per_worker"],
        "wire_bytes_down": None
        if metrics["wire_bytes_down"] is None
        else metrics["wire_bytes_down"] / workers,
        **{
            name: metrics[name]
            for name in (
                "aggregation_time_us",
                "payload_bytes_up",
                "payload_bytes_down",
                "packets_lost",
                "packets_retransmitted",
            )
        },
    }


def _checked(journal: Journal) -> dict[str, int]:
    """How much the checks have examined."""
    words = sum(one.integer_words + one.float_words + one.at_hosts.words for one in journal.findings)
    return {
        "checked_words": words + journal.signs.words,
        "checked_elements": sum(one.elements - one.estimated_elements for one in journal.rounds),
    }
