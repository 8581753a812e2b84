"""Runs on the 2-D torus: the same sums as on a ring, SIGN on uneven rows, stalls that are explained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netfold
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.setup import schedules
from netfold.sim.engine.setup.schedules import OpenSchedule
from tests.sim.toys import FloatCodec, SignCodec, registered, scenario

LARGE = {"kind": "synthetic", "elements": 262_144, "steps": 2}
LOSSES = [{"kind": "loss", "rate": "1%"}, {"kind": "duplicate", "rate": "5%"}]
REORDER = [{"kind": "reorder", "rate": "1%", "delay": "2us"}]
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


@pytest.mark.parametrize("workers", [11, 16])
@pytest.mark.parametrize("codec", ["fixed_point", "lossless", "majority", "random_k"])
def test_integers_have_the_sums_of_a_ring(tmp_path: Path, codec: str, workers: int) -> None:
    """On two tiers of switches that lose, copy and reorder packets."""
    losses = []
    for kind in ("ring", "torus_2d"):
        values = {"values": "block_exponent"} if codec == "random_k" else {}
        run = netfold.run(
            {
                "name": "sums",
                "topology": RACKS,
                "workers": min(workers, 15) if codec == "majority" else workers,  # its most
                "workload": {"kind": "synthetic", "elements": 3000, "density": "10%"},
                "codec": {"kind": codec, **values},
                "collective": {"kind": kind},
                "faults": LOSSES + REORDER,
            },
            out=tmp_path / kind,
        )
        assert run.verdict == "pass"
        assert run.variants["packets_retransmitted"][0] > 0
        losses.append((run.rounds["max_abs_error"].to_list(), run.rounds["payload_bytes_up"].to_list()))
    assert losses[0] == losses[1]


def test_messages_that_cannot_be_merged_are_refused() -> None:
    given = scenario("topk", 4, collective=torus())
    told = (
        r"codec 'topk' needs gather, which collective torus_2d cannot carry\n"
        r"  use collective.kind: all_gather or parameter_server"
    )
    with pytest.raises(netfold.ScenarioError, match=told):
        netfold.validate(given)


@pytest.mark.parametrize("codec", ["toy_sign", "toy_float"])
@pytest.mark.parametrize("faults", [[], LOSSES + REORDER], ids=["idle", "faults"])
@pytest.mark.parametrize(("workers", "rows"), [(4, 2), (11, 3), (5, 2), (7, 2), (11, 2), (4, 4), (3, 1)])
def test_sound_runs_pass(tmp_path: Path, codec: str, faults: list[Any], workers: int, rows: int) -> None:
    given = scenario(codec, workers, collective=torus(rows=rows), faults=faults)
    assert failures(tmp_path, given) == {}


@pytest.mark.parametrize(("workers", "rows"), [(8, 2), (11, 3)])
def test_a_torus_that_miscounts_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, rows: int
) -> None:
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
