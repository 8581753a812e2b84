"""Error feedback: what a worker holds back is added to its next gradient.

Seide et al., "1-bit stochastic gradient descent", Interspeech 2014; Karimireddy et al., "Error feedback fixes
SignSGD and other gradient compression schemes", ICML 2019, algorithm 2. The residual is kept in units of the
gradient, bucket by bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Decoded, Encoder, Exchange, State, advance, part_of, prefixed
from netfold.homomorphic.message import Gradient, Merged, Round, Step, Work

STATE_BYTES = 4  # per element


@dataclass
class FeedbackEncoder(Encoder):
    """An encoder whose worker keeps what it did not contribute.

    In float32, contribution + residual = gradient + residual before, if the codec contributes an element
    either whole or not at all, or rounded to fewer bits.
    """

    encoder: Encoder
    _residuals: dict[int, Gradient] = field(default_factory=dict)
    """Residuals by bucket, each from the end of its first round on."""

    def begin(self, step: Step) -> None:
        # The gradients of the step are without residuals.
        self.encoder.begin(step)

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Exchange gradient + residual; keep what was not contributed.

        Raises
        ------
        ValueError
            The bucket had another length before.
        """
        held = self._residuals.get(round.bucket)
        if held is None:
            owed = gradient
        elif held.size == gradient.size:
            owed = gradient + held
        else:
            raise ValueError(
                f"bucket {round.bucket} has {gradient.size} elements, its residual has {held.size}: a bucket "
                "with error feedback keeps its length"
            )
        # Two additions: of the residual, and of the contribution taken away.
        additions = Work(4 * gradient.nbytes, 2 * gradient.nbytes, 2 * gradient.size)
        decoded = yield from charged(self.encoder.exchange(owed, round), additions)
        self._residuals[round.bucket] = owed - decoded.contribution
        return decoded

    def residual(self, bucket: int) -> Gradient | None:
        return self._residuals.get(bucket)

    def state(self) -> State:
        """The residuals, and the state of the encoder."""
        residuals = {str(bucket): own.copy() for bucket, own in self._residuals.items()}
        return prefixed("residual", residuals) | prefixed("encoder", self.encoder.state())

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        residuals = part_of(state, "residual")
        self._residuals = {int(bucket): np.array(own, np.float32) for bucket, own in residuals.items()}
        self.encoder.restore(part_of(state, "encoder"))


def with_feedback(encoder: Encoder, has_feedback: bool) -> Encoder:
    return FeedbackEncoder(encoder) if has_feedback else encoder


def charged(exchange: Exchange, more: Work) -> Exchange:
    """Charge the first message of an exchange for more work; it starts no more kernels."""
    answers: tuple[Merged, ...] | None = None
    while True:
        sent = advance(exchange, answers)
        if isinstance(sent, Decoded):
            return sent
        if answers is None and sent:
            work = sent[0].work
            both = Work(work.read_bytes + more.read_bytes, work.written_bytes + more.written_bytes)
            both = replace(both, flops=work.flops + more.flops, launches=work.launches)
            sent = (replace(sent[0], work=both), *sent[1:])
        answers = yield sent
