"""What only many rounds show: sums that have nothing to do with gradients, bounds that allow anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import Sums, whole_bound
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.contract import refusal_of
from netfold.homomorphic.fold import Folded
from netfold.homomorphic.message import Gradient, Hop, Merge, Message
from netfold.homomorphic.round import Note, NoteKind, Round
from netfold.testing.team import Team, fold_checked, require

_ROUNDS = 24
_ELEMENTS = 1000
_WORKERS = 3
_LIKENESS_MIN = 0.1  # unrelated numbers have at most 0.02 in so many rounds
_LOOSE = 8.0  # bound over the largest error; the law's is 4 of errors that can occur, not all of which do
_MATERIAL = 1e-3  # of the largest sum of magnitudes: tighter bounds let no wrong sum pass
_KEYS = 8  # of a host merge, that show whether it draws at random

Doubles = NDArray[np.float64]


@dataclass
class _Likeness:
    """Σ a · b and Σ|a · b| of two quantities: 1 if their signs agree wherever both are not zero."""

    products: float = 0.0
    magnitudes: float = 0.0

    def add(self, one: Doubles | Gradient, other: Doubles | Gradient) -> None:
        """Add one more pair of arrays."""
        products = np.asarray(one, np.float64) * other
        self.products += float(products.sum())
        self.magnitudes += float(np.abs(products).sum())

    @property
    def is_too_small(self) -> bool:
        """Whether the two are unrelated, or one is always zero."""
        return not self.products > _LIKENESS_MIN * self.magnitudes


@dataclass
class _Seen:
    """What many rounds showed of a codec."""

    contributions: _Likeness
    totals: _Likeness
    error_over_bound: float = 0.0  # the largest
    error: float = 0.0
    bound: float = 0.0
    bound_over_magnitude: float = 0.0

    def add(self, codec: Codec, folded: Folded, owed: Sequence[Gradient], notes: Sequence[Note]) -> None:
        """Add a round in which workers owed so much."""
        codec = codec.judged_by(folded.results[0].is_update)
        for contribution, own in zip(folded.contributions, owed, strict=True):
            self.contributions.add(contribution, own)
        together, total = np.asarray(folded.contributions, np.float64), folded.decoded[0]
        magnitudes = np.abs(together).sum(axis=0)
        ideal = codec.ideal(Sums(0, together.sum(axis=0), magnitudes))
        self.totals.add(total, ideal)
        bound = whole_bound(codec.error_bound(folded.contributions), folded.contributions)
        errors = np.abs(total - ideal)
        for note in notes:
            if note.kind is NoteKind.ESTIMATE:
                errors[note.elements] = 0
        relative = np.divide(errors, bound, out=np.zeros_like(errors), where=bound > 0)
        self.error_over_bound = max(self.error_over_bound, float(relative.max()))
        self.error, self.bound = max(self.error, float(errors.max())), max(self.bound, float(bound.max()))
        share = float(bound.max() / max(magnitudes.max(), np.finfo(np.float64).tiny))
        self.bound_over_magnitude = max(self.bound_over_magnitude, share)


def check_many_rounds(codec: Codec, seed: int) -> None:
    """Check that gradients arrive, that the bound is one, and that nothing is held back unsaid."""
    workers = next(count for count in range(_WORKERS, 0, -1) if refusal_of(codec, count) is None)
    random = np.random.default_rng([seed, _ROUNDS])
    team, seen = Team.of(codec, workers), _Seen(_Likeness(), _Likeness())
    for step in range(_ROUNDS):
        common, *noise = random.standard_normal((1 + workers, _ELEMENTS))
        gradients = [(common + own / 2).astype(np.float32) for own in noise]
        round = Round(step, 0, workers, seed)
        held = [encoder.residual(0) for encoder in team.encoders]
        folded, notes = fold_checked(codec, team, gradients, round)
        owed = [own if rest is None else own + rest for own, rest in zip(gradients, held, strict=True)]
        seen.add(codec, folded, owed, notes)
        _check_memory(codec, team, folded, gradients, round)
    _check_seen(seen, any(encoder.remembers for encoder in team.encoders))


def _check_seen(seen: _Seen, has_memory: bool) -> None:
    require(
        has_memory or not seen.contributions.is_too_small,
        f"contributions have nothing to do with the gradients in {_ROUNDS} rounds: Σ contribution · gradient "
        f"is {seen.contributions.products:.3g}, of magnitudes that add up to "
        f"{seen.contributions.magnitudes:.3g}; return in Decoded what the worker put into the total",
    )
    require(
        not seen.totals.is_too_small,
        f"totals have nothing to do with the contributions in {_ROUNDS} rounds: Σ total · ideal is "
        f"{seen.totals.products:.3g}, of magnitudes that add up to {seen.totals.magnitudes:.3g}; decode the "
        "merged words, or override `ideal` if the total is meant to be something else",
    )
    is_loose = seen.error_over_bound * _LOOSE < 1 and seen.bound_over_magnitude > _MATERIAL
    require(
        not is_loose,
        f"the error bound allows wrong sums, it is up to {seen.bound:.3g}, and the largest error in "
        f"{_ROUNDS} rounds is {seen.error:.3g}, at most {seen.error_over_bound:.3g} of its bound; let "
        "error_bound be at most four times the largest error that can occur",
    )


def _check_memory(
    codec: Codec, team: Team, folded: Folded, gradients: Sequence[Gradient], round: Round
) -> None:
    """Check that a worker whose residual is None contributes what one without a past does."""
    silent = [
        rank
        for rank, encoder in enumerate(team.encoders)
        if encoder.residual(0) is None and not encoder.remembers
    ]
    if not silent:
        return
    fresh, _ = fold_checked(codec, Team.of(codec, len(gradients)), gradients, round)
    for rank in silent:
        differs = np.flatnonzero(folded.contributions[rank] != fresh.contributions[rank])
        require(
            not differs.size,
            f"worker {rank} holds something back unsaid: in round {round.step} {differs.size} elements of "
            "its contribution differ from those of a new encoder with the same gradient, first "
            f"{differs[:1]}; return what it holds back in `residual`, so that contribution + residual = "
            "gradient + residual before can be checked, or name in `remembers` what else it remembers",
        )


def check_host_merges(codec: Codec, pair: Sequence[Gradient], round: Round) -> None:
    """Check that two workers' words merge to the same sums whichever arrives first.

    Merges that draw at random are exempt: either worker's words may win.
    """
    first, _ = fold_checked(codec, Team.of(codec, 2), pair, round)
    if any(map(_draws, _host_pairs(first))):
        return
    second, _ = fold_checked(codec, Team.of(codec, 2), pair, round, [1, 0])
    differs = np.flatnonzero(first.decoded[0] != second.decoded[0])
    require(
        not differs.size,
        f"the host merge depends on who arrives first: {differs.size} sums of two workers differ, element "
        f"{differs[:1]} is {first.decoded[0][differs[:1]]} or {second.decoded[0][differs[:1]]}; make `merge` "
        "of A and B the same as of B and A, as networks merge in any order",
    )


def _host_pairs(folded: Folded) -> list[tuple[Message, Message]]:
    """The host messages of two workers, operation by operation."""
    pairs = [pair for operation in folded.messages for pair in zip(*operation, strict=True)]
    return [(one, other) for one, other in pairs if one.merge is Merge.HOST]


def _draws(pair: tuple[Message, Message]) -> bool:
    """Whether a host merge depends on its key."""
    one, other = pair
    assert one.host_merge is not None, "checked with the message"
    merged = [one.host_merge.merge(one.words, other.words, Hop(1, 1, key)).tobytes() for key in range(_KEYS)]
    return len(set(merged)) > 1
