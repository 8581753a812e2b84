"""What a plan may take of simulated time: up to 2**61 ps, and beyond it a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netfold.sim.errors import RunError
from tests.sim.scenes import DENSE, TINY, plan, refused, simulate

LIMIT_PS = 2**61
FIXED = "device={kind: fixed, forward: 1000s, backward: 1000s}"
SLOW = "faults=[{kind: slow_host, worker: 1, factor: 10000}]"


def test_a_rate_at_which_a_window_outlasts_all_time(tmp_path: Path) -> None:
    assert refused(tmp_path, "topology.rate=1bps") == (
        "--set: topology.rate: at 1bps a full window waits for more than 26 days of simulated time\n"
        "  use a higher rate, or a smaller window"
    )
    assert refused(tmp_path, "topology.rate=1bps", "collective.slots=1", "workload.elements=1e6") == (
        "--set: topology.rate: at 1bps a step takes up to 384000000 s, "
        "which is more than 26 days of simulated time\n"
        "  use fewer elements, or links of 167bps or more"
    )


def test_just_inside_and_just_outside(tmp_path: Path) -> None:
    """3 workers send 4 · 2 · 2 bytes for an element, at 1 Kbps: 0.384 s."""
    most = LIMIT_PS // (3 * 16 * 8 * 10**9)
    rate = ("topology.rate=1Kbps", "collective.slots=1")

    assert plan(tmp_path, *rate, f"workload.elements={most}")
    assert "use fewer elements, or links of 1010bps or more" in refused(
        tmp_path, *rate, f"workload.elements={most + 1}"
    )


def test_steps(tmp_path: Path) -> None:
    """Each takes 2000 s, and 1000 elements of 3 workers at 100 Gbps 3.84 us at most."""
    most = LIMIT_PS // (2000 * 10**12 + 3_840_000)

    assert most == 1152
    assert plan(tmp_path, FIXED, f"workload.steps={most}")
    assert refused(tmp_path, FIXED, f"workload.steps={most + 1}") == (
        "--set: workload.steps: 1153 steps of up to 2010s each are more than 26 days of simulated time\n"
        "  use 1152 steps at most"
    )


def test_local_steps_take_time_each(tmp_path: Path) -> None:
    """An exchange after 4 local steps of 2000 s; 40,000 steps of a training are within memory."""
    trained = "workload={kind: training, model: mlp, local_steps: 4, steps: %d}"
    most = LIMIT_PS // (4 * 2000 * 10**12)

    assert plan(tmp_path, FIXED, trained % most)
    assert f"workload.steps: {most + 1} steps of up to " in refused(tmp_path, FIXED, trained % (most + 1))


def test_a_slow_host(tmp_path: Path) -> None:
    assert refused(tmp_path, FIXED, SLOW) == (
        "--set: device: a step takes up to 20000000 s, which is more than 26 days of simulated time\n"
        "  use shorter times, or a smaller factor of slow_host"
    )
    assert plan(tmp_path, "device={kind: fixed, forward: 1ms, backward: 1ms}", SLOW)


def test_factors_multiply(tmp_path: Path) -> None:
    twice = (
        "faults=[{{kind: slow_host, worker: 1, factor: 100}}, {{kind: slow_host, worker: {}, factor: 101}}]"
    )
    device = "device={kind: fixed, forward: 1ms, backward: 1ms}"

    assert plan(tmp_path, device, twice.format(2))
    assert refused(tmp_path, device, twice.format(1)) == (
        "--set: faults: worker 1 becomes 10100 times as slow, by all of its faults together\n"
        "  use factors whose product is 10000 at most"
    )


def test_a_link_that_stays_slow(tmp_path: Path) -> None:
    fault = "faults: [{{kind: link_rate, at: 0s, rate: 1bps{}}}]\n"

    few = "collective.slots=8"
    assert plan(tmp_path, "workload.elements=1e6", few, text=TINY + fault.format(", for: 1ms"))
    assert "links of 167bps or more" in refused(
        tmp_path, "workload.elements=1e6", text=TINY + fault.format("")
    )


@pytest.mark.parametrize(
    "sets", [("collective.slots=512",), ("collective={kind: ring, window: 8192}", DENSE)]
)
def test_a_link_on_which_a_window_outlasts_the_clock(tmp_path: Path, sets: tuple[str, ...]) -> None:
    """2^59 ps, however short the fault is: nobody waits for its end to say so."""
    fault = "faults: [{{kind: link_rate, links: ['h0->s0'], at: 1us, rate: {}, for: 50us}}]\n"
    found = refused(tmp_path, *sets, text=TINY + fault.format("1bps"))

    assert found.startswith(
        "tiny.yaml:12: faults.0.rate: at 1bps a full window waits for link h0->s0 for more than 6 days of "
        "simulated time\n"
    )
    least = re.search(r"use (\d+)bps or more, or a smaller window$", found)
    assert least is not None
    assert plan(tmp_path, *sets, text=TINY + fault.format(f"{least[1]}bps"))


RELEASED = "collective.slots=512", "collective.timeout=released"  # timers that know nothing of losses


def test_what_is_sent_again_may_still_outlast_the_clock(tmp_path: Path) -> None:
    """A window fits, a second one behind it does not: the run ends in words."""
    fault = "faults: [{kind: link_rate, links: ['h0->s0'], at: 1us, rate: 3bps, for: 10ms}]\n"

    with pytest.raises(RunError) as caught:
        simulate(tmp_path, "workload.elements=1e5", *RELEASED, text=TINY + fault)

    assert str(caught.value).removeprefix(f"{tmp_path}/") == (
        "tiny.yaml: tiny: the backlog of link h0->s0 takes longer than 576460752303423488 ps, the most "
        "that fits the engine's clock\n"
        "  use a higher rate for it (link_rate in `faults`, or the topology), fewer slots, or a longer "
        "timeout"
    )
