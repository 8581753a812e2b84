"""Sums that leave int32 in a switch: what becomes of them is the scenario's choice; every one is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.engine.engine import Engine
from sim.engine.model import Frame, Job, Merge, Overflow, Segment
from sim.workload import synthetic
from tests.sim.scenes import TINY, run, simulate
from topologies.graph import LinkSpec
from topologies.routing import compile_network
from topologies.star import star

INT32_MAX = 2**31 - 1
LARGE = "codec={kind: fixed_point, factor: 9e8}"  # about one sum of two in a hundred leaves int32


@pytest.mark.parametrize(
    ("policy", "total"),
    [(Overflow.WRAP, -(2**31)), (Overflow.SATURATE, INT32_MAX), (Overflow.STICKY, INT32_MAX)],
)
def test_one_more_than_the_largest(policy: Overflow, total: int) -> None:
    network = compile_network(star(2, LinkSpec(10**11, 10**6, 1 << 20)))
    engine = Engine(network, 1)
    timeouts = (10**9, 10**9, 10**9)
    number = engine.add_job(Job((0, 1), 2, 0, 1, 1, Frame("f", 4, 40), *timeouts, (0, 0), overflow=policy))
    results = [np.zeros(1, np.int32) for _ in range(2)]
    for worker, word in enumerate((INT32_MAX, 1)):
        segment = Segment(np.array([word], np.int32), results[worker], Merge.ADD)
        engine.open_stream(number, worker, [segment])
    while engine.next_event_ps() is not None:
        engine.run(10**12)

    assert [int(result[0]) for result in results] == [total, total]
    assert engine.switch_counters(number)["overflowed_words"] == 1


def summary(folder: Path, *sets: str) -> dict[str, Any]:
    return run(folder, *sets, text=TINY).summary


def test_atp_sends_floats_where_sums_stick_and_says_how_many_did(tmp_path: Path) -> None:
    told = summary(tmp_path, LARGE, "collective={program: atp, frame: atp}")
    (variant,) = told["variants"]

    assert variant["verdict"] == "pass"
    count = variant["metrics"]["overflowed_words"]
    assert count > 0
    assert told["warnings"] == [f"tiny: {count} sums left int32 in switches and stuck at the limit"]
    (switch,) = variant["switches"]
    assert (switch["switch"], switch["overflowed_words"]) == ("s0", count)
    assert switch["requests"] > 0


DONE = {"saturate": "saturated", "sticky": "stuck at the limit"}


def why_inexact(folder: Path, *sets: str) -> tuple[str, str]:
    """Verdict of merges_are_exact, and what its detail says behind the first wrong word."""
    (job,) = simulate(folder, *sets).jobs
    (check,) = (check for check in job.checks if check.name == "merges_are_exact")
    (switch,) = job.facts.switches
    count = f"; {switch['overflowed_words']} sums left int32 in switches and "
    return check.verdict, check.detail.partition(count)[2]


@pytest.mark.parametrize("overflow", DONE)
def test_counters_of_a_sketch_should_wrap(
    tmp_path: Path, overflow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values just below their exponent's limit: two of them leave no room in a counter for a third."""
    monkeypatch.setitem(synthetic._VALUES, "normal", lambda _, count: np.full(count, 1.9, np.float32))
    sets = "codec={kind: lossless}", "workload.elements=50000", "workload.density=2%"

    verdict, why = why_inexact(tmp_path, *sets, f"collective.overflow={overflow}")

    assert (verdict, why) == ("fail", f"{DONE[overflow]}: use overflow wrap")
    assert why_inexact(tmp_path, *sets, "collective.overflow=wrap") == ("pass", "")
