"""The demo: what it says is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import netfold
from netfold.commands import demo_command
from netfold.commands.demo_command import ACTS, OWN_SCENARIO
from netfold.commands.example_commands import shipped
from tests import ROOT
from tests.command_line import run_command
from tests.examples import nightly


def played(folder: Path, *acts: Any) -> str:
    """What the demo prints of some acts, with its report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_command, "ACTS", acts)
        result = run_command("demo", "--out", folder)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


@pytest.mark.slow
def test_sums_are_compressed_and_lost_packets_lose_no_sum(tmp_path: Path) -> None:
    """Its first scenario is that of docs/python.md."""
    text = played(tmp_path, *ACTS[:2])

    assert f"```yaml\n{OWN_SCENARIO}```" in (ROOT / "docs" / "python.md").read_text("utf-8")
    assert "sparse is 10.4 × as fast, sends 1/12 of the bytes, and its sums are as exact." in text
    assert "│ loss-5 │ 7,625 │ 111 ms │" in text
    assert "All sums are the same. But loss-5 takes 276 × as long" in text
    assert "report.html Next: netfold examples" in text
    assert len(re.findall(r"\S*\w\S*", text)) < 140  # newcomers are tired readers


@pytest.mark.slow
def test_a_claim_that_a_run_does_not_bear_out_is_an_error(tmp_path: Path) -> None:
    false = ACTS[0]._replace(holds=lambda variants: False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo_command, "ACTS", (false,))
        result = run_command("demo", "--out", tmp_path)

    assert result.exit_code == 1
    assert "this run does not show what it should" in result.stderr


def test_a_model_that_does_not_reach_its_target_does_not_bear_out_the_claim() -> None:
    reached = {"merges_verified": True, "decode_failures": 0, "test_score": 0.99, "time_to_target_us": 40.0}
    variants = {"dense": reached, "switchml": reached | {"time_to_target_us": 35.0}, "bird-shared": reached}
    late = variants | {"bird-shared": reached | {"time_to_target_us": None}}

    assert (ACTS[2].holds(variants), ACTS[2].holds(late)) == (True, False)


@nightly
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_model_learns_and_the_switch_brings_it_to_its_target_first(tmp_path: Path, seed: int) -> None:
    """The exact sum's score is the best, and far above guessing, whatever the seed."""
    act = ACTS[2]
    run = netfold.run(shipped()[act.scenario].path, variants=act.variants, seed=seed, out=tmp_path)
    variants = {variant["name"]: variant["metrics"] for variant in run.summary["variants"]}

    assert act.holds(variants)
    assert variants["dense"]["test_score"] > 1 / 3 + 0.25  # three spirals
