"""A sweep from beginning to end: its table, what is kept, and what an end in the middle leaves."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from ruamel.yaml import YAML

import netfold
from netfold.errors import DataError, NetfoldError, ScenarioError
from netfold.sim.report import style
from netfold.sim.results.metrics import TYPES
from netfold.sim.run.run import run_scenario
from netfold.sim.scenario.load import load, schema
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.sweep_keys import POINTS_MAX
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.sim.studies import sweep as make
from netfold.sim.studies import sweep_output as page
from netfold.sim.studies.sweep import Ended, Store, SweepSettings, run_sweep, sweep_of
from netfold.sim.studies.sweep_output import Grid, draw, fastest, metrics_of, misses, sweep_figures
from netfold.sim.studies.sweep_points import points_of, refuse_absolute, resolved_text, seeds_of
from netfold.sim.studies.sweep_workers import RANKING, TaskOutcome, is_source, own_versions, work
from tests import ROOT
from tests.command_line import INTERRUPTIBLE, run_command
from tests.examples import nightly
from tests.sim.studies.sweep_scene import BASE, GRID, VERSIONS, Inline, points, scenario, use_inline, write

SAME = ("points.parquet", "sweep.json", "scenario.yaml", "report.html")


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of sweeps without figures."""
    monkeypatch.setattr("netfold.sim.studies.sweep_output.sweep_figures", lambda grid: {})


def sweep(
    monkeypatch: pytest.MonkeyPatch, out: Path, text: str = GRID, order: int = 0, **settings: Any
) -> Path:
    """A sweep in this process, whose points end in an order of their own."""
    use_inline(monkeypatch, Inline(order))
    return run_sweep(scenario(text), SweepSettings(2, **settings), out, lambda ended: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep over GRID that nothing stopped."""
    with pytest.MonkeyPatch.context() as patch:
        return sweep(patch, tmp_path_factory.mktemp("whole"))


def table(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "points.parquet")


def drawn(folder: Path) -> Path:
    """A sweep's folder with its page."""
    page.load_sweep(folder).report()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in SAME}


