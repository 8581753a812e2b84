"""Duplicated and late packets: the diagnosis names them if they are the only possible cause."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from netfold.sim.engine.observe.inspect import _waiting_for
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.tree import TREE
from tests.sim.scenes import TINY, run, simulate

MESSAGES = "collective={kind: in_network, frame: roce-1024, slots: 16, timeout_max: 10ms}"
SINGLE = "collective={kind: in_network, frame: udp-256, slots: 1, timeout: 100us, timeout_max: 2ms}"
LATE = ", and a late packet counts for a later unit of its slot"
SEEDS = range(1, 13)


def ending(folder: Path, *sets: str) -> tuple[str, list[str], dict[str, int]]:
    """Verdict of `finishes`, the lines of its detail, and injected faults by kind."""
    summary: dict[str, Any] = run(folder, *sets, text=TINY).summary
    check = summary["variants"][0]["checks"][0]
    injected = {entry["kind"]: entry["count"] for entry in summary["injected"]}
    return check["verdict"], check["detail"].splitlines(), injected


def first_stuck(folder: Path, *sets: str) -> tuple[list[str], dict[str, int]]:
    """The first of some seeds with which a run gets stuck."""
    for seed in SEEDS:
        (job,) = simulate(folder, *sets, f"seed={seed}").jobs
        if job.checks[0].verdict == "stuck":
            _, lines, injected = ending(folder, *sets, f"seed={seed}")
            return lines, injected
    raise AssertionError("no seed gets stuck")


def test_late_copies_on_one_link_are_named(tmp_path: Path) -> None:
    """Only copies can leave a slot with a unit that no worker sends again; losses are repaired."""
    faults = (
        "faults=[{kind: duplicate, rate: 5%, links: ['h0->s0'], delay: 50us}, "
        "{kind: loss, rate: 20%, links: ['s0->h1']}]"
    )

    lines, injected = first_stuck(tmp_path, faults, SINGLE, "workload.elements=5000")

    assert lines[0] == f"likely cause: `duplicate` copied {injected['duplicate']} packets on h0->s0{LATE}"
    assert lines[1] == "  try: no duplicate in `faults`, or a shorter delay of it"


def test_packets_that_are_overtaken_are_named(tmp_path: Path) -> None:
    """The scenario has no duplicate and no reboot, so neither is blamed."""
    faults = "faults=[{kind: reorder, rate: 20%, links: ['h0->s0'], delay: 200us}]"

    lines, injected = first_stuck(tmp_path, faults, SINGLE, "workload.elements=20000", "collective.slots=4")

    assert lines[0] == f"likely cause: `reorder` delayed {injected['reorder']} packets on h0->s0{LATE}"
    assert lines[1] == "  try: no reorder in `faults`, or a shorter delay of it"
    assert not any("duplicate" in line or "reboot" in line for line in lines)


@pytest.mark.parametrize("link", ["h0->s0", "s0->h1"])
def test_copies_that_break_messages_are_named(tmp_path: Path, link: str) -> None:
    """A copy right behind its packet is a gap in a RoCE message's numbers, upwards and downwards."""
    faults = f"faults=[{{kind: duplicate, rate: 100%, links: ['{link}']}}]"

    verdict, lines, injected = ending(tmp_path, faults, MESSAGES, "workload.elements=20000")

    assert verdict == "stuck"
    assert lines[0] == (
        f"likely cause: `duplicate` copied {injected['duplicate']} packets on {link}, "
        "and a message counts only if its packets arrive in order and without a gap"
    )
    assert lines[1] == "  try: no duplicate in `faults`, or message_packets: 1"


def test_messages_of_one_packet_cannot_break(tmp_path: Path) -> None:
    """The advice helps."""
    faults = "faults=[{kind: duplicate, rate: 100%, links: ['h0->s0']}]"

    verdict, _, _ = ending(
        tmp_path, faults, MESSAGES, "workload.elements=20000", "collective.message_packets=1"
    )

    assert verdict == "pass"


@pytest.mark.parametrize(
    ("bitmap", "counter", "text"),
    [
        (0b001, 2, "waits for 2 more"),
        (0b111, 2, "waits for 2 more, though its bitmap has 3 of 3"),
        (0b011, 3, "waits for 3 more, though its bitmap has 2 of 3"),
    ],
)
def test_a_leaked_slot_waits_for_packets(bitmap: int, counter: int, text: str) -> None:
    """The number comes from the counter, even if the bitmap is full."""
    state: Any = SimpleNamespace(bitmap=bitmap, counter=counter)

    assert _waiting_for(SWITCHML, 3, state) == text


def test_programs_without_a_counter_wait_by_their_bitmap() -> None:
    state: Any = SimpleNamespace(bitmap=0b011, counter=0)

    assert _waiting_for(TREE, 3, state) == "waits for 1 more"
