"""Frames of one's own: what a scenario writes is what goes over the wire, and what cannot be is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.scenes import plan, refused, simulate

US = 10**6
X = 1106 * 80  # ps that a packet of 1106 B takes at 100 Gbps
W4 = """\
name: tiny
topology: {kind: star, hosts: 8, rate: 100Gbps, delay: 1us, switch: ideal}
workers: 8
workload: {kind: synthetic, elements: ELEMENTS}
codec: {kind: none}
collective: {kind: in_network, frame: {words: 256, overhead: 82B}}
"""
RACKS = "topology={kind: leaf_spine, leaves: 2, spines: 1, hosts_per_leaf: 4, rate: 100Gbps, delay: 1us, "
RACKS += "switch: ideal}"
TREE = ("collective.aggregators=tree", "collective.switch=spine0")
OWN = "collective.frame={words: 64, overhead: 70B, first: 16B, last: 4B, ack: 90B}"


def end_ps(folder: Path, elements: int, *sets: str) -> int:
    result = simulate(folder, *sets, text=W4.replace("ELEMENTS", str(elements)))
    assert [check for check in result.checks if check.verdict != "pass"] == []
    return result.steps[-1].end_ps


def one_switch_ps(packets: int) -> int:
    """Every packet takes X, one of them on the way down too, and both links their delay."""
    return (packets + 1) * X + 2 * US


def two_racks_ps(packets: int) -> int:
    """Two links and two delays more: each leaf adds up its rack, the spine both."""
    return (packets + 3) * X + 4 * US


def test_w4_takes_what_the_wire_allows(tmp_path: Path) -> None:
    assert end_ps(tmp_path, 1000 * 256) == one_switch_ps(1000)
    assert end_ps(tmp_path, 1000 * 256, RACKS, *TREE) == two_racks_ps(1000)


def test_the_same_bounds_give_the_figures_that_switchml_omnetpp_measures() -> None:
    """100 MB of 8 workers in frames of 1106 B: 8.6428 ms on one switch, 8.6450 in two racks."""
    packets = -(-25_000_000 // 256)

    assert one_switch_ps(packets) / 10**9 == pytest.approx(8.6428, abs=0.00005)
    assert two_racks_ps(packets) / 10**9 == pytest.approx(8.6450, abs=0.00005)


def test_every_part_of_a_frame_reaches_the_wire(tmp_path: Path) -> None:
    """6400 words are 100 packets: 25 messages of 4, with 16 B more on their first and 4 B on their last."""
    codec = "codec={kind: fixed_point, factor: 1e6}"
    result = simulate(tmp_path, codec, "workload.elements=6400", OWN, "collective.message_packets=4")
    sent = next(link for link in result.links if link.link == "h0->s0")

    assert (sent.packets, sent.bytes) == (100, 100 * 326 + 25 * 20)


def test_reliable_messages_use_it_too(tmp_path: Path) -> None:
    """A ring of 3 sends 4 chunks of 3333 words: 53 packets each, and as many acknowledgements."""
    ring = OWN.replace("collective.frame=", "collective={kind: ring, ack_every: 1, frame: ") + "}"
    result = simulate(tmp_path, ring, "codec={kind: none}", "workload.elements=9999")
    link = next(link for link in result.links if link.link == "h0->s0")
    data = 4 * 53

    assert link.packets == 2 * data
    assert link.bytes == data * 70 + 4 * 4 * 3333 + 4 * 20 + data * 90


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (
            "{words: 4, overhead: 67B}",
            "collective.frame: a full packet of 83B is shorter than Ethernet's minimum\n"
            "  use 84B or more: 64B, and 20B of preamble and gap",
        ),
        (
            "{words: 256, overhead: 82B, ack: 83B}",
            "collective.frame: an acknowledgement of 83B is shorter than Ethernet's minimum\n"
            "  use 84B or more: 64B, and 20B of preamble and gap",
        ),
        (
            "{words: 16000, overhead: 1KB, last: 537B}",
            "collective.frame: a full packet of 65537B is too long\n  use 65536B on the wire at most",
        ),
        (
            "{words: 1024, overhead: 82B}",
            "collective.frame: SwitchML with 1024 words a pass needs",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, frame: str, told: str) -> None:
    assert told in refused(tmp_path, f"collective={{kind: in_network, frame: {frame}}}")


@pytest.mark.parametrize("frame", ["{words: 4, overhead: 68B}", "{words: 16, overhead: 82B, ack: 84B}"])
def test_what_is_just_long_enough_is_fine(tmp_path: Path, frame: str) -> None:
    assert plan(tmp_path, f"collective={{kind: in_network, frame: {frame}}}")
