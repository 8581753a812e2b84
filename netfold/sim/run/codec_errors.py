"""Errors of codecs end their variant with a verdict: where it happened, what was raised, and the traceback.

Encoders are wrapped, so that everything they raise, yield or return is seen where it happens.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast

from netfold.errors import InvariantError
from netfold.homomorphic import contract as gate
from netfold.homomorphic.codec import Codec, DecodeError, EncodeError, Encoder, Exchange
from netfold.homomorphic.contract import ContractError, checked, named
from netfold.homomorphic.fold import LockStepError
from netfold.homomorphic.message import Gradient, Merged
from netfold.homomorphic.round import Round, Step


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


def make_encoder(codec: Codec, rank: int, workers: int, seed: int) -> Encoder:
    """The encoder of one worker, whose errors are `CodecError`s.

    Raises
    ------
    CodecError
        The codec's `worker` fails, or what it returns is no encoder.
    """
    with _placed(f"worker {rank}: `worker`", codec):
        encoder = gate.make_encoder(codec, rank, workers, seed)
    if not callable(getattr(encoder, "exchange", None)):
        raise CodecError(f"worker {rank}: the codec's `worker` returns {named(encoder)}, must be an Encoder")
    return cast(Encoder, _Watched(encoder, rank, codec))


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
        raise _reported(error, place, codec) from error


class _Watched:
    """An encoder whose errors name the worker, the round and the operation; all else is the encoder's."""

    def __init__(self, encoder: Encoder, rank: int, codec: Codec) -> None:
        self._encoder, self._rank, self._codec = encoder, rank, codec

    def begin(self, step: Step) -> None:
        with self._placed(f", step {step.number}: `begin`"):
            self._encoder.begin(step)

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        place = f", step {round.step}, bucket {round.bucket}"
        with self._placed(f"{place}, operation 0"):
            inner = checked(self._encoder.exchange(gradient, round), gradient, self._codec)
        answers: tuple[Merged, ...] | None = None
        operation, before = 0, ""
        while True:
            with self._placed(f"{place}, operation {operation}{before}"):
                try:
                    sent = next(inner) if answers is None else inner.send(answers)
                except StopIteration as stop:
                    return stop.value  # type: ignore[no-any-return]
            answers = yield sent
            operation += 1
            before = f", after {' and '.join(repr(message.label) for message in sent) or 'no messages'}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._encoder, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            with self._placed(f": `{name}`"):
                return found(*arguments, **named)

        return call

    def _placed(self, place: str) -> AbstractContextManager[None]:
        return _placed(f"worker {self._rank}{place}", self._codec, self._encoder)


@contextmanager
def _placed(place: str, *of: object) -> Iterator[None]:
    """Turn what a codec raises in a block into a `CodecError` that names the place; `of`: see `_reported`."""
    try:
        yield
    except Exception as error:
        if not _is_reportable(error):
            raise
        raise _reported(error, place, *of) from error


def _is_reportable(error: Exception) -> bool:
    """Whether an exception can be a codec's: these keep their meaning."""
    return not isinstance(error, MemoryError | InvariantError | CodecError)


def _reported(error: Exception, place: str, *of: object) -> CodecError:
    """The error to end with; `of` are the codec's objects, whose files say where it happened."""
    if isinstance(error, EncodeError | DecodeError):
        return CodecError(f"{error} ({place})", is_undecoded=isinstance(error, DecodeError))
    if isinstance(error, ContractError):
        return CodecError(f"{place}: {error}")
    frames = _frames(error) or _frames(error.__cause__)  # Python's own, of a generator that raised
    files = {_file_of(type(one)) for one in of}
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
    found = [] if error is None else traceback.extract_tb(error.__traceback__)
    return [frame for frame in found if frame.filename not in _WATCHING]


def _plain(text: str) -> str:
    """Text that can be written: escapes for what is not Unicode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_TEXT_MAX = 300  # characters of an exception in a verdict; the trace has all
_WATCHING = {__file__, checked.__code__.co_filename}  # frames of these tell a codec's author nothing


def _file_of(kind: type) -> str:
    """The file of a class; empty if it was made at a prompt."""
    try:
        return inspect.getfile(kind)
    except (OSError, TypeError):
        return ""


def _passed_through(error: Exception, codec: Codec) -> bool:
    file = _file_of(type(codec))
    return any(frame.filename == file for frame in traceback.extract_tb(error.__traceback__))
