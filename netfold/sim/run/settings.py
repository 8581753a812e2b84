"""The settings of every variant, or of each of its jobs, as plain data with a scenario's keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from netfold.homomorphic.codec import Codec
from netfold.sim.keys.section import Section
from netfold.sim.plan.host_profiles import HostsSection
from netfold.sim.plan.plan import VariantPlan
from netfold.sim.report.answer.ranking import with_ranking
from netfold.sim.resolve.plan import Plan
from netfold.sim.results.summary import ONLY_CODECS
from netfold.sim.scenario import models
from netfold.sim.workload import FileSpec, SyntheticSpec, TrainingSpec
from netfold.units import TIME

# Shown even with their default value, as readers look for them first.
_TOPOLOGY = ("hosts", "rate", "delay", "switch")
_WORKLOAD = ("model", "elements", "density", "steps")


def with_setups(summary: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """A run's summary with the scenario's description and baseline, and with `chosen`.

    Every variant gets its `setup` and its `ranking`. `chosen` are the variants that `--variant` named, none
    where all were to run.

    A `setup` holds the sections `topology`, `workers`, `workload`, `device`, `hosts` and `overlap` (if they
    are not the default), `codec`, `collective` and `faults` (a list), each with what differs from its default
    and a few keys that are always shown; `timeout` and `switch` of the collective are those of the resolved
    scenario.
    """
    found = setups(plan)
    variants = [
        _with_compute(entry | {"setup": _as_run(found[entry["name"]], entry.get("stay"))})
        for entry in summary["variants"]
    ]
    chosen = [variant.name for variant in plan.variants]
    baseline = plan.scenario.baseline
    shown = {
        "description": plan.scenario.description,
        "baseline": baseline,
        "variants": with_ranking(variants, baseline),
    }
    return {**summary, **shown, "chosen": chosen if len(chosen) < len(plan.scenario.variants) else []}


def _with_compute(entry: dict[str, Any]) -> dict[str, Any]:
    """A variant, which says what its device does where that computes no model."""
    has_device = entry["setup"]["device"] != _section(models.JobSections.model_fields["device"].default)
    return entry | {"compute": ONLY_CODECS} if "compute" in entry and has_device else entry


def _as_run(setup: dict[str, Any], stay: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings of a job, with its fallback for a collective if it had that, and without it if not."""
    fallback = setup.pop("fallback", None)
    return setup | {"collective": fallback} if stay is not None and stay["fallback"] else setup


def setups(plan: Plan) -> dict[str, dict[str, Any]]:
    """Settings by label of the job."""
    written = {variant.name: variant for variant in plan.scenario.variants}
    return {
        job.label: _setup(written[variant.name], variant, index)
        for variant in plan.variants
        for index, job in enumerate(variant.jobs)
    }


def _setup(written: models.Variant, variant: VariantPlan, index: int) -> dict[str, Any]:
    sections: models.JobSections = written.jobs[variant.sections[index]] if written.jobs else written
    job, collective = variant.jobs[index], sections.collective
    start = {"start": TIME.format(job.start_ps)} if job.start_ps else {}
    overlap = _section(sections.overlap)
    hosts = {} if sections.hosts == HostsSection() else {"hosts": _section(sections.hosts)}
    other = sections.fallback if isinstance(sections, models.JobSection) else None
    return {
        **({} if other is None else {"fallback": _section(other, other.recorded_always)}),
        "topology": _section(written.topology, _TOPOLOGY),
        "workers": {**_section(sections.workers), **start},
        **hosts,
        "workload": {**_section(sections.workload, _WORKLOAD), **_data(job.workload)},
        "device": _section(sections.device),
        **({"overlap": overlap} if overlap else {}),
        "codec": _codec(job.codec),
        "collective": {**_section(collective, collective.recorded_always), **job.collective.settled},
        "faults": [_section(fault) for fault in written.faults],
    }


def _data(workload: TrainingSpec | SyntheticSpec | FileSpec) -> dict[str, str]:
    """What the data of a trained model take the place of, if they do."""
    stands_in_for = workload.stands_in_for if isinstance(workload, TrainingSpec) else ""
    return {"stands_in_for": stands_in_for} if stands_in_for else {}


def _section(section: Section, recorded_always: Sequence[str] = ()) -> dict[str, Any]:
    """The settings of a section that differ from its defaults, `kind` first; a section in it is whole."""
    whole = section.model_dump(mode="json", by_alias=True)
    differs = section.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    said = {key: _given(whole[key]) if isinstance(value, dict) else value for key, value in differs.items()}
    always = {key: whole[key] for key in recorded_always if whole.get(key) is not None}
    kind = {"kind": whole["kind"]} if "kind" in whole else {}
    return {**kind, **always, **said}


def _given(value: Any) -> Any:
    """A value, a mapping without the keys that it leaves open."""
    if not isinstance(value, dict):
        return value
    return {key: _given(one) for key, one in value.items() if one is not None}


def _codec(codec: Codec) -> dict[str, Any]:
    """A codec's kind and its options beyond the defaults, including those that the network decided."""
    known: tuple[Field[Any], ...] = fields(codec) if is_dataclass(codec) else ()
    defaults: dict[str, Any] = {one.name: None if one.default is MISSING else one.default for one in known}
    values = {name: getattr(codec, name) for name in defaults}
    options = {
        name: value
        for name, value in values.items()
        if value != defaults[name] and isinstance(value, str | int | float)
    }
    return {"kind": codec.kind, **options}
