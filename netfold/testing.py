"""Checks that a codec obeys the law of all codecs; an AssertionError says what is violated.

    import netfold

    netfold.testing.check_codec(MyCodec())                  # on gradients that have broken encodings before
    netfold.testing.check_round(MyCodec(), gradients)       # on your gradients, one for each worker

The law:

* All workers decode the same bits, in float32. They do not depend on the order or tree of merging, unless the
  codec's merges do.
* The total is within the codec's bound of the ideal of the contributions, element by element, except elements
  that a note reports as estimates. The bound is finite.
* A promise `exact` means the exact sum of the contributions, rounded once. A promise `unbiased` means errors
  whose mean over the codec's random draws is zero.
* A worker that holds something back keeps it: contribution + residual = gradient + residual before. One that
  names no residual, nor what else it `remembers`, contributes what a new one would.
* Over many rounds of normal values, contributions go with the gradients, and totals with the contributions;
  the bound is at most eight times the largest error, unless it is below 0.1 % of the values.
* A merge of a codec's own (HOST) is the same whoever's words arrive first, unless it draws at random.
* An encoder that is restored from a state goes on as if it had not stopped.
* `merges` names the merges of all messages, `lane_bits` the width of their lanes.
* Encoders do not write to gradients.

Before a round, encoders see a step (`begin`) with all facts that they may need, made up in `Steps`. A
round is held to the promise of `Codec.judged_by`.

A codec may reject gradients by an `EncodeError`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import (
    Codec,
    ContractError,
    Decoded,
    EncodeError,
    Encoder,
    LockStepError,
    Promise,
    Server,
    make_encoders,
    refusal_of,
)
from netfold.homomorphic.error_bounds import (
    Drift,
    Sums,
    count_inexact,
    largest_bias,
    sums_of_parts,
    whole_bound,
)
from netfold.homomorphic.fold import AllReduceResult, Order, fold
from netfold.homomorphic.merge import Hop, Merge
from netfold.homomorphic.message import Gradient, Message, Note, NoteKind, Round, Step
from netfold.kernels.keyed_random import mix_plain

__all__ = ["PATTERNS", "VALUES", "check_codec", "check_round", "support", "values"]

# Synthetic gradients that have broken encodings before.


PATTERNS = ("iid", "rows", "columns")
VALUES = ("normal", "wide", "denormal", "constant", "negative zero")
_DENSITIES = (0.0, 0.003, 0.02, 0.1, 0.3, 0.6, 1.0)
_WORKERS = (1, 2, 3, 8, 32)
_SIZES = (1, 63, 100, 4097)


def support(pattern: str, elements: int, density: float, *, random: np.random.Generator) -> NDArray[np.bool_]:
    """A random support: single elements, whole rows of 64, or the same columns of every row."""
    if pattern == "rows":
        return np.repeat(random.random(elements // 64 + 1) < density, 64)[:elements]
    if pattern == "columns":
        return np.tile(random.random(64) < density, elements // 64 + 1)[:elements]
    return random.random(elements) < density


def values(kind: str, elements: int, random: np.random.Generator) -> Gradient:
    """Random values that have broken encodings before; `VALUES` has their kinds."""
    if kind == "wide":
        samples = random.standard_normal(elements) * 10.0 ** random.uniform(-44, 34, elements)
    elif kind == "denormal":
        samples = random.standard_normal(elements) * 1e-42
    elif kind == "constant":
        samples = np.full(elements, 1 - 2.0**-24)
    elif kind == "negative zero":
        samples = np.full(elements, -0.0)
    else:
        samples = random.standard_normal(elements)
    return samples.astype(np.float32)


def law_cases(codec: Codec, count: int, seed: int) -> Iterator[tuple[list[Gradient], str]]:
    """Gradients of as many workers as the codec has room for; `seed` decides all random choices."""
    for number in range(count):
        random = np.random.default_rng([seed, number])
        workers, elements = int(random.choice(_WORKERS)), int(random.choice(_SIZES))
        while refusal_of(codec, workers) and workers > 1:
            workers //= 2
        density = float(random.choice(_DENSITIES))
        pattern, kind = str(random.choice(PATTERNS)), str(random.choice(VALUES))
        gradients = [
            np.where(
                support(pattern, elements, density, random=random),
                values(kind, elements, random),
                np.float32(0),
            )
            for _ in range(workers)
        ]
        sizes = f"{workers} workers, {elements} elements"
        description = f"case {number} (seed {seed}): {sizes}, {kind}, {density:.1%} {pattern}"
        yield gradients, description


# Steps without a model, for codecs that look at a step before its first bucket.


LEARNING_RATE = 0.01


class Steps:
    """The facts of steps with one bucket: made-up ones, but all of them, as a training knows them.

    The gradient at kept weights is the gradient of the step in which they were kept.
    """

    def __init__(self, workers: int) -> None:
        self._kept: list[Gradient | None] = [None] * workers
        self._update_norm: float | None = None

    def copied(self) -> Steps:
        """A copy, for encoders that go on from the same point."""
        copy = Steps(len(self._kept))
        copy._kept, copy._update_norm = list(self._kept), self._update_norm
        return copy

    def begin(self, encoders: Sequence[Encoder], gradients: Sequence[Gradient], step: int) -> None:
        """Let every encoder look at a step."""
        for rank, (encoder, gradient) in enumerate(zip(encoders, gradients, strict=True)):
            facts = partial(Step, step, LEARNING_RATE, self._update_norm, (gradient,))
            encoder.begin(facts(self._kept_gradients(rank), partial(self._keep, rank, gradient.copy())))

    def end(self, decoded: Decoded) -> None:
        """Apply a total, as far as its norm goes."""
        rate = 1.0 if decoded.is_update else LEARNING_RATE / len(self._kept)
        with np.errstate(over="ignore"):
            squares = np.square(decoded.total, dtype=np.float64)
        self._update_norm = rate * math.sqrt(float(squares.sum()))

    def _keep(self, rank: int, gradient: Gradient) -> None:
        self._kept[rank] = gradient

    def _kept_gradients(self, rank: int) -> Callable[[], Sequence[Gradient]]:
        def gradients() -> Sequence[Gradient]:
            weights = self._kept[rank]
            if weights is None:
                raise RuntimeError(f"worker {rank} has kept no weights: call keep_weights before")
            return (weights.copy(),)

        return gradients


# All encoders of a codec, and a round of theirs that is checked as it goes.


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


def fold_checked(
    codec: Codec,
    team: Team,
    gradients: Sequence[Gradient],
    round: Round,
    order: Order | None = None,
) -> tuple[AllReduceResult, list[Note]]:
    """Run one round, whose workers must decode the same bits; return it and its notes."""
    notes: list[Note] = []
    copies = [gradient.copy() for gradient in gradients]
    team.steps.begin(team.encoders, copies, round.step)
    try:
        noted = replace(round, report=notes.append)
        folded = fold(team.encoders, copies, noted, order, team.server, codec)
    except (LockStepError, ContractError) as error:
        raise AssertionError(str(error)) from error
    team.steps.end(folded.results[0])
    for rank, (before, after) in enumerate(zip(gradients, copies, strict=True)):
        require(before.tobytes() == after.tobytes(), f"the encoder of worker {rank} wrote into its gradient")
    for rank, decoded in enumerate(folded.results):
        require(
            isinstance(decoded, Decoded), f"worker {rank} returns {type(decoded).__name__}, must be Decoded"
        )
        _require_gradient(decoded.total, gradients[0], f"worker {rank} decodes")
        _require_gradient(decoded.contribution, gradients[0], f"worker {rank} contributes")
        require(decoded.is_update == folded.results[0].is_update, f"worker {rank} differs in `is_update`")
        require_same(decoded.total, folded.decoded[0], f"worker {rank}")
    return folded, notes


def require_same(decoded: Gradient, expected: Gradient, where: str) -> None:
    """Require the same bits."""
    differs = np.flatnonzero(decoded.view(np.int32) != expected.view(np.int32))
    if differs.size:
        first = differs[0]
        raise AssertionError(
            f"{where}: {differs.size} elements have other bits than at worker 0, merged by rank: "
            f"element {first} is {decoded[first]!s}, expected {expected[first]!s}"
        )


def _require_gradient(value: Any, gradient: Gradient, what: str) -> None:
    shown = f"{getattr(value, 'dtype', type(value).__name__)} of shape {np.shape(value)}"
    is_right = np.shape(value) == gradient.shape and getattr(value, "dtype", None) == np.float32
    require(is_right, f"{what} {shown}, must be float32 of shape {gradient.shape}")


def require(is_met: Any, message: str) -> None:
    """An AssertionError with a message, unless something is met."""
    if not is_met:
        raise AssertionError(message)


# What only many rounds show: sums that have nothing to do with gradients, bounds that allow anything.


_ROUNDS = 24
_ELEMENTS = 1000
_MANY_WORKERS = 3
_LIKENESS_MIN = 0.1  # unrelated numbers have at most 0.02 in so many rounds
_LOOSE = 8.0  # bound over the largest error; the law's is 4 of errors that can occur, not all of which do
_MATERIAL = 1e-3
"""Share of the largest sum of magnitudes: tighter bounds let no wrong sum pass."""
_KEYS = 8
"""Keys of a host merge that show whether it draws at random."""

Doubles = NDArray[np.float64]


@dataclass
class _Likeness:
    """Σ a · b and Σ|a · b| of two quantities: 1 if their signs agree wherever both are not zero."""

    products: float = 0.0
    magnitudes: float = 0.0

    def add(self, first: Doubles | Gradient, other: Doubles | Gradient) -> None:
        """Add one more pair of arrays."""
        products = np.asarray(first, np.float64) * other
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

    def add(
        self, codec: Codec, folded: AllReduceResult, owed: Sequence[Gradient], notes: Sequence[Note]
    ) -> None:
        """Add a round in which workers owed so much."""
        codec = codec.judged_by(folded.results[0].is_update)
        for contribution, gradient in zip(folded.contributions, owed, strict=True):
            self.contributions.add(contribution, gradient)
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
    workers = next(count for count in range(_MANY_WORKERS, 0, -1) if refusal_of(codec, count) is None)
    random = np.random.default_rng([seed, _ROUNDS])
    team, seen = Team.of(codec, workers), _Seen(_Likeness(), _Likeness())
    for step in range(_ROUNDS):
        common, *noise = random.standard_normal((1 + workers, _ELEMENTS))
        gradients = [(common + deviation / 2).astype(np.float32) for deviation in noise]
        round = Round(step, 0, workers, seed)
        held = [encoder.residual(0) for encoder in team.encoders]
        folded, notes = fold_checked(codec, team, gradients, round)
        owed = [
            gradient if rest is None else gradient + rest
            for gradient, rest in zip(gradients, held, strict=True)
        ]
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
    codec: Codec, team: Team, folded: AllReduceResult, gradients: Sequence[Gradient], round: Round
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


def _host_pairs(folded: AllReduceResult) -> list[tuple[Message, Message]]:
    """The host messages of two workers, operation by operation."""
    pairs = [pair for operation in folded.messages for pair in zip(*operation, strict=True)]
    return [(message, other) for message, other in pairs if message.merge is Merge.HOST]


def _draws(pair: tuple[Message, Message]) -> bool:
    """Whether a host merge depends on its key."""
    message, other = pair
    assert message.host_merge is not None, "checked with the message"
    merged = [
        message.host_merge.merge(message.words, other.words, Hop(1, 1, key)).tobytes() for key in range(_KEYS)
    ]
    return len(set(merged)) > 1


# The law of all codecs, check by check; see `netfold.testing`.


_LAW_ROUNDS = 3
"""Rounds that follow each other, in every case."""
_DRAWS = 40
"""Draws of an unbiased codec's random numbers."""
_EMPTY = "if not gradient.size: return Decoded(gradient.copy(), gradient), before the first yield"


