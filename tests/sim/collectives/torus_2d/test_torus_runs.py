"""Runs on the 2-D torus: the same sums as on a ring, SIGN on uneven rows, stalls that are explained."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import simpy

import netfold
from netfold.homomorphic.merge import combine
from netfold.homomorphic.message import Merge, Merged
from netfold.sim.collectives import host_messages
from netfold.sim.collectives.host_messages import HostCollective, MessageExchange
from tests.sim.toys import FloatCodec, SignCodec, registered, scenario

LARGE = {"kind": "synthetic", "elements": 262_144, "steps": 2}
LOSSES = [{"kind": "loss", "rate": "1%"}, {"kind": "duplicate", "rate": "5%"}]
REORDER = [{"kind": "reorder", "rate": "1%", "delay": "2us"}]
RACKS = {"kind": "leaf_spine", "leaves": 4, "spines": 2, "hosts_per_leaf": 4, "switch": "plain"}


def torus(**keys: int) -> dict[str, Any]:
    return {"kind": "torus_2d", **keys}


@pytest.fixture(autouse=True)
def known(plain: None) -> Iterator[None]:
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


def ignoring_counts(merge: Merge, accumulated: Merged, arriving: Merged, *more: Any, **named: Any) -> Merged:
    """Merge as if both were one worker's: an arriving bit survives with probability 1/2."""
    one, other = (replace(part, workers=min(1, part.workers)) for part in (accumulated, arriving))
    merged = combine(merge, one, other, *more, **named)
    return replace(merged, workers=accumulated.workers + arriving.workers)


@pytest.mark.parametrize(("workers", "rows"), [(8, 2), (11, 3)])
def test_a_torus_that_ignores_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, rows: int
) -> None:
    given = scenario("toy_sign", workers, workload=LARGE, collective=torus(rows=rows))
    assert failures(tmp_path / "sound", given) == {}
    monkeypatch.setattr(host_messages, "combine", ignoring_counts)

    failed = failures(tmp_path, given)

    assert set(failed) == {"merges_are_right"}
    assert re.match(
        r"worker \d+'s bits survive (more|less) often than its weight allows", failed["merges_are_right"]
    )


def by_hops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weigh the h-th hop of every ring h to 1, whoever its operands hold."""
    right, hops = HostCollective.merge, Counter[Any]()

    def merge(
        self: Any, worker: int, operation: MessageExchange, step: int, arriving: Merged, own: Merged
    ) -> Generator[simpy.Event, Any, Merged]:
        parts = self.grid.words.parts
        row = self.grid.spots[worker].row if step < parts else None  # rings of all rows have the same steps
        place = id(self), operation.number, step, row
        hops[place] += 1
        one, other = replace(arriving, workers=hops[place]), replace(own, workers=1)
        merged: Merged = yield from right(self, worker, operation, step, one, other)
        return replace(merged, workers=arriving.workers + own.workers)

    monkeypatch.setattr(HostCollective, "merge", merge)


@pytest.mark.parametrize(("workers", "rows"), [(8, 2), (9, 3), (11, 3), (5, 2), (7, 2)])
def test_only_uneven_rows_show_weights_by_hops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, rows: int
) -> None:
    by_hops(monkeypatch)
    failed = failures(tmp_path, scenario("toy_sign", workers, workload=LARGE, collective=torus(rows=rows)))

    assert set(failed) == ({"merges_are_right"} if workers % rows else set())


def test_a_torus_that_drops_a_workers_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = HostCollective.merge

    def merge(
        self: Any, worker: int, operation: MessageExchange, step: int, arriving: Merged, own: Merged
    ) -> Generator[simpy.Event, Any, Merged]:
        words = arriving.words.copy()
        merged: Merged = yield from right(self, worker, operation, step, arriving, own)
        return replace(merged, words=words) if worker == 4 else merged

    monkeypatch.setattr(HostCollective, "merge", merge)
    failed = failures(tmp_path, scenario("toy_float", 5, collective=torus(rows=2)))

    assert set(failed) == {"merges_are_right"}
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
    assert {target for _, target in sent} == {"h4"}
