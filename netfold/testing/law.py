"""The law of all codecs, check by check; see `netfold.testing`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from io import BytesIO

import numpy as np

from netfold.homomorphic.bounds import Sums, sums_of_parts, whole_bound
from netfold.homomorphic.codec import Codec, EncodeError, Encoder, Promise, Server
from netfold.homomorphic.contract import refusal_of
from netfold.homomorphic.fold import Folded, Order
from netfold.homomorphic.message import Gradient, Merge
from netfold.homomorphic.promises import Drift, count_inexact, largest_bias
from netfold.homomorphic.round import Note, NoteKind, Round
from netfold.kernels.keyed import mix_plain
from netfold.testing.cases import LawCase, law_cases
from netfold.testing.many import check_host_merges, check_many_rounds
from netfold.testing.team import Team, fold_checked, require, require_same

_ROUNDS = 3  # that follow each other
_DRAWS = 40  # of an unbiased codec's random numbers
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
        found = empty.announced_bytes(0)
        require(not found, f"a round without elements announces {found} bytes: {_EMPTY}")
    refusal: EncodeError | None = None
    refused = 0
    for number, case in enumerate(law_cases(codec, cases, seed)):
        try:
            _check_case(codec, case, number, seed)
        except EncodeError as error:
            refusal, refused = error, refused + 1
        except AssertionError as error:
            raise AssertionError(f"{codec!r}, {case.description}: {error}") from error
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
) -> Folded:
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


def _check_case(codec: Codec, case: LawCase, number: int, seed: int) -> None:
    workers = len(case.gradients)
    order = np.random.default_rng([seed, number, 1]).permutation(workers).tolist()
    check_round(codec, case.gradients, Round(number % 10, number % 3, workers, seed), order=order)
    _check_rounds(codec, case.gradients, seed)


def _check_rounds(codec: Codec, first: Sequence[Gradient], seed: int) -> None:
    """Check rounds that follow each other, and encoders that are stopped and resumed between them."""
    workers = len(first)
    team = Team.of(codec, workers)
    for step in range(_ROUNDS):
        gradients = [np.roll(gradient, step) for gradient in first]
        round = Round(step, 0, workers, seed)
        resumed = _resumed(codec, team)
        before = [encoder.residual(0) for encoder in team.encoders]
        one, notes = fold_checked(codec, team, gradients, round)
        _check_total(codec, one, notes)
        _check_residuals(team.encoders, before, gradients, one)
        other, _ = fold_checked(codec, resumed, gradients, round)
        for rank in range(workers):
            where = f"worker {rank}, resumed before round {step}"
            require_same(other.decoded[rank], one.decoded[rank], where)
            is_same = _sent_bytes(other, rank) == _sent_bytes(one, rank)
            require(is_same, f"{where}, sends other bytes")
        for number, (new, old) in enumerate(zip(resumed.parts, team.parts, strict=True)):
            _require_same_state(new, old, f"worker {number}" if number < workers else "the server's part")


def _resumed(codec: Codec, team: Team) -> Team:
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
    found, expected = resumed.state(), original.state()
    where = f"{who}, resumed and then one round on, remembers"
    require(found.keys() == expected.keys(), f"{where} {sorted(found)}, must be {sorted(expected)}")
    for name, array in expected.items():
        is_same = (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        is_same = is_same and found[name].tobytes() == array.tobytes()
        require(is_same, f"{where} another {name!r} than without a stop")


def _sent_bytes(folded: Folded, rank: int) -> list[list[bytes]]:
    return [[message.words.tobytes() for message in operation[rank]] for operation in folded.messages]


def _check_residuals(
    encoders: Sequence[Encoder],
    before: Sequence[Gradient | None],
    gradients: Sequence[Gradient],
    folded: Folded,
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
    doc = type(codec).__doc__ or ""
    names = [one.name for one in fields(codec)]  # type: ignore[arg-type]
    unexplained = ", ".join(name for name in names if f"\n    {name}: " not in doc)
    require(not unexplained, f"the docstring does not explain {unexplained}: it needs `NAME: meaning`")


def _check_total(codec: Codec, folded: Folded, notes: Sequence[Note]) -> None:
    """Check a total against the ideal of the contributions, and the promise."""
    contributions, total = folded.contributions, folded.decoded[0]
    codec = codec.judged_by(folded.results[0].is_update)
    together = np.asarray(contributions, np.float64)
    ideal = codec.ideal(Sums(0, together.sum(axis=0), np.abs(together).sum(axis=0)))
    bound = whole_bound(codec.error_bound(contributions), contributions)
    for what, found in (("error bound", bound), ("ideal", ideal)):
        require(found.shape == total.shape, f"the {what} has the shape {found.shape}, must be {total.shape}")
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
        one, _ = fold_checked(codec, Team.of(codec, len(gradients)), gradients, replace(round, seed=seed))
        judge = codec.judged_by(one.results[0].is_update)
        if judge.promise is not Promise.UNBIASED:
            return
        bound, variance = judge.error_bound(one.contributions), judge.variance(one.contributions)
        for sums in sums_of_parts(one.contributions):
            ideal = judge.ideal(sums)
            errors = one.decoded[0][sums.first : sums.first + sums.total.size] - ideal
            spread = variance.together * variance.of(sums), variance.together * bound.of(sums)
            drift.add(sums.first, errors, ideal, *spread)
    bias = largest_bias({0: drift})
    require(
        bias.over_allowed <= 1,
        f"totals are biased: errors add up to {bias.sum:.3g} in {_DRAWS} rounds, and chance allows "
        f"{bias.allowed:.3g}",
    )


def _check_bytes(folded: Folded) -> None:
    sent = sum(message.words.nbytes for operation in folded.messages for message in operation[0])
    announced = folded.announced_bytes(0)
    require(announced == sent, f"worker 0 announces {announced} bytes, and its messages have {sent}")


def _check_ownership(decoded: Sequence[Gradient]) -> None:
    """Check that a sum is either read-only or not shared."""
    before = [one.tobytes() for one in decoded]
    if decoded[0].flags.writeable:
        decoded[0][:] = 1
        for rank, one in enumerate(decoded[1:], 1):
            require(one.tobytes() == before[rank], f"workers 0 and {rank} share a sum that is not read-only")
        decoded[0][:] = np.frombuffer(before[0], np.float32)
