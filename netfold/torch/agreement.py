"""Agreement of the workers on every operation, before its messages travel.

Each worker tells the others what it is about to do, in a few integers: the kinds and lengths of its messages,
that it has decoded, or that it has failed. So all workers end with the same error, in words, where one of
them cannot go on or sends something else; and all know the lengths of messages, and who is absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from netfold.errors import RunError
from netfold.homomorphic.codec import Decoded
from netfold.homomorphic.fold import described
from netfold.homomorphic.message import Message
from netfold.torch.wire import Wire

Sent = tuple[Message, ...] | Decoded | Exception

_SENDS, _DECODED, _FAILED = range(3)
_ROOM = 6  # messages of an operation that fit into the first exchange
_COLUMNS = 2  # of each: digest of its kind, words


def agree(wire: Wire, sent: Sent, place: str) -> list[list[int]]:
    """Require that all workers do the same; returns the words of each message at each worker.

    Parameters
    ----------
    sent
        What this worker sends, what it has decoded, or why it cannot go on.
    place
        Of the operation, for errors.

    Raises
    ------
    RunError
        A worker has failed, or does something else than worker 0: what, and which one. The same text at all
        workers.
    """
    own = _row(sent)
    first = np.zeros(2 + _COLUMNS * _ROOM, np.int64)
    first[: min(own.size, first.size)] = own[: first.size]
    rows = wire.gather_rows(first)
    most = int(rows[:, 1].max())
    if most > _ROOM:
        rest = np.zeros(_COLUMNS * (most - _ROOM), np.int64)
        rest[: max(0, own.size - first.size)] = own[first.size :]
        rows = np.concatenate([rows, wire.gather_rows(rest)], axis=1)
    is_failed = rows[:, 0] == _FAILED
    compared = np.concatenate([rows[:, :2], rows[:, 2::_COLUMNS]], axis=1)
    is_other = (compared != compared[0]).any(axis=1)
    if is_failed.any() or is_other.any():
        raise _error(wire, sent, int((is_failed if is_failed.any() else is_other).argmax()), place)
    sizes: list[list[int]] = rows[:, 3 : 3 + _COLUMNS * most : _COLUMNS].T.tolist()
    return sizes


def require_same(wire: Wire, text: str, what: str) -> None:
    """Require that all workers have the same text, such as the settings of a state.

    Raises
    ------
    RunError
        A worker has another one than worker 0: both.
    """
    texts = _texts(wire, text)
    for rank, other in enumerate(texts):
        if other != texts[0]:
            raise RunError(
                f"worker {rank} has {other}, worker 0 has {texts[0]}", f"give all workers the same {what}"
            )


def _row(sent: Sent) -> NDArray[np.int64]:
    """What a worker tells: what it does, how many messages it sends, and of each its kind and words.

    Of a decoded total: the elements and a sum of their bits, which all workers must have.
    """
    if isinstance(sent, Exception):
        return np.array([_FAILED, 0], np.int64)
    if isinstance(sent, Decoded):
        total = np.ascontiguousarray(sent.total)
        bits = int(total.view(np.uint32).sum(dtype=np.uint64))
        return np.array([_DECODED, 1, _digest(f"{total.size} {bits} {sent.is_update}"), 0], np.int64)
    told = [_SENDS, len(sent)]
    for message in sent:
        told += [_digest(repr(message.kind)), int(message.words.size)]
    return np.array(told, np.int64)


def _digest(text: str) -> int:
    """63 bits that are the same in all processes."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def _error(wire: Wire, sent: Sent, rank: int, place: str) -> RunError:
    """The error of all workers, where worker `rank` has failed or does something else than worker 0."""
    texts = _texts(wire, str(sent) if isinstance(sent, Exception) else described(sent))
    failed = _texts(wire, "failed" if isinstance(sent, Exception) else "")
    if failed[rank]:
        return RunError(texts[rank], "all workers end here: mend the cause, then start them again")
    if texts[rank] == texts[0]:
        return RunError(
            f"worker {rank} has decoded other bits than worker 0 ({place})",
            "run all workers on processors of one kind, with the same versions of netfold and its packages",
        )
    return RunError(
        f"worker {rank} sends {texts[rank]} where worker 0 sends {texts[0]} ({place}): all workers must send "
        "the same messages",
        "give all workers the same model, buckets and codec; a codec must decide by what all workers know",
    )


def _texts(wire: Wire, text: str) -> list[str]:
    """The texts of all workers, in rank order."""
    data = text.encode("utf-8", "backslashreplace")
    words = np.frombuffer(data + bytes(-len(data) % 4), np.int32)
    lengths = wire.gather_rows(np.array([len(data)], np.int64))[:, 0].tolist()
    parts = wire.gather(words, _words_of(lengths))
    return [part.tobytes()[:length].decode() for part, length in zip(parts, lengths, strict=True)]


def _words_of(lengths: Sequence[int]) -> list[int]:
    return [-(-length // 4) for length in lengths]
