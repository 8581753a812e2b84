"""Plans and runs of the 2-D torus: its grid, refusals, and faults that its checks find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netfold
from netfold.homomorphic.codec import Codec
from netfold.sim.collectives.torus_2d.plan import TorusPlan
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.setup import schedules
from netfold.sim.engine.setup.schedules import OpenSchedule
from netfold.sim.run.settings import setups
from netfold.sim.units import TIME
from tests.sim.scenes import TINY, job_plan, only, plan, refused
from tests.sim.toys import FloatCodec, SignCodec, registered, scenario

TEXT = TINY.replace("hosts: 4", "hosts: 16").replace(
    "  kind: in_network\n  frame: udp-256\n", "  kind: torus_2d\n"
)


def lengths(folder: Path, workers: int, **keys: int) -> tuple[int, ...]:
    sets = [f"workers={workers}", *(f"collective.{key}={value}" for key, value in keys.items())]
    plan = job_plan(only(folder, *sets, text=TEXT)).collective
    assert isinstance(plan, TorusPlan)
    return plan.grid.lengths


@pytest.mark.parametrize(
    ("workers", "keys", "found"),
    [
        (1, {}, (1,)),
        (2, {}, (2,)),
        (4, {}, (2, 2)),
        (5, {}, (3, 2)),
        (11, {}, (4, 4, 3)),
        (16, {}, (4,) * 4),
        (16, {"rows": 1}, (16,)),
        (16, {"rows": 16}, (1,) * 16),
        (11, {"columns": 4}, (4, 4, 3)),
        (10, {"columns": 4}, (4, 3, 3)),
        (11, {"columns": 1}, (1,) * 11),
        (11, {"rows": 3, "columns": 4}, (4, 4, 3)),
    ],
)
def test_the_grid(tmp_path: Path, workers: int, keys: dict[str, int], found: tuple[int, ...]) -> None:
    assert lengths(tmp_path, workers, **keys) == found
    # Rows and columns that a run records give the same grid again.
    assert lengths(tmp_path, workers, rows=len(found), columns=max(found)) == found


@pytest.mark.parametrize(
    ("workers", "keys", "told"),
    [
        (4, "rows: 5", "collective.rows: 4 workers cannot stand in 5 rows\n  use at most 4"),
        (1, "columns: 2", "collective.columns: 1 worker cannot stand in 2 columns\n  use at most 1"),
        (
            9,
            "columns: 4",
            "collective.columns: 9 workers in 3 rows are 3 + 3 + 3, 4 columns do not fit them\n"
            "  use collective.columns: 3",
        ),
        (
            11,
            "{rows: 2, columns: 4}",
            "collective.columns: 11 workers in 2 rows are 6 + 5, 4 columns do not fit them\n"
            "  use collective.columns: 6, or only rows",
        ),
        (4, "rows: 0", "collective.rows: must be at least 1, found 0"),
    ],
)
def test_a_grid_that_does_not_fit_says_why(tmp_path: Path, workers: int, keys: str, told: str) -> None:
    collective = f"collective={{kind: torus_2d, {keys.strip('{}')}}}"
    assert refused(tmp_path, f"workers={workers}", collective, text=TEXT).startswith(f"--set: {told}")


def test_what_a_run_records(tmp_path: Path) -> None:
    (setup,) = setups(plan(tmp_path, "workers=11", text=TEXT)).values()
    collective = setup["collective"]
    assert TIME.parse(collective.pop("timeout")) > TIME.parse("20us")  # four round trips of its windows
    assert collective == {"kind": "torus_2d", "frame": "roce-1024", "window": 512, "rows": 3, "columns": 4}


def test_memory_for_chunks_on_their_way_grows_with_the_rows(tmp_path: Path) -> None:
    """Each row has a message under way, sent and arriving; a ring has one together."""
    held = [
        job_plan(only(tmp_path, "workers=16", collective, text=TEXT)).collective.held_bytes
        for collective in (
            "collective={kind: ring}",
            "collective={kind: torus_2d, rows: 1}",
            "collective={kind: torus_2d, rows: 4}",
        )
    ]
    assert held == [12, 12, 36]


def test_the_timeout_covers_columns_that_share_an_uplink(tmp_path: Path) -> None:
    """2 × 8 on two racks: eight windows cross one uplink, and in rows none."""
    racks = "topology={kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 8, switch: plain}"
    sets = ("workers=16", racks, "codec={kind: none}")
    told = refused(tmp_path, *sets, "collective={kind: torus_2d, rows: 2, timeout: 200us}", text=TEXT)
    assert "200us is too short: a full window's round trip takes" in told
    only(tmp_path, *sets, "collective={kind: torus_2d, rows: 1, timeout: 200us}", text=TEXT)


@pytest.mark.parametrize(("rows", "ways"), [(1, 30), (4, 12)])
def test_codecs_learn_of_its_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, ways: int
) -> None:
    """2 (C + R − 2) ways of a header between two hosts of a star."""
    seen: list[Any] = []

    def carried_by(self: Codec, carrier: Any) -> Codec:
        seen.append(carrier)
        return self

    monkeypatch.setattr(Codec, "carried_by", carried_by)
    star = "topology={kind: star, hosts: 16, rate: 100Gbps, delay: 1us, switch: plain}"
    only(
        tmp_path,
        "workers=16",
        star,
        "codec={kind: none}",
        f"collective={{kind: torus_2d, rows: {rows}}}",
        text=TEXT,
    )
    header_ps = 82 * 80  # of RoCE, at 100 Gbps
    assert seen[-1].latency_ps == ways * 2 * (10**6 + header_ps)


LARGE = {"kind": "synthetic", "elements": 262_144, "steps": 2}
RACKS = {"kind": "leaf_spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 4, "switch": "plain"}


def torus(**keys: int) -> dict[str, Any]:
    return {"kind": "torus_2d", **keys}


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    with registered(SignCodec, FloatCodec):
        yield


def failures(folder: Path, given: dict[str, Any]) -> dict[str, str]:
    """Failed checks of a run, whose verdict they are."""
    run = netfold.run(given, out=folder)
    found = {name: detail for _, name, verdict, detail in run.checks.rows() if verdict != "pass"}
    assert (run.verdict == "fail") == bool(found)
    return found


def test_a_torus_that_miscounts_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers, rows = 11, 3
    given = scenario("toy_sign", workers, workload=LARGE, collective=torus(rows=rows))
    assert failures(tmp_path / "sound", given) == {}
    right = schedules.write_worker

    def miscounting(opened: OpenSchedule, worker: int, words: Any, sizes: Any) -> None:
        right(opened, worker, words, sizes)
        opened.cells["workers"][worker] = 4 if worker == 0 else 1

    monkeypatch.setattr(schedules, "write_worker", miscounting)
    monkeypatch.setattr(Engine, "contributors", lambda *_: np.full(1, workers))

    failed = failures(tmp_path, given)

    assert set(failed) == {"merges_are_right"}
    assert re.match(
        r"worker \d+'s bits survive (more|less) often than its weight allows", failed["merges_are_right"]
    )


def test_a_torus_that_drops_a_workers_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Engine.begin

    def begin(self: Engine, number: int, worker: int, words: Any, *given: Any) -> None:
        right(self, number, worker, words * (worker != 4), *given)

    monkeypatch.setattr(Engine, "begin", begin)
    failed = failures(tmp_path, scenario("toy_float", 5, collective=torus(rows=2)))

    assert set(failed) == {"merges_are_right", "sum_is_right"}
    assert "on the torus, as worker 0 (row 0, column 0) got it" in failed["merges_are_right"]


def test_a_host_that_nothing_reaches_is_named(tmp_path: Path) -> None:
    """Worker 4 of 3 + 2 never hears from worker 3, its neighbour in the row."""
    dead = [{"kind": "loss", "rate": "100%", "links": ["s0->h4"]}]
    run = netfold.run(scenario("none", 5, collective=torus(), faults=dead), out=tmp_path)

    assert run.verdict == "stuck"
    (finishes,) = (one for one in run.summary["variants"][0]["checks"] if one["name"] == "finishes")
    assert "link s0->h4 loses every packet" in finishes["detail"]
    sent = {(row["source"], row["target"]) for row in run.summary["variants"][0]["diagnosis"]["messages"]}
    assert ("h3", "h4") in sent
    told = re.compile(
        r"transfer \d+ from worker 3 to worker 4 \(step \d+\) of \S+ "
        r"of operation 0 of bucket 0 of step 0, flow \d+"
    )
    rows = run.summary["variants"][0]["diagnosis"]["messages"]
    assert any(told.fullmatch(row["what"]) for row in rows)
    assert told.search(finishes["detail"])
    assert {target for _, target in sent} == {"h4"}
