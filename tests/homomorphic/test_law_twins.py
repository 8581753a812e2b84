"""Codecs that are wrong in ways that no single round shows: the law finds each, and says what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from netfold.homomorphic.codec import Codec, Decoded, Encoder, Exchange, State, Variance
from netfold.homomorphic.error_bounds import Doubles, ErrorBound, FloatAddBound, Sums
from netfold.homomorphic.feedback import FeedbackEncoder
from netfold.homomorphic.merge import Hop, Merge, Words, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.testing import check_codec


@dataclass(frozen=True)
class Constant(Variance):
    value: float

    def of(self, sums: Sums) -> Doubles:
        return np.full(sums.total.size, self.value)


@dataclass(frozen=True)
class Magnitudes:
    """What any merged sum is within, right or wrong."""

    def of(self, sums: Sums) -> Doubles:
        return (sums.magnitude + np.abs(sums.total)) * (1 + 2.0**-20) + 1e-30


@dataclass(frozen=True)
class Twin(Codec):
    """Floats that are added.

    wrong: what is wrong.
    """

    kind: ClassVar[str] = "twin"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.FLOAT_ADD})

    wrong: str = ""

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return {
            "": Floats,
            "zero": lambda: Changed(lambda decoded, gradient: replace(decoded, total=0 * decoded.total)),
            "unrelated": Unrelated,
            "leak": lambda: Leaking(Half()),
            "honest": lambda: FeedbackEncoder(Half()),
            "twice": lambda: Twice(Half()),
            "unsaved": lambda: Unsaved(Half()),
            "last": lambda: Hosts(Last()),
            "sum": lambda: Hosts(Sum()),
            "announces": Announcing,
        }[self.wrong]()

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        if self.wrong == "zero":
            return Constant(1e300)
        return Magnitudes() if self.wrong == "last" else FloatAddBound(len(contributions))


@dataclass(frozen=True)
class HostTwin(Twin):
    """Words that hosts merge.

    wrong: what is wrong.
    """

    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.HOST})


class Floats(Encoder):
    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        (merged,) = yield (Message(gradient, Merge.FLOAT_ADD, "values"),)
        return Decoded(merged.words.copy(), gradient)


class Changed(Encoder):
    def __init__(self, change: Callable[[Decoded, Gradient], Decoded]) -> None:
        self.change = change

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        return self.change((yield from Floats().exchange(gradient, round)), gradient)


class Unrelated(Encoder):
    """A constant, and a total that is the sum of constants."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        yield (Message(gradient, Merge.FLOAT_ADD, "values"),)
        constant = np.full(gradient.size, 0.5, np.float32)
        return Decoded(constant * np.float32(round.workers), constant)


class Half(Encoder):
    """Every other element of a worker's gradient, in turns."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        is_sent = np.arange(gradient.size) % 2 == round.step % 2
        own = np.where(is_sent, gradient, np.float32(0))
        (merged,) = yield (Message(own, Merge.FLOAT_ADD, "values"),)
        return Decoded(merged.words.copy(), own)


class Leaking(FeedbackEncoder):
    """Loses a tenth of what it holds back in every round, and does not say that it holds anything."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        decoded = yield from super().exchange(gradient, round)
        self.kept[round.bucket] *= np.float32(0.9)
        return decoded

    def residual(self, bucket: int) -> None:
        return None


class Twice(FeedbackEncoder):
    """Keeps twice what it holds back."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        decoded = yield from super().exchange(gradient, round)
        self.kept[round.bucket] *= np.float32(2)
        return decoded


class Unsaved(FeedbackEncoder):
    def state(self) -> State:
        return {}


class Hosts(Encoder):
    def __init__(self, merge: Any) -> None:
        self.merge = merge

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        words = gradient.view(np.uint32)
        (merged,) = yield (Message(words, Merge.HOST, "values", host_merge=self.merge),)
        return Decoded(merged.words.view(np.float32).copy(), gradient)


class Last:
    """The part that arrives replaces what was there."""

    def split(self, words: Words, count: int) -> list[Words]:
        return np.array_split(words, count)

    def merge(self, accumulated: Words, arriving: Words, hop: Hop) -> Words:
        return arriving

    def join(self, parts: Sequence[Words]) -> Words:
        return np.concatenate(parts)

    def work(self, accumulated: Words, arriving: Words) -> Work:
        return Work()


class Sum(Last):
    def merge(self, accumulated: Words, arriving: Words, hop: Hop) -> Words:
        return (accumulated.view(np.float32) + arriving.view(np.float32)).view(np.uint32)


class Announcing(Encoder):
    """Has a word to say of a gradient without elements."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        own = gradient if gradient.size else np.zeros(1, np.float32)
        (merged,) = yield (Message(own, Merge.FLOAT_ADD, "values"),)
        return Decoded(merged.words[: gradient.size].copy(), gradient)

    def state(self) -> State:
        return {}


def twin(wrong: str) -> Twin:
    return HostTwin(wrong) if wrong in ("last", "sum") else Twin(wrong)


@pytest.mark.parametrize("right", ["", "honest", "sum"])
def test_honest_twins_pass(right: str) -> None:
    check_codec(twin(right), cases=10)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("zero", r"totals have nothing to do with the contributions in 24 rounds: .*; decode the merged"),
        ("unrelated", r"contributions have nothing to do with the gradients in 24 rounds: .*; return in Dec"),
        ("twice", r"contribution \+ residual is not gradient \+ residual before"),
        ("unsaved", r"worker 0, resumed before round 1"),
        ("leak", r"worker 0 holds something back unsaid: in round 1 .*; return what it holds back in `resid"),
        ("last", r"the host merge depends on who arrives first: .*; make `merge` of A and B the same as of"),
        ("announces", r"a round without elements announces 4 bytes: .* return Decoded\(gradient\.copy\(\),"),
    ],
)
def test_wrong_twins_fail_with_what_to_do(wrong: str, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_codec(twin(wrong), cases=10)


def test_a_bound_that_allows_anything_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums are right, and a bound of 1e300 would pass any others."""
    monkeypatch.setattr(Twin, "error_bound", lambda self, contributions: Constant(1e300))

    with pytest.raises(AssertionError, match=r"the error bound allows wrong sums, .* at most four times"):
        check_codec(twin(""), cases=10)


def test_a_bound_that_nothing_reaches_but_that_no_wrong_sum_passes_is_none_of_the_law_s_business(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Twin, "error_bound", lambda self, contributions: FloatAddBound(1000))

    check_codec(twin(""), cases=10)
