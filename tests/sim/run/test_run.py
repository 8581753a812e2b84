"""Whole runs: what they report against what follows from the scenario on paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.fold import fold
from netfold.homomorphic.round import Round
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.plan.frames import frame_of
from netfold.sim.results import load
from netfold.sim.workload import SyntheticSpec, synthetic_workload
from tests.sim.scenes import BYTE_PS, RING, TINY, measure, plan, run, simulate

DELAY_PS, PASS_PS = 1_000_000, 600_000
LOSS = "faults=[{{kind: loss, rate: {}%}}]"
METRICS = {
    "aggregation_time_us": float,
    "aggregation_elements_per_s": float,
    "iteration_time_us": float,
    "wire_bytes_up": int,
    "wire_bytes_down": int,
    "compression_ratio": float,
    "packets": int,
    "packets_lost": int,
    "packets_retransmitted": int,
    "bit_exact": bool,
    "merges_verified": bool,
    "max_abs_error": float,
    "union_density": float,
}


def unit_bytes(frame_name: str) -> list[int]:
    """Sizes of the packets of a SwitchML message."""
    frame = frame_of(frame_name)
    packets = 4 if frame_name.startswith("roce") else 1
    return [
        frame.wire_bytes(frame.elements, first=part == 0, last=part == packets - 1) for part in range(packets)
    ]


def test_the_object_that_json_prints(tmp_path: Path) -> None:
    outcome = run(tmp_path, text=TINY + "variants:\n  - name: b\n  - {name: a, workers: 2}\n")

    printed = json.loads(json.dumps(outcome.as_dict(), allow_nan=False))
    keys = "scenario seed verdict run_dir baseline variants warnings injected engine isa pinned"
    assert set(keys.split()) == set(printed)
    assert (printed["scenario"], printed["seed"], printed["verdict"]) == ("tiny", 7, "pass")
    assert load(Path(printed["run_dir"])).summary["variants"] == printed["variants"]
    assert [variant["name"] for variant in printed["variants"]] == ["b", "a"]
    for variant in printed["variants"]:
        assert all({"name", "verdict", "detail"} == set(check) for check in variant["checks"])
        assert {name: type(variant["metrics"][name]) for name in METRICS} == METRICS
    assert {"packet_hops": int, "wall_s": float, "packet_hops_per_s": float} == {
        name: type(value) for name, value in printed["engine"].items()
    }


@pytest.mark.parametrize(
    ("frame", "elements", "workers"),
    [("udp-256", 5000, 3), ("udp-1024", 4096, 1), ("roce-1024", 5000, 3), ("roce-1024", 4096, 1)],
)
def test_bytes_of_a_dense_round(tmp_path: Path, frame: str, elements: int, workers: int) -> None:
    """Every block once, and before them one window of exponents alone; all packets are full."""
    found = measure(
        tmp_path, f"collective.frame={frame}", f"workload.elements={elements}", f"workers={workers}"
    )

    sizes = unit_bytes(frame)
    window = 512 // len(sizes)
    blocks = -(-elements // (frame_of(frame).elements * len(sizes)))
    units = blocks + min(window, blocks)
    assert workers * units * sum(sizes) == found["wire_bytes_up"] == found["wire_bytes_down"]
    # Up, once round the loopback of the switch, and down.
    assert units * len(sizes) * workers == found["packets"]
    assert units * len(sizes) * (2 * workers + 1) == found["packet_hops"]
    assert (found["packets_lost"], found["packets_dropped"], found["packets_retransmitted"]) == (0, 0, 0)
    assert 4 * elements / (4 * elements + blocks) == found["compression_ratio"]


@pytest.mark.parametrize(
    ("frame", "passes", "profile"),
    [("udp-256", 1, "tofino1"), ("roce-1024", 10, "tofino1"), ("roce-1024", 10, "ideal")],
)
def test_time_of_one_block(tmp_path: Path, frame: str, passes: int, profile: str) -> None:
    """The exponent goes ahead, then the block: two messages through the switch, one after the other."""
    sizes = unit_bytes(frame)
    elements = len(sizes) * frame_of(frame).elements
    found = measure(
        tmp_path,
        f"collective.frame={frame}",
        f"workload.elements={elements}",
        f"topology.switch={profile}",
    )

    # A message's packets follow each other on every link; its first, largest one is waited for at each hop.
    hops = 3 if profile == "tofino1" else 2
    one_ps = (sum(sizes) + (hops - 1) * sizes[0]) * BYTE_PS + 2 * DELAY_PS
    one_ps += (1 + passes) * PASS_PS if profile == "tofino1" else 0
    assert 2 * one_ps / 10**6 == found["aggregation_time_us"] == found["iteration_time_us"]
    assert elements * 10**12 / (2 * one_ps) == found["aggregation_elements_per_s"]


def test_compute_comes_before_and_work_is_charged(tmp_path: Path) -> None:
    elements, blocks = 640, 10
    sets = (f"workload.elements={elements}", "workload.steps=3")
    free = measure(tmp_path, *sets)
    charged = measure(
        tmp_path, *sets, "device={kind: fixed, forward: 2ms, backward: 3ms, memory_rate: 8Gbps}"
    )

    # At a byte a nanosecond. Encoding reads the gradient twice, writes it once and the exponents; decoding
    # reads and writes it once and reads the exponents.
    work_us = (3 * 4 * elements + blocks + 2 * 4 * elements + blocks) / 1000
    assert charged["aggregation_time_us"] == pytest.approx(free["aggregation_time_us"] + work_us)
    assert charged["iteration_time_us"] == pytest.approx(5000 + charged["aggregation_time_us"])
    assert charged["elements"] == elements


def reference_round(spec: SyntheticSpec, codec: Codec, workers: int, seed: int) -> tuple[int, float]:
    """Bytes that worker 0 announces, and the density of the union, without a network."""
    gradients = [own[0] for own in synthetic_workload(spec, workers, seed).gradients(0)]
    encoders = [codec.worker(rank, workers, seed) for rank in range(workers)]
    union = np.any(gradients, axis=0)
    key = Round(0, 0, workers, seed)
    return fold(encoders, gradients, key).announced_bytes(0), float(union.mean())


@pytest.mark.parametrize("collective", ["collective={kind: in_network, frame: roce-1024}", RING])
def test_a_sparse_gradient(tmp_path: Path, collective: str) -> None:
    sets = ("workload.elements=50000", "workload.density=1%", "codec={kind: lossless}", collective)
    found = measure(tmp_path, *sets)

    (job,) = plan(tmp_path, *sets).variants[0].jobs
    assert isinstance(job.workload, SyntheticSpec)
    payload_bytes, density = reference_round(job.workload, job.codec, 3, seed=7)
    assert 200_000 / payload_bytes == found["compression_ratio"] > 5
    assert density == found["union_density"]
    assert found["density"] == 0.01
    assert found["merges_verified"]


@pytest.mark.parametrize("collective", ["collective.frame=udp-256", RING])
def test_loss_costs_packets_and_time_and_nothing_else(tmp_path: Path, collective: str) -> None:
    sets = ("workload.elements=20000", collective)
    whole, lossy = (measure(tmp_path, *sets, LOSS.format(percent)) for percent in (0, 2))

    assert lossy["packets_retransmitted"] > 0 == whole["packets_retransmitted"]
    assert lossy["packets_lost"] > 0 == whole["packets_lost"]
    assert lossy["wire_bytes_up"] > whole["wire_bytes_up"]
    assert lossy["aggregation_time_us"] > whole["aggregation_time_us"]
    assert lossy["merges_verified"]
    assert lossy["max_abs_error"] == whole["max_abs_error"]


# Keys beside those that a collective needs: several chunks, and servers on the hosts of workers.
KEYS: dict[str, dict[str, Any]] = {
    "tree": {"chunk": "512B"},
    "parameter_server": {"placement": "beside_workers"},
}


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_rounds_have_all_bytes(tmp_path: Path, kind: str) -> None:
    """With six workers, some have their result while they still pass it on."""
    collective = {"kind": kind, **COLLECTIVES[kind].choices().get("", {}), **KEYS.get(kind, {})}
    sets = (f"collective={json.dumps(collective)}", "workers=6", "topology.hosts=6", "workload.steps=2")
    result = simulate(tmp_path, *sets)

    assert sum(one.wire_bytes_up for one in result.rounds) == sum(
        link.bytes for link in result.links if link.source.startswith("h")
    )
    assert sum(one.wire_bytes_down for one in result.rounds) == sum(
        link.bytes for link in result.links if link.target.startswith("h")
    )


@pytest.mark.parametrize("collective", ["{kind: ring}", "{kind: in_network, frame: udp-256}"])
def test_jobs_that_follow_each_other_on_the_same_hosts_have_their_own_bytes(
    tmp_path: Path, collective: str
) -> None:
    """Equal jobs put equally many bytes on the wire, and together all that the links carried."""
    arrivals = "jobs=[{name: a, count: 3, arrivals: {kind: even, gap: 1us}}]"
    sets = (f"collective={collective}", "admission=fifo", "workers=4", "topology.hosts=4", arrivals)
    result = simulate(tmp_path, *sets)
    sizes = {
        label: sum(one.wire_bytes_up for one in result.rounds if one.variant == label)
        for label in {one.variant for one in result.rounds}
    }

    assert len(sizes) == 3
    assert len(set(sizes.values())) == 1
    assert sum(sizes.values()) == sum(link.bytes for link in result.links if link.source.startswith("h"))