def kept(out: Path) -> dict[str, int]:
    """The files of finished points, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in (out / "small" / "points").glob("*.json")}


def test_the_table_has_what_single_runs_find(whole: Path, tmp_path: Path) -> None:
    found = table(whole)

    assert found.columns[:8] == [
        *("point", "workers", "workload.density", "seed", "variant", "status", "verdict", "error")
    ]
    assert found.columns[8:13] == [*RANKING]
    assert set(found.columns[13:]) == set(TYPES) - {"workers"}
    assert found.height == 8 * 2
    assert found.schema["workers"] == pl.Int64()
    assert found.schema["workload.density"] == pl.Float64()
    assert found["status"].unique().to_list() == ["done"]
    file = write(tmp_path, "")
    for point in (1, 8):
        rows = found.filter(pl.col("point") == point)
        first = rows.row(0, named=True)
        changes = {"workers": first["workers"], "workload.density": first["workload.density"]}
        run = netfold.run(file, set=changes, seed=first["seed"], out=tmp_path / "runs")
        for row, one in zip(rows.iter_rows(named=True), run.summary["variants"], strict=True):
            assert (row["variant"], row["verdict"]) == (one["name"], one["verdict"])
            assert {name: row[name] for name in RANKING} == {name: one["ranking"][name] for name in RANKING}
            assert {name: row[name] for name in found.columns[13:]} == {
                name: one["metrics"].get(name) for name in found.columns[13:]
            }


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("after", [0, 5])
def test_a_stopped_sweep_goes_on_and_ends_the_same(
    monkeypatch: pytest.MonkeyPatch, whole: Path, tmp_path: Path, after: int
) -> None:
    calls: list[object] = []

    def stopping(task: Any) -> TaskOutcome:
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(task)
        return work(task)

    monkeypatch.setattr(make, "work", stopping)
    with pytest.raises(KeyboardInterrupt) as stop:
        sweep(monkeypatch, tmp_path / "out")
    assert stop.value.__notes__ == [
        f"{after} of 8 points are finished and kept; the same command goes on from there"
    ]
    assert not list((tmp_path / "out").rglob("*-sweep*"))
    before = kept(tmp_path / "out")
    assert len(before) == after
    monkeypatch.setattr(make, "work", work)
    resumed = sweep(monkeypatch, tmp_path / "out", order=3)

    assert contents(drawn(resumed)) == contents(drawn(whole))
    assert before.items() <= kept(tmp_path / "out").items()


def test_only_what_changed_runs_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[str] = []

    def counting(task: Any) -> TaskOutcome:
        ran.append(task.text)
        return TaskOutcome(({"variant": "ring", "verdict": "pass"},))

    monkeypatch.setattr(make, "work", counting)
    sweep(monkeypatch, tmp_path)
    assert len(ran) == 8
    sweep(monkeypatch, tmp_path)
    assert len(ran) == 8
    sweep(monkeypatch, tmp_path, GRID.replace("[2, 4]", "[2, 3, 4]"))
    assert len(ran) == 12
    sweep(monkeypatch, tmp_path, is_fresh=True)
    assert len(ran) == 20


def test_a_point_that_fails_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing(task: Any) -> TaskOutcome:
        if '"count": 2' in task.text and '"seed": 7' in task.text:
            return TaskOutcome(error="not enough memory")
        return work(task)

    monkeypatch.setattr(make, "work", failing)
    use_inline(monkeypatch, Inline(dies=lambda task: '"count": 4' in task.text and "10%" in task.text))
    told: list[Ended] = []
    folder = run_sweep(scenario(GRID), SweepSettings(2), tmp_path, told.append)

    found = table(folder).group_by("point", maintain_order=True).first()
    assert " ".join(found["status"]) == "failed done failed done done done failed failed"
    assert found["error"].to_list()[:3] == ["not enough memory", None, "not enough memory"]
    assert "ended by SIGKILL (as the system does when memory runs out), 2 times" in found["error"][7]
    assert found["aggregation_time_us"].is_null().to_list() == [one == "failed" for one in found["status"]]
    assert table(folder).height == 16
    assert [one.done for one in told] == list(range(1, 9))
    assert len(kept(tmp_path)) == 4  # what failed is tried again
    content = json.loads((folder / "sweep.json").read_bytes())
    assert content["verdict"] == "fail"
    assert page.counts(content) == "4 points done, 4 failed"


def test_points_that_were_left_out_are_in_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = sweep(monkeypatch, tmp_path, "sweep: {workers: [4, 9], impossible: skip}\n")

    found = table(folder).select("workers", "variant", "status", "verdict").rows()
    assert found == [
        (4, "ring", "done", "pass"),
        (4, "switch", "done", "pass"),
        (9, "ring", "skipped", None),
        (9, "switch", "skipped", None),
    ]
    assert "cannot place 9 workers" in table(folder)["error"][3]
    assert json.loads((folder / "sweep.json").read_bytes())["verdict"] == "pass"


TYPED = {
    "topology.rate: [10Gbps, 2.5Gbps]": ("topology.rate_bps", pl.Int64(), [10**10, 25 * 10**8]),
    "workload.density: [0.5, 5%]": ("workload.density", pl.Float64(), [0.5, 0.05]),
    "workers.placement: [pack, [h0, h1, h2, h3]]": (
        "workers.placement",
        pl.String(),
        ["pack", '["h0", "h1", "h2", "h3"]'],
    ),
    "device: [{kind: none}]": ("device", pl.String(), ['{"kind": "none"}']),
}


@pytest.mark.parametrize("text", TYPED)
def test_swept_keys_are_typed_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setattr(make, "work", lambda task: TaskOutcome(({"variant": "ring", "verdict": "pass"},)))
    found = table(sweep(monkeypatch, tmp_path, f"sweep: {{{text}}}\n"))

    name, dtype, values = TYPED[text]
    assert found.schema[name] == dtype
    assert found[name].to_list() == values


def test_a_kept_point_is_whole_or_not_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    outcome = TaskOutcome(
        ({"variant": "a", "verdict": "pass", "steps": 1, "nmse": 0.1},), wall_s=1.5, host="h"
    )
    assert store.get("d") is None
    store.put("d", outcome)
    assert store.get("d") == outcome
    content = (tmp_path / "d.json").read_bytes()
    for length in range(len(content)):
        (tmp_path / "d.json").write_bytes(content[:length])
        assert store.get("d") is None
    (tmp_path / "e.json").write_bytes(content)  # another point's
    assert store.get("e") is None
    (tmp_path / "d.json").write_bytes(b'{"format": 1, "digest": "d", "rows": 3, "wall_s": 1, "host": ""}')
    assert store.get("d") is None


def test_a_worker_of_another_version_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    versions = own_versions()
    other = replace(versions, python="3.0", packages={**versions.packages, "numpy": "1"})
    assert versions.difference(versions) == ""
    assert versions.difference(other).startswith(f"python 3.0, here {versions.python}, numpy 1, here ")
    monkeypatch.setattr("netfold.sim.studies.sweep_workers.own_versions", lambda: other)
    use_inline(monkeypatch, Inline())
    folder = run_sweep(scenario("sweep: {workers: [2]}\n"), SweepSettings(1), tmp_path, lambda ended: None)

    assert "has other versions: python 3.0" in table(folder)["error"][0]


def test_kept_runs_are_whole_run_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = "sweep: {workers: [2, 4]}\n"
    folder = sweep(monkeypatch, tmp_path, text)
    assert not [path for path in (tmp_path / "small" / "points").iterdir() if path.is_dir()]
    again = sweep(monkeypatch, tmp_path, text, keeps_runs=True)

    content = json.loads((again / "sweep.json").read_bytes())
    for point in content["points"]:
        run = netfold.load(tmp_path / "small" / "points" / point["digest"])
        assert run.variants["workers"].to_list() == [int(point["values"]["workers"])] * 2
    assert (folder / "points.parquet").read_bytes() == (again / "points.parquet").read_bytes()
    shutil.rmtree(tmp_path / "small" / "points" / content["points"][0]["digest"])
    before = kept(tmp_path)
    sweep(monkeypatch, tmp_path, text, keeps_runs=True)
    assert len(before.items() - kept(tmp_path).items()) == 1


def test_the_time_left_goes_by_what_ended_points_took() -> None:
    clock = make._Clock({0: 10.0, 1: 5.0, 2: 5.0}, places=2)

    assert clock.left_s(0, 4.0) == pytest.approx(2.0)  # 10 more at 0.4 s each, on two places
    assert clock.left_s(1, 0.0) == pytest.approx(1.0)  # it failed, and says nothing of the time
    assert clock.left_s(2, 1.0) == 0.0
    assert make._Clock({0: 1.0, 1: 1.0}, 1).left_s(0, 0.0) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--over", "workers"], "--over: cannot read 'workers'"),
        (["--over", "workers=2,9"], "cannot place 9 workers on 8 hosts"),
        (["--scheduler", "here"], "no scheduler 'here'"),
        (["--scheduler-file", "missing.json"], "missing.json: there is no such scheduler file"),
        ([], "this scenario has no sweep"),
    ],
)
def test_the_command_refuses_mistakes(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run_command("sweep", write(tmp_path, ""), *arguments)

    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.usefixtures("plain")
def test_the_command_prints_where_everything_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_inline(monkeypatch, Inline())
    file, out = write(tmp_path, ""), tmp_path / "out"
    arguments = ["sweep", str(file), "--over", "workers=2,4", "--over", "seeds=2", "--out", str(out)]
    done = run_command(*arguments)

    assert done.exit_code == 0, done.output
    assert "small: 4 points done: pass" in done.output
    assert "point 4 of 4: workers=" in done.output
    (folder,) = (out / "small").glob("*-sweep")
    assert f"{folder}/points.parquet" in done.output
    as_json = json.loads(run_command(*arguments, "--json").stdout)
    assert [point["status"] for point in as_json["points"]] == ["done"] * 4
    checked = run_command("validate", file, "--set", "sweep.workers=[2, 4]")
    assert checked.output == f"{file}: fine, variants: ring, switch; 2 points\n"


def test_a_damaged_folder_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("netfold.sim.studies.sweep_output.sweep_figures", lambda grid: {})
    folder = drawn(sweep(monkeypatch, tmp_path, "sweep: {workers: [2, 4]}\n"))
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    assert run_command("report", folder).output == f"{folder}/report.html\n"
    assert (folder / "report.html").read_bytes() == before
    with pytest.raises(DataError, match="not a sweep's folder"):
        page.load_sweep(tmp_path)
    content = (folder / "sweep.json").read_text()
    for wrong, words in {
        content.replace('"format": 4', '"format": 5'): "has format 5, this netfold reads 4",
        content.replace('"tables"', '"other"'): "damaged: KeyError: 'tables'",
        content[:100]: "damaged: JSONDecodeError",
    }.items():
        (folder / "sweep.json").write_text(wrong)
        with pytest.raises(DataError, match=words):
            page.load_sweep(folder)
    (folder / "sweep.json").write_text(content)
    buffer = io.BytesIO()
    table(folder).head(1).write_parquet(buffer)
    (folder / "points.parquet").write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match="not the bytes that"):
        page.load_sweep(folder)
    (folder / "points.parquet").unlink()
    with pytest.raises(DataError, match="a file cannot be read: there is no such file"):
        page.load_sweep(folder)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=nightly)])
def test_ctrl_c_keeps_points_leaves_no_process_and_the_rest_follows(
    monkeypatch: pytest.MonkeyPatch, whole: Path, tmp_path: Path, jobs: str
) -> None:
    """The real command, on real processes: interrupted, continued here, and compared with an unbroken one."""
    file, out = write(tmp_path), tmp_path / "out"
    command = [sys.executable, "-c", INTERRUPTIBLE, "sweep", str(file), "--jobs", jobs, "--out", str(out)]
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stderr is not None
        next(line for line in running.stderr if line.startswith("point 1 of 8"))
        os.killpg(running.pid, signal.SIGINT)
        said = running.stderr.read()

    assert running.returncode == 130
    assert "of 8 points are finished and kept; the same command goes on from there" in said
    assert said.splitlines()[-1] == "interrupted"
    deadline_s = time.monotonic() + 10
    while group_is_alive(running.pid) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not group_is_alive(running.pid)
    before = kept(out)
    assert 1 <= len(before) < 8
    use_inline(monkeypatch, Inline())
    ended: list[Ended] = []
    resumed = run_sweep(sweep_of(file), SweepSettings(2), out, ended.append)
    assert len(ended) == 8 - len(before)
    assert before.items() <= kept(out).items()
    assert all((resumed / name).read_bytes() == (whole / name).read_bytes() for name in SAME[:-1])


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


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
    refuse_absolute(found)
    absolute = write(folder, "sweep: {workers: [2, 4]}\n", base.replace("..", str(tmp_path)))
    with pytest.raises(NetfoldError, match=r"gradients\.npy: workers on other machines do not have"):
        refuse_absolute(points_of(load(absolute), VERSIONS))
    gradients.unlink()
    file = write(folder, "sweep: {topology.rate: [10Gbps, 100Gbps]}\n", base)
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
    assert is_source(Path("netfold/units.py"))
    assert is_source(Path("netfold/sim/report/template.html"))
    assert not is_source(Path("netfold/sim/__pycache__/units.cpython-311.pyc"))
    assert not is_source(Path("netfold/sim/__pycache__/units.cpython-311.pyc.140234"))


METRIC = "aggregation_time_us"


def grid(keys: Mapping[str, Sequence[Any]], seeds: int = 3, change: Mapping[str, Any] | None = None) -> Grid:
    """A table in which a variant's time is a thousand times its place, plus the seed, times the first key."""
    rows: list[dict[str, Any]] = [
        {
            **dict(zip(keys, values, strict=True)),
            **{"seed": seed, "variant": variant, "status": "done", "verdict": "pass"},
            **{METRIC: (1000.0 * place + seed) * (values[0] if values and values[0] != "x" else 1)},
            **{"iteration_time_us": 1.0 * place, "packets": 5, "bit_exact": True},
            **{
                "group": "",
                "by": METRIC,
                "baseline": "switch",
                "times_baseline": 2.0 / place,
                "bottleneck": f"{variant}, 60 %",
            },
            **(change or {}),
        }
        for values in itertools.product(*keys.values())
        for seed in range(seeds)
        for place, variant in enumerate(("ring", "switch"), 1)
    ]
    return Grid(pl.DataFrame(rows), tuple((name, name) for name in keys))


