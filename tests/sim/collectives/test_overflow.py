"""Sums that leave int32 in a switch: what becomes of them is the scenario's choice; every one is counted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from netfold.sim.workload import synthetic
from tests.sim.scenes import TINY, run, simulate

LARGE = "codec={kind: fixed_point, factor: 9e8}"  # about one sum of two in a hundred leaves int32


def test_atp_sends_floats_where_sums_stick_and_says_how_many_did(tmp_path: Path) -> None:
    told = run(tmp_path, LARGE, "collective={program: atp, frame: atp}", text=TINY).summary
    (variant,) = told["variants"]

    assert variant["verdict"] == "pass"
    count = variant["metrics"]["overflowed_words"]
    assert count > 0
    assert told["warnings"] == [f"tiny: {count} sums left int32 in switches and stuck at the limit"]
    (switch,) = variant["switches"]
    assert (switch["switch"], switch["overflowed_words"]) == ("s0", count)
    assert switch["requests"] > 0


DONE = {"saturate": "saturated", "sticky": "stuck at the limit"}


def of_merges(folder: Path, *sets: str) -> tuple[str, str, dict[str, str]]:
    """Verdict and detail of merges_are_exact, and the verdicts of all checks."""
    (job,) = simulate(folder, *sets).jobs
    (check,) = (check for check in job.checks if check.name == "merges_are_exact")
    return check.verdict, check.detail, {check.name: check.verdict for check in job.checks}


@pytest.mark.parametrize("overflow", DONE)
def test_counters_that_were_clipped_are_told_where_their_tiles_were_sent_again_or_are_wrong(
    tmp_path: Path, overflow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values just below their exponent's limit: two of them leave no room in a counter for a third."""
    monkeypatch.setitem(synthetic._VALUES, "normal", lambda _, count: np.full(count, 1.9, np.float32))
    sets = "codec={kind: lossless}", "workload.elements=50000", "workload.density=2%"

    verdict, detail, checks = of_merges(tmp_path, *sets, f"collective.overflow={overflow}")

    assert (verdict, set(checks.values())) == ("pass", {"pass"})
    assert re.fullmatch(
        r"all merged words of 1 rounds equal their integer sums, except \d+ in parts that were sent again; "
        rf"\d+ sums left int32 in switches and {DONE[overflow]}: use overflow wrap: first in "
        r"step 0, bucket 0, worker 0, word \d+ of '.*' \(received -?\d+, the sum is -?\d+\): slot .*",
        detail,
    )
    assert of_merges(tmp_path, *sets, "collective.overflow=wrap")[1] == (
        "all merged words of 1 rounds equal their integer sums"
    )

    # The release never sends them again and does not notice: the merged words are not the sums.
    codec = "codec={kind: lossless, setting: published, values: block_exponent, ratio: 10}"
    sets = codec, "workload.elements=50000", "workload.density=20%", f"collective.overflow={overflow}"
    verdict, detail, _ = of_merges(tmp_path, *sets)

    assert verdict == "fail"
    assert re.match(r"\d+ merged words are wrong, first in step 0, bucket 0, worker 0, word \d+ of '", detail)
    assert detail.endswith(f" sums left int32 in switches and {DONE[overflow]}: use overflow wrap")
