"""Checks that a codec obeys the law of all codecs; an AssertionError says what is violated.

    import netfold

    netfold.testing.check_codec(MyCodec())                  # on gradients that have broken encodings before
    netfold.testing.check_round(MyCodec(), gradients)       # on your gradients, one for each worker

The law:

* All workers decode the same bits, in float32.
* If the codec says `exact`, the bits do not depend on the order of merging.
* Errors are within the codec's bound, element by element, except elements that a note reports as estimates.
* `merges` names the merges of all messages.
* Encoders do not write to gradients.

A codec may reject gradients by an `EncodeError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import whole_bound
from netfold.homomorphic.codec import Codec, DecodeError, EncodeError, Encoder, require_declared_lanes
from netfold.homomorphic.fold import Folded, LockStepError, fold
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Note, NoteKind, Round

__all__ = ["PATTERNS", "VALUES", "check_codec", "check_round", "support", "values"]

PATTERNS = ("iid", "rows", "columns")
VALUES = ("normal", "wide", "denormal", "constant", "negative zero")
_DENSITIES = (0.0, 0.003, 0.02, 0.1, 0.3, 0.6, 1.0)
_WORKERS = (1, 2, 3, 8, 32)
_SIZES = (1, 63, 100, 4097)
_SCALING_LABEL = "values exponents"  # of the message that `fold` sends for the exponents of a scaled one


class _LawCase(NamedTuple):
    """Gradients of all workers, and a description for errors."""

    gradients: list[Gradient]
    description: str


def check_codec(codec: Codec, cases: int = 60, seed: int = 1) -> None:
    """Check a codec on synthetic gradients: empty ones first, then `cases` others.

    Every case has two more rounds with the same encoders, as in training. `seed` decides all random choices.

    Raises
    ------
    AssertionError
        What does not hold, and on which gradients.
    """
    _check_contract(codec)
    for workers in (1, 3):
        empty = check_round(codec, [np.empty(0, np.float32)] * workers)
        _require(empty.announced_bytes(0) == 0, "a round without elements announces bytes")
    refusal: EncodeError | None = None
    refused = 0
    for number, case in enumerate(_cases(cases, seed)):
        try:
            _check_case(codec, case, number, seed)
        except EncodeError as error:
            refusal, refused = error, refused + 1
        except AssertionError as error:
            raise AssertionError(f"{codec!r}, {case.description}: {error}") from error
    _require(refused < cases or not cases, f"{codec!r} refuses all {cases} cases, the last one: {refusal}")


def check_round(
    codec: Codec,
    gradients: Sequence[Gradient],
    round: Round | None = None,
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
    by_rank, notes = _folded(codec, _encoders(codec, workers), gradients, round)
    shuffled, _ = _folded(codec, _encoders(codec, workers), gradients, round, order)
    if codec.is_order_free:
        _require_same(shuffled.decoded[0], by_rank.decoded[0], f"merged in the order {list(order)}")
    for one in (by_rank, shuffled):
        _check_sum(codec, one.decoded[0], gradients, notes)
        _check_messages(codec, one)
    _check_ownership(by_rank.decoded)
    return by_rank


def support(pattern: str, elements: int, density: float, random: np.random.Generator) -> NDArray[np.bool_]:
    """A random support: single elements, whole rows of 64, or the same columns of every row."""
    if pattern == "rows":
        return np.repeat(random.random(elements // 64 + 1) < density, 64)[:elements]
    if pattern == "columns":
        return np.tile(random.random(64) < density, elements // 64 + 1)[:elements]
    return random.random(elements) < density


def values(kind: str, elements: int, random: np.random.Generator) -> Gradient:
    """Random values that have broken encodings before; `VALUES` has their kinds."""
    if kind == "wide":
        drawn = random.standard_normal(elements) * 10.0 ** random.uniform(-44, 34, elements)
    elif kind == "denormal":
        drawn = random.standard_normal(elements) * 1e-42
    elif kind == "constant":
        drawn = np.full(elements, 1 - 2.0**-24)
    elif kind == "negative zero":
        drawn = np.full(elements, -0.0)
    else:
        drawn = random.standard_normal(elements)
    return drawn.astype(np.float32)


def _cases(count: int, seed: int) -> Iterator[_LawCase]:
    for number in range(count):
        random = np.random.default_rng([seed, number])
        workers, elements = int(random.choice(_WORKERS)), int(random.choice(_SIZES))
        density = float(random.choice(_DENSITIES))
        pattern, kind = str(random.choice(PATTERNS)), str(random.choice(VALUES))
        gradients = [
            np.where(
                support(pattern, elements, density, random), values(kind, elements, random), np.float32(0)
            )
            for _ in range(workers)
        ]
        sizes = f"{workers} workers, {elements} elements"
        description = f"case {number} (seed {seed}): {sizes}, {kind}, {density:.1%} {pattern}"
        yield _LawCase(gradients, description)


def _check_case(codec: Codec, case: _LawCase, number: int, seed: int) -> None:
    workers = len(case.gradients)
    order = np.random.default_rng([seed, number, 1]).permutation(workers).tolist()
    check_round(codec, case.gradients, Round(number % 10, number % 3, workers, seed), order)
    encoders = _encoders(codec, workers)
    for step in range(2):
        gradients = [np.roll(gradient, step) for gradient in case.gradients]
        one, notes = _folded(codec, encoders, gradients, Round(step, 0, workers, seed))
        _check_sum(codec, one.decoded[0], gradients, notes)


def _check_contract(codec: Codec) -> None:
    kind = getattr(codec, "kind", None)
    _require(isinstance(kind, str) and bool(kind), f"`kind` must be text, found {kind!r}")
    is_frozen = is_dataclass(codec) and codec.__dataclass_params__.frozen
    _require(is_frozen, f"{type(codec).__name__} must be a frozen dataclass, whose fields are its options")
    doc = type(codec).__doc__ or ""
    names = [one.name for one in fields(codec)]  # type: ignore[arg-type]
    unexplained = ", ".join(name for name in names if f"\n    {name}: " not in doc)
    _require(not unexplained, f"the docstring does not explain {unexplained}: it needs `NAME: meaning`")


def _encoders(codec: Codec, workers: int) -> list[Encoder]:
    return [codec.worker(rank, workers, 1) for rank in range(workers)]


def _folded(
    codec: Codec,
    encoders: Sequence[Encoder],
    gradients: Sequence[Gradient],
    round: Round,
    order: Sequence[int] | None = None,
) -> tuple[Folded, list[Note]]:
    """Run one round, whose workers must decode the same bits; return it and its notes."""
    notes: list[Note] = []
    given = [gradient.copy() for gradient in gradients]
    try:
        folded = fold(encoders, given, replace(round, report=notes.append), order)
    except LockStepError as error:
        raise AssertionError(str(error)) from error
    for rank, (before, after) in enumerate(zip(gradients, given, strict=True)):
        _require(before.tobytes() == after.tobytes(), f"the encoder of worker {rank} wrote into its gradient")
    for rank, one in enumerate(folded.decoded):
        found = f"{getattr(one, 'dtype', type(one).__name__)} of shape {np.shape(one)}"
        is_right = np.shape(one) == gradients[0].shape and one.dtype == np.float32
        expected = f"float32 of shape {gradients[0].shape}"
        _require(is_right, f"worker {rank} decodes {found}, must be {expected}")
        _require_same(one, folded.decoded[0], f"worker {rank}")
    return folded, notes


def _require_same(found: Gradient, expected: Gradient, where: str) -> None:
    differs = np.flatnonzero(found.view(np.int32) != expected.view(np.int32))
    if differs.size:
        first = differs[0]
        raise AssertionError(
            f"{where}: {differs.size} elements have other bits than at worker 0, merged by rank: "
            f"element {first} is {found[first]!s}, expected {expected[first]!s}"
        )


def _check_sum(codec: Codec, decoded: Gradient, gradients: Sequence[Gradient], notes: Sequence[Note]) -> None:
    total: NDArray[np.float64] = np.sum(np.asarray(gradients), axis=0, dtype=np.float64)
    bound = whole_bound(codec.error_bound(gradients), gradients)
    _require(
        bound.shape == total.shape, f"the error bound has the shape {bound.shape}, must be {total.shape}"
    )
    for note in notes:
        if note.kind is NoteKind.ESTIMATE:
            bound[note.elements] = np.inf
    with np.errstate(invalid="ignore"):
        beyond = np.flatnonzero(~(np.abs(decoded - total) <= bound))
    if beyond.size:
        first = beyond[0]
        raise AssertionError(
            f"{beyond.size} sums are beyond the error bound: element {first} is {decoded[first]!s}, "
            f"the sum is {total[first]!s}, and the bound {bound[first]!s}"
        )


def _check_messages(codec: Codec, folded: Folded) -> None:
    for operation in folded.messages:
        try:
            require_declared_lanes(codec, 0, operation[0])
        except DecodeError as error:
            raise AssertionError(str(error)) from None
        for message in operation[0]:
            is_named = message.merge in codec.merges or message.label == _SCALING_LABEL
            _require(is_named, f"message {message.label!r}: `merges` does not name its {message.merge.name}")
    sent = sum(message.words.nbytes for operation in folded.messages for message in operation[0])
    announced = folded.announced_bytes(0)
    _require(announced == sent, f"worker 0 announces {announced} bytes, and its messages have {sent}")


def _check_ownership(decoded: Sequence[Gradient]) -> None:
    """Check that a sum is either read-only or not shared."""
    before = [one.tobytes() for one in decoded]
    if decoded[0].flags.writeable:
        decoded[0][:] = 1
        for rank, one in enumerate(decoded[1:], 1):
            _require(one.tobytes() == before[rank], f"workers 0 and {rank} share a sum that is not read-only")
        decoded[0][:] = np.frombuffer(before[0], np.float32)


def _require(is_met: Any, message: str) -> None:
    if not is_met:
        raise AssertionError(message)
