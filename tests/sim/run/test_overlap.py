"""How computing, encoding and sending overlap in a step: in closed form, and beside PyTorch's DDP."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.message import Tensor
from netfold.sim.engine.engine_data import Condition
from netfold.sim.plan.plan import BucketOrder, Overlap
from netfold.sim.workload.device_rooflines import (
    KINDS,
    MATMUL,
    OTHER,
    HardwareLink,
    Jitter,
    KernelCost,
    RooflineDevice,
    Stage,
    StepCost,
    Variation,
    constant,
    read_device,
)
from netfold.sim.workload.devices import FixedDevice, HostCodec
from netfold.sim.workload.fusion import Bucket
from netfold.sim.workload.layers import place_tensors, tensor_of
from netfold.sim.workload.model_probe import ProbedStep, probe
from tests import ROOT
from tests.examples import nightly
from tests.sim.run.ddp import build, loss_of
from tests.sim.run.given import BYTE_PER_PS, ELEMENTS, Given, Steady, Times, play

US = 10**6
ON_DEVICE = Overlap(8, encode="on_device")


def compared() -> Given:
    """Four buckets: ready every 100 us from 200 us on, 126 us to encode, 411.5 us to send, 84 to decode."""
    times = Times(126 * US, 411_500_000, 84 * US)
    return Given(100 * US, [100 * US] * 4, [[times]] * 4)


def test_one_bucket_at_a_time_beside_the_device() -> None:
    played = play(compared(), Overlap())

    assert played.end_ps == 2686 * US
    assert played.spans(0, "encode")[:2] == [(200 * US, 326 * US), (821_500_000, 947_500_000)]
    assert played.spans(0, "backward") == [(100 * US, 500 * US)]


def drawn(seed: int, buckets: int = 8) -> Given:
    """Different times for everything, none of them 0."""
    draw = random.Random(seed)
    scale = draw.choice([(100, 100, 100, 100), (300, 50, 50, 50), (20, 300, 50, 50), (20, 50, 400, 50)])
    backward, encode, network, decode = ([draw.randint(1, most) for _ in range(buckets)] for most in scale)
    return Given(
        draw.randint(1, 50),
        backward,
        [[Times(*times)] for times in zip(encode, network, decode, strict=True)],
    )


def two_machines(given: Given, order: BucketOrder, in_flight: int) -> int:
    """End of a step by a plain account of one device and one network, from what the guide says of `overlap`.

    When the device is free it encodes or decodes the first bucket in flight, by `order`, that can be, and
    else goes on with backward. When the network is free it takes the first bucket that is encoded. A bucket
    that is ready comes into flight when fewer than `in_flight` are.
    """
    rank = {"ready": 1, "first_layer": -1}[order]
    now, reached, landed = given.forward, 0, 0
    ready, flying = set[int](), set[int]()
    encodable, sendable, decodable = set[int](), set[int](), set[int]()
    device: tuple[int, str, int] | None = None  # when it ends, what, bucket
    network: tuple[int, int] | None = None
    while landed < len(given.backward):
        if device is not None and device[0] == now:
            _, what, bucket = device
            device = None
            {"backward": ready, "encode": sendable, "decode": set[int]()}[what].add(bucket)
            if what == "decode":
                flying.remove(bucket)
                landed += 1
        if network is not None and network[0] == now:
            decodable.add(network[1])
            network = None
        while ready and len(flying) < in_flight:
            bucket = min(ready, key=lambda one: rank * one)
            ready.remove(bucket)
            flying.add(bucket)
            encodable.add(bucket)
        if network is None and sendable:
            bucket = min(sendable, key=lambda one: rank * one)
            sendable.remove(bucket)
            network = now + given.operations[bucket][0].network, bucket
        if device is None and encodable | decodable:
            bucket = min(encodable | decodable, key=lambda one: rank * one)
            what = "encode" if bucket in encodable else "decode"
            (encodable if bucket in encodable else decodable).remove(bucket)
            device = now + getattr(given.operations[bucket][0], what), what, bucket
        elif device is None and reached < len(given.backward):
            device = now + given.backward[reached], "backward", reached
            reached += 1
        if landed < len(given.backward):
            now = min(one[0] for one in (device, network) if one is not None)
    return now


@pytest.mark.parametrize("order", ["ready", "first_layer"])
@pytest.mark.parametrize("in_flight", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(4))
def test_decoding_shares_the_device(seed: int, in_flight: int, order: BucketOrder) -> None:
    given = drawn(seed)

    played = play(given, Overlap(in_flight, order, encode="on_device"))

    assert played.end_ps == two_machines(given, order, in_flight)


@pytest.mark.parametrize("decodes_last", [False, True])
@pytest.mark.parametrize("in_flight", [1, 4])
def test_what_takes_no_time_does_not_wait_for_the_device(in_flight: int, decodes_last: bool) -> None:
    """Buckets of two operations, which need no encoding and no decoding, while backward goes on for long."""
    given = Given(10, [10, 1, 1000], [[Times(0, 30, 0), Times(0, 20, 0)]] * 3)
    overlap = Overlap(in_flight, encode="on_device", decode="last" if decodes_last else "at_once")

    played = play(given, overlap)

    assert not played.spans(0, "wait") or in_flight > 1  # for the network alone
    assert max(end for _, end in played.spans(0, "network")[:4]) == 20 + 2 * 50
    assert played.end_ps == 10 + 1011 + 50


@pytest.mark.parametrize(("launch", "is_slower"), [(0, False), (700, True)])
def test_layer_by_layer_against_fused(launch: int, is_slower: bool) -> None:
    """Sixteen layers of equal size: kernels that start cost a layer-wise codec more than overlap gains it.

    The device is the slower machine, so a step ends when the last bucket has passed: layer by layer after
    all starts of encoding and the last network; fused after one start and the whole network.
    """
    layers, backward, encode, network = 16, 1600, 800, 320
    device = replace(Given(0, [backward], [[]]).device, launch_ps=launch)

    def given(buckets: int) -> Given:
        times = Times(encode // buckets, network // buckets, 0, launches=2)
        return Given(0, [backward // buckets] * buckets, [[times]] * buckets)

    layerwise, fused = (play(given(buckets), ON_DEVICE, device=device).end_ps for buckets in (layers, 1))

    busy = backward + encode
    expected = Fraction(busy + layers * 2 * launch + network // layers, busy + 2 * launch + network)
    assert Fraction(layerwise, fused) == expected
    assert (layerwise > fused) is is_slower


@pytest.mark.parametrize("order", ["ready", "first_layer"])
def test_what_waits_to_be_decoded_keeps_its_order(order: BucketOrder) -> None:
    """Three buckets arrive while the device is busy, and the last one while it decodes the first of them."""
    given = Given(0, [10, 10, 10, 1000], [[Times(1, 1, 50)]] * 4)

    played = play(given, Overlap(4, order, encode="on_device", decode="last"))

    decoded = [one for one in played.journal.phases if one.phase == "decode" and one.worker == 0]
    first = [one.bucket for one in sorted(decoded, key=lambda one: one.start_ps)]
    assert first == ([0, 1, 2, 3] if order == "ready" else [2, 3, 1, 0])


@pytest.mark.parametrize("in_turn", [True, False])
def test_a_network_that_could_carry_several_carries_them_in_turn(in_turn: bool) -> None:
    given = Given(0, [10] * 5, [[Times(1, 100, 1)]] * 5)

    played = play(given, replace(ON_DEVICE, network="in_turn" if in_turn else "shared"), is_serial=False)

    spans = sorted(played.line.spans[0])
    assert all(end <= start for (_, end), (start, _) in pairwise(spans)) is in_turn
    assert played.end_ps == (11 + 5 * 100 + 1 if in_turn else 5 * 11 + 100 + 1)


def test_an_idle_start_launches_nothing() -> None:
    """Decoding of no bytes starts no kernel; encoding of one byte starts as many as it says."""
    device = replace(Given(0, [10], [[]]).device, launch_ps=1000)
    given = Given(0, [10], [[Times(1, 5, 0, launches=3)]])

    assert play(given, ON_DEVICE, device=device).end_ps == 10 + 3 * 1000 + 1 + 5


def test_the_passes_are_interrupted_and_still_as_long() -> None:
    given = drawn(1)
    played = play(given, ON_DEVICE)

    spans = played.spans(0, "forward", "backward", "encode", "decode")
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    backward = played.spans(0, "backward")
    assert len(backward) > 1
    assert sum(end - start for start, end in backward) == sum(given.backward)
    assert played.journal.steps[0].backward_end_ps == backward[-1][1]


def test_waits_are_recorded_and_fill_the_gaps() -> None:
    """Of one worker's side of a round, its phases follow each other without a gap."""
    played = play(drawn(2), ON_DEVICE)
    kinds = set()
    for record in played.journal.rounds:
        own = [one for one in played.journal.phases if (one.bucket, one.worker) == (record.bucket, 0)]
        kinds |= {(one.phase, one.label) for one in own if one.phase == "wait"}
        assert own[0].start_ps == record.start_ps
        assert own[-1].end_ps == record.end_ps
        assert all(one.end_ps == other.start_ps for one, other in pairwise(own))
    assert kinds == {("wait", "device"), ("wait", "network")}


