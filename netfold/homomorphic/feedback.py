"""Encoders that keep a vector of each bucket: error feedback, and momentum of a worker.

With error feedback, what is held back joins the next gradient: Seide et al., "1-bit stochastic gradient
descent", Interspeech 2014; Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression
schemes", ICML 2019, algorithm 2. The residual is kept in units of the gradient, bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Decoded, Encoder, Exchange, State, part_of, prefixed
from netfold.homomorphic.codec_driver import advance
from netfold.homomorphic.merge import Merged, Work
from netfold.homomorphic.message import Gradient, Round, Step

STATE_BYTES = 4  # per element


@dataclass
class KeepingEncoder(Encoder):
    """An encoder that lets another encode, and keeps a vector of each bucket between its rounds."""

    keeps: ClassVar[str]  # what each vector is
    option: ClassVar[str]  # what the codec's option is called

    encoder: Encoder
    kept: dict[int, Gradient] = field(default_factory=dict, kw_only=True)
    """Vectors by bucket, each from the end of its first round on."""

    def begin(self, step: Step) -> None:
        # The gradients of the step are without what is kept.
        self.encoder.begin(step)

    def vector_of(self, gradient: Gradient, round: Round) -> Gradient | None:
        """What is kept for a bucket, whose length never changes; None before the end of its first round."""
        vector = self.kept.get(round.bucket)
        if vector is not None and vector.size != gradient.size:
            raise ValueError(
                f"bucket {round.bucket} has {gradient.size} elements, its {self.keeps} has {vector.size}: "
                f"a bucket with {self.option} keeps its length"
            )
        return vector

    def state(self) -> State:
        """What is kept, and the state of the encoder."""
        vectors = {str(bucket): vector.copy() for bucket, vector in self.kept.items()}
        return prefixed(self.keeps, vectors) | prefixed("encoder", self.encoder.state())

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        vectors = part_of(state, self.keeps)
        self.kept = {int(bucket): np.array(vector, np.float32) for bucket, vector in vectors.items()}
        self.encoder.restore(part_of(state, "encoder"))


@dataclass
class FeedbackEncoder(KeepingEncoder):
    """An encoder whose worker keeps what it did not contribute.

    In float32, contribution + residual = gradient + residual before, if the codec contributes an element
    either whole or not at all, or rounded to fewer bits.
    """

    keeps: ClassVar[str] = "residual"
    option: ClassVar[str] = "error feedback"

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Exchange gradient + residual; keep what was not contributed."""
        residual = self.vector_of(gradient, round)
        owed = gradient if residual is None else gradient + residual
        # Two additions: of the residual, and of the contribution taken away.
        additions = Work(4 * gradient.nbytes, 2 * gradient.nbytes, 2 * gradient.size)
        decoded = yield from charge(self.encoder.exchange(owed, round), additions)
        self.kept[round.bucket] = owed - decoded.contribution
        return decoded

    def residual(self, bucket: int) -> Gradient | None:
        return self.kept.get(bucket)


# Momentum of a worker, before what it sends is chosen, with momentum factor masking.
#
# The velocity u = momentum · u + gradient takes the gradient's place. Where an element was chosen, it is set
# to zero, so that a direction already taken is not taken again (Lin et al., "Deep gradient compression", ICLR
# 2018, section 3.2; Ivkin et al., "Communication-efficient distributed SGD with sketching", NeurIPS 2019).


@dataclass(frozen=True)
class Selected(Decoded):
    """A result, and the elements that all workers chose."""

    elements: NDArray[np.int64] = field(kw_only=True)  # ascending


@dataclass
class MomentumEncoder(KeepingEncoder):
    """An encoder of velocities.

    It names no residual: a worker owes more than its gradients, since a velocity counts again in every step.
    With feedback, contribution + residual of the encoder inside = velocity + its residual before.
    """

    remembers: ClassVar[str] = "velocities"
    keeps: ClassVar[str] = "velocity"
    option: ClassVar[str] = "momentum"

    momentum: float  # the exchange of the encoder inside returns `Selected`
    is_masked: bool

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Exchange the velocity; keep it, without the elements that were chosen."""
        before = self.vector_of(gradient, round)
        if before is None:
            before = np.zeros(gradient.size, np.float32)
        velocity = np.float32(self.momentum) * before
        velocity += gradient
        more = Work(2 * gradient.nbytes, gradient.nbytes, 2 * gradient.size)
        decoded = yield from charge(self.encoder.exchange(velocity, round), more)
        assert isinstance(decoded, Selected), "the encoder names no elements"
        if self.is_masked:
            velocity[decoded.elements] = 0
        self.kept[round.bucket] = velocity
        return decoded

    def velocity(self, bucket: int) -> Gradient | None:
        return self.kept.get(bucket)


def check_momentum(momentum: float) -> None:
    """Reject a momentum that is below 0, or not below 1."""
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum is {momentum}: must be at least 0 and below 1, 0.9 is usual")


def with_feedback(
    encoder: Encoder, has_feedback: bool, momentum: float = 0.0, is_masked: bool = True
) -> Encoder:
    """The encoder, with error feedback and momentum if asked for; of momentum 0 there is none."""
    encoder = FeedbackEncoder(encoder) if has_feedback else encoder
    return MomentumEncoder(encoder, momentum, is_masked) if momentum else encoder


def charge(exchange: Exchange, more: Work) -> Exchange:
    """Charge the first message of an exchange for more work; it starts no more kernels."""
    answers: tuple[Merged, ...] | None = None
    while True:
        sent = advance(exchange, answers)
        if isinstance(sent, Decoded):
            return sent
        if answers is None and sent:
            work = sent[0].work
            total_work = Work(work.read_bytes + more.read_bytes, work.written_bytes + more.written_bytes)
            total_work = replace(total_work, flops=work.flops + more.flops, launches=work.launches)
            sent = (replace(sent[0], work=total_work), *sent[1:])
        answers = yield sent
