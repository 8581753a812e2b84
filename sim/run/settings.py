"""What was run: the settings of every variant, or job of it, as plain data in a scenario's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from netfold.homomorphic.codec import Codec
from netfold.sim.engine.interface import Job
from netfold.sim.plan.plan import JobPlan, Plan, VariantPlan
from netfold.sim.scenario import models
from netfold.sim.scenario.section import Section
from netfold.sim.units import TIME

# Told even where they have their default value: what a reader asks for first.
_ALWAYS = {
    "topology": ("kind", "hosts", "rate", "delay", "switch"),
    "workload": ("kind", "model", "elements", "density", "steps"),
    "collective": ("kind", "program", "frame", "window"),
}


def with_setups(summary: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """A run's summary with the scenario's description, with `setup` in every variant, and with `chosen`.

    `chosen` are the variants that `--variant` named, none where all were to run.

    A `setup` holds the sections `topology`, `workers`, `workload`, `device`, `codec`, `collective` and
    `faults` (a list), each with what differs from its default, and with a few keys always; `timeout` and
    `switch` of the collective are those found when the scenario was resolved.
    """
    found = setups(plan)
    variants = [entry | {"setup": found[entry["name"]]} for entry in summary["variants"]]
    chosen = [variant.name for variant in plan.variants]
    told = {"description": plan.scenario.description, "variants": variants}
    return {**summary, **told, "chosen": chosen if len(chosen) < len(plan.scenario.variants) else []}


def setups(plan: Plan) -> dict[str, dict[str, Any]]:
    """Settings by label of the job."""
    written = {variant.name: variant for variant in plan.scenario.variants}
    return {
        job.label: _setup(written[variant.name], variant, index)
        for variant in plan.variants
        for index, job in enumerate(variant.jobs)
    }


def _setup(written: models.Variant, variant: VariantPlan, index: int) -> dict[str, Any]:
    sections: models.JobSections = written.jobs[index] if written.jobs else written
    job = variant.jobs[index]
    start = {"start": TIME.format(job.start_ps)} if job.start_ps else {}
    return {
        "topology": _section("topology", written.topology),
        "workers": {**_section("workers", sections.workers), **start},
        "workload": _section("workload", sections.workload),
        "device": _section("device", sections.device),
        "codec": _codec(job.codec),
        "collective": _section("collective", sections.collective) | _resolved(variant, job),
        "faults": [_section("faults", fault) for fault in written.faults],
    }


def _section(name: str, section: Section) -> dict[str, Any]:
    """What a section of the file says beyond its defaults, `kind` first."""
    said = section.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    whole = section.model_dump(mode="json", by_alias=True)
    always = {key: whole[key] for key in _ALWAYS.get(name, ()) if whole.get(key) is not None}
    kind = {"kind": whole["kind"]} if "kind" in whole else {}
    return {**kind, **always, **said}


def _codec(codec: Codec) -> dict[str, Any]:
    """A codec's kind and its options beyond the defaults, those that the network decided included."""
    known: tuple[Field[Any], ...] = fields(codec) if is_dataclass(codec) else ()
    defaults: dict[str, Any] = {one.name: None if one.default is MISSING else one.default for one in known}
    values = {name: getattr(codec, name) for name in defaults}
    options = {
        name: value
        for name, value in values.items()
        if value != defaults[name] and isinstance(value, str | int | float)
    }
    return {"kind": codec.kind, **options}


def _resolved(variant: VariantPlan, job: JobPlan) -> dict[str, Any]:
    """What a collective's defaults came to."""
    plan = job.collective
    if not isinstance(plan, Job):
        return {"timeout": TIME.format(plan.timeout_ps)}
    switch = {"switch": variant.network.nodes[plan.switch]}
    return switch if plan.program.timeouts is None else {**switch, "timeout": TIME.format(plan.timeout_ps)}
