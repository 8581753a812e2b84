"""What stands between a codec's generator and every driver: one generator that does all of it.

What the codec yields and returns is checked as it comes, errors say at which worker and operation they
happened, and scaled messages are split where the network does not pipeline their exponents.

    exchange = drive(encoder, gradient, round)
    sent = exchange.send(None)              # the first messages
    sent = exchange.send(merged)            # the next ones, until what comes is `Decoded`
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.errors import InvariantError
from netfold.homomorphic import codec as gate
from netfold.homomorphic.block_floating_point import block_starts, quantize, scales_of
from netfold.homomorphic.codec import (
    Codec,
    ContractError,
    Decoded,
    DecodeError,
    EncodeError,
    Encoder,
    Exchange,
    LockStepError,
    State,
    named,
    require_decoded,
    require_messages,
)
from netfold.homomorphic.merge import Merge, Merged
from netfold.homomorphic.message import EXPONENT_MIN, Gradient, Message, Round, Step

Sent = tuple[Message, ...] | Decoded
"""What a worker sends; Decoded if it ends the round."""
Driven = Generator[Sent, tuple[Merged, ...] | None, None]


def _is_split(message: Message) -> bool:
    # No network pipelines exponents, unless its driver says so.
    return False


def drive(
    encoder: Encoder,
    gradient: Gradient,
    round: Round,
    *,
    codec: Codec | None = None,
    rank: int | None = None,
    pipelines: Callable[[Message], bool] = _is_split,
    watch: Callable[[tuple[Message, ...]], None] = lambda messages: None,
) -> Driven:
    """Run one worker's side of a round; it yields the messages of each operation, and in the end `Decoded`.

    Of scaled messages the exponents are exchanged first, as int32 words (MAX), four times the bytes that a
    scaled message announces; then the quantised words travel as plain integers. Other messages of the same
    operation travel with the exponents. An operation whose messages are all pipelined passes unchanged: the
    network agrees on its exponents itself.

    Parameters
    ----------
    codec
        Messages must be what it declares, total and contribution float32 of the gradient's shape.
    rank
        Of the worker: what its codec raises becomes a `CodecError`.
    pipelines
        Whether the network agrees on a scaled message's exponents while it sends the words.
    watch
        Gets the messages of each operation as the codec sends them.

    Raises
    ------
    ContractError, CodecError
        The codec raises, yields or returns what it may not.
    """
    exchange: Exchange | None = None
    answers: tuple[Merged, ...] | None = None
    operation, before = 0, ""
    while True:
        where = f"worker {rank}, step {round.step}, bucket {round.bucket}, operation {operation}{before}"
        with nullcontext() if rank is None else _located(where, codec, encoder):
            if exchange is None:
                exchange = encoder.exchange(gradient, round)
                if not hasattr(exchange, "send"):
                    raise ContractError(
                        f"`exchange` returns {named(exchange)}, must be a generator: it needs a `yield`"
                    )
            try:
                with np.errstate(all="ignore"):  # values beyond float32 are refused or checked, in words
                    messages = exchange.send(answers)  # type: ignore[arg-type]  # None begins it
            except StopIteration as stop:
                require_decoded(stop.value, None if codec is None else gradient)
                last: list[Decoded] = [stop.value]
                break
            require_messages(messages, codec)
        watch(messages)
        if all(pipelines(message) for message in messages):
            answers = yield messages
        else:
            answers = yield from _in_two_steps(messages, round)
        operation += 1
        before = f", after {' and '.join(repr(message.label) for message in messages) or 'no messages'}"
    yield last.pop()  # while this waits, it holds no sum that the driver has let go


def _in_two_steps(
    messages: tuple[Message, ...], round: Round
) -> Generator[Sent, tuple[Merged, ...] | None, tuple[Merged, ...]]:
    """Exchange the exponents of scaled messages, with all other messages, and then the scaled words.

    A switch agrees on exponents one window ahead instead (`lead` in `sim/engine/switchml_stream.py`). Codecs
    with an index agree on theirs by messages of their own (`number_formats.BlockExponent`).
    """
    first = yield tuple(_exponents(message) for message in messages)
    assert first is not None
    scaled = tuple(
        _quantize(message, _agreed_exponents(merged), round)
        for message, merged in zip(messages, first, strict=True)
        if message.scaling is not None
    )
    second = iter(((yield scaled) or ()) if scaled else ())
    return tuple(
        merged if message.scaling is None else replace(next(second), exponents=_agreed_exponents(merged))
        for message, merged in zip(messages, first, strict=True)
    )


def _exponents(message: Message) -> Message:
    """The exponents of a scaled message as a separate message; other messages unchanged."""
    if message.scaling is None:
        return message
    label = f"{message.label} exponents"
    if message.is_absent:
        blocks = -(-message.size // message.scaling.block_elements)
        return Message(np.empty(0, np.int32), Merge.MAX, label, absent_words=blocks)
    return Message(message.scaling.exponents.astype(np.int32), Merge.MAX, label)


def _agreed_exponents(merged: Merged) -> NDArray[np.int8]:
    """Agreed exponents from their words; if nobody has announced any, the smallest."""
    if merged.workers == 0:
        return np.full(merged.words.size, EXPONENT_MIN, np.int8)
    return merged.words.astype(np.int8)


def _quantize(message: Message, exponents: NDArray[np.int8], round: Round) -> Message:
    """A scaled message as integers, by its agreed exponents; workers with the same gradient share them."""
    assert message.scaling is not None, f"message {message.label!r} is not scaled"
    if message.is_absent:
        return replace(message, words=np.empty(0, np.int32), scaling=None)
    scaling = message.scaling

    def integers() -> tuple[NDArray[np.int32]]:
        words = np.empty(message.words.size, np.int32)
        starts = block_starts(words.size, scaling.block_elements)
        quantize(message.words, starts, scales_of(exponents, scaling.workers), words)
        return (words,)

    (words,) = round.once("integers", [message.words], [exponents], integers)
    return replace(message, words=words, scaling=None)


def advance(exchange: Exchange, answers: tuple[Merged, ...] | None) -> tuple[Message, ...] | Decoded:
    """Send merged messages (None at the start) into an exchange; return its next messages, or the end."""
    try:
        return next(exchange) if answers is None else exchange.send(answers)
    except StopIteration as stop:
        decoded: Decoded = stop.value
        return decoded


class WorkerEncoder:
    """The encoder of one worker of a job: its errors are `CodecError`s that name the worker and the place."""

    def __init__(self, codec: Codec, rank: int, workers: int, seed: int) -> None:
        with _located(f"worker {rank}: `worker`", codec):
            encoder = gate.make_encoder(codec, rank, workers, seed)
        if not callable(getattr(encoder, "exchange", None)):
            raise CodecError(
                f"worker {rank}: the codec's `worker` returns {named(encoder)}, must be an Encoder"
            )
        self._encoder, self._codec, self._rank = encoder, codec, rank

    def begin(self, step: Step) -> None:
        with _located(f"worker {self._rank}, step {step.number}: `begin`", self._codec, self._encoder):
            self._encoder.begin(step)

    def exchange(
        self, gradient: Gradient, round: Round, pipelines: Callable[[Message], bool] = _is_split
    ) -> Driven:
        return drive(self._encoder, gradient, round, codec=self._codec, rank=self._rank, pipelines=pipelines)

    def state(self) -> State:
        with _located(f"worker {self._rank}: `state`", self._codec, self._encoder):
            return self._encoder.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        with _located(f"worker {self._rank}: `restore`", self._codec, self._encoder):
            self._encoder.restore(state)


# Errors of codecs end their variant with a verdict: where it happened, what was raised, and the traceback.


class CodecError(Exception):
    """A codec cannot go on; the text is the detail of the variant's verdict.

    Attributes
    ----------
    is_undecoded
        Some merged messages could not be decoded.
    trace
        For the codec's author: Python's traceback from the codec on; empty if it raised nothing.
    """

    def __init__(self, text: str, is_undecoded: bool = False, trace: str = "") -> None:
        super().__init__(text)
        self.is_undecoded, self.trace = is_undecoded, trace


@contextmanager
def blaming(codec: Codec, place: str) -> Iterator[None]:
    """Turn what a codec raises in a block into a `CodecError` that names the place.

    An exception is the codec's if the contract names it, or if it passed through the file of the codec's
    class; others are netfold's own.
    """
    try:
        yield
    except LockStepError as error:
        raise CodecError(f"{place}: {error}") from error
    except Exception as error:
        is_named = isinstance(error, EncodeError | DecodeError | ContractError)
        if not _is_reportable(error) or not (is_named or _passed_through(error, codec)):
            raise
        raise _codec_error(error, place, codec) from error


@contextmanager
def _located(place: str, *of: object) -> Iterator[None]:
    """Turn what a codec raises in a block into a `CodecError` that names the place; `of`: see below."""
    try:
        yield
    except Exception as error:
        if not _is_reportable(error):
            raise
        raise _codec_error(error, place, *of) from error


def _is_reportable(error: Exception) -> bool:
    # These keep their meaning; all others can be a codec's.
    return not isinstance(error, MemoryError | InvariantError | CodecError)


def _codec_error(error: Exception, place: str, *of: object) -> CodecError:
    """The error to end with; `of` are the codec's objects, whose files say where it happened."""
    if isinstance(error, EncodeError | DecodeError):
        return CodecError(f"{error} ({place})", is_undecoded=isinstance(error, DecodeError))
    if isinstance(error, ContractError):
        return CodecError(f"{place}: {error}")
    frames = _frames(error) or _frames(error.__cause__)  # Python's own, of a generator that raised
    files = {_file_of(type(part)) for part in of}
    raised = [frame for frame in frames if frame.filename in files] or frames
    last = raised[-1] if raised else None
    where = f" ({Path(last.filename).name}, line {last.lineno}, in {last.name})" if last else ""
    what = _plain("".join(traceback.format_exception_only(error)).strip())
    short = what if len(what) <= _TEXT_MAX else f"{what[: _TEXT_MAX - 1]}…"
    for frame in frames:
        frame.filename = Path(frame.filename).name  # a run folder has the same bytes wherever netfold lies
    lines = _plain("".join(traceback.format_list(frames)))
    trace = f"Traceback (most recent call last):\n{lines}{what}\n"
    return CodecError(f"{place}: {short}{where}", trace=trace)


def _frames(error: BaseException | None) -> list[traceback.FrameSummary]:
    frames = [] if error is None else traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if frame.filename not in _WATCHING]


def _plain(text: str) -> str:
    # Escapes for what is not Unicode, which cannot be written.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_TEXT_MAX = 300  # characters of an exception in a verdict; the trace has all
_WATCHING = {__file__, advance.__code__.co_filename}  # frames of these tell a codec's author nothing


def _file_of(owner: type) -> str:
    """The file of a class; empty if it was made at a prompt."""
    try:
        return inspect.getfile(owner)
    except (OSError, TypeError):
        return ""


def _passed_through(error: Exception, codec: Codec) -> bool:
    file = _file_of(type(codec))
    return any(frame.filename == file for frame in traceback.extract_tb(error.__traceback__))
