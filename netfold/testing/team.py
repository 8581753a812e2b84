"""All encoders of a codec, and a round of theirs that is checked as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange, Server
from netfold.homomorphic.contract import ContractError, checked, make_encoders
from netfold.homomorphic.fold import Folded, LockStepError, Order, fold
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Note, Round
from netfold.testing.steps import Steps


class Team(NamedTuple):
    """A codec's encoders, its part where messages meet, if it has one, and what they know of steps."""

    encoders: list[Encoder]
    server: Server | None
    steps: Steps

    @classmethod
    def of(cls, codec: Codec, workers: int) -> Team:
        """A new one."""
        return cls(make_encoders(codec, workers, 1), codec.server(workers, 1), Steps(workers))

    @property
    def parts(self) -> list[Encoder | Server]:
        """All that has a state."""
        return [*self.encoders, *([] if self.server is None else [self.server])]


@dataclass(frozen=True)
class _Checked(Encoder):
    """An encoder whose messages must be what its codec declares."""

    encoder: Encoder
    codec: Codec

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """The encoder's."""
        return checked(self.encoder.exchange(gradient, round), gradient, self.codec)


def fold_checked(
    codec: Codec,
    team: Team,
    gradients: Sequence[Gradient],
    round: Round,
    order: Order | None = None,
) -> tuple[Folded, list[Note]]:
    """Run one round, whose workers must decode the same bits; return it and its notes."""
    notes: list[Note] = []
    given = [gradient.copy() for gradient in gradients]
    team.steps.begin(team.encoders, given, round.step)
    try:
        encoders = [_Checked(encoder, codec) for encoder in team.encoders]
        folded = fold(encoders, given, replace(round, report=notes.append), order, team.server)
    except (LockStepError, ContractError) as error:
        raise AssertionError(str(error)) from error
    team.steps.end(folded.results[0])
    for rank, (before, after) in enumerate(zip(gradients, given, strict=True)):
        require(before.tobytes() == after.tobytes(), f"the encoder of worker {rank} wrote into its gradient")
    for rank, one in enumerate(folded.results):
        require(isinstance(one, Decoded), f"worker {rank} returns {type(one).__name__}, must be Decoded")
        _require_gradient(one.total, gradients[0], f"worker {rank} decodes")
        _require_gradient(one.contribution, gradients[0], f"worker {rank} contributes")
        require(one.is_update == folded.results[0].is_update, f"worker {rank} differs in `is_update`")
        require_same(one.total, folded.decoded[0], f"worker {rank}")
    return folded, notes


def require_same(found: Gradient, expected: Gradient, where: str) -> None:
    """Require the same bits."""
    differs = np.flatnonzero(found.view(np.int32) != expected.view(np.int32))
    if differs.size:
        first = differs[0]
        raise AssertionError(
            f"{where}: {differs.size} elements have other bits than at worker 0, merged by rank: "
            f"element {first} is {found[first]!s}, expected {expected[first]!s}"
        )


def _require_gradient(found: Any, gradient: Gradient, what: str) -> None:
    shown = f"{getattr(found, 'dtype', type(found).__name__)} of shape {np.shape(found)}"
    is_right = np.shape(found) == gradient.shape and getattr(found, "dtype", None) == np.float32
    require(is_right, f"{what} {shown}, must be float32 of shape {gradient.shape}")


def require(is_met: Any, message: str) -> None:
    """An AssertionError with a message, unless something is met."""
    if not is_met:
        raise AssertionError(message)
