"""A driver that runs all workers of a codec in one process.

`fold` runs the encoders in lock-step and merges their messages in a chosen order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from netfold.homomorphic.codec import Codec, Decoded, Encoder, LockStepError, Request, Server
from netfold.homomorphic.codec_driver import Sent, drive
from netfold.homomorphic.merge import (
    WORD_BITS,
    WORD_MAX,
    Merge,
    Merged,
    Words,
    combine,
    gather,
    merge_all,
    operand,
    unchanged_by,
)
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.kernels.keyed_random import mix_plain

Order = Sequence["int | Order"]


@dataclass(frozen=True)
class AllReduceResult:
    """A round's results: what every worker decoded, and all messages by operation and worker."""

    results: list[Decoded]
    messages: list[list[tuple[Message, ...]]]

    @property
    def decoded(self) -> list[Gradient]:
        return [decoded.total for decoded in self.results]

    @property
    def contributions(self) -> list[Gradient]:
        return [decoded.contribution for decoded in self.results]

    def announced_bytes(self, worker: int) -> int:
        return sum(message.size_bytes for operation in self.messages for message in operation[worker])


def fold(
    encoders: Sequence[Encoder],
    gradients: Sequence[Gradient],
    round: Round,
    order: Order | None = None,
    server: Server | None = None,
    codec: Codec | None = None,
) -> AllReduceResult:
    """Aggregate one bucket; merge the workers' messages in `order` (default: by rank).

    An order is a sequence of ranks, or of orders that are merged first: [[0, 1], [2, 3]] is a tree. A codec's
    `server` answers its GATHER messages; it lives as long as the encoders. With `codec`, messages must be
    what it declares.

    Raises
    ------
    LockStepError
        The workers sent different numbers, kinds or lengths of messages.
    ContractError
        An encoder yielded or returned something else than the contract says.
    ValueError
        Encoders, gradients, order and `round.workers` do not fit each other.
    """
    order = range(round.workers) if order is None else order
    ranks = sorted(_ranks(order))
    if not len(encoders) == len(gradients) == round.workers or ranks != list(range(round.workers)):
        raise ValueError(
            f"a round of {round.workers} workers needs as many encoders and gradients and an order that "
            f"names each rank once; found {len(encoders)}, {len(gradients)} and {list(order)}"
        )
    exchanges = [
        drive(encoder, gradient, round, codec=codec)
        for encoder, gradient in zip(encoders, gradients, strict=True)
    ]
    answers: tuple[Merged, ...] | None = None
    folded = AllReduceResult([], [])
    while True:
        sent = [exchange.send(answers) for exchange in exchanges]
        operation = [output for output in sent if isinstance(output, tuple)]
        if not operation:
            folded.results.extend(decoded for decoded in sent if isinstance(decoded, Decoded))
            return folded
        check_lock_step(sent)
        number = len(folded.messages)
        key = mix_plain(round.seed, round.step, round.bucket, number)
        folded.messages.append(operation)
        answers = tuple(
            answer_of_server(server, [messages[part].words for messages in operation], request)
            if server is not None and message.merge is Merge.GATHER
            else merge_in_order([messages[part] for messages in operation], order, mix_plain(key, part))
            for part, message in enumerate(operation[0])
            for request in [Request(round.step, round.bucket, number, message.label, round.tensors)]
        )


def check_lock_step(sent: Sequence[Sent]) -> None:
    for rank, output in enumerate(sent):
        if _kinds(output) != _kinds(sent[0]):
            raise LockStepError(
                f"worker {rank} sends {describe(output)}, but worker 0 sends {describe(sent[0])}: all "
                "workers of a round must send the same messages; were they "
                "given different codecs, gradients or merged words?"
            )


def _kinds(sent: Sent) -> list[object]:
    return [message.kind for message in sent] if isinstance(sent, tuple) else [sent.total.size]


def describe(sent: Sent) -> str:
    """What a worker sends in an operation, in words: all that must be the same at all workers."""
    if isinstance(sent, Decoded):
        return f"nothing more, having decoded {sent.total.size} elements"
    return " and ".join(map(_in_words, sent)) or "no messages"


def _in_words(message: Message) -> str:
    has_any_length = message.merge in (Merge.GATHER, Merge.HOST)
    size = "" if has_any_length else f"{message.size} "
    blocks = 0 if message.scaling is None else message.scaling.block_elements
    extras = {
        ", absent": message.absent_words > 0,
        f" in {message.lane_bits}-bit lanes": message.lane_bits != WORD_BITS,
        f", scaled in blocks of {blocks}": blocks > 0,
        ", with floats": message.floats is not None,
        f", digest {message.digest:#x}": message.digest != 0,
    }
    more = "".join(text for text, is_said in extras.items() if is_said)
    return f"{message.label!r} ({message.merge.value} of {size}{message.words.dtype} words{more})"


def _ranks(order: Order) -> Iterator[int]:
    for branch in order:
        if isinstance(branch, int):
            yield branch
        else:
            yield from _ranks(branch)


def answer_of_server(server: Server, parts: Sequence[Words], request: Request) -> Merged:
    return Merged(server.merge(parts, request), len(parts))


def merge_in_order(messages: Sequence[Message], order: Order, key: int = 0) -> Merged:
    """Merge one message of every worker in this order."""
    first = messages[0]
    present = np.array([not message.is_absent for message in messages])
    if first.merge is Merge.GATHER:
        return gather([message.words for message in messages])
    if not present.any():
        return Merged(unchanged_by(first.merge, first.merged_size), 0, present=present)
    aggregate, is_shared = _merged_in(order, messages, key, count(1))
    words = aggregate.words.copy() if is_shared else aggregate.words
    aggregate = replace(aggregate, words=words, present=None if present.all() else present)
    if first.floats is not None:
        return _with_floats([messages[rank] for rank in _ranks(order) if present[rank]], aggregate)
    return aggregate


def _merged_in(
    order: Order, messages: Sequence[Message], key: int, merges: Iterator[int]
) -> tuple[Merged, bool]:
    """Merge messages in an order; also whether the words are a message's own. Every merge has a number."""
    first = messages[0]
    aggregate, is_shared = _operand_of(order[0], messages, key, merges)
    for branch in order[1:]:
        part, _ = _operand_of(branch, messages, key, merges)
        merge_key = mix_plain(key, next(merges))
        aggregate = combine(
            first.merged_by, aggregate, part, merge_key, first.table, not is_shared, first.lane_bits
        )
        is_shared = False
    return aggregate, is_shared


def _operand_of(
    branch: int | Order, messages: Sequence[Message], key: int, merges: Iterator[int]
) -> tuple[Merged, bool]:
    """One worker's message, or what is merged first; as `_merged_in`."""
    if not isinstance(branch, int):
        return _merged_in(branch, messages, key, merges)
    message = messages[branch]
    if message.is_absent:
        return Merged(message.words, 0), True
    words = operand(message.merge, message.words, message.table, message.lane_bits)
    return Merged(words, 1), words is message.words


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
