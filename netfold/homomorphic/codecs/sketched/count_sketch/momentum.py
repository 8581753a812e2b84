"""Momentum of a worker, before what it sends is chosen, with momentum factor masking.

The velocity u = momentum · u + gradient takes the gradient's place. Where an element was chosen, it is set
to zero, so that a direction already taken is not taken again (Lin et al., "Deep gradient compression", ICLR
2018, section 3.2; Ivkin et al., "Communication-efficient distributed SGD with sketching", NeurIPS 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Encoder, Exchange, State, part_of, prefixed
from netfold.homomorphic.codecs.sketched.count_sketch.encoder import Selected
from netfold.homomorphic.feedback import charged
from netfold.homomorphic.message import Gradient, Work
from netfold.homomorphic.round import Round, Step


@dataclass
class MomentumEncoder(Encoder):
    """An encoder of velocities.

    It names no residual: a worker owes more than its gradients, since a velocity counts again in every step.
    With feedback, contribution + residual of the encoder inside = velocity + its residual before.
    """

    remembers: ClassVar[str] = "velocities"

    encoder: Encoder  # its exchange returns `Selected`
    momentum: float
    is_masked: bool
    _velocities: dict[int, Gradient] = field(default_factory=dict)  # by bucket

    def begin(self, step: Step) -> None:
        """Pass the step on."""
        self.encoder.begin(step)

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Exchange the velocity; keep it, without the elements that were chosen.

        Raises
        ------
        ValueError
            The bucket had another length before.
        """
        before = self._velocities.get(round.bucket, np.zeros(gradient.size, np.float32))
        if before.size != gradient.size:
            raise ValueError(
                f"bucket {round.bucket} has {gradient.size} elements, its velocity has {before.size}: a "
                "bucket with momentum keeps its length"
            )
        velocity = np.float32(self.momentum) * before
        velocity += gradient
        more = Work(2 * gradient.nbytes, gradient.nbytes, 2 * gradient.size)
        decoded = yield from charged(self.encoder.exchange(velocity, round), more)
        assert isinstance(decoded, Selected), "the encoder names no elements"
        if self.is_masked:
            velocity[decoded.elements] = 0
        self._velocities[round.bucket] = velocity
        return decoded

    def velocity(self, bucket: int) -> Gradient | None:
        """The velocity after a bucket's last round; None before the first."""
        return self._velocities.get(bucket)

    def state(self) -> State:
        """The velocities, and the state of the encoder."""
        velocities = {str(bucket): own.copy() for bucket, own in self._velocities.items()}
        return prefixed("velocity", velocities) | prefixed("encoder", self.encoder.state())

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        velocities = part_of(state, "velocity")
        self._velocities = {int(bucket): np.array(own, np.float32) for bucket, own in velocities.items()}
        self.encoder.restore(part_of(state, "encoder"))