def test_a_line_is_the_mean_of_the_seeds_and_a_band_their_range() -> None:
    with style.house_style():
        (axes,) = draw(grid({"workers": [4, 8, 64]}), METRIC).axes

    assert [line.get_xydata().tolist() for line in axes.lines] == [  # type: ignore[union-attr]
        [[workers, (1000 * place + 1) * workers] for workers in (4.0, 8.0, 64.0)] for place in (1, 2)
    ]
    band = axes.collections[0].get_paths()[0].vertices  # type: ignore[union-attr]
    assert {(4.0, 4000.0), (4.0, 4008.0), (64.0, 64000.0), (64.0, 64128.0)} <= set(map(tuple, band))
    assert axes.get_xlabel() == "workers"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["4", "8", "64"]


@pytest.mark.parametrize(("values", "scale"), [([1, 9], "linear"), ([1, 10], "log"), ([4, 16, 39], "linear")])
def test_an_axis_is_logarithmic_from_a_decade_on(values: list[int], scale: str) -> None:
    with style.house_style():
        (axes,) = draw(grid({"workers": values}), METRIC).axes

    assert axes.get_xscale() == scale


def test_the_first_number_is_on_the_axis_and_others_make_columns_and_rows() -> None:
    keys = {"codec": ["x"], "workers": [4, 8], "b": [1, 2, 3]}
    with style.house_style():
        figure = draw(grid(keys), METRIC)
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "workers"]
    assert [axes.get_title("left") for axes in figure.axes] == [f"codec = x, b = {b}" for b in (1, 2, 3)]
    with style.house_style():
        figure = draw(grid({"workers": [4, 8], "a": [1, 2], "b": [1, 2], "c": [5, 6]}), METRIC)
    assert len(figure.axes) == 4
    with style.house_style():  # three columns at most, so two rows, of which the second has a gap
        assert len(draw(grid({"workers": [4, 8], "a": [1, 2, 3, 4, 5]}, 1), METRIC).axes) == 5
    assert [page.value_text("topology.rate_bps", rate) for rate in (10**10, None)] == ["10Gbps", "–"]
    written = {"payload_bytes_up": "2.50 kB", "aggregation_elements_per_s": "2.50 k/s", "elements": "2.50 k"}
    assert {name: page.metric_text(name)(2500.0) for name in written} == written
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [f"{variant}, c = {c}" for variant in ("ring", "switch") for c in (5, 6)]


