"""What a diagnosis says of a slot's last packet: whose it was, and what became of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.scenes import TINY, run

SHARP = TINY.replace("switch: tofino1", "switch: sharp").replace("hosts: 4", "hosts: 3")
TREE = "collective={kind: in_network, program: tree, frame: roce-1024}"


def last_event(folder: Path, *sets: str, text: str) -> str:
    """The last event of the first slot that waits."""
    (variant,) = run(folder, *sets, text=text).summary["variants"]
    event: str = variant["diagnosis"]["slots"][0]["last_event"]
    assert variant["checks"][0]["detail"].count(event) == 1
    return event.partition(" ago: ")[2]


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_copy_of_the_only_worker_that_is_heard(tmp_path: Path, worker: int) -> None:
    """It is sent again until patience ends, and every time the bitmap has it already: it is dropped."""
    deaf = [f"h{other}->s0" for other in range(3) if other != worker]

    told = last_event(tmp_path, f"faults=[{{kind: loss, rate: 100%, links: {deaf}}}]", text=TINY)

    assert told == f"a packet of worker {worker}, dropped"


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_a_packet_that_is_never_sent_again(tmp_path: Path, worker: int) -> None:
    """A tree sends once: what came first is in the slot, consumed."""
    deaf = [f"h{other}->s0" for other in range(3) if other != worker]

    told = last_event(tmp_path, f"faults=[{{kind: loss, rate: 100%, links: {deaf}}}]", TREE, text=SHARP)

    assert told == f"a packet of worker {worker}, consumed"


def test_an_answer_to_who_does_not_hear_it(tmp_path: Path) -> None:
    """The slot is complete, and worker 1 asks again and again."""
    told = last_event(
        tmp_path, "faults=[{kind: loss, rate: 100%, links: ['s0->h1']}]", "workload.elements=64", text=TINY
    )

    assert told == "a packet of worker 1, answer"
