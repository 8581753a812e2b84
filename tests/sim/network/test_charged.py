"""Charged work of a run, and the effect of its seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from netfold.homomorphic.bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange
from netfold.homomorphic.message import Gradient, Merge, Message, Work
from netfold.homomorphic.round import Round
from netfold.sim.run.run import run_variant
from netfold.sim.workload.devices.kinds.fixed import FixedDevice
from tests.sim.scenes import measure, plan

LOSSY = ("faults=[{kind: loss, rate: 2%}]",)
WHOLE = "workload={kind: synthetic, elements: 20000, distribution: integer}"
SWITCH = "collective={kind: in_network, program: switchml, slots: 16}"


def times(folder: Path, seed: int, *sets: str) -> tuple[float, int]:
    """Times with dense gradients, whose packets do not depend on the values."""
    found = measure(folder, WHOLE, SWITCH, "codec={kind: fixed_point}", f"seed={seed}", *sets)
    return found["aggregation_time_us"], found["packets_retransmitted"]


def test_the_seed_decides_what_the_network_loses(tmp_path: Path) -> None:
    """Without loss all seeds take the same time: the workload's draws do not affect it."""
    assert len({times(tmp_path, seed) for seed in (1, 2, 3)}) == 1
    assert len({times(tmp_path, seed, *LOSSY) for seed in (1, 2, 3)}) == 3


@dataclass(frozen=True)
class Two(Codec):
    """Two messages in one operation, each with its own work."""

    kind: ClassVar[str] = "two"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD})

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return TwoEncoder()

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return FloatAddBound(len(contributions))


class TwoEncoder(Encoder):
    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        words = gradient.astype(np.int32)
        first, _ = yield (
            Message(words, Merge.ADD, "large", Work(5000, 2000), decode_work=Work(300, 100)),
            Message(words, Merge.ADD, "small", Work(1000, 500), decode_work=Work(70, 30)),
        )
        return Decoded(first.words.astype(np.float32), gradient)


def test_encoding_and_decoding_take_the_work_of_all_messages(tmp_path: Path) -> None:
    """At 8 Gbit/s, one byte a nanosecond: 7000 and 1500 B to encode, 400 and 100 B to decode."""
    resolved = plan(tmp_path, WHOLE, SWITCH, "codec={kind: fixed_point}")
    (variant,) = resolved.variants
    job = replace(variant.jobs[0], codec=Two(), device=FixedDevice(0, 0, 8 * 10**9))
    result = run_variant(resolved, replace(variant, jobs=(job,)))

    spans = {
        phase: {one.end_ps - one.start_ps for one in result.phases if one.phase == phase}
        for phase in ("encode", "decode")
    }
    assert spans == {"encode": {8_500_000}, "decode": {500_000}}