def test_points_whose_checks_failed_are_marked() -> None:
    with style.house_style():
        figure = draw(grid({"workers": [4, 8]}, change={"verdict": "stalled"}), METRIC)

    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "ring",
        "switch",
        "failed or stalled",
    ]


def test_a_metric_of_a_sweep_is_drawn_for_a_paper(whole: Path) -> None:
    result = page.load_sweep(whole)
    path = result.write_figure(METRIC)
    first = path.read_bytes()

    assert path.name == f"{METRIC}-3.3in.pdf"
    assert first.startswith(b"%PDF")
    assert result.write_figure(METRIC).read_bytes() == first


def test_metrics_that_never_differ_and_points_without_results_have_no_figure() -> None:
    found = grid({"workers": [4, 8]})
    assert metrics_of(found) == [METRIC, "iteration_time_us"]
    assert metrics_of(grid({"workers": [4, 8]}, change={"status": "failed"})) == []
    drawn = sweep_figures(found)
    assert list(drawn) == [f"{METRIC}.svg", "iteration_time_us.svg"]
    assert drawn == sweep_figures(found)


def test_the_fastest_is_one_whose_checks_hold() -> None:
    found = grid({"workers": [4, 8]})
    wrong = found.frame.with_columns(
        verdict=pl.when((pl.col("variant") == "ring") & (pl.col("workers") == 8))
        .then(pl.lit("fail"))
        .otherwise("verdict")
    )

    assert [(row["key"], row["variant"], row["times"]) for row in fastest(found)] == [
        (["4"], "ring", "2.00 ×"),
        (["8"], "ring", "2.00 ×"),
    ]
    assert [(row["variant"], row["times"]) for row in fastest(Grid(wrong, found.keys))] == [
        ("ring", "2.00 ×"),
        ("switch", "1.00 ×"),
    ]


