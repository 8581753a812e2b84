"""A codec that lives in this file alone: registered, held to the law, run in a scenario, studied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import netfold
from netfold.homomorphic import codec as registry
from netfold.homomorphic.bounds import ErrorBound, FactorBound
from netfold.homomorphic.codec import Codec, Decoded, EncodeError, Encoder, Exchange
from netfold.homomorphic.message import Gradient, Merge, Message
from netfold.homomorphic.round import Round
from netfold.testing import check_codec, check_round

SCENARIO = {
    "name": "toy",
    "topology": {"kind": "star", "hosts": 3},
    "workers": 3,
    "workload": {"kind": "synthetic", "elements": 1000, "density": "10%", "steps": 2},
    "codec": {"kind": "steps", "per_unit": 512},
    "collective": {"kind": "in_network"},
}


@dataclass(frozen=True)
class Steps(Codec):
    """Whole numbers of a step that never changes.

    per_unit: steps from 0 to 1.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "steps"
    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD})

    per_unit: int = 1024

    def worker(self, rank: int, workers: int, seed: int) -> StepsEncoder:
        return StepsEncoder(self.per_unit)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        return FactorBound(len(gradients), self.per_unit, may_be_float=False)


@dataclass(frozen=True)
class StepsEncoder(Encoder):
    per_unit: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        steps = np.rint(gradient.astype(np.float64) * self.per_unit)
        if (np.abs(steps) * round.workers > 2**31 - 1).any():
            raise EncodeError("a value is too large for a step that never changes")
        (merged,) = yield (Message(steps.astype(np.int32), Merge.ADD, "steps"),)
        return Decoded((merged.words / self.per_unit).astype(np.float32), gradient)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known in this file's tests, and nowhere after them."""
    assert "none" in netfold.codecs()  # which registers those that are shipped
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    assert netfold.register(Steps) is Steps


def test_it_obeys_the_law() -> None:
    check_codec(Steps(), cases=20)
    check_codec(Steps(per_unit=3), cases=5)


def test_it_runs_in_a_scenario(tmp_path: Path) -> None:
    run = netfold.run(SCENARIO, out=tmp_path)

    assert run.verdict == "pass"
    assert run.summary["variants"][0]["setup"]["codec"] == {"kind": "steps", "per_unit": 512}
    assert run.phases["label"].unique().to_list().count("steps") == 1


def test_its_options_are_checked_in_the_words_of_scenarios() -> None:
    with pytest.raises(netfold.ScenarioError, match=r"unknown key 'per_unti'\n  did you mean 'per_unit'"):
        netfold.validate(SCENARIO, set={"codec": {"kind": "steps", "per_unti": 3}})
    with pytest.raises(netfold.ScenarioError, match=r"codec\.per_unit: .* whole number"):
        netfold.validate(SCENARIO, set={"codec.per_unit": "few"})


def test_it_can_be_studied_and_folded() -> None:
    found = netfold.study(["steps:per_unit=4096", "none"], elements=1000, density="5%")

    assert found.faults == ()
    assert found.codecs["codec"].to_list() == ["steps:per_unit=4096", "none"]
    assert netfold.fold(Steps(), [[0.5, 0], [0.25, 0]]).decoded[1].tolist() == [0.75, 0]


def with_exchange(exchange: Callable[[Gradient, Round, int], Exchange]) -> Steps:
    """These steps, but for what the workers do in an exchange, each of its rank."""

    class Other(Encoder):
        def __init__(self, rank: int) -> None:
            self._rank = rank

        def exchange(self, gradient: Gradient, round: Round) -> Exchange:
            return (yield from exchange(gradient, round, self._rank))

    class Broken(Steps):
        __doc__ = Steps.__doc__

        def worker(self, rank: int, workers: int, seed: int) -> Any:
            return Other(rank)

    return Broken()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda decoded, rank: decoded + np.float32(1), "sums are beyond the error bound: element 0 is"),
        (lambda decoded, rank: decoded + np.float32(rank), "worker 1: 2 elements have other bits than"),
        (lambda decoded, rank: decoded.astype(np.float64), "decodes float64 of shape"),
        (lambda decoded, rank: decoded * np.float32(np.nan), "element 0 is nan"),
    ],
)
def test_violations_of_the_law_are_reported(change: Callable[[Gradient, int], Gradient], words: str) -> None:
    def exchange(gradient: Gradient, round: Round, rank: int) -> Exchange:
        decoded = yield from StepsEncoder(1024).exchange(gradient, round)
        return replace(decoded, total=change(decoded.total, rank))

    with pytest.raises(AssertionError, match=words):
        check_round(with_exchange(exchange), [np.array([1, 2], np.float32)] * 2)


def greedy(gradient: Gradient, round: Round, rank: int) -> Exchange:
    gradient[:1] = 7
    return (yield from StepsEncoder(1).exchange(gradient, round))


def sharing(gradient: Gradient, round: Round, rank: int, shared: dict[int, Gradient] = {}) -> Exchange:  # noqa: B006
    decoded = yield from StepsEncoder(1024).exchange(gradient, round)
    return Decoded(shared.setdefault(gradient.size, decoded.total), gradient)


def unwilling(gradient: Gradient, round: Round, rank: int) -> Exchange:
    if gradient.size:
        raise EncodeError("not today")
    return (yield from StepsEncoder(1).exchange(gradient, round))


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        (greedy, "the encoder of worker 0 wrote into its gradient"),
        (sharing, "workers 0 and 1 share a sum that is not read-only"),
        (unwilling, "refuses all 5 cases, the last one: not today"),
    ],
)
def test_exchanges_that_misbehave_are_reported(exchange: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_codec(with_exchange(exchange), cases=5)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kind": None}, "`kind` must be text, found None"),
        ({"__doc__": "Nothing of options."}, "the docstring does not explain per_unit"),
    ],
)
def test_classes_that_are_no_codec_are_reported(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_codec(type("Odd", (Steps,), changed)())
