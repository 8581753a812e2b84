"""The law of all codecs."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, reject
from pydantic import TypeAdapter, ValidationError

import netfold
import netfold.homomorphic
from netfold.homomorphic import codecs
from netfold.homomorphic.codec import Codec, Decoded, EncodeError, Encoder, Exchange, codec_kinds
from netfold.homomorphic.error_bounds import ErrorBound, FactorBound
from netfold.homomorphic.merge import ORDER_FREE, Merge, merge_all
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.testing import check_codec, check_round
from tests.examples import examples
from tests.homomorphic.gradients import Sample, bound_of, folded, samples
from tests.reference.codecs.digits import right_merge

NARROW = {"fp16", "sasg_summed"}  # kinds that refuse values which others carry
VARIANTS = [
    'bird {"share": 1.0, "norm": "l2", "down": "rows"}',
    'bird_plus {"gamma": 2.0, "of": "values", "scales": "row", "share": 0.5}',
    'bird_shared {"share": 1.0, "lanes": 4}',
    'random_k {"share": 0.5, "values": "exact", "block_elements": 64}',
    'random_k {"unbiased": true, "values": "block_exponent"}',
    'topk {"share": 0.3, "feedback": false, "of": "bucket"}',
    'auto {"values": "exact"}',
    'auto {"values": "float32"}',
    'count_sketch {"candidates": 0, "feedback": false, "rows": 1, "share": 0.2}',
    'count_sketch {"candidates": 2, "values": "float32", "rows": 3, "ratio": 0.3}',
    'count_sketch {"momentum": 0.5, "masking": false, "block_elements": 7}',
    'block_sparse {"blocks": "bitmap", "values": "exact"}',
    'block_sparse {"columns": 3, "values": "float32", "block_elements": 256}',
    'dense {"values": "exact", "block_elements": 64}',
    'dense {"values": "float32"}',
    'fixed_point {"block_elements": 1}',
    'lossless {"index": "two_level", "values": "exact", "block_elements": 64, "load": 0.81}',
    'lossless {"schedule": "concurrent", "index": "bloom"}',
    'lossless {"setting": "published", "index_bits": 1, "ratio": 1.0, "values": "block_exponent"}',
    'lossless {"setting": "rotated", "schedule": "concurrent", "values": "exact", "load": 0.05}',
    'lossless {"values": "float32", "block_elements": 64}',
    'cascaded_sign {"feedback": true}',
    'marsit {"every": 0, "eta_s": 0.3}',
    'packed {"index": "bloom", "values": "exact"}',
    'packed {"index": "two_level", "values": "float32"}',
    'sasg {"share": 0.3, "alpha": 0.0, "down": "union"}',
    'sasg {"share": 1.0}',
    'sasg_summed {"share": 0.3, "index": "none"}',
]


@pytest.mark.parametrize("options", [*sorted(codec_kinds()), *VARIANTS])
@examples(4)
@given(sample=samples())
def test_the_law(options: str, sample: Sample) -> None:
    kind, _, text = options.partition(" ")
    assert_the_law(TypeAdapter(codec_kinds()[kind]).validate_json(text or "{}"), sample)


def assert_the_law(codec: Codec, sample: Sample) -> None:
    """As users hold their own codecs to it; and the messages merge as plain integers do."""
    workers = len(sample.gradients)
    while codec.refusal(workers, "wrap"):
        workers //= 2
    order = [rank for rank in sample.order if rank < workers]
    round = dataclasses.replace(sample.round, workers=workers)
    try:
        by_rank = check_round(codec, sample.gradients[:workers], round, order=order)
    except EncodeError:
        if codec.kind not in NARROW:
            raise
        reject()

    for operation in by_rank.messages:
        for part in zip(*operation, strict=True):
            if part[0].merge in ORDER_FREE:
                words = [message.words for message in part]
                merged = merge_all(part[0].merge, words, lane_bits=part[0].lane_bits)

                assert merged.dtype == (np.uint32 if part[0].merge is Merge.OR else np.int32)
                assert right_merge(part).words == merged.tolist()


@pytest.mark.parametrize("kind", sorted(codec_kinds()))
def test_all_codecs_pass_what_users_call(kind: str) -> None:
    check_codec(codec_kinds()[kind](), cases=4)


@pytest.mark.parametrize("kind", sorted(codec_kinds()))
def test_scenario_options_are_checked(kind: str) -> None:
    """Strict types and no unknown keys, which is what a scenario file relies on; every field is explained."""
    adapter = TypeAdapter(codec_kinds()[kind])

    assert adapter.validate_json("{}") == codec_kinds()[kind]()
    with pytest.raises(ValidationError, match="Unexpected keyword argument"):
        adapter.validate_json('{"size": 1}')
    for field in (one.name for one in dataclasses.fields(codec_kinds()[kind])):
        with pytest.raises(ValidationError, match=field):
            adapter.validate_json(json.dumps({field: "1"}))
        assert f"\n{field}: " in (inspect.getdoc(codec_kinds()[kind]) or "")


@pytest.mark.parametrize("kind", sorted(codec_kinds()))
@pytest.mark.parametrize("workers", [1, 3])
def test_an_empty_bucket_is_legal(kind: str, workers: int) -> None:
    codec = codec_kinds()[kind]()
    gradients = [np.empty(0, np.float32)] * workers

    result = folded(codec, gradients)

    assert [0] * workers == [one.size for one in result.decoded]
    assert result.announced_bytes(0) == 0
    assert bound_of(codec, gradients).size == 0


def test_the_readme_s_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = Path(netfold.homomorphic.__file__).with_name("README.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    exec(example, {})

    assert re.findall(r"print\(.*#\s*(.*)", example) == capsys.readouterr().out.splitlines()


def test_the_package_registers_all_its_codecs() -> None:
    """Importing every module of it adds none that importing the package did not."""
    known = set(codec_kinds())
    for module in pkgutil.walk_packages(codecs.__path__, f"{codecs.__name__}."):
        importlib.import_module(module.name)

    assert set(codec_kinds()) == known


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
