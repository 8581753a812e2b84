"""Codecs that only tests know: one that needs an option, and twins of others whose totals are wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Carrier, Codec, Decoded, Encoder, Exchange
from netfold.homomorphic.error_bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.merge import Merge
from netfold.homomorphic.message import Gradient, Message, Round, Step
from netfold.sim.studies.matrix import STEPS

DAMAGED = "damaged_"


@dataclass(frozen=True)
class NeedsScale(Codec):
    """Float32 values times a power of two.

    scale: the factor.
    """

    kind: ClassVar[str] = "needs_scale"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.FLOAT_ADD})

    scale: float

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return ScaledEncoder(np.float32(self.scale))

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        return FloatAddBound(len(contributions))


@dataclass(frozen=True)
class HasSetting(NeedsScale):
    """The same with a setting that it declares."""

    kind: ClassVar[str] = "has_setting"
    settings: ClassVar[tuple[str, ...]] = ("scale=2",)


@dataclass
class ScaledEncoder(Encoder):
    scale: np.float32

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        (merged,) = yield (Message(gradient * self.scale, Merge.FLOAT_ADD, "values"),)
        return Decoded(merged.words / self.scale, gradient)


def damaged(codec: Any) -> Any:
    """A twin of a codec: in the last step, every worker adds 1 to every element of the total."""

    def worker(self: Any, rank: int, workers: int, seed: int) -> Encoder:
        return DamagedEncoder(codec.worker(self, rank, workers, seed))

    def carried_by(self: Any, carrier: Carrier) -> Any:
        carried = codec.carried_by(self, carrier)
        if type(carried) is type(self):
            return carried
        twin = object.__new__(damaged(type(carried)))  # a codec may become another one on a network
        twin.__dict__.update(carried.__dict__)
        return twin

    kind = f"{DAMAGED}{codec.kind}"
    return type(kind, (codec,), {"kind": kind, "worker": worker, "carried_by": carried_by})


@dataclass
class DamagedEncoder(Encoder):
    whole: Encoder

    def begin(self, step: Step) -> None:
        self.whole.begin(step)

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        decoded = yield from self.whole.exchange(gradient, round)
        return replace(decoded, total=decoded.total + 1) if round.step == STEPS - 1 else decoded

    def residual(self, bucket: int) -> Gradient | None:
        return self.whole.residual(bucket)

    def state(self) -> dict[str, NDArray[Any]]:
        return self.whole.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.whole.restore(state)