def test_what_the_fastest_cost_is_told_where_prices_differ() -> None:
    found = grid({"workers": [4, 8]})
    prices = pl.when(pl.col("variant") == "ring").then(27_600.0).otherwise(41_000.0)

    assert [row["cost"] for row in fastest(found)] == ["", ""]
    priced = Grid(found.frame.with_columns(cost_usd=prices), found.keys)
    assert [row["cost"] for row in fastest(priced)] == ["$27.6k", "$27.6k"]
    equal = Grid(found.frame.with_columns(cost_usd=pl.lit(27_600.0)), found.keys)
    assert [row["cost"] for row in fastest(equal)] == ["", ""]


def aiming(times: Mapping[tuple[int, int, str], float | None]) -> Grid:
    """Trainings to 99 %, by workers, seed and variant; scores at the end are 10 % for each worker."""
    rows = [
        {
            **{"workers": workers, "seed": seed, "variant": variant, "status": "done", "verdict": "pass"},
            **{"group": "", "by": "time_to_target_us", "baseline": "dense", "bottleneck": "h0->s0, 60 %"},
            **{"target": 0.99, "test_metric": "accuracy", "test_score": workers / 10},
            "time_to_target_us": time_us,
        }
        for (workers, seed, variant), time_us in times.items()
    ]
    return Grid(pl.DataFrame(rows), (("workers", "workers"),))


