"""What is said of a step that cannot end while several buckets are in flight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netfold.sim.run.run import run_scenario
from tests.sim.run.step.test_in_flight import RING, SCENARIO, SWITCH, overlap
from tests.sim.scenes import write


def stuck(folder: Path, *sets: str) -> tuple[dict[str, Any], str]:
    """The only variant, and what its first check says."""
    outcome = run_scenario(
        write(folder, SCENARIO), sets, None, folder / "runs", lambda what, done, total: None
    )
    (variant,) = outcome.summary["variants"]
    assert variant["verdict"] == "stuck"
    return variant, variant["checks"][0]["detail"]


def test_every_bucket_in_flight_is_named(tmp_path: Path) -> None:
    """Worker 0's messages are lost: it waits for those of the others, which cannot go on either."""
    variant, _ = stuck(tmp_path, *RING, overlap(3), "faults=[{kind: loss, rate: 100%, links: ['h0->s0']}]")

    first = variant["diagnosis"]["idle"][0]
    waiting = "; ".join(f"waits for 'values' of bucket {bucket} of step 0" for bucket in range(3))
    exponents = waiting.replace("'values'", "'values exponents'")
    assert first in (f"worker 0 {waiting}", f"worker 0 {exponents}")


@pytest.mark.parametrize("encode", ["beside", "on_device"])
@pytest.mark.parametrize("network", [SWITCH, RING], ids=["switch", "ring"])
@pytest.mark.parametrize("at", ["5us", "31us", "50us", "85us"])
def test_a_crash_stops_the_device_and_the_network(
    tmp_path: Path, network: tuple[str, ...], encode: str, at: str
) -> None:
    """In forward, backward, encoding or later: whatever it was doing, worker 1 does nothing more."""
    crash = f"faults=[{{kind: worker_crash, worker: 1, at: {at}}}]"
    variant, detail = stuck(tmp_path, *network, overlap(3, encode=encode), crash)

    assert "crashed" in detail
    assert "worker 1 has crashed" in variant["diagnosis"]["idle"]
    assert variant["metrics"]["steps"] == 0


def test_without_a_crash_the_same_run_ends(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="'pass' == 'stuck'"):
        stuck(tmp_path, *SWITCH, overlap(3))
