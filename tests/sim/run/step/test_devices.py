"""Steps on devices that know their layers, against closed forms of a chain of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from netfold.homomorphic.round import Tensor
from netfold.sim.plan.faults import Condition
from netfold.sim.plan.overlap import Overlap
from netfold.sim.workload import Bucket, StepCost
from netfold.sim.workload.devices.cost import KINDS, MATMUL, OTHER, Kernel, Stage
from netfold.sim.workload.devices.hardware import Link
from netfold.sim.workload.devices.host_codec import HostCodec
from netfold.sim.workload.devices.kinds.fixed import FixedDevice
from netfold.sim.workload.devices.roofline import RooflineDevice, constant
from netfold.sim.workload.devices.variation import Jitter, Variation
from tests.sim.run.step.given import BYTE_PER_PS, ELEMENTS, Given, Steady, Times, play

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
            Stage(f"t{index}", (Kernel(MATMUL, flops, 0), Kernel(OTHER, 0, size)))
            for index, (flops, size) in enumerate(self.kernels)
        )
        return StepCost(
            forward=(Kernel(OTHER, 0, self.given.forward),), backward=stages, update_bytes=self.update
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


LAST = Overlap(9, encodes_on_device=True, decodes_last=True)


@pytest.mark.parametrize("seed", range(10))
def test_a_chain_of_layers_follows_the_closed_form(seed: int) -> None:
    found = chain(seed)
    played = play(found.given, LAST, device=DEVICE, workload=found)

    assert played.end_ps == expected(found)
    ready = [LAUNCH + found.given.forward]
    for flops, size in found.kernels:
        ready.append(ready[-1] + 2 * LAUNCH + flops + size)
    assert played.journal.steps[0].forward_end_ps == ready[0]


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
    variation = Variation(Jitter("lognormal", 0.3))

    def lengths() -> list[int]:
        played = play(found.given, LAST, device=DEVICE, workload=found, steps=4, variation=variation)
        return [step.end_ps - step.start_ps for step in played.journal.steps]

    assert lengths() == lengths()
    assert len(set(lengths())) == 4


def test_a_host_that_encodes_copies_there_and_back_beside_the_passes() -> None:
    """16 bytes of a bucket at a byte a picosecond, 100 to begin: two copies around codec and network."""
    link = Link("test", 10**12, 1.0, 100, "")
    device = HostCodec(FixedDevice(10, 40), FixedDevice(0, 0, BYTE_PER_PS), link)
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
    conditions = [Condition(), Condition(factor=Fraction(2))]
    played = play(
        found.given,
        LAST,
        device=DEVICE,
        workload=found,
        variation=Variation(None, ((1, 3.0),)),
        conditions=conditions,
    )

    assert played.end_ps == expected(found, Fraction(6))
