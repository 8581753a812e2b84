"""Records of runs that never happened, small enough to check by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.console import Console

from netfold.sim.plan.plan import Reference
from netfold.sim.report import html_report
from netfold.sim.report.compare import results_table
from netfold.sim.results.folder import RunData, write_run
from netfold.sim.results.metrics import VariantFacts
from netfold.sim.results.records import (
    CheckRecord,
    LinkRecord,
    NoteRecord,
    PhaseRecord,
    Records,
    RoundRecord,
    StepRecord,
)
from netfold.sim.results.summary import summarize

US = 1_000_000  # ps
STARTED_AT = datetime(2026, 11, 21, 19, 12, 51, 987654, tzinfo=UTC)
TABLES = {field.name for field in fields(Records)}
SCENARIO = b"name: quick\nseed: 7\n"


@dataclass(frozen=True)
class Fake:
    """One variant: how long its messages take, how large they are, and what its check says."""

    name: str
    messages: tuple[tuple[str, int, int], ...]  # label, microseconds, payload bytes
    verdict: str = "pass"
    workers: int = 2
    steps: int = 2
    buckets: int = 2
    elements: int = 1000  # of one bucket
    forward_us: int = 20
    backward_us: int = 40
    encode_us: int = 3
    decode_us: int = 5
    losses: tuple[float, ...] = ()
    accuracies: tuple[float | None, ...] = ()  # after each step
    metric: str = "accuracy"
    target: float | None = None
    references: tuple[Reference, ...] = ()
    estimates: int = 0  # elements of the sum of a step's bucket 0
    choices: tuple[str, ...] = ()  # of encodings, by bucket
    bit_exact: bool | None = True
    is_uncompressed: bool = False
    nmse: tuple[float | None, ...] = (0.0, 0.5)  # by bucket

    @property
    def exchange_us(self) -> int:
        return self.encode_us + sum(time_us for _, time_us, _ in self.messages) + self.decode_us

    @property
    def payload_bytes(self) -> int:
        return sum(size_bytes for _, _, size_bytes in self.messages)

    def ready_us(self, step: int, bucket: int) -> int:
        return self.start_us(step) + self.forward_us + self.backward_us * (bucket + 1) // self.buckets

    def start_us(self, step: int) -> int:
        return step * self.step_us

    @property
    def step_us(self) -> int:
        return self.forward_us + self.backward_us + self.exchange_us


RING = Fake("ring", (("values", 100, 4000),))
LOSSLESS = Fake("lossless", (("index", 4, 40), ("values", 16, 760)))


def steps(fake: Fake) -> list[StepRecord]:
    return [
        StepRecord(
            variant=fake.name,
            step=step,
            start_ps=fake.start_us(step) * US,
            forward_end_ps=(fake.start_us(step) + fake.forward_us) * US,
            backward_end_ps=(fake.start_us(step) + fake.forward_us + fake.backward_us) * US,
            aggregation_start_ps=fake.ready_us(step, 0) * US,
            aggregation_end_ps=fake.start_us(step + 1) * US,
            aggregation_ps=(fake.start_us(step + 1) - fake.ready_us(step, 0)) * US,
            end_ps=fake.start_us(step + 1) * US,
            elements=fake.elements * fake.buckets,
            loss=fake.losses[step] if fake.losses else None,
            test_metric=fake.metric if fake.accuracies and fake.accuracies[step] is not None else None,
            test_score=fake.accuracies[step] if fake.accuracies else None,
        )
        for step in range(fake.steps)
    ]


def rounds(fake: Fake) -> list[RoundRecord]:
    return [
        RoundRecord(
            variant=fake.name,
            step=step,
            bucket=bucket,
            elements=fake.elements,
            start_ps=fake.ready_us(step, bucket) * US,
            end_ps=(fake.ready_us(step, bucket) + fake.exchange_us) * US,
            messages=len(fake.messages),
            fallback_messages=bucket,
            payload_bytes_up=fake.workers * fake.payload_bytes,
            payload_bytes_down=fake.workers * (fake.payload_bytes + 40),
            uploads=fake.workers - (bucket == 1),
            wire_bytes_up=fake.workers * (fake.payload_bytes + 100),
            wire_bytes_down=fake.workers * (fake.payload_bytes + 200),
            nonzeros=100 + bucket,
            union_nonzeros=300 + bucket,
            merges_verified=fake.verdict == "pass",
            bit_exact=fake.bit_exact,
            replicas_agree=True,
            workers_held_min=fake.workers,
            workers_held_mean=float(fake.workers),
            max_abs_error=0.25 * (bucket + 1),
            nmse=fake.nmse[bucket % len(fake.nmse)],
            cosine=1.0 - bucket,
            max_error_over_bound=0.5,
            notes_agree=True,
            choice=fake.choices[bucket] if fake.choices else None,
            fallback_parts=0,
            forecast_misses=0,
            estimated_elements=0 if bucket else fake.estimates,
            infinite_elements=0,
        )
        for step in range(fake.steps)
        for bucket in range(fake.buckets)
    ]


def notes(fake: Fake) -> list[NoteRecord]:
    return [
        NoteRecord(fake.name, step, bucket, "choice", f"{choice}: it is <best>", 1, 1, None)
        for step in range(fake.steps)
        for bucket, choice in enumerate(fake.choices)
    ]


def phases(fake: Fake) -> list[PhaseRecord]:
    """Rows of the time line; worker w is w microseconds late."""
    rows: list[PhaseRecord] = []

    def add(
        step: int, bucket: int, worker: int, what: tuple[str, str, int], start_us: int, end_us: int
    ) -> None:
        phase, label, size_bytes = what
        rows.append(
            PhaseRecord(fake.name, step, bucket, worker, phase, label, start_us * US, end_us * US, size_bytes)
        )

    for step in range(fake.steps):
        for worker in range(fake.workers):
            now = fake.start_us(step) + worker
            if fake.forward_us + fake.backward_us:
                middle = now + fake.forward_us
                add(step, -1, worker, ("forward", "", 0), now, middle)
                add(step, -1, worker, ("backward", "", 0), middle, middle + fake.backward_us)
            for bucket in range(fake.buckets):
                now = fake.ready_us(step, bucket) + worker
                add(step, bucket, worker, ("encode", "", 0), now, now + fake.encode_us)
                now += fake.encode_us
                for label, time_us, size_bytes in fake.messages:
                    add(step, bucket, worker, ("network", label, size_bytes), now, now + time_us)
                    now += time_us
                add(step, bucket, worker, ("decode", "", 0), now, now + fake.decode_us)
    return rows


def links(fake: Fake) -> list[LinkRecord]:
    return [
        LinkRecord(
            variant=fake.name,
            link=f"h{worker}->s0",
            source=f"h{worker}",
            target="s0",
            rate_bps=100_000_000_000,
            packets=10 + worker,
            bytes=10_000,
            delivered_packets=8,
            delivered_bytes=8_000,
            lost_packets=2 + worker,
            lost_bytes=2_000,
            dropped_packets=3,
            dropped_bytes=3_000,
            in_flight_packets=0,
            in_flight_bytes=0,
            busy_ps=fake.step_us * US // (worker + 1),
            backlog_bytes_max=5_000,
        )
        for worker in range(fake.workers)
    ]


def checks(fake: Fake) -> list[CheckRecord]:
    detail = "4 of 4 sums are right" if fake.verdict == "pass" else "round 3: element 17 is 5, should be 4"
    return [
        CheckRecord(fake.name, "sum_is_right", fake.verdict, detail),
        CheckRecord(fake.name, "conservation", "pass", "20 packets sent, 20 accounted for"),
    ]


def records(*fakes: Fake, **changes: Any) -> Records:
    """All that some variants left, with some tables changed."""
    makers = (steps, rounds, notes, phases, links, checks)
    tables = {make.__name__: [record for fake in fakes for record in make(fake)] for make in makers}
    return Records(**(tables | changes))


def summary(*fakes: Fake, **changes: Any) -> dict[str, Any]:
    facts = {
        fake.name: VariantFacts(
            fake.workers,
            17,
            9,
            references=fake.references,
            target=fake.target,
            is_uncompressed=fake.is_uncompressed,
        )
        for fake in fakes
    }
    return summarize(facts, records(*fakes, **changes))


def run_data(*fakes: Fake, **changes: Any) -> RunData:
    """A run of some variants, ring and lossless when none is named; tables may be changed too."""
    fakes = fakes or (RING, LOSSLESS)
    tables = {name: changes.pop(name) for name in TABLES & changes.keys()}
    fields: dict[str, Any] = {
        "scenario_name": "quick",
        "scenario_text": SCENARIO,
        "seed": 7,
        "started_at": STARTED_AT,
        "wall_s": 1.5,
        "approximations": ("hosts forward nothing", "a link loses packets independently"),
        "records": records(*fakes, **tables),
        "summary": summary(*fakes),
        "engine": {"packet_hops": 42, "wall_s": 0.5, "packet_hops_per_s": 84.0},
    }
    return RunData(**(fields | changes))


def printed(shown: Any, width: int) -> list[str]:
    """The lines of a terminal."""
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(shown, crop=False)
    return captured.get().splitlines()


def terminal(width: int, found: dict[str, Any], columns: str = "all", is_verbose: bool = True) -> list[str]:
    """What the terminal shows of a summary; by default with all columns and notes."""
    run = {"scenario": "quick", "seed": 7, **found}
    return printed(results_table(run, columns=columns, is_verbose=is_verbose), width)


def svg_text(svg: bytes) -> list[str]:
    return [
        element.text
        for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
        if element.text
    ]


def page_of(folder: Path) -> str:
    """The report, with single spaces, and without the values that tables are sorted by."""
    text = re.sub(r' data-value="[^"]*"', "", (folder / "report.html").read_text("utf-8"))
    return " ".join(text.split())


def reported(out_dir: Path, *fakes: Fake, **changes: Any) -> Path:
    """The folder of a run of some variants, with its report; as `run_data`."""
    folder = write_run(out_dir, run_data(*fakes, **changes))
    html_report.build_report(folder)
    return folder
