"""Packets that a run says were sent, lost and sent again, counted from the outside: link by link."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netfold.sim.results import summarize
from netfold.sim.run.outcome import VariantResult
from tests.sim.scenes import DENSE, RING, simulate

UPLINKS = ("h0->s0", "h1->s0", "h2->s0")
ELEMENTS = "workload.elements=20000"
SHORT = "collective.timeout=100us"


def metrics(result: VariantResult) -> dict[str, Any]:
    found: dict[str, Any] = summarize(result.facts, result.records)["variants"][0]["metrics"]
    return found


def on(result: VariantResult, links: tuple[str, ...], what: str) -> int:
    """A counter of some links, summed."""
    return sum(getattr(link, what) for link in result.links if link.link in links)


def test_what_is_sent_again_is_all_workers(tmp_path: Path) -> None:
    """Without loss every worker sends its units once, so what more it sends are copies: 313 units, 16 ahead.

    What is lost on one worker's link is missed by all three: each of them sends it again.
    """
    clean = simulate(tmp_path, ELEMENTS, SHORT, "collective.slots=16")
    lossy = simulate(
        tmp_path,
        *(ELEMENTS, SHORT, "collective.slots=16"),
        "faults=[{kind: loss, rate: 5%, links: ['h2->s0']}]",
    )
    counted = metrics(lossy)

    assert metrics(clean)["packets"] == on(clean, UPLINKS, "packets") == 3 * (313 + 16)
    assert metrics(clean)["packets_retransmitted"] == 0
    again = [on(lossy, (up,), "packets") - 329 for up in UPLINKS]
    assert min(again) > 0
    assert counted["packets_retransmitted"] == sum(again)
    assert counted["packets"] == 3 * 329 + sum(again)


@pytest.mark.parametrize("sets", [(SHORT, "collective.slots=16"), (RING, DENSE)], ids=["switchml", "ring"])
def test_what_is_lost_was_sent(tmp_path: Path, sets: tuple[str, ...]) -> None:
    """Packets are counted when they are sent, whether they arrive or not."""
    result = simulate(tmp_path, ELEMENTS, *sets, "faults=[{kind: loss, rate: 5%, links: ['h*->s0']}]")
    counted = metrics(result)

    assert counted["packets_lost"] == on(result, UPLINKS, "lost_packets") > 10
    assert counted["packets"] == on(result, UPLINKS, "packets")
    assert counted["packets"] == on(result, UPLINKS, "delivered_packets") + counted["packets_lost"]
    assert counted["packet_hops"] == sum(link.packets for link in result.links)
    assert counted["packet_hops"] == counted["packets_lost"] + sum(
        link.delivered_packets for link in result.links
    )