def check_codec(codec: Codec, cases: int = 60, seed: int = 1) -> None:
    """Check a codec on synthetic gradients: empty ones first, then `cases` others.

    Every case has two more rounds with the same encoders, as in training. `seed` decides all random choices.

    Raises
    ------
    AssertionError
        What does not hold, and on which gradients.
    """
    _check_contract(codec)
    alone = refusal_of(codec, 1)
    require(alone is None, f"{codec!r} refuses one worker: {alone and alone.reason}")
    for workers in (1, 3):
        if refusal_of(codec, workers) is not None:
            continue
        empty = check_round(codec, [np.empty(0, np.float32)] * workers)
        size_bytes = empty.announced_bytes(0)
        require(not size_bytes, f"a round without elements announces {size_bytes} bytes: {_EMPTY}")
    refusal: EncodeError | None = None
    refused = 0
    for number, (gradients, description) in enumerate(law_cases(codec, cases, seed)):
        try:
            _check_case(codec, gradients, number, seed)
        except EncodeError as error:
            refusal, refused = error, refused + 1
        except AssertionError as error:
            raise AssertionError(f"{codec!r}, {description}: {error}") from error
    require(refused < cases or not cases, f"{codec!r} refuses all {cases} cases, the last one: {refusal}")
    try:
        check_many_rounds(codec, seed)
    except EncodeError:
        return  # a codec for other values than normal ones: the cases have checked it
    except AssertionError as error:
        raise AssertionError(f"{codec!r}: {error}") from error


