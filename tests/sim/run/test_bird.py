"""Runs of BIRD's codecs: what carries them, with loss, and what refuses them."""

from __future__ import annotations

from pathlib import Path

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
MERGING = (
    "{kind: ring}",
    "{kind: in_network, program: switchml}",
    "{kind: parameter_server}",
    "{kind: all_gather}",
)


@pytest.mark.parametrize("collective", GATHERING)
@pytest.mark.parametrize("codec", ["bird", "bird, down: rows", "bird_plus", "bird_plus, scales: row"])
def test_gathered_rows_pass_their_checks(tmp_path: Path, codec: str, collective: str) -> None:
    result = simulate(tmp_path, f"codec={{kind: {codec}}}", f"collective={collective}", text=TEXT)

    assert {check.verdict for check in result.records.checks} == {"pass"}
    assert len(result.records.rounds) == 4


@pytest.mark.parametrize("collective", MERGING)
@pytest.mark.parametrize("lanes", [4, 32])
def test_shared_rows_pass_their_checks(tmp_path: Path, collective: str, lanes: int) -> None:
    codec = f"codec={{kind: bird_shared, lanes: {lanes}}}"
    result = simulate(tmp_path, codec, f"collective={collective}", text=TEXT)

    assert {check.verdict for check in result.records.checks} == {"pass"}
    metrics = summarize(result.facts, result.records)["variants"][0]["metrics"]
    assert metrics.get("overflowed_words", 0) == 0


def test_the_same_rows_and_losses_wherever_they_are_summed(tmp_path: Path) -> None:
    """Also in lanes of another width: sums of signs are integers."""
    found = [
        measure(
            tmp_path, f"collective={collective}", f"codec={{kind: bird_shared, lanes: {lanes}}}", text=TEXT
        )
        for collective in MERGING
        for lanes in (4, 8, 32)
        if not (lanes == 8 and "switchml" in collective)  # needs shorter packets
    ]

    assert len({one["loss"] for one in found}) == 1


def test_a_server_s_sum_is_that_of_every_worker(tmp_path: Path) -> None:
    found = [
        measure(tmp_path, f"collective={collective}", f"codec={{kind: bird, down: {down}}}", text=TEXT)
        for collective in GATHERING
        for down in ("sum", "rows")
    ]

    assert len({(one["loss"], one["nmse"]) for one in found}) == 1


@pytest.mark.parametrize(
    ("codec", "collective"),
    [
        ("bird", "{kind: parameter_server}"),
        ("bird_plus", "{kind: all_gather}"),
        ("bird_shared", "{kind: in_network, program: switchml}"),
    ],
)
def test_embeddings_with_many_rows_of_zeros(tmp_path: Path, codec: str, collective: str) -> None:
    result = simulate(tmp_path, f"codec={{kind: {codec}}}", f"collective={collective}", NCF, text=TEXT)

    assert {check.verdict for check in result.records.checks} == {"pass"}


@pytest.mark.parametrize(
    "collective",
    ["{kind: ring}", "{kind: in_network, program: switchml}", "{kind: in_network, program: tree}"],
)
@pytest.mark.parametrize("codec", ["bird", "bird_plus"])
def test_what_cannot_gather_refuses_rows_of_each_worker_s_own(
    tmp_path: Path, codec: str, collective: str
) -> None:
    found = refused(tmp_path, f"codec={{kind: {codec}}}", f"collective={collective}", text=TEXT)

    assert f"codec '{codec}'" in found
    assert "gather" in found
    assert "all_gather" in found


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
