"""Runs of BIRD's codecs: what carries them, with loss, and what refuses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netfold.sim.results import summarize
from tests.sim.scenes import measure, refused, simulate

TEXT = """\
name: rows
seed: 3
topology: {kind: star, hosts: 6, rate: 100Gbps, delay: 1us, switch: tofino1}
workers: 4
workload: {kind: training, model: mlp, batch: 8, learning_rate: 0.2, steps: 4}
codec: {kind: bird}
collective: {kind: parameter_server}
faults: [{kind: loss, rate: 1%}]
"""
NCF = "workload={kind: training, model: ncf, batch: 16, steps: 2}"
GATHERING = ("{kind: all_gather}", "{kind: parameter_server}", "{kind: parameter_server, servers: 2}")


def measured(folder: Path, codec: str, collective: str) -> dict[str, Any]:
    """Metrics of a run whose checks pass."""
    result = simulate(folder, f"codec={{kind: {codec}}}", f"collective={collective}", text=TEXT)
    assert {check.verdict for check in result.records.checks} == {"pass"}
    found: dict[str, Any] = summarize(result.facts, result.records)["variants"][0]["metrics"]
    return found


def test_the_same_rows_and_losses_wherever_they_are_summed(tmp_path: Path) -> None:
    """Also in lanes of another width: sums of signs are integers."""
    cases = [(4, "ring"), (8, "ring"), (32, "parameter_server"), (8, "all_gather")]
    cases += [(bits, "in_network, program: switchml") for bits in (4, 32)]
    found = [measured(tmp_path, f"bird_shared, lanes: {bits}", f"{{kind: {kind}}}") for bits, kind in cases]

    assert len({one["loss"] for one in found}) == 1
    assert {one.get("overflowed_words", 0) for one in found} == {0}


def test_a_server_s_sum_is_that_of_every_worker(tmp_path: Path) -> None:
    found = [
        measured(tmp_path, f"bird, down: {down}", collective)
        for down, collective in zip(("sum", "rows", "sum", "rows"), (*GATHERING, GATHERING[1]), strict=True)
    ]

    assert len({(one["loss"], one["nmse"]) for one in found}) == 1


@pytest.mark.parametrize(
    ("codec", "collective"),
    [
        ("bird_plus, scales: row", "{kind: all_gather}"),
        ("bird_shared", "{kind: in_network, program: switchml}"),
    ],
)
def test_embeddings_with_many_rows_of_zeros(tmp_path: Path, codec: str, collective: str) -> None:
    result = simulate(tmp_path, f"codec={{kind: {codec}}}", f"collective={collective}", NCF, text=TEXT)

    assert {check.verdict for check in result.records.checks} == {"pass"}


def test_more_workers_than_lanes_have_room_for(tmp_path: Path) -> None:
    wide = ("topology.hosts=9", "workers=8", "codec={kind: bird_shared, lanes: 4}", "collective={kind: ring}")

    found = refused(tmp_path, *wide, text=TEXT)

    assert "codec.lanes: bird_shared has room for 7 workers, found 8" in found
    assert "use codec.lanes: 32" in found


def test_one_index_for_a_row(tmp_path: Path) -> None:
    """Of the MLP's 128 rows of 64 elements at most 13 are sent, and 1 of 10 rows of 128."""
    found = measure(tmp_path, text=TEXT)
    words = 4 + 1 + (13 * 65 + 129) // 32 + 1 + 14 + 2  # scales, a number, signs, indices, rows of layers

    assert found["payload_bytes_up"] <= 4 * 4 * words
    assert found["compression_ratio"] >= 4 * 9610 / (4 * words)