PS_PER_S = 10**12
WITHIN = 0.25
LOAD_MAX = 1.0


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two processes measured; not where others run, for which gloo's threads would wait."""
    if os.getloadavg()[0] > LOAD_MAX:
        pytest.skip("the machine does other things: its load is above one")
    folder = tmp_path_factory.mktemp("ddp")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.sim.run.ddp"]
    running = [
        subprocess.Popen([*command, str(rank), str(folder)], env=environment, cwd=ROOT) for rank in range(2)
    ]
    assert [one.wait(timeout=300) for one in running] == [0, 0]
    read: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return read


@dataclass(frozen=True)
class Real(Steady):
    """The model's tensors in the buckets that DDP made of them."""

    probed: ProbedStep | None = None
    sizes: tuple[int, ...] = ()

    @property
    def cost(self) -> StepCost:  # type: ignore[override]
        assert self.probed is not None
        return self.probed.cost

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        model = build()
        assert self.probed is not None
        tensors = [tensor_of(name, tuple(model.get_parameter(name).shape)) for name in self.probed.order]
        made: list[Bucket] = []
        for index, size in enumerate(self.sizes):
            own: list[Tensor] = []
            while sum(one.elements for one in own) < size:
                own.append(tensors.pop(0))
            assert sum(one.elements for one in own) == size
            made.append(Bucket(index, f"b{index}", 4, 1.0, 4 * index, place_tensors(own)))
        assert not tensors
        return tuple(made)


