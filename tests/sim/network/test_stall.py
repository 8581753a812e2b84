"""Variants that cannot finish: detected in time, explained, and stored with the other variants."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import simpy

from netfold.homomorphic.merge import Merge
from netfold.homomorphic.message import Message
from netfold.sim.collectives.collective import OperationId
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import Scaled, Segment, losses
from netfold.sim.engine.engine_views import _waiting_for
from netfold.sim.network.fabric import PATIENCE_MIN_PS, PATIENCE_TIMEOUTS, Fabric, Sampler
from netfold.sim.network.stall import StalledError
from netfold.sim.report.compare import compare
from netfold.sim.report.html_report import build_report
from netfold.sim.results.folder import load
from netfold.switch.program import ProgramSpec
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.tree import TREE
from tests.command_line import run_command
from tests.sim.exchanges import FRAME, messages_of, switch
from tests.sim.scenes import RING, TINY, Started, run, small_star, write

DEAD = "{kind: loss, rate: 100%, links: ['h1->s0']}"
DEAF = "{kind: loss, rate: 100%, links: ['s0->h2']}"
VARIANTS = f"""\
variants:
  - name: dead
    faults: [{DEAD}]
  - name: deaf
    faults: [{DEAF}]
  - name: fine
  - name: ring
    collective: {{kind: ring}}
    codec: {{kind: none}}
    faults: [{DEAD}]
"""
TIMEOUT_MAX_PS = 10**10  # of `switch`
PATIENCE_PS = max(PATIENCE_MIN_PS, PATIENCE_TIMEOUTS * TIMEOUT_MAX_PS)


def finishes(variant: dict[str, Any]) -> tuple[str, str]:
    check = variant["checks"][0]
    assert check["name"] == "finishes"
    return check["verdict"], check["detail"]


def test_stalled_variants_are_kept_beside_the_others(tmp_path: Path) -> None:
    file = write(tmp_path, TINY + VARIANTS)

    result = run_command("run", file, "--out", tmp_path / "runs", "--no-report", "--json")

    assert result.exit_code == 1
    report = json.loads(result.stdout)
    by_name = {variant["name"]: variant for variant in report["variants"]}
    assert report["verdict"] == "stalled"
    assert {name: variant["verdict"] for name, variant in by_name.items()} == {
        "dead": "stalled",
        "deaf": "stalled",
        "fine": "pass",
        "ring": "stalled",
    }
    verdict, detail = finishes(by_name["dead"])
    assert verdict == "stalled"
    cause, advice, waiting, quiet = detail.splitlines()
    assert re.fullmatch(r"likely cause: link h1->s0 loses every packet \((\d+) of \1\)", cause)
    assert advice == "  try: a loss below 100% for it in `faults`"
    assert waiting.startswith(
        "  workers 0, 1 and 2 wait for 16 slots, first "
        "slot 0, version 0, unit 0 of stream 0 at s0: worker 1 missing, last event "
    )
    assert quiet == "  no traffic has made progress for 1s of simulated time"
    row = by_name["dead"]["diagnosis"]["slots"][0]
    assert (row["switch"], row["slot"], row["version"], row["stream"], row["unit"]) == ("s0", 0, 0, 0, 0)
    assert (row["waiting"], row["missing"], row["missing_count"]) == ([0, 1, 2], ["worker 1"], 1)
    assert by_name["dead"]["metrics"]["steps"] == 0
    assert by_name["dead"]["metrics"]["merges_verified"] is None


@pytest.mark.parametrize("sets", [(), (RING, "codec={kind: none}")], ids=["switch", "ring"])
def test_a_link_that_corrupts_every_packet_loses_none(tmp_path: Path, sets: tuple[str, ...]) -> None:
    fault = "faults=[{kind: corruption, rate: 100%, links: [h1->s0]}]"
    (variant,) = run(tmp_path, fault, *sets).summary["variants"]

    cause, advice, *_ = finishes(variant)[1].splitlines()
    assert re.fullmatch(
        r"likely cause: link h1->s0 corrupts every packet \((\d+) of \1\), and what is corrupted is "
        "discarded where it arrives",
        cause,
    )
    assert advice == "  try: a corruption below 100% for it in `faults`"


def test_consequences_of_a_cause_come_after_it(tmp_path: Path) -> None:
    """Worker 2 receives no results; the others have them, and wait for it one version later."""
    outcome = run(tmp_path, f"faults=[{DEAF}]")

    (variant,) = outcome.summary["variants"]
    _, detail = finishes(variant)
    assert "\n  worker 2 waits for 16 slots, first slot 0, version 0, unit 0 of stream 0 at s0: " in detail
    assert detail.startswith("likely cause: link s0->h2 loses every packet")
    assert "\n  16 more wait behind these, as the workers they lack are stalled in them\n" in detail
    later = [row for row in variant["diagnosis"]["slots"] if row["is_consequence"]]
    assert [row["waiting"] for row in later] == [[0, 1]] * 16
    assert {row["why"] for row in later} == {"worker 2 is stalled earlier in the same slot"}


def test_reports_and_comparisons_without_rounds(tmp_path: Path) -> None:
    outcome = run(tmp_path, text=TINY + VARIANTS)

    page = build_report(outcome.run_dir).read_text()
    assert '<strong class="stalled">Stalled</strong>' in page
    assert "<h2>What dead waits for</h2>" in page
    assert "link h1-&gt;s0 loses every packet" in page
    loaded = load(outcome.run_dir)
    assert set(loaded.steps["variant"]) == {"fine"}
    comparison = compare([outcome.run_dir])
    name = f"tiny/{outcome.run_dir.name}"
    assert comparison.notes == (
        f"{name}: 'dead', 'deaf', 'ring' stalled, the numbers are those of the finished steps",
    )


@pytest.mark.parametrize(("hosts", "kept"), [(2, 4), (30, 48)])
def test_samples_have_48_links_at_most(hosts: int, kept: int) -> None:
    assert Sampler(Engine(small_star(hosts), 1), 1)._seen.links.size == kept


def test_a_worker_that_never_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In step 1 worker 1 sends nothing: step 0 is kept in full."""
    original = Fabric.stream

    def stream(
        self: Fabric, job: int, worker: int, segments: list[Segment], scaled: Scaled | None = None
    ) -> simpy.Event:
        opened = self._opened.get((job, worker))
        if worker == 1 and opened and opened[0]:
            return self._environment.event()
        return original(self, job, worker, segments, scaled)

    monkeypatch.setattr(Fabric, "stream", stream)

    (variant,) = run(tmp_path, "workload.steps=3").summary["variants"]

    _, detail = finishes(variant)
    assert "of stream 1 at s0: worker 1 missing" in detail
    assert (
        "likely cause: worker 1 has not begun this exchange: it waits for 'values' of bucket 0 of step 1\n"
        "  try: check what delays it: `device`, and `faults` that stop or slow it\n" in detail
    )
    assert variant["metrics"]["steps"] == 1
    assert variant["metrics"]["merges_verified"] is True
    assert [check["verdict"] for check in variant["checks"] if check["name"] == "nothing_lost"] == ["stalled"]


