"""Every scenario that comes with netfold: it is valid, it runs, and it shows what it says."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from ruamel.yaml import YAML

from netfold.sim.results.summary import summarize
from netfold.sim.run.run import run_variant
from netfold.sim.run.variant import VariantResult
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.workload.synthetic import Synthetic
from netfold.sim.workload.workload_keys import Training
from tests import ROOT
from tests.command_line import run_command
from tests.examples import PROFILE, nightly

SCENARIOS = ROOT / "scenarios"
FILES = sorted(SCENARIOS.rglob("*.yaml"))
SMALL = 20_000  # elements
LARGE = 5_000_000  # of a model
WORKERS = 128
VARIANTS = 3  # that run in CI; at night all do
SHRINK = 2000  # of layers of a profile
OTHERWISE = {  # verdicts that are meant to be no pass
    "04-switch-reboot.yaml": {
        "switchml-loss-1": dict.fromkeys(("finishes", "decodes", "sum_is_right", "nothing_lost"), "stalled")
    },
    "07-lossless.yaml": {"published": {"sum_is_right": "fail"}},
}
EVERY_FILE = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SCENARIOS)))


@dataclass(frozen=True)
class Shown:
    """What a variant came to."""

    verdicts: dict[str, str]
    metrics: dict[str, Any]
    references: dict[str, float]  # elements per second, by label


def shown(file: Path, *sets: str, only: Collection[str] = ()) -> dict[str, Shown]:
    """Run all variants, or some, and summarize each."""
    plan = resolve(load(file, sets))
    return {
        name: one
        for variant in plan.variants
        if not only or variant.name in only
        for name, one in summarized(run_variant(plan, variant)).items()
    }


def summarized(result: VariantResult) -> dict[str, Shown]:
    """What its jobs came to, by their names in results."""
    summary = summarize(result.facts, result.records)
    return {
        variant["name"]: Shown(
            verdicts={check["name"]: check["verdict"] for check in variant["checks"]},
            metrics=variant["metrics"],
            references={one["label"]: one["elements_per_s"] for one in variant["references"]},
        )
        for variant in summary["variants"]
    }


def smaller(file: Path) -> list[str]:
    """What makes every variant of a scenario small."""
    scenario = load(file)
    sets = [f"workers={WORKERS}"] if scenario.variants[0].workers.count > WORKERS else []
    for variant in scenario.variants:
        where = f"variants.{variant.name}.workload"
        if isinstance(variant.workload, Synthetic) and variant.workload.profile is not None:
            sets.append(f"{where}.shrink={SHRINK}")
            continue
        if not isinstance(variant.workload, Training):
            sets.append(f"{where}.elements={SMALL}")
            if getattr(variant.workload, "payload", "all") == "none":
                sets.append(f"{where}.payload=all")  # so that sums are checked
        else:
            sets.append(f"{where}.batch=16")
            if "expand" in (model := variant.workload.model).facts.options:
                sets.append(f"{where}.expand=[1, 1]")
            elif model.kind != "user" and model.elements > LARGE:
                sets.append(f"{where}.model=cnn")
            sets += [f"{where}.steps=2"] if variant.workload.steps > 2 else []
    return sets


@cache
def schema() -> Any:
    return json.loads(run_command("schema").stdout)


@EVERY_FILE
def test_a_scenario_keeps_to_the_schema_it_names(file: Path) -> None:
    first_line = file.read_text("utf-8").splitlines()[0]
    named = first_line.removeprefix("# yaml-language-server: $schema=")

    assert (file.parent / named).resolve() == (SCENARIOS / "schema.json").resolve()
    Draft202012Validator(schema()).validate(YAML(typ="safe").load(file))


@pytest.mark.slow
@EVERY_FILE
def test_a_scenario_runs_and_passes(file: Path) -> None:
    """All checks of variants from all over the file, but of those that are there to stall or to fail."""
    names = [variant.name for variant in load(file).variants]
    every = 1 if PROFILE == "nightly" else -(-len(names) // VARIANTS)
    chosen = {*names[::every], *OTHERWISE.get(file.name, {})}
    for name, variant in shown(file, *smaller(file), only=chosen).items():
        expected = dict.fromkeys(variant.verdicts, "pass") | OTHERWISE.get(file.name, {}).get(name, {})
        assert variant.verdicts == expected, name


def test_names_are_those_of_the_files() -> None:
    for file in FILES:
        assert load(file).name == file.stem.lstrip("0123456789-")


@pytest.mark.parametrize(
    ("workers", "share"), [(8, 4), *(pytest.param(*one, marks=nightly) for one in ((4, 1), (16, 4)))]
)
def test_the_published_rate_of_switchml(workers: int, share: int) -> None:
    """Within 2 % of what SwitchML publishes, and never above what the wire can carry."""
    name, elements = f"workers-{workers}", 26_214_400 // share
    file = SCENARIOS / "papers" / "switchml-rate.yaml"
    variant = shown(file, f"workload.elements={elements}", only=[name])[name]

    rate = variant.metrics["aggregation_elements_per_s"]
    assert rate == pytest.approx(variant.references["published"], rel=0.02)
    assert rate < variant.references["wire bound, dense"] == pytest.approx(256 / 1106 * 12.5e9)
    assert variant.metrics["merges_verified"]


def test_loss_costs_time_alone() -> None:
    found = shown(SCENARIOS / "02-loss.yaml", "workload.elements=30000")
    grid = [found[name].metrics for name in ("no-loss", "loss-0-1", "loss-1", "loss-5")]

    assert all(metrics["merges_verified"] for metrics in grid)
    assert len({metrics["max_abs_error"] for metrics in grid}) == 1
    assert grid[0]["packets_retransmitted"] == 0
    for less, more in pairwise(grid):
        assert less["packets_retransmitted"] < more["packets_retransmitted"]
        assert less["aggregation_time_us"] < more["aggregation_time_us"]
    assert found["lossless-1"].metrics["merges_verified"]
    assert found["lossless-1"].metrics["packets_retransmitted"] > 0


def test_quickstart_shows_what_compression_in_the_network_gains() -> None:
    """On sparse gradients, the switch is faster than the ring, and faster still when they are compressed."""
    file = SCENARIOS / "01-quickstart.yaml"
    found = shown(file, "workload.expand=[4, 1]", "workload.batch=64")

    times = [found[name].metrics["aggregation_time_us"] for name in ("ring-fp32", "switchml", "lossless")]
    assert times == sorted(times, reverse=True)
    assert found["lossless"].metrics["compression_ratio"] > 4
    assert found["switchml"].metrics["merges_verified"]
    assert found["lossless"].metrics["merges_verified"]


def test_overlap_takes_as_long_as_the_busiest_machine() -> None:
    """A bucket takes 50 us of backward, 50 to encode, `network` to send and 50 to decode; see the guide."""
    found = shown(SCENARIOS / "09-overlap.yaml")
    iteration_us = {name: one.metrics["iteration_time_us"] for name, one in found.items()}
    (network,) = (row["time_us"] for row in found["beside"].metrics["breakdown"] if row["phase"] == "network")

    assert iteration_us["beside"] == pytest.approx(150 + 8 * (100 + network))
    assert iteration_us["overlap"] == pytest.approx(100 + 8 * 150 + network - 50)
    assert iteration_us["layer-wise"] == pytest.approx(100 + 160 * (2.5 + 12 + 12))
    (fused,) = (row["time_us"] for row in found["fused"].metrics["breakdown"] if row["phase"] == "network")
    assert iteration_us["fused"] == pytest.approx(100 + 400 + 2 * 330 + fused)
    assert iteration_us["beside"] < iteration_us["on-device"] < iteration_us["layer-wise"]


@nightly
def test_every_system_trains_two_models() -> None:
    """The whole of the scenario: 200 steps, in which residuals and uploads of long ago have come back."""
    run = shown(SCENARIOS / "08-five-systems.yaml")
    found = {name: one.metrics for name, one in run.items()}
    assert {verdict for one in run.values() for verdict in one.verdicts.values()} == {"pass"}
    systems = {name.partition("/")[0] for name in found}

    assert len(systems) == 10
    for system in systems:
        digits, films = found[f"{system}/digits"], found[f"{system}/films"]
        assert digits["test_score"] > 0.7
        assert digits["loss"] < 0.35 * digits["loss_first"]
        assert films["test_score"] > 0.2
        assert films["loss"] < 0.51 < films["loss_first"]


@nightly
def test_what_is_held_back_comes_later() -> None:
    found = shown(SCENARIOS / "10-held-back.yaml")
    metrics = {name: one.metrics for name, one in found.items()}

    assert {one["skips"] for one in metrics.values()} == {0}
    assert metrics["halves"]["compression_ratio"] == 2
    assert metrics["votes"]["compression_ratio"] == pytest.approx(8, rel=0.001)
    assert metrics["top"]["bits_per_element_up"] == pytest.approx(0.64, rel=0.03)
    assert metrics["top"]["bits_per_element_down"] == 7 * metrics["top"]["bits_per_element_up"]
    assert metrics["top"]["loss"] == metrics["top-server"]["loss"] < 1.3 * metrics["dense"]["loss"]
    assert metrics["top-forgets"]["loss"] > 3 * metrics["top"]["loss"]
    assert metrics["halves"]["nmse"] < 1e-6 < 0.1 < metrics["top"]["nmse"]


@nightly
def test_heavy_hitters_of_a_sketch_train_if_the_rest_is_held_back() -> None:
    file = SCENARIOS / "systems" / "sketch-fusion.yaml"
    metrics = {name: shown(file, only=[name])[name].metrics for name in ("dense", "two-rounds", "forgets")}

    assert metrics["two-rounds"]["loss"] < 1.7 * metrics["dense"]["loss"]
    assert metrics["forgets"]["loss"] > 2.5 * metrics["two-rounds"]["loss"]
    assert metrics["two-rounds"]["compression_ratio"] > 5.5
    assert metrics["two-rounds"]["merges_verified"]
