"""Slots that still hold words at the end of a run, and the injected faults that can explain them."""

from __future__ import annotations

from collections.abc import Sequence

from netfold.sim.checks.finding import Ending, Finding, LeakCause
from netfold.sim.engine.interface import Fate, Rule
from netfold.sim.plan.faults import PlannedFault, Reboot
from netfold.sim.plan.paths import into_switches
from netfold.sim.plan.plan import JobPlan, VariantPlan
from netfold.sim.results.records import FaultRecord
from netfold.switch.program import ProgramSpec

LEAKS_SHOWN = 3

# A packet that arrives after its slot or entry was released opens it again, and no worker sends the rest. A
# slot with a timer closes by itself. Without retransmissions no packet can overtake a copy of itself.
_DID = {Fate.DUPLICATE: "copied", Fate.REORDER: "delayed"}  # by the names in `ProgramSpec.reopened_by`


def nothing_leaked(ending: Ending) -> Finding:
    """At the end, with no packet in flight, no slot of a switch holds part of a sum.

    Slots that injected faults explain are reported, and are no failure. A late packet opens at most one slot
    or entry.
    """
    if not ending.leaks:
        return Finding(True, "every slot and entry of the switches is free or complete")
    left, causes = _shown(ending.leaks), ", ".join(cause.what for cause in ending.leak_causes)
    if not causes:
        return Finding(False, f"{left}; no injected fault explains it")
    most = _explained(ending)
    if most < len(ending.leaks):
        return Finding(False, f"{left}; injected faults explain {most} of them at most: {causes}")
    return Finding(True, f"{left}; injected faults explain it: {causes}")


def leak_warnings(ending: Ending) -> tuple[str, ...]:
    """The same finding as a warning of the summary, if it is no failure."""
    finding = nothing_leaked(ending)
    return (finding.detail,) if ending.leaks and finding.passed else ()


def _explained(ending: Ending) -> int:
    """How many occupied slots and entries the injected faults explain."""
    leaks = len(ending.leaks)
    return min(leaks, sum(leaks if cause.most is None else cause.most for cause in ending.leak_causes))


def _shown(leaks: Sequence[str]) -> str:
    more = f" and {len(leaks) - LEAKS_SHOWN} more" if len(leaks) > LEAKS_SHOWN else ""
    return f"{len(leaks)} left behind in switches: {'; '.join(leaks[:LEAKS_SHOWN])}{more}"


def leak_causes(variant: VariantPlan, job: JobPlan, faults: Sequence[FaultRecord]) -> tuple[LeakCause, ...]:
    """Injected faults on the paths into the job's switches that leave slots or entries occupied."""
    trees = job.collective.aggregations
    if not trees:
        return ()
    switches = {node for tree in trees for node in tree.points}
    links = {link for tree in trees for link in into_switches(variant.network, tree)}
    causes = (
        _cause(planned, record, trees[0].program, (switches, links))
        for planned, record in zip(variant.faults.faults, faults, strict=True)
        if record.count
    )
    return tuple(cause for cause in causes if cause)


def _cause(
    planned: PlannedFault, record: FaultRecord, program: ProgramSpec, job: tuple[set[int], set[int]]
) -> LeakCause | None:
    """The effect of a fault that leaves slots occupied; None if it has none."""
    switches, links = job
    match planned.effect:
        case Rule(fate=fate, links=hit) if fate.name.lower() in program.reopened_by and links & set(hit):
            packets = f"{record.count} packet{'s' if record.count > 1 else ''}"
            did = f"{planned.kind} {_DID[fate]} {packets} on {planned.where}"
            return LeakCause(did, record.count)
        case Reboot(clears_registers=True, switch=switch) if switch in switches:
            if "reboot" in program.reopened_by:
                return LeakCause(f"{planned.kind} cleared {planned.where}")
    return None