class Bench:
    """A network whose streams and flows the test opens."""

    def __init__(self, start: Started, loss: float) -> None:
        self.environment = simpy.Environment()
        self.engine = Engine(small_star(2), 1, losses([loss] * 4))
        self.fabric = Fabric(self.environment, self.engine, TIMEOUT_MAX_PS)
        self.collective = start(self.environment, self.fabric)

    def exchange(self, workers: int = 2, pauses_ps: tuple[int, ...] = (0, 0)) -> StalledError | None:
        """Let some workers exchange a message; returns the error that ends it."""
        messages = messages_of(Merge.ADD, 2, 64)
        processes = [
            self.environment.process(self._work(worker, messages[worker], pauses_ps[worker]))
            for worker in range(workers)
        ]
        try:
            self.fabric.run_until(self.environment.all_of(processes))
        except StalledError as error:
            return error
        return None

    def _work(self, worker: int, message: Message, pause_ps: int) -> Generator[simpy.Event, Any, None]:
        yield self.environment.timeout(pause_ps)
        yield from self.collective.exchange(worker, (message,), OperationId(0, 0, 0))


SWITCH = switch(2, FRAME, slots=4, unit_packets=1)


def test_patience_is_a_hundred_times_the_longest_timeout() -> None:
    bench = Bench(SWITCH, loss=1.0)

    error = bench.exchange(pauses_ps=(0, 5))

    assert error is not None
    assert error.diagnosis.time_ps == PATIENCE_PS + 5
    assert error.diagnosis.quiet_ps == PATIENCE_PS
    assert len(error.diagnosis.slots) == 4
    assert pickle.loads(pickle.dumps(error)).diagnosis == error.diagnosis


def test_an_expected_change_restarts_the_patience() -> None:
    bench = Bench(SWITCH, loss=1.0)
    bench.fabric.expect_change(3 * PATIENCE_PS)

    error = bench.exchange()

    assert error is not None
    assert (error.diagnosis.time_ps, error.diagnosis.quiet_ps) == (4 * PATIENCE_PS, 4 * PATIENCE_PS)


