"""The points of a sweep: which there are, what is wrong with them, and what tells them apart."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from ruamel.yaml import YAML

import netfold
from netfold.sim.errors import NetfoldError, ScenarioError
from netfold.sim.resolve import resolve
from netfold.sim.run.run import run_scenario
from netfold.sim.scenario import load, schema
from netfold.sim.scenario.source import ScenarioText
from netfold.sim.scenario.sweep import POINTS_MAX
from netfold.sim.sweep.points import points_of, resolved_text, seeds_of
from netfold.sim.sweep.task import is_source
from tests.sim.sweep.scene import BASE, GRID, VERSIONS, points, scenario, write

SYNTHETIC = "kind: synthetic, elements: 2000, density: 10%"


def test_the_grid_is_the_product_and_seeds_change_first() -> None:
    found = points("sweep: {workers: [2, 4], topology.rate: [10Gbps, 40Gbps, 100Gbps], seeds: [3, 9]}\n")

    rates = ["10Gbps", "40Gbps", "100Gbps"]
    assert [(*one.values, one.seed) for one in found] == list(itertools.product([2, 4], rates, [3, 9]))
    assert [one.number for one in found] == list(range(1, 13))
    assert {one.names for one in found} == {("ring", "switch")}
    assert len({one.digest for one in found}) == 12


def test_a_point_is_the_scenario_with_its_values_set() -> None:
    """The text that a worker gets resolves to what `--set` gives."""
    for point in points():
        assert point.task is not None
        workers, density = point.values
        sets = (f"workers={workers}", f"workload.density={density}")
        direct = resolve(load(ScenarioText(BASE, "x"), sets, point.seed))
        sent = resolve(load(ScenarioText(point.task.text, "y")))

        assert sent.scenario.seed == point.seed
        assert sent.scenario.variants == direct.scenario.variants
        for one, other in zip(sent.variants, direct.variants, strict=True):
            assert one.jobs == other.jobs


def test_repeats_have_the_seed_of_the_scenario_and_others() -> None:
    drawn = seeds_of(scenario("sweep: {seeds: 5}\n"))
    more = seeds_of(scenario("sweep: {seeds: 6}\n"))
    others = seeds_of(scenario("sweep: {seeds: 5}\n", ["seed=8"]))

    assert drawn[0] == 7
    assert len(set(drawn)) == 5
    assert more[:5] == drawn
    assert not set(others) & set(drawn)
    assert seeds_of(scenario("sweep: {seed: [4, 2]}\n")) == (4, 2)


def test_the_command_line_adds_replaces_and_removes_keys() -> None:
    swept = scenario(GRID, ["sweep.workers=[3]", "sweep.topology.rate=[10Gbps]", "sweep.seeds=3"]).sweep
    assert swept is not None
    assert [(axis.path, len(axis.values)) for axis in swept.axes] == [
        ("workers", 1),
        ("workload.density", 2),
        ("topology.rate", 1),
    ]
    assert swept.size == 6
    assert load(ScenarioText(BASE + GRID, "x"), ["sweep=null"]).sweep is None


WRONG = {
    "sweep: [1]": ["small.yaml:11: sweep: must be a mapping, found a list"],
    "sweep: {workers: 4}": ["sweep.workers: must be a list of values, found 4", "workers: [1, 2]"],
    "sweep: {topology: {rate: [1Gbps]}}": ["must be a list of values, found a mapping", "topology.rate: ["],
    "sweep: {seed: 5}": ["sweep.seed: must be a list of seeds", "for 5 repeats, use `seeds`"],
    "sweep: {seed: [1], seeds: 2}": ["sweep.seed: is swept by `seeds` already"],
    "sweep: {seeds: many}": ["sweep.seeds: must be a number of repeats or a list of seeds, found 'many'"],
    "sweep: {workers: [2, 4], impossible: drop}": [
        "sweep.impossible: cannot use 'drop'",
        "allowed: refuse, skip",
    ],
    f"sweep: {{workers: [2, 4], seeds: {POINTS_MAX // 2 + 1}}}": ["spans 10,002 points, the most is 10,000"],
    "sweep: {workers: [4, 4]}": ["points 1 and 2 are the same scenario"],
    "sweep:\n  workers:\n  - 2\n  - two\n  - x\n  workload.density: [200%]\n  topology.rate: [1, 1Gbps]\n": [
        "small.yaml:14: workers: must be a whole number, found 'two'",
        "small.yaml:15: workers: must be a whole number, found 'x'",
        "small.yaml:16: workload.density: '200%' is not a fraction",
        "small.yaml:17: topology.rate: cannot read 1 as a rate",
    ],
}


@pytest.mark.parametrize("text", WRONG)
def test_mistakes_are_told_with_the_line_of_the_value(text: str) -> None:
    with pytest.raises(ScenarioError) as error:
        points(text + "\n")

    for words in WRONG[text]:
        assert words in str(error.value)


def test_impossible_points_are_refused_together_with_the_points_that_have_them() -> None:
    text = "sweep:\n  workers: [8, 9, 12]\n  workload.density: [1%, 2%]\n"
    with pytest.raises(ScenarioError) as error:
        points(text)

    words = str(error.value)
    assert "small.yaml:12: workers: cannot place 9 workers on 8 hosts" in words
    assert "small.yaml:12: workers: cannot place 12 workers on 8 hosts" in words
    assert (
        "at workers=9, workload.density=1% and 1 more; to leave such points out: `impossible: skip`" in words
    )


def test_impossible_points_can_be_left_out() -> None:
    found = points("sweep: {workers: [8, 9], impossible: skip}\n")

    assert [one.task is None for one in found] == [False, True]
    assert "cannot place 9 workers on 8 hosts" in found[1].error
    assert found[1].names == ("ring", "switch")


def test_a_value_of_the_command_line_wins_and_makes_points_the_same() -> None:
    with pytest.raises(ScenarioError, match=r"points 1 and 5 are the same.*\n.*sweep\.KEY"):
        points(GRID, ["workers=4"])


def test_only_what_changes_a_result_changes_a_digest() -> None:
    first = [one.digest for one in points()]

    def shared(text: str, base: str = BASE) -> int:
        return len({one.digest for one in points(text, base=base)} & set(first))

    assert shared("# a comment\n" + GRID) == 8
    assert shared(GRID, BASE.replace("seed: 7", "description: other words\nseed: 7")) == 8
    assert shared(GRID.replace("[2, 4]", "[4, 8]")) == 4
    assert shared(GRID.replace("seeds: 2", "seeds: 3")) == 8
    assert shared(GRID, BASE.replace("2000", "2001")) == 0
    changes = ({"python": "3.12"}, {"netfold": "2"}, {"sources": "x"}, {"packages": {"numpy": "3"}})
    others = (replace(VERSIONS, **change) for change in changes)
    assert all(not set(first) & {one.digest for one in points_of(scenario(), other)} for other in others)


def test_files_are_sent_and_their_content_counts(tmp_path: Path) -> None:
    gradients = tmp_path / "data" / "gradients.npy"
    gradients.parent.mkdir()
    base = BASE.replace(
        "kind: synthetic, elements: 2000, density: 10%", "kind: file, path: ../data/gradients.npy"
    )
    folder = tmp_path / "scenarios"
    folder.mkdir()
    file = write(folder, "sweep: {topology.rate: [10Gbps, 100Gbps]}\n", base)
    digests = []
    for value in (1.0, 2.0):
        np.save(gradients, np.full((4, 100), value, np.float32))
        found = points_of(load(file), VERSIONS)
        digests.append({one.digest for one in found})
        assert found[0].task is not None
        assert found[0].task.files == {"../data/gradients.npy": gradients.read_bytes()}

    assert not digests[0] & digests[1]
    gradients.unlink()
    with pytest.raises(NetfoldError, match=r"gradients\.npy"):
        points_of(load(file), VERSIONS)


def test_the_text_of_a_point_can_hold_any_character() -> None:
    base = BASE.replace(
        "codec: {kind: none}",
        'codec: {kind: none}, published: [{label: "é\\x85\\u2028 \\"", elements_per_s: 1, source: ""}]',
    )
    made = scenario(base=base)
    again = load(ScenarioText(resolved_text(made), "again"))

    assert again.variants[0].published == made.variants[0].published
    assert again.variants[0].published[0].label == 'é\x85\u2028 "'


@pytest.mark.parametrize("text", [GRID, "sweep: {seeds: [1, 2], impossible: skip}\n", "sweep: null\n"])
def test_the_schema_knows_sweeps(text: str) -> None:
    Draft202012Validator(schema()).validate(YAML(typ="safe", pure=True).load(BASE + text))


def test_run_and_sweep_name_each_other(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"a sweep of 8 points\n.*netfold sweep"):
        run_scenario(ScenarioText(BASE + GRID, "x"), (), None, tmp_path, lambda *_: None)
    with pytest.raises(ScenarioError, match=r"has no sweep\n.*--over"):
        scenario("")


def test_validate_checks_every_point() -> None:
    assert set(netfold.validate(BASE + GRID)) == {"ring", "switch"}
    with pytest.raises(ScenarioError, match="cannot place 9 workers"):
        netfold.validate(BASE + "sweep: {workers: [4, 9]}\n")


def test_files_that_python_writes_are_no_sources() -> None:
    """A module is compiled to a file with a number at its end, which is renamed when it is whole."""
    assert is_source(Path("netfold/sim/units.py"))
    assert is_source(Path("netfold/sim/report/template.html"))
    assert not is_source(Path("netfold/sim/__pycache__/units.cpython-311.pyc"))
    assert not is_source(Path("netfold/sim/__pycache__/units.cpython-311.pyc.140234"))
