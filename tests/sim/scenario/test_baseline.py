"""The key `baseline`: a variant's name, also of a grid, checked, and handed to results and sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from netfold.sim.commands.main import app
from netfold.sim.errors import ScenarioError
from netfold.sim.run.run import summary_of_scenario
from netfold.sim.scenario import load
from netfold.sim.scenario.source import ScenarioText
from netfold.sim.sweep.points import resolved_text

BASE = """
name: based
workers: 2
topology: {kind: star, hosts: 2, rate: 10Gbps, delay: 1us}
workload: {kind: synthetic, elements: 500}
codec: {kind: none}
"""
LISTED = """
variants:
  - {name: ring, collective: {kind: ring}}
  - {name: tree, collective: {kind: tree}}
"""
GRID = """
variants:
  collective: {ring: {kind: ring}, tree: {kind: tree}}
  codec: {plain: {kind: none}, halves: {kind: fp16}}
"""


def scenario(text: str) -> ScenarioText:
    return ScenarioText(BASE + text, "based.yaml")


def test_a_baseline_is_one_of_the_variants_listed_or_in_a_grid() -> None:
    assert load(scenario(f"baseline: tree{LISTED}")).baseline == "tree"
    assert load(scenario(f"baseline: tree-halves{GRID}")).baseline == "tree-halves"
    assert load(scenario(LISTED)).baseline is None
    assert load(scenario(LISTED), sets=["baseline=ring"]).baseline == "ring"


@pytest.mark.parametrize("variants", [LISTED, GRID])
def test_another_name_is_refused_at_its_line(variants: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(scenario(f"baseline: rnig{variants}"))

    assert str(caught.value).startswith("based.yaml:7: baseline: there is no variant 'rnig'\n")
    assert "variants: ring" in str(caught.value)


def test_a_baseline_goes_into_results_and_points_of_sweeps() -> None:
    summary = summary_of_scenario(scenario(f"baseline: tree{LISTED}"))
    found = {one["name"]: (one["ranking"]["baseline"], one["metrics"]) for one in summary["variants"]}

    assert summary["baseline"] == "tree"
    assert {name: baseline for name, (baseline, _) in found.items()} == {"ring": "tree", "tree": "tree"}
    times = {name: metrics["aggregation_time_us"] for name, (_, metrics) in found.items()}
    assert summary["variants"][0]["ranking"]["times_baseline"] == times["tree"] / times["ring"]
    assert '"baseline": "tree"' in resolved_text(load(scenario(f"baseline: tree{LISTED}")))


def test_the_terminal_divides_by_the_baseline(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(scenario(f"baseline: tree{LISTED}").text)
    result = CliRunner().invoke(
        app, ["run", f"{tmp_path}/b.yaml", "--out", f"{tmp_path}/runs", "--no-report"]
    )

    assert result.exit_code == 0, result.output
    assert "× baseline: how many times as fast as tree," in result.output
