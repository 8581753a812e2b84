"""A driver that runs all workers of a codec in one process.

`fold` runs the encoders in lock-step and merges their messages in a chosen order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from netfold.homomorphic.codec import Decoded, Encoder, advance
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.merge import merge_all, merged_message
from netfold.homomorphic.message import WORD_MAX, Gradient, Merge, Merged, Message
from netfold.homomorphic.round import Round
from netfold.homomorphic.stage import stage


class LockStepError(RuntimeError):
    """The workers of one round send different messages."""


@dataclass(frozen=True)
class Folded:
    """A round's results: what every worker decoded, and all messages by operation and worker."""

    results: list[Decoded]
    messages: list[list[tuple[Message, ...]]]

    @property
    def decoded(self) -> list[Gradient]:
        """Every worker's total."""
        return [one.total for one in self.results]

    @property
    def contributions(self) -> list[Gradient]:
        """What every worker put into it."""
        return [one.contribution for one in self.results]

    def announced_bytes(self, worker: int) -> int:
        """Payload bytes that one worker announced."""
        return sum(message.size_bytes for operation in self.messages for message in operation[worker])


def fold(
    encoders: Sequence[Encoder],
    gradients: Sequence[Gradient],
    round: Round,
    order: Sequence[int] | None = None,
) -> Folded:
    """Aggregate one bucket; merge the workers' messages in `order` (default: by rank).

    Raises
    ------
    LockStepError
        The workers sent different numbers, kinds or lengths of messages.
    ValueError
        Encoders, gradients, order and `round.workers` do not fit each other.
    """
    order = range(round.workers) if order is None else order
    if not len(encoders) == len(gradients) == round.workers or sorted(order) != list(range(round.workers)):
        raise ValueError(
            f"a round of {round.workers} workers needs as many encoders and gradients and an order that "
            f"names each rank once; found {len(encoders)}, {len(gradients)} and {list(order)}"
        )
    exchanges = [
        stage(encoder.exchange(gradient, round))
        for encoder, gradient in zip(encoders, gradients, strict=True)
    ]
    answers: tuple[Merged, ...] | None = None
    folded = Folded([], [])
    while True:
        sent = [advance(exchange, answers) for exchange in exchanges]
        operation = [one for one in sent if isinstance(one, tuple)]
        if not operation:
            folded.results.extend(one for one in sent if isinstance(one, Decoded))
            return folded
        check_lock_step(sent)
        key = mix_plain(round.seed, round.step, round.bucket, len(folded.messages))
        folded.messages.append(operation)
        answers = tuple(
            _merged([messages[part] for messages in operation], order, mix_plain(key, part))
            for part in range(len(operation[0]))
        )


def check_lock_step(sent: Sequence[tuple[Message, ...] | Decoded]) -> None:
    """Check that all workers send the same kinds and lengths of messages; what is decoded ends them.

    Raises
    ------
    LockStepError
        A worker differs from worker 0; the message names the first one and both messages.
    """
    for rank, one in enumerate(sent):
        if _kinds(one) != _kinds(sent[0]):
            raise LockStepError(
                f"worker {rank} sends {_describe(one)}, but worker 0 sends {_describe(sent[0])}: all workers "
                "of a round must send the same messages; were they "
                "given different codecs, gradients or merged words?"
            )


def _kinds(sent: tuple[Message, ...] | Decoded) -> list[object]:
    return [message.kind for message in sent] if isinstance(sent, tuple) else [sent.total.size]


def _describe(sent: tuple[Message, ...] | Decoded) -> str:
    if isinstance(sent, Decoded):
        return f"nothing more, having decoded {sent.total.size} elements"
    return " and ".join(
        f"{message.label!r} ({message.merge.value} of "
        + ("" if message.merge is Merge.GATHER else f"{message.size} ")
        + f"{message.words.dtype} words{'' if message.scaling is None else ', scaled'}"
        + f"{'' if message.floats is None else ', with floats'})"
        for message in sent
    )


def _merged(messages: Sequence[Message], order: Sequence[int], key: int) -> Merged:
    """Merge one message of every worker in this order."""
    first = messages[0]
    present = np.array([not message.is_absent for message in messages])
    if first.merge is Merge.GATHER:
        parts = tuple(message.words for message in messages)
        return Merged(
            first.words[:0], int(present.sum()), parts=parts, present=None if present.all() else present
        )
    merged = merged_message([messages[rank] for rank in order], key)
    if merged.present is not None:
        merged = replace(merged, present=present)  # by rank, in any order
    if first.floats is not None and merged.workers:
        return _with_floats([messages[rank] for rank in order if present[rank]], merged)
    return merged


def _with_floats(messages: Sequence[Message], merged: Merged) -> Merged:
    """Put float32 sums in place of words that overflow at a worker or in the sum; `messages` have words."""
    words = merged.words
    total = np.zeros(words.size, np.int64)
    is_float = np.zeros(words.size, np.bool_)
    for message in messages:
        total += message.words
        is_float |= np.abs(message.words.astype(np.int64)) >= WORD_MAX
    is_float |= np.abs(total) >= WORD_MAX
    floats = merge_all(
        Merge.FLOAT_ADD, [message.floats for message in messages if message.floats is not None]
    )
    words[is_float] = floats.view(np.int32)[is_float]
    return replace(merged, is_float=is_float)