def network_ps(found: dict[str, Any], elements: int) -> int:
    """Time of an all-reduce of so many elements, by a line through those that were measured."""
    sizes, times = zip(*found["reduced_s"], strict=True)
    slope, start = np.polyfit(sizes, times, 1)
    return round(max(0.0, start + slope * elements) * PS_PER_S)


@nightly  # half a minute; with as many processes as cores, gloo's own work is not hidden behind backward
def test_a_step_of_ddp_takes_as_long_as_predicted(found: dict[str, Any]) -> None:
    model = build()
    probed = probe(model, lambda: loss_of(model))
    device = read_device(json.dumps(found["device"]))
    sizes = tuple(found["buckets"])
    assert len(sizes) > 2
    times = [[Times(0, network_ps(found, size), 0)] for size in sizes]
    workload = Real(Given(0, [1] * len(sizes), times), 2, probed=probed, sizes=sizes)

    overlap = Overlap(len(sizes), encode="on_device", network="in_turn")
    played = play(workload.given, overlap, device=device, workload=workload)
    step_s, predicted_s = found["step_s"], played.end_ps / PS_PER_S
    print(
        f"step: predicted {1e3 * predicted_s:.1f} ms, measured {1e3 * step_s:.1f} ms; without DDP "
        f"{1e3 * found['alone_s']:.1f} ms; all-reduces {sum(one[0].network for one in times) / 1e9:.1f} ms "
        f"in {len(sizes)} buckets"
    )
    assert predicted_s == pytest.approx(step_s, rel=WITHIN)


LAUNCH = 5
DEVICE = RooflineDevice(  # an operation and a byte a picosecond
    "chain",
    tuple((kind, constant(10**12)) for kind in KINDS),
    constant(10**12),
    LAUNCH,
    constant(10**12),
    constant(10**12),
    0,
)


@dataclass(frozen=True)
class Chain(Steady):
    """A chain of layers whose kernels are known: (operations, bytes) of each layer's backward."""

    kernels: Sequence[tuple[int, int]] = ()
    update: int = 0

    @property
    def cost(self) -> StepCost:  # type: ignore[override]
        stages = tuple(
            Stage(f"t{index}", (KernelCost(MATMUL, flops, 0), KernelCost(OTHER, 0, size)))
            for index, (flops, size) in enumerate(self.kernels)
        )
        return StepCost(
            forward=(KernelCost(OTHER, 0, self.given.forward),), backward=stages, update_bytes=self.update
        )

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """One for each layer; their shares are all wrong."""
        tensors = [Tensor(f"t{index}", (ELEMENTS,), f"l{index}") for index in range(len(self.kernels))]
        return tuple(
            Bucket(index, tensor.name, ELEMENTS, 0.5, ELEMENTS * index, (tensor,))
            for index, tensor in enumerate(tensors)
        )


def chain(seed: int) -> Chain:
    draw = np.random.Generator(np.random.PCG64(seed))
    layers = int(draw.integers(1, 9))
    kernels = [(int(one), int(other)) for one, other in draw.integers(1, 200, (layers, 2))]
    times = [[Times(*map(int, draw.integers(1, 120, 3)))] for _ in range(layers)]
    given = Given(int(draw.integers(1, 100)), [1] * layers, times)
    return Chain(given, 2, kernels=kernels, update=int(draw.integers(0, 2)) * 300)