def check_round(
    codec: Codec,
    gradients: Sequence[Gradient],
    round: Round | None = None,
    *,
    order: Sequence[int] | None = None,
) -> AllReduceResult:
    """Check one round of new encoders, merged by rank and in `order`; return the round merged by rank.

    Raises
    ------
    AssertionError
        What does not hold.
    """
    workers = len(gradients)
    round = round or Round(0, 0, workers, 1)
    order = list(reversed(range(workers))) if order is None else order
    by_rank, notes = fold_checked(codec, Team.of(codec, workers), gradients, round)
    _check_total(codec, by_rank, notes)
    _check_bytes(by_rank)
    for other in (order, tree(list(order))):
        shuffled, notes = fold_checked(codec, Team.of(codec, workers), gradients, round, other)
        if codec.is_order_free:
            require_same(shuffled.decoded[0], by_rank.decoded[0], f"merged in the order {other}")
        _check_total(codec, shuffled, notes)
        _check_bytes(shuffled)
    if codec.promise is Promise.UNBIASED:
        _check_bias(codec, gradients, round)
    if Merge.HOST in codec.merges and workers > 1:
        check_host_merges(codec, gradients[:2], replace(round, workers=2))
    _check_ownership(by_rank.decoded)
    return by_rank


def tree(ranks: Sequence[int]) -> Order:
    """An order whose halves are merged first, as by switches of a tree."""
    if len(ranks) <= 2:
        return ranks
    middle = len(ranks) // 2 + 1
    return [tree(ranks[:middle]), tree(ranks[middle:])]


