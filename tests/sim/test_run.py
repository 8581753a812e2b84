"""Whole runs: what they report against what follows from the scenario on paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import sim.run
from homomorphic.codec import Codec, Round
from homomorphic.fold import fold
from sim.errors import RunError
from sim.frames import FRAMES
from sim.plan import VariantPlan
from sim.results import load
from sim.run import run_variant
from sim.workload import SyntheticSpec, TrainingSpec, Workload, synthetic_workload, training_workload
from sim.workload.training import TrainingWorkload
from tests.sim.scenes import BYTE_PS, DENSE, RING, TINY, measure, plan, run, simulate

DELAY_PS, PASS_PS = 1_000_000, 600_000
LOSS = "faults=[{{kind: loss, rate: {}%}}]"
MLP = "workload={kind: training, model: mlp, batch: 32, steps: 6, learning_rate: 1.0, bucket: 8KiB}"
METRICS = {
    "aggregation_time_us": float,
    "aggregation_elements_per_s": float,
    "iteration_time_us": float,
    "wire_bytes_up": float,
    "wire_bytes_down": float,
    "compression_ratio": float,
    "packets": int,
    "packets_lost": int,
    "packets_retransmitted": int,
    "exact": bool,
    "max_abs_error": float,
    "union_density": float,
}


def unit_bytes(frame_name: str) -> list[int]:
    """Sizes of the packets of a SwitchML message."""
    frame = FRAMES[frame_name]
    packets = 4 if frame_name.startswith("roce") else 1
    return [
        frame.wire_bytes(frame.elements, first=part == 0, last=part == packets - 1) for part in range(packets)
    ]


def test_the_object_that_json_prints(tmp_path: Path) -> None:
    outcome = run(tmp_path, text=TINY + "variants:\n  - name: b\n  - {name: a, workers: 2}\n")

    told = json.loads(json.dumps(outcome.as_dict(), allow_nan=False))
    assert {"scenario", "seed", "verdict", "run_dir", "variants", "engine"} == set(told)
    assert (told["scenario"], told["seed"], told["verdict"]) == ("tiny", 7, "pass")
    assert load(Path(told["run_dir"])).summary["variants"] == told["variants"]
    assert [variant["name"] for variant in told["variants"]] == ["b", "a"]
    for variant in told["variants"]:
        assert all({"name", "verdict", "detail"} == set(check) for check in variant["checks"])
        assert {name: type(variant["metrics"][name]) for name in METRICS} == METRICS
    assert {"packet_hops": int, "wall_s": float, "packet_hops_per_s": float} == {
        name: type(value) for name, value in told["engine"].items()
    }


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(("elements", "workers"), [(5000, 3), (4096, 1)])
def test_bytes_of_a_dense_round(tmp_path: Path, frame: str, elements: int, workers: int) -> None:
    """Every block once, and before them one window of exponents alone; all packets are full."""
    found = measure(
        tmp_path, f"collective.frame={frame}", f"workload.elements={elements}", f"workers={workers}"
    )

    sizes = unit_bytes(frame)
    window = 512 // len(sizes)
    blocks = -(-elements // (FRAMES[frame].elements * len(sizes)))
    units = blocks + min(window, blocks)
    assert workers * units * sum(sizes) == found["wire_bytes_up"] == found["wire_bytes_down"]
    # Up, once round the loopback of the switch, and down.
    assert units * len(sizes) * (2 * workers + 1) == found["packets"]
    assert (found["packets_lost"], found["packets_dropped"], found["packets_retransmitted"]) == (0, 0, 0)
    assert 4 * elements / (4 * elements + blocks) == found["compression_ratio"]


@pytest.mark.parametrize(("frame", "passes"), [("udp-256", 1), ("roce-1024", 10)])
@pytest.mark.parametrize("profile", ["tofino1", "ideal"])
def test_time_of_one_block(tmp_path: Path, frame: str, passes: int, profile: str) -> None:
    """The exponent goes ahead, then the block: two messages through the switch, one after the other."""
    sizes = unit_bytes(frame)
    elements = len(sizes) * FRAMES[frame].elements
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


def test_buckets_are_sent_while_backward_goes_on(tmp_path: Path) -> None:
    """The first half is ready after half of backward and long gone when the second half is."""
    half = measure(tmp_path, "workload.elements=640")
    found = measure(
        tmp_path,
        "workload.elements=1280",
        "workload.bucket=2560B",
        "device={kind: fixed, forward: 1ms, backward: 2ms}",
    )

    assert found["iteration_time_us"] == pytest.approx(3000 + half["aggregation_time_us"])
    assert found["aggregation_time_us"] == pytest.approx(1000 + half["aggregation_time_us"])
    assert found["wire_bytes_up"] == 2 * half["wire_bytes_up"]


def test_bytes_of_rounds_are_the_bytes_of_the_hosts_links(tmp_path: Path) -> None:
    result = simulate(tmp_path, "workload.steps=3", "workload.bucket=800B", LOSS.format(2))

    up = sum(link.bytes for link in result.links if link.source.startswith("h"))
    down = sum(link.bytes for link in result.links if link.target.startswith("h"))
    assert up == sum(record.wire_bytes_up for record in result.journal.rounds)
    assert down == sum(record.wire_bytes_down for record in result.journal.rounds)


def test_what_a_ring_sends(tmp_path: Path) -> None:
    found = measure(tmp_path, RING, DENSE, "workload.elements=3072", "collective.frame=udp-1024")

    # 2(n − 1) segments of four full packets; the acknowledgement of each, but not of the last before the end.
    frame = FRAMES["udp-1024"]
    data_bytes = 3 * 4 * 4 * frame.wire_bytes(256, first=False, last=False)
    assert data_bytes + 3 * 3 * frame.ack_bytes <= found["wire_bytes_up"]
    assert found["wire_bytes_up"] <= data_bytes + 3 * 4 * frame.ack_bytes
    assert (found["compression_ratio"], found["exact"]) == (1.0, False)


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

    (variant,) = plan(tmp_path, *sets).variants
    assert isinstance(variant.workload, SyntheticSpec)
    payload_bytes, density = reference_round(variant.workload, variant.codec, 3, seed=7)
    assert 200_000 / payload_bytes == found["compression_ratio"] > 5
    assert density == found["union_density"]
    assert found["density"] == 0.01
    assert found["exact"]


@pytest.mark.parametrize("collective", ["collective.frame=udp-256", RING])
def test_loss_costs_packets_and_time_and_nothing_else(tmp_path: Path, collective: str) -> None:
    sets = ("workload.elements=20000", collective)
    whole, lossy = (measure(tmp_path, *sets, LOSS.format(percent)) for percent in (0, 2))

    assert lossy["packets_retransmitted"] > 0 == whole["packets_retransmitted"]
    assert lossy["packets_lost"] > 0 == whole["packets_lost"]
    assert lossy["wire_bytes_up"] > whole["wire_bytes_up"]
    assert lossy["aggregation_time_us"] > whole["aggregation_time_us"]
    assert lossy["exact"]
    assert lossy["max_abs_error"] == whole["max_abs_error"]


# Training


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """The workloads that runs train."""
    workloads: list[Workload] = []

    def make(*arguments: Any) -> Workload:
        workloads.append(training_workload(*arguments))
        return workloads[-1]

    monkeypatch.setattr(sim.run, "training_workload", make)
    return workloads


def weights(workload: Workload) -> NDArray[np.float32]:
    assert isinstance(workload, TrainingWorkload)
    return np.concatenate([one.detach().numpy().reshape(-1) for one in workload.model.parameters()])


def train_without_a_network(variant: VariantPlan, seed: int) -> NDArray[np.float32]:
    assert isinstance(variant.workload, TrainingSpec)
    workers, codec = len(variant.hosts), variant.codec
    workload = training_workload(variant.workload, workers, seed)
    encoders = [codec.worker(rank, workers, seed) for rank in range(workers)]
    for step in range(variant.steps):
        gradients = workload.gradients(step)
        sums = [
            fold(encoders, [own[bucket.index] for own in gradients], Round(step, bucket.index, workers, seed))
            for bucket in workload.buckets
        ]
        workload.apply(step, [one.decoded[0] for one in sums])
    return weights(workload)


@pytest.mark.parametrize(
    "sets",
    [
        ("codec={kind: fixed_point}", "collective.frame=roce-1024", LOSS.format(1)),
        ("codec={kind: lossless}", "collective.frame=udp-256"),
        ("codec={kind: lossless}", RING, LOSS.format(1)),
    ],
)
def test_training_over_the_network_is_training_without(
    tmp_path: Path, trained: list[Workload], sets: tuple[str, ...]
) -> None:
    """Exact codecs: the same weights bit for bit after six steps, whatever is lost on the way."""
    resolved = plan(tmp_path, MLP, *sets)
    (variant,) = resolved.variants
    result = run_variant(resolved, variant)

    expected = train_without_a_network(variant, seed=7)
    assert expected.tobytes() == weights(trained[0]).tobytes()
    assert {"pass"} == {check.verdict for check in result.checks}
    losses = [record.loss for record in result.journal.steps if record.loss is not None]
    assert len(losses) == 6
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("sets", [("codec={kind: fixed_point}",), (DENSE, RING)])
def test_one_step_is_within_the_bound_of_plain_sgd(
    tmp_path: Path, trained: list[Workload], sets: tuple[str, ...]
) -> None:
    resolved = plan(tmp_path, MLP, *sets, "workload.steps=1", "workload.bucket=1GiB")
    (variant,) = resolved.variants
    run_variant(resolved, variant)

    assert isinstance(variant.workload, TrainingSpec)
    plain = training_workload(variant.workload, 3, 7)
    gradients = [own[0] for own in plain.gradients(0)]
    total: NDArray[np.float64] = np.sum(gradients, axis=0, dtype=np.float64)
    before = weights(plain)
    plain.apply(0, [total.astype(np.float32)])
    # Buckets run from the last tensor to the first, weights the other way: compare what is largest.
    change = np.abs(weights(trained[0]) - weights(plain))
    bound = variant.codec.error_bound(gradients).max() * 0.5 / 3
    assert change.max() <= bound + 4 * np.finfo(np.float32).eps * np.abs(before).max()
    assert np.any(weights(plain) != before)


# What cannot go on


@pytest.mark.parametrize(
    ("sets", "waiting"),
    [
        (("faults=[{kind: loss, rate: 100%}]",), "worker 0's aggregation, worker 1's aggregation, "),
        (("faults=[{kind: loss, rate: 100%, links: ['s0->h1']}]",), "worker 0's aggregation, worker 1's "),
        (("faults=[{kind: loss, rate: 100%, links: ['h1->s0']}]", RING, DENSE), "message "),
    ],
)
def test_dead_links_end_in_words(tmp_path: Path, sets: tuple[str, ...], waiting: str) -> None:
    with pytest.raises(RunError) as caught:
        run(tmp_path, *sets)

    told = str(caught.value)
    assert told.startswith(f"{tmp_path}/tiny.yaml: tiny: no word has got anywhere for 60s of simulated time")
    assert f"; waiting for {waiting}" in told
    assert told.endswith("\n  a link that loses every packet never recovers: look at `faults`")
    assert caught.value.exit_code == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("codec", ["fixed_point", "lossless"])
def test_gradients_that_explode_end_in_words(tmp_path: Path, codec: str) -> None:
    with pytest.raises(RunError) as caught:
        run(tmp_path, MLP, "workload.learning_rate=1e30", f"codec={{kind: {codec}}}")

    assert str(caught.value) == (
        f"{tmp_path}/tiny.yaml: tiny: gradient[0] is nan: fixed point carries finite values only; "
        "skip this step or lower the loss scale"
    )
    assert not (tmp_path / "runs").exists()


def test_gradients_that_explode_fail_the_check_of_a_codec_that_carries_them(tmp_path: Path) -> None:
    outcome = run(tmp_path, MLP, "workload.learning_rate=1e30", "workload.steps=2", DENSE, RING)

    (variant,) = outcome.summary["variants"]
    assert outcome.summary["verdict"] == "fail"
    assert [check["name"] for check in variant["checks"] if check["verdict"] == "fail"] == ["sum_is_right"]
    assert variant["metrics"]["max_abs_error"] is None  # JSON has no infinity