MISSED: dict[str, tuple[dict[tuple[int, int, str], float | None], list[str]]] = {
    "nobody": ({(2, 1, "dense"): 5.0, (2, 1, "top"): 6.0}, []),
    "all, at a point": (
        {(2, 1, "dense"): None, (2, 1, "top"): None, (4, 1, "dense"): 5.0, (4, 1, "top"): 6.0},
        ["workers=2: no variant reaches an accuracy of 99.0 %; at the end: dense 20.0 %, top 20.0 %"],
    ),
    "two, everywhere": (
        {
            **{(workers, 1, "dense"): 5.0 for workers in (2, 4)},
            **{(workers, 1, name): None for workers in (2, 4) for name in ("top1", "top01")},
        },
        ["top1 and top01 miss the target at every point (20.0 % to 40.0 % and 20.0 % to 40.0 % at the end)"],
    ),
    "one, with one of two seeds": (
        {
            **{(workers, seed, "dense"): 5.0 for workers in (2, 4) for seed in (1, 2)},
            **{(2, 1, "top"): 1.0, (2, 2, "top"): 1.0, (4, 1, "top"): None, (4, 2, "top"): 1.0},
        },
        ["top misses the target at workers=4 (40.0 % at the end)"],
    ),
}


@pytest.mark.parametrize("case", MISSED)
def test_who_misses_the_target_is_told(case: str) -> None:
    times, told = MISSED[case]

    assert misses(aiming(times)) == told


def test_who_misses_the_target_with_a_seed_is_not_the_fastest_and_is_named_in_its_figure() -> None:
    swept = aiming(
        {
            **{(2, 1, "dense"): 5.0, (2, 2, "dense"): 7.0, (2, 1, "top"): 1.0, (2, 2, "top"): None},
            **{(4, 1, "dense"): 5.0, (4, 2, "dense"): 5.0, (4, 1, "top"): 1.0, (4, 2, "top"): 1.0},
            **{(workers, seed, "worst"): None for workers in (2, 4) for seed in (1, 2)},
        }
    )
    with style.house_style():
        figure = draw(swept, "time_to_target_us")

    assert [row["variant"] for row in fastest(swept)] == ["dense", "top"]
    assert [line.get_xydata().tolist() for line in figure.axes[0].lines] == [  # type: ignore[union-attr]
        [[2.0, 6.0], [4.0, 5.0]],
        [[4.0, 1.0]],
    ]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "dense",
        "top (misses the target at some points)",
        "worst (misses the target)",
    ]