def _check_case(codec: Codec, gradients: list[Gradient], number: int, seed: int) -> None:
    workers = len(gradients)
    order = np.random.default_rng([seed, number, 1]).permutation(workers).tolist()
    check_round(codec, gradients, Round(number % 10, number % 3, workers, seed), order=order)
    _check_rounds(codec, gradients, seed)


def _check_rounds(codec: Codec, first: Sequence[Gradient], seed: int) -> None:
    """Check rounds that follow each other, and encoders that are stopped and resumed between them."""
    workers = len(first)
    team = Team.of(codec, workers)
    for step in range(_LAW_ROUNDS):
        gradients = [np.roll(gradient, step) for gradient in first]
        round = Round(step, 0, workers, seed)
        resumed = _resume(codec, team)
        before = [encoder.residual(0) for encoder in team.encoders]
        folded, notes = fold_checked(codec, team, gradients, round)
        _check_total(codec, folded, notes)
        _check_residuals(team.encoders, before, gradients, folded)
        other, _ = fold_checked(codec, resumed, gradients, round)
        for rank in range(workers):
            where = f"worker {rank}, resumed before round {step}"
            require_same(other.decoded[rank], folded.decoded[rank], where)
            is_same = _sent_bytes(other, rank) == _sent_bytes(folded, rank)
            require(is_same, f"{where}, sends other bytes")
        for number, (new, old) in enumerate(zip(resumed.parts, team.parts, strict=True)):
            _require_same_state(new, old, f"worker {number}" if number < workers else "the server's part")


def _resume(codec: Codec, team: Team) -> Team:
    """A new one that continues from the states of another, which pass through a file."""
    resumed = Team.of(codec, len(team.encoders))._replace(steps=team.steps.copied())
    for old, new in zip(team.parts, resumed.parts, strict=True):
        file = BytesIO()
        np.savez(file, **old.state())  # type: ignore[arg-type]
        file.seek(0)
        with np.load(file, allow_pickle=False) as state:
            new.restore(dict(state))
    return resumed


def _require_same_state(resumed: Encoder | Server, original: Encoder | Server, who: str) -> None:
    state, expected = resumed.state(), original.state()
    where = f"{who}, resumed and then one round on, remembers"
    require(state.keys() == expected.keys(), f"{where} {sorted(state)}, must be {sorted(expected)}")
    for name, array in expected.items():
        is_same = (state[name].dtype, state[name].shape) == (array.dtype, array.shape)
        is_same = is_same and state[name].tobytes() == array.tobytes()
        require(is_same, f"{where} another {name!r} than without a stop")


def _sent_bytes(folded: AllReduceResult, rank: int) -> list[list[bytes]]:
    return [[message.words.tobytes() for message in operation[rank]] for operation in folded.messages]


def _check_residuals(
    encoders: Sequence[Encoder],
    before: Sequence[Gradient | None],
    gradients: Sequence[Gradient],
    folded: AllReduceResult,
) -> None:
    """Check that nothing is lost between what a worker contributes and what it holds back."""
    for rank, (encoder, held, gradient) in enumerate(zip(encoders, before, gradients, strict=True)):
        after = encoder.residual(0)
        if after is None:
            require(held is None, f"worker {rank} no longer says what it holds back")
            continue
        owed = gradient if held is None else gradient + held
        paid = folded.contributions[rank] + after
        differs = np.flatnonzero(paid != owed)
        require(
            not differs.size,
            f"worker {rank}: contribution + residual is not gradient + residual before in {differs.size} "
            f"elements, first {differs[:1]}: {paid[differs[:1]]} instead of {owed[differs[:1]]}",
        )


