"""The last packet of a slot in a diagnosis: its sender and its outcome."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.scenes import TINY, run

SHARP = TINY.replace("switch: tofino1", "switch: sharp").replace("hosts: 4", "hosts: 3")
TREE = "collective={kind: in_network, program: tree, frame: roce-1024}"


def last_event(folder: Path, *sets: str, text: str) -> str:
    """The last event of the first waiting slot."""
    (variant,) = run(folder, *sets, text=text).summary["variants"]
    event: str = variant["diagnosis"]["slots"][0]["last_event"]
    assert variant["checks"][0]["detail"].count(event) == 1
    return event.partition(" ago: ")[2]


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_copy_from_the_only_reachable_worker(tmp_path: Path, worker: int) -> None:
    """Every retransmission is dropped, as its bit is set already."""
    deaf = [f"h{other}->s0" for other in range(3) if other != worker]

    event = last_event(tmp_path, f"faults=[{{kind: loss, rate: 100%, links: {deaf}}}]", text=TINY)

    assert event == f"a packet of worker {worker}, dropped"


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_packet_without_retransmission(tmp_path: Path, worker: int) -> None:
    """A tree sends once: the slot holds the first packet."""
    deaf = [f"h{other}->s0" for other in range(3) if other != worker]

    event = last_event(tmp_path, f"faults=[{{kind: loss, rate: 100%, links: {deaf}}}]", TREE, text=SHARP)

    assert event == f"a packet of worker {worker}, consumed"


def test_an_answer_to_an_unreachable_worker(tmp_path: Path) -> None:
    """The slot is complete, and worker 1 keeps retransmitting."""
    event = last_event(
        tmp_path, "faults=[{kind: loss, rate: 100%, links: ['s0->h1']}]", "workload.elements=64", text=TINY
    )

    assert event == "a packet of worker 1, answer"