def test_other_processes_do_not_extend_the_patience() -> None:
    bench = Bench(SWITCH, loss=1.0)

    def tick() -> Generator[simpy.Event, Any, None]:
        while True:
            yield bench.environment.timeout(PATIENCE_PS // 7)

    bench.environment.process(tick())
    error = bench.exchange()

    assert error is not None
    assert error.diagnosis.time_ps == PATIENCE_PS


def test_a_worker_may_compute_longer_than_the_patience() -> None:
    bench = Bench(SWITCH, loss=0.0)
    bench.fabric.set_activity(0, 1, "computes", 5 * PATIENCE_PS)

    assert bench.exchange(pauses_ps=(0, 5 * PATIENCE_PS)) is None


def test_a_worker_without_a_known_end_may_not() -> None:
    error = Bench(SWITCH, loss=0.0).exchange(pauses_ps=(0, 5 * PATIENCE_PS))

    assert error is not None
    assert error.diagnosis.time_ps == PATIENCE_PS
    assert {row.cause.why for row in error.diagnosis.slots} == {
        "worker 1 has not begun this exchange: it is elsewhere"
    }


SHARP = """\
name: sharp
seed: 7
topology: {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 2, switch: sharp}
workers: {count: 4}
workload: {kind: synthetic, elements: 20000}
codec: {kind: none}
collective: {kind: in_network, switch: leaf0, aggregators: tree, program: tree, frame: roce-2048}
"""
LOSING = r"link {} lost \d+ of \d+ packets, and program tree never retransmits\n"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("{kind: loss, rate: 5%, links: ['leaf0->spine0']}", LOSING.format("leaf0->spine0")),
        (
            "{kind: duplicate, rate: 20%, links: ['spine0->leaf0']}",
            r"`duplicate` copied \d+ packets on spine0->leaf0, where a late copy counts as the slot's "
            r"next packet, and program tree never retransmits\n",
        ),
        (
            "{kind: switch_reboot, switch: leaf0, at: 5us}",
            r"leaf0 lost its slots \(registers cleared at 5us\)",
        ),
    ],
)
def test_faults_that_stop_a_tree(tmp_path: Path, fault: str, why: str) -> None:
    (variant,) = run(tmp_path, f"faults=[{fault}]", "collective.slots=16", text=SHARP).summary["variants"]

    verdict, detail = finishes(variant)
    assert verdict == "stalled"
    assert "another cause: " not in detail
    assert re.match(rf"likely cause: {why}", detail)
    assert len(detail) < 1000


def test_timed_slots_do_not_wait_for_a_crashed_worker_but_a_step_does(tmp_path: Path) -> None:
    timed = "collective={kind: in_network, program: timed, frame: udp-256, slot_timer: 1ms}"
    sets = (
        timed,
        "topology.switch=trio",
        "codec={kind: fixed_point, factor: 1e6}",
        "faults=[{kind: worker_crash, worker: 2, at: 3us}]",
    )
    (variant,) = run(tmp_path, *sets).summary["variants"]

    verdict, detail = finishes(variant)
    assert verdict == "stalled"
    assert detail.startswith(
        "likely cause: worker 2 has crashed, and a step ends when all workers have finished it\n  try: "
    )


MESSAGES = "collective={kind: in_network, frame: roce-1024, slots: 16, timeout_max: 10ms}"


@pytest.mark.parametrize("link", ["h0->s0", "s0->h1"])
def test_copies_that_break_messages_are_named(tmp_path: Path, link: str) -> None:
    """A copy right behind its packet is a gap in a RoCE message's numbers, upwards and downwards."""
    faults = f"faults=[{{kind: duplicate, rate: 100%, links: ['{link}']}}]"
    summary = run(tmp_path, faults, MESSAGES, "workload.elements=20000").summary

    verdict, detail = finishes(summary["variants"][0])
    (injected,) = summary["injected"]
    assert verdict == "stalled"
    assert detail.startswith(
        f"likely cause: `duplicate` copied {injected['count']} packets on {link}, "
        "and a message counts only if its packets arrive in order and without a gap\n"
        "  try: no duplicate in `faults`, or message_packets: 1\n"
    )


@pytest.mark.parametrize(
    ("program", "bitmap", "counter", "text"),
    [
        (SWITCHML, 0b001, 2, "waits for 2 more"),
        (SWITCHML, 0b111, 2, "waits for 2 more, though its bitmap has 3 of 3"),
        (SWITCHML, 0b011, 3, "waits for 3 more, though its bitmap has 2 of 3"),
        (TREE, 0b011, 0, "waits for 1 more"),  # it has no counter
    ],
)
def test_a_leaked_slot_waits_for_packets(program: ProgramSpec, bitmap: int, counter: int, text: str) -> None:
    state: Any = SimpleNamespace(bitmap=bitmap, counter=counter)

    assert _waiting_for(program, 3, state) == text


ONCE = (
    "topology={kind: star, hosts: 3, rate: 100Gbps, delay: 1us, switch: sharp}",
    "collective={kind: in_network, program: tree, frame: roce-1024}",
)


@pytest.mark.parametrize(
    ("deaf", "sets", "event"),
    [
        (["h0->s0", "h2->s0"], (), "a packet of worker 1, dropped"),  # its bit is set when it sends again
        (["h1->s0", "h2->s0"], ONCE, "a packet of worker 0, consumed"),  # a tree sends once
        (["s0->h1"], ("workload.elements=64",), "a packet of worker 1, answer"),  # the slot is complete
    ],
)
def test_the_last_event_of_a_slot(tmp_path: Path, deaf: list[str], sets: tuple[str, ...], event: str) -> None:
    (variant,) = run(tmp_path, f"faults=[{{kind: loss, rate: 100%, links: {deaf}}}]", *sets).summary[
        "variants"
    ]
    told: str = variant["diagnosis"]["slots"][0]["last_event"]

    assert told.partition(" ago: ")[2] == event
    assert variant["checks"][0]["detail"].count(told) == 1
