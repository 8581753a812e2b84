"""Variants written as a grid."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from typer.testing import CliRunner

from netfold.sim.commands.main import app
from netfold.sim.errors import ScenarioError
from netfold.sim.run.run import summary_of_scenario
from netfold.sim.scenario import load, schema
from netfold.sim.scenario.source import ScenarioText
from netfold.sim.sweep.points import resolved_text
from tests.sim.scenario.files import write

GRID = """\
name: grid
workers: 4
workload: {kind: synthetic, elements: 1000}
collective: {kind: ring, window: 64}
variants:
  topology:
    star: {kind: star, hosts: 4}
    racks: {kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 2}
  codec:
    floats: {kind: none}
    integers: {kind: fixed_point}
  collective:
    ring: {ack_every: 8}
    gather: {kind: all_gather}
"""


def test_every_combination_is_a_variant_and_merges_like_one_of_a_list(tmp_path: Path) -> None:
    variants = load(write(tmp_path, GRID)).variants

    assert [one.name for one in variants] == [
        f"{topology}-{codec}-{collective}"
        for topology in ("star", "racks")
        for codec in ("floats", "integers")
        for collective in ("ring", "gather")
    ]
    found = [(one.topology.kind, one.collective.kind) for one in variants]
    assert found == [(kind, one) for kind in ("star", "leaf_spine") for one in ("ring", "all_gather") * 2]
    assert variants[0].codec == variants[4].codec != variants[2].codec == variants[6].codec
    ring, gather = (one.collective.model_dump() for one in variants[:2])
    assert (ring["window"], ring["ack_every"]) == (64, 8)
    assert gather["window"] == 512  # another kind replaces the mapping


def test_the_schema_takes_a_grid() -> None:
    validator = Draft202012Validator(schema())
    read = YAML(typ="safe", pure=True).load

    assert validator.is_valid(read(GRID))
    assert not validator.is_valid(read(GRID.replace("codec:", "codecs:")))


def test_the_command_line_changes_one_combination(tmp_path: Path) -> None:
    sets = ["variants.racks-floats-ring.collective.window=32"]
    windows = [one.collective.window for one in load(write(tmp_path, GRID), sets).variants]

    assert windows == [64, 512, 64, 512, 32, 512, 64, 512]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("  codec:\n", "  codecs:\n", ":9: variants.codecs: unknown key 'codecs'\n  did you mean 'codec'?"),
        (
            "    star: {kind: star, hosts: 4}\n",
            "    star: {kind: star, host: 4}\n",
            ":7: variants.topology.star.host: unknown key 'host'\n  did you mean 'hosts'?",
        ),
        (
            "    ring: {ack_every: 8}",
            "    a b: {ack_every: 8}",
            ":13: variants.collective.a b: 'a b' cannot be part of a variant's name",
        ),
    ],
)
def test_mistakes_name_their_place(tmp_path: Path, old: str, new: str, error: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(write(tmp_path, GRID.replace(old, new)))

    assert error in str(caught.value)


@pytest.mark.parametrize("values", ["4", "[]", "{}", "[{kind: none}]"])
def test_a_key_needs_values_by_name(tmp_path: Path, values: str) -> None:
    text = GRID.replace("    floats: {kind: none}\n    integers: {kind: fixed_point}\n", "")

    with pytest.raises(ScenarioError, match=r":9: variants\.codec: must have its values by name"):
        load(write(tmp_path, text.replace("  codec:", f"  codec: {values}")))


def test_two_combinations_of_one_name_are_refused(tmp_path: Path) -> None:
    text = GRID.replace("    star: ", "    a: ").replace("    racks: ", "    a-b: ")
    text = text.replace("    floats: ", "    c: ").replace("    integers: ", "    b-c: ")

    with pytest.raises(ScenarioError, match="the name 'a-b-c-ring' appears twice"):
        load(write(tmp_path, text))


def test_a_grid_is_counted_before_it_is_made(tmp_path: Path) -> None:
    """Five keys of 60 values are 3 KB of text, and would be 777,600,000 variants."""
    keys = ("topology", "codec", "collective", "workload", "device")
    values = ", ".join(f"v{number}: {{}}" for number in range(60))
    text = (
        GRID.partition("variants:")[0] + "variants:\n" + "".join(f"  {key}: {{{values}}}\n" for key in keys)
    )

    with pytest.raises(ScenarioError) as caught:
        load(write(tmp_path, text))
    assert str(caught.value).endswith(
        ":5: variants: spans 777,600,000 variants, the most is 1,000\n"
        "  use fewer values, several scenarios, or a sweep"
    )


def test_names_may_have_underscores(tmp_path: Path) -> None:
    """Also such that differ in their joints alone."""
    text = GRID.replace("    star: ", "    torus_2d: ").replace("    ring: {", "    all_gather-2: {")
    text = text.replace("name: grid", "name: my_grid")
    sets = ["variants.torus_2d-floats-all_gather-2.collective.window=32"]
    found = load(write(tmp_path, text), sets)

    assert found.name == "my_grid"
    assert found.variants[0].name == "torus_2d-floats-all_gather-2"
    assert [one.collective.window for one in found.variants][:2] == [32, 512]
    with pytest.raises(ScenarioError, match="must be lower-case letters, digits, '-' and '_', starting with"):
        load(write(tmp_path, text.replace("my_grid", "_grid")))


@pytest.mark.parametrize("length", [200, 201])
def test_names_fit_into_names_of_files(tmp_path: Path, length: int) -> None:
    wanted = write(tmp_path, GRID.replace("name: grid", f"name: {'n' * length}"))
    if length == 200:
        assert load(wanted).name == "n" * 200
        return
    with pytest.raises(ScenarioError, match=":1: name: must be text of at most 200 characters, found 'nnn"):
        load(wanted)


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
BOTH = """
variants:
  collective: {ring: {kind: ring}, tree: {kind: tree}}
  codec: {plain: {kind: none}, halves: {kind: fp16}}
"""


def scenario(text: str) -> ScenarioText:
    return ScenarioText(BASE + text, "based.yaml")


def test_a_baseline_is_one_of_the_variants_listed_or_in_a_grid() -> None:
    assert load(scenario(f"baseline: tree{LISTED}")).baseline == "tree"
    assert load(scenario(f"baseline: tree-halves{BOTH}")).baseline == "tree-halves"
    assert load(scenario(LISTED)).baseline is None
    assert load(scenario(LISTED), sets=["baseline=ring"]).baseline == "ring"


@pytest.mark.parametrize("variants", [LISTED, BOTH])
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
