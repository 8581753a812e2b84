"""What is left in switches when all is done, and whether an injected fault left it there."""

from __future__ import annotations

from collections.abc import Sequence

from sim.checks.finding import Ending, Finding
from sim.engine.model import Fate, Job, Program, Rule
from sim.fault_plan import PlannedFault, Reboot
from sim.plan import JobPlan, VariantPlan
from sim.record import FaultRecord

LEAKS_SHOWN = 3

# A packet that comes after its slot or entry was done with opens it anew, and nobody sends the rest. A slot
# with a timer closes by itself, and who never sends again has nothing that others overtake.
_FATES = {
    Program.SWITCHML: {Fate.DUPLICATE: "copied", Fate.REORDER: "delayed"},
    Program.ATP: {Fate.DUPLICATE: "copied", Fate.REORDER: "delayed"},
    Program.TREE: {Fate.DUPLICATE: "copied"},
    Program.TIMED: {},
}
_OUTLIVES_REBOOTS = (Program.SWITCHML, Program.ATP)  # workers send again what a cleared switch forgot


def nothing_leaked(ending: Ending) -> Finding:
    """When all is done and nothing is under way, no slot of a switch holds a part of a sum.

    What an injected fault explains is told, and is no failure.
    """
    if not ending.leaks:
        return Finding(True, "every slot and entry of the switches is free or complete")
    if not ending.leak_causes:
        return Finding(False, f"{_left(ending.leaks)}; no injected fault explains it")
    return Finding(
        True, f"{_left(ending.leaks)}; injected faults explain it: {', '.join(ending.leak_causes)}"
    )


def leak_warnings(ending: Ending) -> tuple[str, ...]:
    """The same for the summary's warnings, where it is no failure."""
    return (nothing_leaked(ending).detail,) if ending.leaks and ending.leak_causes else ()


def _left(leaks: Sequence[str]) -> str:
    more = f" and {len(leaks) - LEAKS_SHOWN} more" if len(leaks) > LEAKS_SHOWN else ""
    return f"{len(leaks)} left behind in switches: {'; '.join(leaks[:LEAKS_SHOWN])}{more}"


def leak_causes(variant: VariantPlan, job: JobPlan, faults: Sequence[FaultRecord]) -> tuple[str, ...]:
    """Injected faults that struck on the way into the job's switches and leave slots or entries behind."""
    plan = job.collective
    if not isinstance(plan, Job):
        return ()
    switches = {plan.switch, *(branch.switch for branch in plan.branches)}
    links = {
        link for link, target in enumerate(variant.network.link_target.tolist()) if int(target) in switches
    }
    causes = (
        _cause(planned, record, plan.program, (switches, links))
        for planned, record in zip(variant.faults.faults, faults, strict=True)
        if record.count
    )
    return tuple(cause for cause in causes if cause)


def _cause(
    planned: PlannedFault, record: FaultRecord, program: Program, own: tuple[set[int], set[int]]
) -> str:
    """What a fault did that leaves slots behind; nothing if it does not."""
    switches, links = own
    match planned.effect:
        case Rule(fate=fate) if fate in _FATES[program] and links & set(planned.effect.links):
            return f"{planned.kind} {_FATES[program][fate]} {record.count} packets on {planned.where}"
        case Reboot(clears_registers=True, switch=switch) if switch in switches:
            return f"{planned.kind} cleared {planned.where}" if program in _OUTLIVES_REBOOTS else ""
    return ""
