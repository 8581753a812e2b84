"""Bytes that codecs announce, and packets that a run says were sent, lost and sent again: link by link."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import netfold
from netfold.homomorphic.codecs import codec_kinds
from netfold.sim.engine.interface import Flow
from netfold.sim.engine.schedules.operation import Operation
from netfold.sim.network.fabric import Fabric
from netfold.sim.results import summarize
from netfold.sim.run.outcome import VariantResult
from tests.sim.scenes import DENSE, RING, simulate

UPLINKS = ("h0->s0", "h1->s0", "h2->s0")
TWENTY_THOUSAND = "workload.elements=20000"
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
    clean = simulate(tmp_path, TWENTY_THOUSAND, SHORT, "collective.slots=16")
    lossy = simulate(
        tmp_path,
        *(TWENTY_THOUSAND, SHORT, "collective.slots=16"),
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
    result = simulate(tmp_path, TWENTY_THOUSAND, *sets, "faults=[{kind: loss, rate: 5%, links: ['h*->s0']}]")
    counted = metrics(result)

    assert counted["packets_lost"] == on(result, UPLINKS, "lost_packets") > 10
    assert counted["packets"] == on(result, UPLINKS, "packets")
    assert counted["packets"] == on(result, UPLINKS, "delivered_packets") + counted["packets_lost"]
    assert counted["packet_hops"] == sum(link.packets for link in result.links)
    assert counted["packet_hops"] == counted["packets_lost"] + sum(
        link.delivered_packets for link in result.links
    )


WORKERS, STEPS, ELEMENTS, TRAINED_ELEMENTS = 4, 2, 3000, 9610
SYNTHETIC = {"kind": "synthetic", "elements": ELEMENTS, "density": "30%", "bucket": "8KB", "steps": STEPS}
PLAIN = {"words": 256, "overhead": "100B", "ack": "100B"}  # whatever a packet is, all but its words is 100 B
TRAINED = {"kind": "training", "model": "mlp", "batch": 1, "learning_rate": 0.1, "steps": STEPS}


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Bytes of words, and of exponents, that workers hand to the network.

    "headers" are those of schedules that flows have once: at the first and the last packet of each transfer.
    """
    counts = {"streams": 0, "flows": 0, "headers": 0}
    stream, flow, open_schedule = Fabric.stream, Fabric.flow, Fabric.open_schedule

    def count_stream(self: Fabric, job: int, worker: int, segments: list[Any], scaled: Any = None) -> Any:
        counts["streams"] += sum(4 * segment.words.size for segment in segments)
        counts["streams"] += 0 if scaled is None else scaled.exponents.size
        return stream(self, job, worker, segments, scaled)

    def count_flow(self: Fabric, sent: Flow) -> Any:
        counts["flows"] += 4 * sent.words_count
        return flow(self, sent)

    def count_headers(self: Fabric, operation: Operation, *more: Any) -> int:
        frame = operation.frame
        counts["headers"] += operation.schedule.transfers * (frame.first_bytes + frame.last_bytes)
        return open_schedule(self, operation, *more)

    monkeypatch.setattr(Fabric, "stream", count_stream)
    monkeypatch.setattr(Fabric, "flow", count_flow)
    monkeypatch.setattr(Fabric, "open_schedule", count_headers)
    return counts


def passed(folder: Path, codec: str, collective: dict[str, Any]) -> Any:
    """A run that must pass."""
    run = netfold.run(
        {
            "name": "carried",
            "topology": {"kind": "star", "hosts": WORKERS + 1, "switch": "ideal"},
            "workers": WORKERS,
            "workload": TRAINED if codec_kinds()[codec]().needs else SYNTHETIC,
            "codec": {"kind": codec},
            "collective": collective,
        },
        out=folder,
    )
    assert run.verdict == "pass"
    return run


def announced_by(run: Any) -> int:
    """What all workers announce in a run."""
    return int(run.rounds["payload_bytes_up"].sum())


def carriers(*, between_hosts: bool) -> list[str]:
    """Kinds of codecs that a ring, or else a switch, carries."""
    merged = {kind: codec().merges for kind, codec in codec_kinds().items()}
    refused = {"gather"} if between_hosts else {"gather", "host"}
    return [kind for kind, merges in merged.items() if not refused & {one.value for one in merges}]


@pytest.mark.parametrize("codec", carriers(between_hosts=False))
def test_switches(tmp_path: Path, carried: dict[str, int], codec: str) -> None:
    announced = announced_by(passed(tmp_path, codec, {"kind": "in_network", "program": "switchml"}))

    assert carried == {"streams": announced, "flows": 0, "headers": 0}
    assert announced > 0


@pytest.mark.parametrize(
    ("codec", "kind"), list(zip(carriers(between_hosts=True), cycle(["ring", "torus_2d"]), strict=False))
)
def test_a_ring(tmp_path: Path, carried: dict[str, int], codec: str, kind: str) -> None:
    """All workers together pass on every word 2 (n − 1) times, where one worker has it once.

    Words are those on the links out of hosts; nothing is lost, so none is sent twice.
    """
    run = passed(tmp_path, codec, {"kind": kind, "frame": PLAIN})
    announced = announced_by(run)
    up = run.links.filter(pl.col("link").str.starts_with("h"))
    words_bytes = int(up["bytes"].sum()) - 100 * int(up["packets"].sum()) - carried["headers"]

    assert WORKERS * words_bytes == 2 * (WORKERS - 1) * announced
    assert announced > 0


@pytest.mark.parametrize("codec", sorted(codec_kinds()))
def test_an_all_gather(tmp_path: Path, carried: dict[str, int], codec: str) -> None:
    """Every word goes to the n − 1 others."""
    announced = announced_by(passed(tmp_path, codec, {"kind": "all_gather"}))

    assert carried["flows"] == (WORKERS - 1) * announced
    assert announced > 0


@pytest.mark.parametrize("codec", sorted(codec_kinds()))
def test_one_server(tmp_path: Path, carried: dict[str, int], codec: str) -> None:
    """Every word goes up once. A merged one comes down to n workers, a gathered one to the n − 1 others.

    A codec's part at the server sends dense sums in their place.
    """
    announced = announced_by(passed(tmp_path, codec, {"kind": "parameter_server"}))
    made = codec_kinds()[codec]()

    if made.server(WORKERS, 1) is not None:
        down = WORKERS * STEPS * 4 * (TRAINED_ELEMENTS if made.needs else ELEMENTS)
    else:
        is_gathered = any(merge.value == "gather" for merge in made.merges)
        down = (WORKERS - 1 if is_gathered else 1) * announced
    assert carried["flows"] == announced + down