def expected(found: Chain, factor: Fraction = Fraction(1)) -> int:
    """Backward and encoding on one machine, the network on another, decoding last, then the update.

    Where workers differ, buckets are sent when the slowest has encoded them.
    """

    def scaled(time: int) -> int:
        return -(-time * factor.numerator // factor.denominator)

    device, network = scaled(LAUNCH + found.given.forward), 0
    reached = LAUNCH + found.given.forward
    arrived = []
    for (flops, size), (times,) in zip(found.kernels, found.given.operations, strict=True):
        before = scaled(reached)
        reached += 2 * LAUNCH + flops + size
        device += scaled(reached) - before + scaled(times.encode)
        network = max(device, network) + times.network
        arrived.append(network)
    for arrival, (times,) in zip(arrived, found.given.operations, strict=True):
        device = max(device, arrival) + scaled(times.decode)
    return device + (scaled(LAUNCH + found.update) if found.update else 0)


LAST = Overlap(9, encode="on_device", decode="last")


@pytest.mark.parametrize("seed", range(10))
def test_a_chain_of_layers_follows_the_closed_form(seed: int) -> None:
    """The model of fusion: all is computed and encoded without a stop, and what arrived is decoded then."""
    layers = chain(seed)
    played = play(layers.given, LAST, device=DEVICE, workload=layers)

    assert played.end_ps == expected(layers)
    assert played.journal.steps[0].forward_end_ps == LAUNCH + layers.given.forward
    assert played.spans(0, "decode")[0][0] >= played.spans(0, "encode")[-1][1]


@pytest.mark.parametrize("seed", range(4))
def test_the_slowest_worker_sets_the_pace(seed: int) -> None:
    found = chain(seed)
    played = play(found.given, LAST, device=DEVICE, workload=found, variation=Variation(None, ((1, 2.5),)))

    assert played.end_ps == expected(found, Fraction(5, 2))


def test_the_update_follows_the_last_bucket_and_the_next_step_the_update() -> None:
    found = replace(chain(3), update=1000)
    played = play(found.given, LAST, device=DEVICE, workload=found, steps=2)
    first, second = played.journal.steps

    assert played.spans(0, "update") == [
        (first.aggregation_end_ps, first.aggregation_end_ps + LAUNCH + 1000),
        (second.aggregation_end_ps, second.aggregation_end_ps + LAUNCH + 1000),
    ]
    assert first.end_ps == second.start_ps == first.aggregation_end_ps + LAUNCH + 1000
    assert len(played.workload.applied) == 2
    none = play(found.given, LAST, device=DEVICE, workload=replace(found, update=0))
    assert none.spans(0, "update") == []


def test_jitter_differs_between_steps_and_not_between_runs() -> None:
    found = replace(chain(2), update=0)
    variation = Variation(Jitter(kind="lognormal", spread=0.3))

    def lengths() -> list[int]:
        played = play(found.given, LAST, device=DEVICE, workload=found, steps=4, variation=variation)
        return [step.end_ps - step.start_ps for step in played.journal.steps]

    assert lengths() == lengths()
    assert len(set(lengths())) == 4


def test_a_host_that_encodes_copies_there_and_back_beside_the_passes() -> None:
    """16 bytes of a bucket at a byte a picosecond, 100 to begin: two copies around codec and network."""
    link = HardwareLink("test", 10**12, 1.0, 100, "")
    device = HostCodec(
        FixedDevice(forward_ps=10, backward_ps=40),
        FixedDevice(forward_ps=0, backward_ps=0, memory_bps=BYTE_PER_PS),
        link,
    )
    given = Given(10, [20, 20], [[Times(7, 30, 9)], [Times(7, 30, 9)]])
    played = play(given, Overlap(1), device=device)

    bucket = 116 + 7 + 30 + 9 + 116
    assert played.end_ps == 30 + 2 * bucket
    assert played.spans(0, "decode") == sorted(
        (start, start + length)
        for first in (30, 30 + bucket)
        for start, length in ((first + 116 + 7 + 30, 9), (first + 116 + 7 + 30 + 9, 116))
    )
    assert played.spans(0, "encode")[0] == (30, 30 + 123)


def test_slow_hosts_and_slow_devices_multiply() -> None:
    found = replace(chain(1), update=100)
    hosts, devices = [Condition(), Condition(factor=Fraction(2))], Variation(None, ((1, 3.0),))
    played = play(found.given, LAST, device=DEVICE, workload=found, variation=devices, conditions=hosts)

    assert played.end_ps == expected(found, Fraction(6))
