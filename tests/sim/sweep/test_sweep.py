"""A sweep from beginning to end: its table, what is kept, and what an end in the middle leaves."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import netfold
from netfold.sim.commands.main import app
from netfold.sim.errors import DataError, NetfoldError
from netfold.sim.results.format import metric_types
from netfold.sim.sweep import make, page
from netfold.sim.sweep.cluster import Cluster, connected
from netfold.sim.sweep.make import Ended, Settings, run_sweep, sweep_of
from netfold.sim.sweep.store import Store
from netfold.sim.sweep.task import RANKING, Outcome, own_versions, work
from tests import ROOT
from tests.sim.sweep.inline import Inline, use_inline
from tests.sim.sweep.scene import GRID, scenario, write

SAME = ("points.parquet", "sweep.json", "scenario.yaml", "report.html")


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of sweeps without figures."""
    monkeypatch.setattr("netfold.sim.sweep.figures.sweep_figures", lambda grid: {})


def sweep(
    monkeypatch: pytest.MonkeyPatch, out: Path, text: str = GRID, order: int = 0, **settings: Any
) -> Path:
    """A sweep in this process, whose points end in an order of their own."""
    use_inline(monkeypatch, Inline(order))
    return run_sweep(scenario(text), Settings(2, **settings), out, lambda ended: None)


def table(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "points.parquet")


def drawn(folder: Path) -> Path:
    """A sweep's folder with its page."""
    page.write_report(page.load_sweep(folder))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in SAME}


def kept(out: Path) -> dict[str, int]:
    """The files of finished points, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in (out / "small" / "points").glob("*.json")}


def test_the_table_has_what_single_runs_find(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = table(sweep(monkeypatch, tmp_path))

    assert found.columns[:8] == [
        *("point", "workers", "workload.density", "seed", "variant", "status", "verdict", "error")
    ]
    assert found.columns[8:12] == [*RANKING]
    assert set(found.columns[12:]) == set(metric_types()) - {"workers"}
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
            assert {name: row[name] for name in found.columns[12:]} == {
                name: one["metrics"].get(name) for name in found.columns[12:]
            }


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("after", [0, 5])
def test_a_stopped_sweep_goes_on_and_ends_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, after: int
) -> None:
    whole = sweep(monkeypatch, tmp_path / "whole")
    calls: list[object] = []

    def stopping(task: Any) -> Outcome:
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

    def counting(task: Any) -> Outcome:
        ran.append(task.text)
        return work(task)

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
    def failing(task: Any) -> Outcome:
        if '"count": 2' in task.text and '"seed": 7' in task.text:
            return Outcome(error="not enough memory")
        return work(task)

    monkeypatch.setattr(make, "work", failing)
    use_inline(monkeypatch, Inline(dies=lambda task: '"count": 4' in task.text and "10%" in task.text))
    told: list[Ended] = []
    folder = run_sweep(scenario(GRID), Settings(2), tmp_path, told.append)

    found = table(folder).group_by("point", maintain_order=True).first()
    assert found["status"].to_list() == [
        "failed",
        "done",
        "failed",
        "done",
        "done",
        "done",
        "failed",
        "failed",
    ]
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
    monkeypatch.setattr(make, "work", lambda task: Outcome(({"variant": "ring", "verdict": "pass"},)))
    found = table(sweep(monkeypatch, tmp_path, f"sweep: {{{text}}}\n"))

    name, dtype, values = TYPED[text]
    assert found.schema[name] == dtype
    assert found[name].to_list() == values


def test_a_kept_point_is_whole_or_not_there(tmp_path: Path) -> None:
    store = Store(tmp_path)
    outcome = Outcome(({"variant": "a", "verdict": "pass", "steps": 1, "nmse": 0.1},), wall_s=1.5, host="h")
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
    monkeypatch.setattr("netfold.sim.sweep.task.own_versions", lambda: other)
    use_inline(monkeypatch, Inline())
    folder = run_sweep(scenario("sweep: {workers: [2]}\n"), Settings(1), tmp_path, lambda ended: None)

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
    done = CliRunner().invoke(app, ["sweep", str(write(tmp_path, "")), *arguments])

    assert done.exit_code == 2
    assert words in done.output


@pytest.mark.usefixtures("plain")
def test_the_command_prints_where_everything_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_inline(monkeypatch, Inline())
    file, out = write(tmp_path, ""), tmp_path / "out"
    arguments = ["sweep", str(file), "--over", "workers=2,4", "--over", "seeds=2", "--out", str(out)]
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == 0, done.output
    assert "small: 4 points done: pass" in done.output
    assert "point 4 of 4: workers=" in done.output
    (folder,) = (out / "small").glob("*-sweep")
    assert f"{folder}/points.parquet" in done.output
    as_json = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert [point["status"] for point in as_json["points"]] == ["done"] * 4
    checked = CliRunner().invoke(app, ["validate", str(file), "--set", "sweep.workers=[2, 4]"])
    assert checked.output == f"{file}: fine, variants: ring, switch; 2 points\n"


def test_a_damaged_folder_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("netfold.sim.sweep.figures.sweep_figures", lambda grid: {})
    folder = drawn(sweep(monkeypatch, tmp_path, "sweep: {workers: [2, 4]}\n"))
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()
    assert CliRunner().invoke(app, ["report", str(folder)]).output == f"{folder}/report.html\n"
    assert (folder / "report.html").read_bytes() == before
    with pytest.raises(DataError, match="not a sweep's folder"):
        page.load_sweep(tmp_path)
    content = (folder / "sweep.json").read_text()
    for wrong, words in {
        content.replace('"format": 2', '"format": 3'): "has format 3, this netfold reads 2",
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


# SIGINT is ignored where tests run as a job in the background; a person's terminal does not.
CODE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from netfold.sim.__main__ import main; main()"
)


@pytest.mark.slow
@pytest.mark.processes
def test_ctrl_c_keeps_points_leaves_no_process_and_the_rest_follows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The real command, on real processes: interrupted, continued here, and compared with an unbroken one."""
    text = "sweep: {workers: [2, 4], workload.density: [1%, 5%], seeds: 5}\n"
    file, out = write(tmp_path, text), tmp_path / "out"
    command = [sys.executable, "-c", CODE, "sweep", str(file), "--jobs", "2", "--out", str(out)]
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stderr is not None
        if running.stderr.readline().startswith("compiling"):
            running.stderr.readline()
        os.killpg(running.pid, signal.SIGINT)
        said = running.stderr.read()

    assert running.returncode == 130
    assert "of 20 points are finished and kept; the same command goes on from there" in said
    assert said.splitlines()[-1] == "interrupted"
    deadline_s = time.monotonic() + 10
    while group_is_alive(running.pid) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not group_is_alive(running.pid)
    before = kept(out)
    assert 1 <= len(before) < 20
    use_inline(monkeypatch, Inline())
    ended: list[Ended] = []
    resumed = run_sweep(sweep_of(file), Settings(2), out, ended.append)
    assert len(ended) == 20 - len(before)
    assert before.items() <= kept(out).items()
    whole = run_sweep(sweep_of(file), Settings(2), tmp_path / "whole", lambda ended: None)
    assert all((resumed / name).read_bytes() == (whole / name).read_bytes() for name in SAME[:-1])


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_dask_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(NetfoldError, match=r"pip install 'netfold\[dask\]'"),
        connected(Cluster("tcp://127.0.0.1:1"), own_versions()),
    ):
        pass
