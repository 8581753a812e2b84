"""Workers of a round must send alike; words that were damaged at some of them can keep them from it."""

from __future__ import annotations

from collections.abc import Mapping

from homomorphic.codec import DecodeError, Merge, Message


def require_alike(
    worker: int, messages: tuple[Message, ...], sent: Mapping[int, tuple[Message, ...]]
) -> None:
    """Refuse messages that no sum can be made of: those of another worker differ in kind or length.

    Raises
    ------
    DecodeError
        The workers have read different things from what was merged before.
    """
    for other, theirs in sent.items():
        if _kinds(messages) != _kinds(theirs):
            raise DecodeError(
                f"worker {worker} sends {_told(messages)} where worker {other} sends {_told(theirs)}: they "
                "read different words from the operations before, so some were damaged on the way"
            )
        return  # the others were compared with this one


def _kinds(messages: tuple[Message, ...]) -> list[tuple[str, Merge, int, bool]]:
    return [
        (one.label, one.merge, 0 if one.merge is Merge.GATHER else one.words.size, one.scaling is None)
        for one in messages
    ]


def _told(messages: tuple[Message, ...]) -> str:
    return " and ".join(f"{one.words.size} words of '{one.label}'" for one in messages) or "nothing"
