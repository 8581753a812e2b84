"""One worker's side of rounds over real processes: a codec's generator, driven message by message."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from netfold.errors import InvariantError, RunError
from netfold.homomorphic.codec import Codec, Decoded, Exchange, Request, advance
from netfold.homomorphic.message import Gradient, Merged, Message
from netfold.homomorphic.numbers.formats import stage
from netfold.homomorphic.round import Note, Round, Step, Tensor
from netfold.kernels import purposes
from netfold.kernels.keyed import mix_plain
from netfold.sim.run.context import CodecError, blaming, make_encoder
from netfold.torch.agreement import Sent, agree
from netfold.torch.merging import carry, is_carried
from netfold.torch.report import Log, RoundSent
from netfold.torch.wire import Wire

_JOB = 0  # as in a run with one job


class Part(NamedTuple):
    """A bucket in a step."""

    step: int
    bucket: int
    name: str
    tensors: tuple[Tensor, ...] = ()
    gradient_bytes: int = 0  # in the type of the model


class Rounds:
    """Runs rounds one after the other, in the same order at all workers.

    A round has the bits of a simulated one over `all_gather` where one bucket is in flight at a time: merges
    are by rank, and the keys of random draws are the same.
    """

    def __init__(
        self, codec: Codec, wire: Wire, seed: int, learning_rate: Callable[[int], float] | None
    ) -> None:
        self.log = Log()
        self.messages = 0  # carried so far: the key of random draws
        self.encoder = make_encoder(codec, wire.rank, wire.workers, seed)
        self.server = codec.server(wire.workers, seed)
        self._codec, self._wire, self._seed, self._rate = codec, wire, seed, learning_rate
        self._begun = -1  # the last step that the encoder has seen

    def run(self, part: Part, gradient: Gradient) -> Decoded:
        """Run one round; `gradient` is `(elements,)` float32.

        Raises
        ------
        RunError
            A worker cannot go on: the same text at all workers.
        """
        start_s, carried_bytes, notes = time.perf_counter(), self._wire.carried_bytes, list[Note]()
        round = Round(
            part.step, part.bucket, self._wire.workers, self._seed, False, notes.append, part.tensors
        )
        decoded, operations, payload_bytes = self._exchange(gradient, round)
        self.log.add(
            RoundSent(
                part.step,
                part.bucket,
                gradient.size,
                operations,
                part.gradient_bytes or gradient.nbytes,
                payload_bytes,
                self._wire.carried_bytes - carried_bytes,
                time.perf_counter() - start_s,
            ),
            part.name,
            notes,
        )
        return decoded

    def mean(self, decoded: Decoded, step: int) -> Gradient:
        """The mean over workers; with a learning rate, what is to be subtracted from the weights.

        Raises
        ------
        RunError
            It is an update, and there is no learning rate.
        """
        workers = self._wire.workers
        if self._rate is None:
            if decoded.is_update:
                raise RunError(
                    f"codec {self._codec.kind} decoded an update of the weights and not a sum of gradients",
                    "give State a learning_rate, and train with torch.optim.SGD(…, lr=1.0)",
                )
            return np.divide(decoded.total, np.float32(workers))
        if decoded.is_update:
            return decoded.total
        return np.multiply(decoded.total, np.float32(self._rate(step) / workers))

    def _exchange(self, gradient: Gradient, round: Round) -> tuple[Decoded, int, int]:
        """What is decoded in a round, its operations and the bytes of its messages."""
        exchange: Exchange | None = None
        answers: tuple[Merged, ...] | None = None
        operation = payload_bytes = 0
        sent: Sent = ()
        while True:
            place = f"step {round.step}, bucket {round.bucket}, operation {operation}"
            if not isinstance(sent, Exception):
                try:
                    exchange = exchange or self._begin(gradient, round)
                    sent = advance(exchange, answers)
                except Exception as error:  # every error must reach the other workers
                    sent = _in_words(error, self._wire.rank, place)
            sizes = self._agreed(sent, place)
            if isinstance(sent, Decoded):
                return sent, operation, payload_bytes
            assert not isinstance(sent, Exception)
            payload_bytes += sum(message.size_bytes for message in sent)
            answers, failure = self._carry(sent, sizes, round, operation)
            operation += 1
            sent = failure or sent

    def _begin(self, gradient: Gradient, round: Round) -> Exchange:
        """Begin a round, and the step if it is its first."""
        if round.step != self._begun:
            rate = None if self._rate is None else self._rate(round.step)
            self.encoder.begin(Step(round.step, rate))
            self._begun = round.step
        return stage(self.encoder.exchange(gradient, round))

    def _agreed(self, sent: Sent, place: str) -> list[list[int]]:
        """The lengths of all messages; what this worker raised is the cause of its error."""
        try:
            return agree(self._wire, sent, place)
        except RunError as error:
            if isinstance(sent, Exception):
                raise error from sent.__cause__
            raise

    def _carry(
        self, messages: tuple[Message, ...], sizes: list[list[int]], round: Round, operation: int
    ) -> tuple[tuple[Merged, ...], Exception | None]:
        """All messages of an operation merged. Where a merge fails, the others still travel."""
        answers: list[Merged] = []
        failure: Exception | None = None
        for message, own in zip(messages, sizes, strict=True):
            place = f"step {round.step}, bucket {round.bucket}, operation {operation}"
            key = mix_plain(self._seed, purposes.GATHERED_MERGE, _JOB, self.messages)
            self.messages += is_carried(message)
            request = Request(round.step, round.bucket, operation, message.label, round.tensors)
            try:
                with blaming(self._codec, f"worker {self._wire.rank}, {place}"):
                    answers.append(carry(self._wire, message, own, key, self.server, request))
            except RunError:
                raise  # the network
            except Exception as error:  # every error must reach the other workers
                failure = failure or _in_words(error, self._wire.rank, place)
        return tuple(answers), failure


def _in_words(error: Exception, rank: int, place: str) -> Exception:
    """The error that all workers get; its cause is the one that was raised."""
    if isinstance(error, CodecError | InvariantError):
        found = CodecError(str(error))
    else:
        found = CodecError(f"worker {rank}, {place}: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found
