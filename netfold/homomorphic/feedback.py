"""Encoders that keep a vector of each bucket; error feedback: what is held back joins the next gradient.

Seide et al., "1-bit stochastic gradient descent", Interspeech 2014; Karimireddy et al., "Error feedback fixes
SignSGD and other gradient compression schemes", ICML 2019, algorithm 2. The residual is kept in units of the
gradient, bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Decoded, Encoder, Exchange, State, part_of, prefixed
from netfold.homomorphic.drive import advance
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


def with_feedback(encoder: Encoder, has_feedback: bool) -> Encoder:
    return FeedbackEncoder(encoder) if has_feedback else encoder


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