def _check_contract(codec: Codec) -> None:
    kind = getattr(codec, "kind", None)
    require(isinstance(kind, str) and bool(kind), f"`kind` must be text, found {kind!r}")
    is_frozen = is_dataclass(codec) and codec.__dataclass_params__.frozen
    require(is_frozen, f"{type(codec).__name__} must be a frozen dataclass, whose fields are its options")
    doc = inspect.getdoc(type(codec)) or ""  # without its indentation, which Python 3.13 leaves out
    names = [field.name for field in fields(codec)]  # type: ignore[arg-type]
    unexplained = ", ".join(name for name in names if f"\n{name}: " not in doc)
    require(not unexplained, f"the docstring does not explain {unexplained}: it needs `NAME: meaning`")


def _check_total(codec: Codec, folded: AllReduceResult, notes: Sequence[Note]) -> None:
    """Check a total against the ideal of the contributions, and the promise."""
    contributions, total = folded.contributions, folded.decoded[0]
    codec = codec.judged_by(folded.results[0].is_update)
    together = np.asarray(contributions, np.float64)
    ideal = codec.ideal(Sums(0, together.sum(axis=0), np.abs(together).sum(axis=0)))
    bound = whole_bound(codec.error_bound(contributions), contributions)
    for what, array in (("error bound", bound), ("ideal", ideal)):
        require(array.shape == total.shape, f"the {what} has the shape {array.shape}, must be {total.shape}")
    endless = np.flatnonzero(~np.isfinite(bound))
    require(not endless.size, f"the error bound of {endless.size} elements is infinite, first {endless[:1]}")
    is_estimate = np.zeros(total.size, np.bool_)
    for note in notes:
        if note.kind is NoteKind.ESTIMATE:
            is_estimate[note.elements] = True
    with np.errstate(invalid="ignore"):
        beyond = np.flatnonzero(~(np.abs(total - ideal) <= bound) & ~is_estimate)
    if beyond.size:
        first = beyond[0]
        raise AssertionError(
            f"{beyond.size} sums are beyond the error bound: element {first} is {total[first]!s}, "
            f"{codec.ideal_name} is {ideal[first]!s}, and the bound {bound[first]!s}"
        )
    if codec.promise is Promise.EXACT:
        wrong = count_inexact(total, contributions)
        require(not wrong, f"{wrong} sums are not exact: they differ from the exact sum, rounded once")


def _check_bias(codec: Codec, gradients: Sequence[Gradient], round: Round) -> None:
    """Check that errors have no mean, over rounds with other random draws."""
    drift = Drift.empty(gradients[0].size)
    for draw in range(_DRAWS):
        seed = mix_plain(round.seed, draw) >> 1
        folded, _ = fold_checked(codec, Team.of(codec, len(gradients)), gradients, replace(round, seed=seed))
        judge = codec.judged_by(folded.results[0].is_update)
        if judge.promise is not Promise.UNBIASED:
            return
        bound, variance = judge.error_bound(folded.contributions), judge.variance(folded.contributions)
        for sums in sums_of_parts(folded.contributions):
            ideal = judge.ideal(sums)
            errors = folded.decoded[0][sums.first : sums.first + sums.total.size] - ideal
            spread = variance.together * variance.of(sums), variance.together * bound.of(sums)
            drift.add(sums.first, errors, ideal, *spread)
    bias = largest_bias({0: drift})
    require(
        bias.over_allowed <= 1,
        f"totals are biased: errors add up to {bias.sum:.3g} in {_DRAWS} rounds, and chance allows "
        f"{bias.allowed:.3g}",
    )


def _check_bytes(folded: AllReduceResult) -> None:
    sent = sum(message.words.nbytes for operation in folded.messages for message in operation[0])
    announced = folded.announced_bytes(0)
    require(announced == sent, f"worker 0 announces {announced} bytes, and its messages have {sent}")


def _check_ownership(decoded: Sequence[Gradient]) -> None:
    """Check that a sum is either read-only or not shared."""
    before = [total.tobytes() for total in decoded]
    if decoded[0].flags.writeable:
        decoded[0][:] = 1
        for rank, worker_total in enumerate(decoded[1:], 1):
            require(
                worker_total.tobytes() == before[rank],
                f"workers 0 and {rank} share a sum that is not read-only",
            )
        decoded[0][:] = np.frombuffer(before[0], np.float32)
