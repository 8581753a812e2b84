"""What a person sees when things go wrong: whole commands, their exit status and what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from netfold.sim.commands.main import app
from netfold.sim.results import load
from tests import ROOT
from tests.sim.scenes import TINY, write

SCENARIOS = ROOT / "scenarios"
SWITCHML = TINY.replace("elements: 1000", "elements: 50000") + "  timeout: 1ms\n  timeout_max: 4ms\n"
ATP = SWITCHML[: SWITCHML.index("codec:")] + "codec: {kind: fixed_point, factor: 1e6}\n"
ATP += "collective: {kind: in_network, program: atp}\n"
SLOT = r"slot (\d+), version ([01]), unit (\d+) of stream (\d+)"


class RunSummary(NamedTuple):
    """What a run came to."""

    exit_code: int
    verdict: str
    variants: dict[str, dict[str, Any]]  # by name

    def checks(self, name: str) -> dict[str, str]:
        """Verdicts of a variant's checks."""
        return {check["name"]: check["verdict"] for check in self.variants[name]["checks"]}

    def detail(self, name: str, check: str) -> str:
        (found,) = [one["detail"] for one in self.variants[name]["checks"] if one["name"] == check]
        assert isinstance(found, str)
        return found


def run_netfold(folder: Path, file: Path, *sets: str) -> RunSummary:
    """Run a scenario as a command, and see that its run folder says the same."""
    options = [word for one in sets for word in ("--set", one)]
    words = ["run", str(file), *options, "--out", str(folder / "runs"), "--no-report", "--json"]
    result = CliRunner().invoke(app, words)
    summary = json.loads(result.stdout)
    variants = {variant["name"]: variant for variant in summary["variants"]}
    assert load(Path(summary["run_dir"])).summary["variants"] == summary["variants"]
    return RunSummary(result.exit_code, summary["verdict"], variants)


def faulty(folder: Path, fault: str, *sets: str, text: str = SWITCHML) -> RunSummary:
    return run_netfold(folder, write(folder, text), f"faults=[{fault}]", *sets)


def test_a_link_that_loses_everything(tmp_path: Path) -> None:
    summary = faulty(tmp_path, "{kind: loss, rate: 100%, links: ['h1->s0']}", "collective.slots=512")

    assert (summary.exit_code, summary.verdict) == (1, "stuck")
    detail = summary.detail("tiny", "finishes")
    assert "\n  workers 0, 1 and 2 wait for 512 slots, first slot 0, version 0, unit 0 of stream 0 " in detail
    assert " at s0: worker 1 missing, last event " in detail
    assert re.search(r"^likely cause: link h1->s0 loses every packet \((\d+) of \1\)\n  try: ", detail)


@pytest.mark.parametrize("text", [SWITCHML, ATP], ids=["switchml", "atp"])
def test_a_worker_that_crashes(tmp_path: Path, text: str) -> None:
    """In the second step; the records of the first stay."""
    sets = ("workload.steps=3", "device={kind: fixed, forward: 1ms, backward: 1ms}")

    summary = faulty(tmp_path, "{kind: worker_crash, worker: 1, at: 3ms}", *sets, text=text)

    assert (summary.exit_code, summary.verdict) == (1, "stuck")
    detail = summary.detail("tiny", "finishes")
    assert "\n  workers 0 and 2 wait for " in detail
    assert ": worker 1 missing, " in detail
    assert "likely cause: worker 1 has crashed\n  try: " in detail
    assert "\n  worker 1 has crashed\n" in detail
    assert summary.variants["tiny"]["metrics"]["steps"] == 1
    assert summary.detail("tiny", "nothing_lost").startswith("1 of 3 rounds aggregated")
    assert summary.variants["tiny"]["metrics"]["merges_verified"] is True


