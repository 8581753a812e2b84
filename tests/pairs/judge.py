"""Runs a row of the array, and judges it from outside: by plain NumPy, packet counts, and declarations."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from netfold.errors import MistakesError, ScenarioError
from netfold.sim.plan.host_profiles import host_profiles
from netfold.sim.plan.plan import VariantPlan
from netfold.sim.run.run import run_variant
from netfold.sim.run.variant import JobResult, VariantResult
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.run_limits import Plan
from netfold.switch.program import runnable
from tests.pairs.array import Combination, Row
from tests.pairs.factors import Refusal, written
from tests.pairs.scenario import scenario_of
from tests.soak.draw import Drawn
from tests.soak.play import (
    APPROXIMATE,
    EXACT,
    FAIL,
    STUCK,
    WITHIN,
    Verdict,
    Witness,
    fetched_once,
    of_job,
    of_network,
    tensors_of,
    worst,
)

SURE_PACKETS = 600  # of so many some are lost for sure: with 2 % of loss, none would be once in 180,000 runs
SURE_LOSSES = 20  # of so many packets some are sent again, whatever they were


class Ran(NamedTuple):
    """What came of a row."""

    faults: list[str]  # what is wrong, in words
    packets: int
    lost: int
    is_stalled: bool


def run_row(row: Row, stalls: Collection[Combination]) -> Ran:
    """Run a row that nothing declared forbids; `stalls` are combinations that may end in a stall."""
    scenario, witness = scenario_of(row), Witness()
    with tempfile.TemporaryDirectory() as folder, fetched_once(), witness.watching():
        try:
            plan = resolve(load(written(Path(folder), scenario.settings, scenario.scene)))
        except ScenarioError as error:
            return Ran([f"it is refused, for no reason that is declared: {error}"], 0, 0, False)
        variant, result = simulated(plan)
    drawn = Drawn(scenario.settings)
    verdict = worst([*of_network(result), *(of_job(job, variant, witness, drawn) for job in result.jobs)])
    is_stalled = verdict.kind == STUCK and any(choices <= row.items() for choices in stalls)
    faults = []
    if verdict.kind not in (EXACT, WITHIN, APPROXIMATE) and not is_stalled and not _may_differ(row, verdict):
        faults.append(f"{verdict.kind}: {verdict.text}")
    if not is_stalled:
        faults += [text for job in result.jobs for text in _of_rounds(job, variant, witness)]
    packets, lost = (
        sum(getattr(link, name) for link in result.links) for name in ("packets", "lost_packets")
    )
    faults += _of_packets(row, result, packets, lost)
    return Ran(faults, packets, lost, is_stalled)


def simulated(plan: Plan) -> tuple[VariantPlan, VariantResult]:
    """The only variant, without a report."""
    (variant,) = plan.variants
    return variant, run_variant(plan, variant)


def _may_differ(row: Row, verdict: Verdict) -> bool:
    """Whether workers may have different sums: a slot with a timer goes on without who lost a result."""
    program = runnable().get(row["program"])
    is_declared = program is not None and program.has_timers and row["loss"] != "none"
    return (
        is_declared
        and verdict.kind == FAIL
        and re.fullmatch(r"replicas_agree: [^;]*", verdict.text) is not None
    )


def _of_rounds(job: JobResult, variant: VariantPlan, witness: Witness) -> list[str]:
    """Whether every element of every step was seen here, and by netfold's own checks."""
    (plan,) = (planned for planned in variant.jobs if planned.label == job.label)
    elements = plan.steps * sum(math.prod(tensor.shape) for tensor in tensors_of(plan))
    journal = job.journal
    faults = []
    if witness.elements[job.label] not in (elements, 2 * elements):  # jobs that come run alone, too
        faults.append(f"{witness.elements[job.label]} elements were decoded, of {elements}")
    checked = sum(part.elements for part in journal.rounds)
    if checked != elements:
        faults.append(f"netfold checked {checked} elements of {elements}")
    words = sum(part.integer_words + part.float_words + part.at_hosts.words for part in journal.findings)
    if not words + journal.signs.words:
        faults.append("netfold compared no merged word")
    return faults


def _of_packets(row: Mapping[str, str], result: VariantResult, packets: int, lost: int) -> list[str]:
    """Whether packets were lost where they are to be, and nothing was sent again where not."""
    again = sum(job.facts.packets_retransmitted for job in result.jobs)
    faults = []
    if row["loss"] == "none" and (lost or again):
        faults.append(f"{lost} packets lost and {again} sent again without loss")
    if row["loss"] != "none" and not lost and packets > SURE_PACKETS:
        faults.append(f"none of {packets} packets lost")
    if lost > SURE_LOSSES and not again and all(job.facts.diagnosis is None for job in result.jobs):
        faults.append(f"{lost} packets lost, and none sent again")
    inside = sum(
        link.packets for link in result.links if link.source == link.target and "receiving" in link.link
    )
    if host_profiles()[row["hosts"]].takes_time != (inside > 0):
        faults.append(f"{inside} packets were received by hosts that take time")
    return faults


def faults_of_refusal(row: Row, expected: Collection[Refusal]) -> list[str]:
    """What is wrong with how a row is refused, which has one of these reasons."""
    scenario = scenario_of(row)
    with tempfile.TemporaryDirectory() as folder:
        file = written(Path(folder), scenario.settings, scenario.scene)
        try:
            resolve(load(file))
        except ScenarioError as error:
            mistakes: tuple[Any, ...] = error.mistakes if isinstance(error, MistakesError) else (error,)
            return [fault for mistake in mistakes for fault in _of_mistake(mistake, file, expected)]
    return [f"it is accepted, though {' or '.join(map(str, expected))}"]


def _of_mistake(mistake: ScenarioError, file: Path, expected: Collection[Refusal]) -> list[str]:
    """A message says where, what was found, and what is allowed; and the reason is one of those declared."""
    faults = []
    if mistake.file != str(file) or mistake.line < 1:
        faults.append(f"it does not say where: {mistake}")
    if not mistake.hint:
        faults.append(f"it does not say what is allowed: {mistake}")
    is_told = any(
        mistake.path.split(".")[-1].startswith(refusal.key)
        and all(word in mistake.message for word in refusal.words)
        for refusal in expected
    )
    if not is_told:
        faults.append(f"it gives another reason than {' or '.join(map(str, expected))}: {mistake}")
    return faults
