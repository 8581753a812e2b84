"""Check that an exchange yields and returns what the contract in `codec` says.

A driver checks codecs that it does not know. Otherwise a wrong type fails far from its cause, or not at all.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from netfold.homomorphic.codec import Codec, CodecRefusal, Decoded, EncodeError, Encoder, Exchange
from netfold.homomorphic.message import (
    LANE_BITS,
    SUMS,
    WORD_BITS,
    WORD_MAX,
    Gradient,
    Merge,
    Merged,
    Message,
    Scaling,
    Work,
    check_lanes,
)

_WORDS = (np.dtype(np.int32), np.dtype(np.uint32), np.dtype(np.float32))


class ContractError(TypeError):
    """An exchange yields or returns what the contract of codecs does not allow."""


def checked(exchange: Exchange, gradient: Gradient | None = None, codec: Codec | None = None) -> Exchange:
    """The same exchange; each operation and the result are checked as they come.

    With `gradient`, total and contribution must be float32 of its shape. With `codec`, messages must be what
    it declares.

    Raises
    ------
    ContractError
        What was found, and what is allowed.
    """
    if not hasattr(exchange, "send"):
        raise ContractError(f"`exchange` returns {named(exchange)}, must be a generator: it needs a `yield`")
    answers: tuple[Merged, ...] | None = None
    while True:
        try:
            with np.errstate(all="ignore"):  # values beyond float32 are refused or checked, in words
                sent = next(exchange) if answers is None else exchange.send(answers)
        except StopIteration as stop:
            _require_decoded(stop.value, gradient)
            return stop.value  # type: ignore[no-any-return]
        _require_messages(sent, codec)
        answers = yield sent


def _require_decoded(decoded: object, gradient: Gradient | None) -> None:
    if not isinstance(decoded, Decoded):
        raise ContractError(f"the exchange returns {named(decoded)}, must be Decoded(total, contribution)")
    if gradient is None:
        return
    for verb, array in (("decodes", decoded.total), ("contributes", decoded.contribution)):
        is_right = isinstance(array, np.ndarray) and array.dtype == np.float32
        if not is_right or array.shape != gradient.shape:
            raise ContractError(f"{verb} {named(array)}, must be float32 of shape {gradient.shape}")


def _require_messages(sent: object, codec: Codec | None) -> None:
    if not isinstance(sent, tuple):
        raise ContractError(f"the exchange yields {named(sent)}, must be a tuple of messages")
    for message in sent:
        if not isinstance(message, Message):
            raise ContractError(f"the exchange yields a tuple with {named(message)}, must be messages alone")
        fault = fault_of(message, codec)
        if fault:
            raise ContractError(f"message {message.label!r}: {fault}")


def fault_of(message: Message, codec: Codec | None = None) -> str:
    """What is wrong with a message, and what is allowed or declared; empty if nothing is."""
    return _fault_of(message) or ("" if codec is None else _not_declared(message, codec))


def _not_declared(message: Message, codec: Codec) -> str:
    """What a codec does not declare of a message: its merge, its lanes, an absent worker."""
    if message.merge not in codec.merges:
        known = ", ".join(sorted(one.name for one in codec.merges)) or "none"
        return f"`merges` does not name its {message.merge.name}, it names {known}"
    if message.absent_words and not codec.may_be_absent:
        return (
            f"its worker contributes nothing to {message.absent_words} words by {message.merge.value}, and "
            f"codec {codec.kind!r} does not declare that a worker may be absent (may_be_absent)"
        )
    wanted = codec.lane_bits if message.merge in SUMS else WORD_BITS
    if message.lane_bits != wanted:
        return f"it is in lanes of {message.lane_bits} bits, codec {codec.kind!r} declares {wanted}"
    if wanted != WORD_BITS and (message.scaling is not None or message.floats is not None):
        return f"it is scaled or with floats, in lanes of {wanted} bits: only words can be"
    try:
        check_lanes(message.merge, message.lane_bits, message.table)
    except ValueError as error:
        return str(error)
    return ""


def _fault_of(message: Message) -> str:
    merge, words = message.merge, message.words
    if not isinstance(message.label, str):
        return f"its label is {named(message.label)}, must be text"
    if not isinstance(merge, Merge):
        return f"its merge is {named(merge)}, must be a `Merge`"
    allowed = _allowed_dtypes(message)
    if not isinstance(words, np.ndarray) or words.ndim != 1 or words.dtype not in allowed:
        names = " or ".join(one.name for one in allowed)
        scaled = "" if message.scaling is None else "scaled "
        return f"its words are {named(words)}, a {scaled}message of {merge.name} has 1-D {names}"
    if message.lane_bits not in LANE_BITS:
        return f"its lanes have {message.lane_bits} bits, must be {', '.join(map(str, LANE_BITS))}"
    if not (isinstance(message.work, Work) and isinstance(message.decode_work, Work)):
        return "its `work` and `decode_work` must be Work"
    return _fault_of_extras(message)


def _allowed_dtypes(message: Message) -> tuple[np.dtype[Any], ...]:
    if message.scaling is not None:
        return (np.dtype(np.float32),)
    return tuple(map(np.dtype, message.merge.dtypes)) or _WORDS


def _fault_of_extras(message: Message) -> str:
    """What is wrong with the optional fields."""
    words, floats, table, scaling = message.words, message.floats, message.table, message.scaling
    if floats is not None and (
        not isinstance(floats, np.ndarray) or floats.dtype != np.float32 or floats.shape != words.shape
    ):
        return f"its floats are {named(floats)}, must be float32 of shape {words.shape}"
    has_table = isinstance(table, np.ndarray) and table.dtype == np.int32 and table.shape == (16,)
    if message.merge is Merge.TABLE_ADD and words.dtype == np.uint32 and not has_table:
        return f"its table is {named(table)}, must be int32 of shape (16,)"
    if message.merge is Merge.HOST and message.host_merge is None:
        return "it has no `host_merge`"
    if scaling is not None and not message.is_absent:
        return _fault_of_scaling(message, scaling)
    return ""


def _fault_of_scaling(message: Message, scaling: Scaling) -> str:
    blocks = -(-message.words.size // scaling.block_elements)
    exponents = scaling.exponents
    if message.merge is not Merge.ADD:
        return f"it is scaled and its merge is {message.merge.name}, must be ADD"
    if exponents.dtype != np.int8 or exponents.shape != (blocks,):
        return f"its exponents are {named(exponents)}, must be int8 of shape {(blocks,)}"
    return ""


def named(found: object) -> str:
    """A value by its type; an array by its type and shape."""
    if found is None:
        return "nothing"
    if isinstance(found, np.ndarray):
        return f"{found.dtype} of shape {found.shape}"
    if isinstance(found, str | int | float):
        return repr(found)
    return f"a value of type {type(found).__name__}"


# The only way to a codec's encoders: every driver makes them here.
#
# So no driver runs a codec that has no room for its workers: such sums would be wrong without an error.


OPTION_MAX = WORD_MAX  # of whole numbers among a codec's options, which become int32 and int64 in kernels


class CodecRefusedError(EncodeError):
    """A codec that cannot serve these workers, or not with these options."""

    def __init__(self, refusal: CodecRefusal) -> None:
        super().__init__(f"{refusal.reason}; use {refusal.remedy}")
        self.refusal = refusal


def _beyond(codec: object) -> CodecRefusal | None:
    """The refusal of an option that is too large, or None."""
    for field in fields(codec) if is_dataclass(codec) else ():
        value = getattr(codec, field.name)
        if isinstance(value, int) and abs(value) > OPTION_MAX:
            reason = f"{field.name} is {value}: must be at most {OPTION_MAX}"
            return CodecRefusal(field.name, reason, f"{field.name}: {OPTION_MAX} or less")
    return None


def refusal_of(codec: Codec, workers: int, overflow: str = "wrap") -> CodecRefusal | None:
    """Why a codec cannot serve these workers, or None; as `Codec.refusal`, which only this calls."""
    if (beyond := _beyond(codec)) is not None:
        return beyond
    if codec.lane_bits not in LANE_BITS:
        *others, last = map(str, LANE_BITS)
        reason = f"codec {codec.kind!r} has sums in lanes of {codec.lane_bits} bits"
        return CodecRefusal("", reason, f"lanes of {', '.join(others)} or {last} bits")
    return codec.refusal(workers, overflow)


def make_encoder(codec: Codec, rank: int, workers: int, seed: int) -> Encoder:
    """The encoder of one worker.

    Raises
    ------
    CodecRefusedError
        The codec cannot serve these workers.
    """
    if (refusal := refusal_of(codec, workers)) is not None:
        raise CodecRefusedError(refusal)
    return codec.worker(rank, workers, seed)


def make_encoders(codec: Codec, workers: int, seed: int) -> list[Encoder]:
    """The encoders of all workers, by rank, as `make_encoder`."""
    return [make_encoder(codec, rank, workers, seed) for rank in range(workers)]