def test_a_switch_that_clears_results_that_a_worker_lacks(tmp_path: Path) -> None:
    """SwitchML ends stuck if a result was lost beside it; ATP's server has it still."""
    summary = run_netfold(tmp_path, SCENARIOS / "04-switch-reboot.yaml")

    assert (summary.exit_code, summary.verdict) == (1, "stuck")
    assert {name: one["verdict"] for name, one in summary.variants.items()} == {
        "switchml": "pass",
        "switchml-loss-1": "stuck",
        "atp-loss-1": "pass",
    }
    for name in ("switchml", "atp-loss-1"):
        assert summary.variants[name]["metrics"]["merges_verified"] is True
        assert set(summary.checks(name).values()) == {"pass"}
    detail = summary.detail("switchml-loss-1", "finishes")
    first = re.search(f"first {SLOT} at s0: .* missing, last event ", detail)
    assert first is not None
    cause = re.search(
        r"^likely cause: worker (\d) already has this result, so it never sends the unit again: s0 lost the "
        r"slot after it was complete \(registers cleared at 200us\), before every worker had the result\n",
        detail,
    )
    assert cause is not None
    assert f"worker {cause[1]}" in first[0]


def test_copies_that_come_late(tmp_path: Path) -> None:
    """Taken for the next unit of their slot: a wrong sum, and SwitchML does not notice. netfold does."""
    late = "{kind: duplicate, rate: 3%, delay: 20us, links: ['h*->s0']}"
    summary = faulty(tmp_path, late, "collective.slots=512")

    assert (summary.exit_code, summary.verdict) == (1, "fail")
    checks = summary.checks("tiny")
    assert {name for name, verdict in checks.items() if verdict != "pass"} == {
        "sum_is_right",
        "merges_are_exact",
    }
    assert re.fullmatch(
        r"\d+ left behind in switches: slot \d+, version [01] at s0 waits for \d more.*; "
        r"injected faults explain it: duplicate copied \d+ packets on h\*->s0",
        summary.detail("tiny", "nothing_leaked"),
    )
    for check in ("sum_is_right", "merges_are_exact"):
        place = re.search(rf"worker \d, word (\d+) of 'values' .*: {SLOT}$", summary.detail("tiny", check))
        assert place is not None
        word, slot, _, unit, _ = (int(number) for number in place.groups())
        assert unit == 512 + word // 64  # exponents are a window ahead
        assert slot == unit % 512


def test_two_racks_without_what_leads_from_one_to_the_other(tmp_path: Path) -> None:
    """The detail names the point that waits, and the switch that it waits for."""
    fault = "faults=[{kind: loss, rate: 100%, links: ['leaf0->*']}]"

    summary = run_netfold(tmp_path, SCENARIOS / "06-two-racks.yaml", "workload.elements=20000", fault)

    detail = summary.detail("tree", "finishes")
    assert re.search(
        r"^likely cause: link leaf0->\w+ loses every packet[^\n]*\n.*\n.* switch leaf0 missing, ", detail
    )


JOBS = """\
jobs:
  - {name: sick, workers: 2}
  - {name: sound, workers: 2}
"""


def test_one_of_two_jobs_gets_stuck(tmp_path: Path) -> None:
    """The other one is done and checked in full."""
    summary = faulty(tmp_path, "{kind: worker_crash, job: sick, worker: 1, at: 10us}", text=SWITCHML + JOBS)

    assert (summary.exit_code, summary.verdict) == (1, "stuck")
    assert summary.variants["tiny/sick"]["verdict"] == "stuck"
    assert summary.variants["tiny/sound"]["verdict"] == "pass"
    assert summary.checks("tiny/sound")["nothing_leaked"] == "pass"
    detail = summary.detail("tiny/sick", "finishes")
    assert "\n  worker 0 of job sick waits for " in detail
    assert "\n  worker 1 of job sick has crashed\n" in detail
    assert "diagnosis" not in summary.variants["tiny/sound"]


def test_slots_that_late_packets_leave_open_are_reported_and_no_failure(tmp_path: Path) -> None:
    """They arrive when all is done: the sums are right, and slots are opened that no packet will close."""
    fault = "faults=[{kind: reorder, rate: 1%, delay: 50ms, links: ['h*->s0']}]"
    left = r"\d+ left behind in switches: slot .*; "
    left += r"injected faults explain it: reorder delayed \d+ packets on h\*->s0"

    summary = run_netfold(tmp_path, write(tmp_path, SWITCHML), fault)

    assert (summary.exit_code, summary.verdict, set(summary.checks("tiny").values())) == (0, "pass", {"pass"})
    assert re.fullmatch(left, summary.detail("tiny", "nothing_leaked"))
    (warning,) = load(tmp_path / "runs" / "latest").summary["warnings"]
    assert warning == f"tiny: {summary.detail('tiny', 'nothing_leaked')}"
