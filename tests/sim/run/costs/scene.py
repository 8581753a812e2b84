"""A scenario whose variants are the rules of fusion, on measured layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from netfold.sim.plan.plan import VariantPlan
from netfold.sim.resolve import resolve
from netfold.sim.resolve.plan import Plan
from netfold.sim.results import summarize
from netfold.sim.run.costs.measure import WarmUps
from netfold.sim.run.outcome import VariantResult
from netfold.sim.run.run import run_variant
from netfold.sim.scenario import load
from tests.sim.workload.fusion.drawn import PROFILES_FOLDER

AS_MODELLED = "{buckets_in_flight: 100, encode: on_device, decode: last, network: in_turn}"
RING = "codec: {kind: none}\ncollective: {kind: ring}"
TOPK = "codec: {kind: topk, share: 0.01}\ncollective: {kind: all_gather}"
RULES = {
    "none": "{kind: none}",
    "one": "{kind: one}",
    "size": "{kind: size, bytes: 400KB}",
    "mg-wfbp": "{kind: mg_wfbp}",
    "omgs": "{kind: omgs}",
    "layer-fusion": "{kind: layer_fusion}",
}


class Shown(NamedTuple):
    """What a variant came to."""

    result: VariantResult
    entry: dict[str, Any]

    @property
    def simulated_us(self) -> float:
        return float(self.entry["metrics"]["iteration_time_us"])

    @property
    def predicted_us(self) -> float:
        return float(self.entry["metrics"]["predicted_iteration_time_us"])


def scenario(
    folder: Path,
    sends: str = RING,
    *,
    workload: str = "kind: synthetic, tensors: [a=3000, b=100, c=50000, d=20000]",
    rules: dict[str, str] = RULES,
    overlap: str = AS_MODELLED,
    device: str = "{kind: fixed, forward: 1ms, backward: 4ms, memory_rate: 20Gbps, launch: 20us}",
    topology: str = "{kind: star, hosts: 4, rate: 1Gbps, delay: 10us}",
    more: str = "",
) -> Path:
    """Write a scenario with a variant for each rule."""
    variants = "".join(
        f"  - {{name: {name}, workload: {{fusion: {rule}}}}}\n" for name, rule in rules.items()
    )
    file = folder / "scenario.yaml"
    file.write_text(
        f"name: scenario\nseed: 1\ntopology: {topology}\nworkers: 4\nworkload: {{{workload}}}\n"
        f"device: {device}\noverlap: {overlap}\n{sends}\n{more}variants:\n{variants}"
    )
    return file


def profile(name: str, shrink: int) -> str:
    """A workload of measured layers, made smaller."""
    return f"kind: synthetic, profile: '{PROFILES_FOLDER / name}.json', shrink: {shrink}"


def run_all(file: Path, *sets: str) -> dict[str, Shown]:
    """Run all variants, which share warm-ups as those of a run do."""
    plan = resolve(load(file, sets))
    warm_ups = WarmUps(plan)
    return {variant.name: run_one(plan, variant, warm_ups) for variant in plan.variants}


def run_one(plan: Plan, variant: VariantPlan, warm_ups: WarmUps) -> Shown:
    result = run_variant(plan, variant, warm_ups=warm_ups)
    return Shown(result, summarize(result.facts, result.records)["variants"][0])
