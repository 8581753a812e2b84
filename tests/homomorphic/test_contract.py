"""What an exchange yields and returns, just inside and just outside of the contract."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from netfold.homomorphic.codec import Codec, CodecRefusal, ContractError, Decoded, Encoder, refusal_of
from netfold.homomorphic.codec_driver import drive
from netfold.homomorphic.error_bounds import ErrorBound
from netfold.homomorphic.merge import Merge
from netfold.homomorphic.message import Decodings, Gradient, Message, Round, Scaling

GRADIENT = np.zeros(6, np.float32)
TABLE = np.zeros(16, np.int32)


def integers(words: int = 3, merge: Merge = Merge.ADD, dtype: type[np.generic] = np.int32) -> Message:
    return Message(np.zeros(words, dtype), merge, "values")


def scaled(exponents: int = 2) -> Scaling:
    """Six words in blocks of four have two exponents."""
    return Scaling(np.zeros(exponents, np.int8), 4, 3)


FLOATS = Message(GRADIENT, Merge.ADD, "values", scaling=scaled())


@dataclass(frozen=True)
class Named(Codec):
    """A codec that names some merges, and lanes; its workers may be absent."""

    kind: ClassVar[str] = "named"
    may_be_absent: ClassVar[bool] = True

    named: frozenset[Merge]
    width: int = 32

    @property
    def merges(self) -> frozenset[Merge]:
        return self.named

    @property
    def lane_bits(self) -> int:
        return self.width

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        raise AssertionError("no test needs its encoder")

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        raise AssertionError("no test needs its bound")


def run(
    sent: Any, returned: Any = Decoded(GRADIENT, GRADIENT), merges: frozenset[Merge] | None = None
) -> Any:
    """What reaches the driver of one operation, and what comes back through it."""

    class Given(Encoder):
        def exchange(self, gradient: Gradient, round: Round) -> Generator[Any, Any, Any]:
            answer = yield sent
            assert answer == ("merged",)
            return returned

    width = sent[0].lane_bits if sent and isinstance(sent[0], Message) else 32
    codec = Named(frozenset(Merge) if merges is None else merges, width)
    driven = drive(Given(), GRADIENT, Round(0, 0, 1, 1), codec=codec, pipelines=lambda message: True)
    assert driven.send(None) is sent
    return driven.send(("merged",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        *(
            integers(merge=merge, dtype=dtype)
            for merge in Merge
            for dtype in merge.dtypes
            if merge is not Merge.HOST
        ),
        *(integers(merge=Merge.GATHER, dtype=dtype) for dtype in (np.int32, np.uint32, np.float32)),
        FLOATS,
        integers(0),
        replace(integers(0), absent_words=5),
        replace(integers(), lane_bits=4, digest=5),
        replace(integers(6), floats=GRADIENT),
    ],
    ids=str,
)
def test_messages_that_pass(message: Message) -> None:
    if message.merge is Merge.TABLE_ADD and message.words.dtype == np.uint32:
        message = replace(message, table=TABLE)
    decoded = Decoded(GRADIENT + 1, GRADIENT, is_update=True)

    assert run((message, message), decoded, frozenset({message.merge})) is decoded


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (integers(dtype=np.uint32), "its words are uint32 of shape (3,), a message of ADD has 1-D int32"),
        (
            integers(merge=Merge.GATHER, dtype=np.int64),
            "its words are int64 of shape (3,), a message of GATHER has 1-D int32 or uint32 or float32",
        ),
        (
            replace(FLOATS, words=np.zeros(6, np.int32)),
            "its words are int32 of shape (6,), a scaled message of ADD has 1-D float32",
        ),
        (replace(FLOATS, merge=Merge.MAX), "it is scaled and its merge is MAX, must be ADD"),
        (
            replace(FLOATS, scaling=scaled(3)),
            "its exponents are int8 of shape (3,), must be int8 of shape (2,)",
        ),
        (
            replace(integers(merge=Merge.TABLE_ADD, dtype=np.uint32), table=TABLE[:15]),
            "its table is int32 of shape (15,), must be int32 of shape (16,)",
        ),
        (integers(merge=Merge.HOST, dtype=np.uint32), "it has no `host_merge`"),
        (
            replace(integers(), floats=GRADIENT),
            "its floats are float32 of shape (6,), must be float32 of shape (3,)",
        ),
        (replace(integers(), lane_bits=5), "its lanes have 5 bits, must be 4, 8, 16, 32"),
        (replace(integers(), merge="add"), "its merge is 'add', must be a `Merge`"),
        (replace(integers(), label=7), "its label is 7, must be text"),
        (replace(integers(), decode_work=3), "its `work` and `decode_work` must be Work"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_messages_that_do_not(message: Message, why: str) -> None:
    """Also where it is not the first of its operation."""
    for sent in ((message,), (integers(), message)):
        with pytest.raises(
            ContractError, match=f"^message {re.escape(repr(message.label))}: {re.escape(why)}$"
        ):
            run(sent)


def test_merges_that_are_not_named() -> None:
    text = "message 'values': `merges` does not name its ADD, it names MAX, SIGN"
    with pytest.raises(ContractError, match=f"^{re.escape(text)}$"):
        run((integers(),), merges=frozenset({Merge.SIGN, Merge.MAX}))
    with pytest.raises(ContractError, match=r"it names none$"):
        run((integers(),), merges=frozenset())


def test_a_codec_with_lanes_that_no_adder_has_is_refused() -> None:
    reason = "codec 'named' has sums in lanes of 5 bits"
    refusal = CodecRefusal("", reason, "lanes of 4, 8, 16 or 32 bits")
    assert refusal_of(Named(frozenset(), width=5), 2) == refusal
    assert refusal_of(Named(frozenset(), width=8), 2) is None


@pytest.mark.parametrize(
    ("sent", "returned", "found"),
    [
        (None, None, "the exchange yields nothing, must be a tuple of messages"),
        ([integers()], None, "the exchange yields a value of type list, must be a tuple of messages"),
        ((GRADIENT,), None, "the exchange yields a tuple with float32 of shape (6,), must be messages alone"),
        (
            (integers(),),
            GRADIENT,
            "the exchange returns float32 of shape (6,), must be Decoded(total, contribution)",
        ),
        (
            (integers(),),
            Decoded(GRADIENT[1:], GRADIENT),
            "decodes float32 of shape (5,), must be float32 of shape (6,)",
        ),
        (
            (integers(),),
            Decoded(GRADIENT, GRADIENT.astype(np.float16)),
            "contributes float16 of shape (6,), must be float32 of shape (6,)",
        ),
    ],
)
def test_what_is_no_tuple_of_messages_and_no_result(sent: Any, returned: Any, found: str) -> None:
    with pytest.raises(ContractError, match=f"^{re.escape(found)}$"):
        run(sent, returned)


def test_workers_that_received_the_same_memory_decode_it_once() -> None:
    """Others decode for themselves: equal words of their own, beside other arrays, for other messages."""
    words, known = np.arange(4), np.arange(3)
    round = Round(0, 0, 2, 1, decodings=Decodings())
    calls: list[int] = []

    def decoded(what: str, received: np.ndarray, beside: np.ndarray) -> Gradient:
        def decode() -> tuple[Gradient]:
            calls.append(1)
            return (np.full(2, len(calls), np.float32),)

        return round.once(what, [received], [beside], decode)[0]

    first = decoded("values", words, known)
    assert decoded("values", words[:], known.copy()) is first
    assert not first.flags.writeable
    others = [
        decoded("values", words.copy(), known),
        decoded("values", words[::2], known),
        decoded("values", words, known + 1),
        decoded("fallback", words, known),
    ]
    assert [int(one[0]) for one in [first, *others]] == [1, 2, 3, 4, 5]
    assert round.decodings is not None
    round.decodings.clear()
    assert decoded("values", words, known)[0] == 6


def test_without_others_a_sum_is_a_workers_own() -> None:
    round = Round(0, 0, 2, 1)
    sums = [round.once("values", [], [], lambda: (np.zeros(2, np.float32),))[0] for _ in range(2)]
    assert sums[0] is not sums[1]
    assert all(one.flags.writeable for one in sums)
