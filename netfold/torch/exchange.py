"""One worker's side of rounds over real processes: a codec's generator, driven message by message."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from rich.table import Table

from netfold.errors import InvariantError, RunError
from netfold.homomorphic.codec import Codec, Decoded, Request, Server
from netfold.homomorphic.codec_driver import CodecError, Driven, WorkerEncoder, blaming
from netfold.homomorphic.fold import answer_of_server, describe
from netfold.homomorphic.merge import (
    COUNTER_BITS,
    SUMS,
    WORD_BITS,
    Merge,
    Merged,
    Words,
    gather,
    merge_all,
    unchanged_by,
)
from netfold.homomorphic.message import Gradient, Message, Note, Round, Step, Tensor, merged_message
from netfold.kernels import rng_streams
from netfold.kernels.keyed_random import mix_plain
from netfold.sim.report.result_display import Shown
from netfold.sim.results.file_formats import frame
from netfold.torch.wire import Wire

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket as GradBucket
else:
    from torch.distributed import GradBucket as GradBucket


# Agreement of the workers on every operation, before its messages travel.
#
# Each worker tells the others what it is about to do, in a few integers: the kinds and lengths of its
# messages, that it has decoded, or that it has failed. So all workers end with the same error, in words,
# where one of them cannot go on or sends something else; and all know the lengths of messages, and who is
# absent.


Sent = tuple[Message, ...] | Decoded | Exception

_SENDS, _DECODED, _FAILED = range(3)
_ROOM = 6  # messages of an operation that fit into the first exchange
_COLUMNS = 2
"""Columns of a message: digest of its kind, words."""


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
    row = _row(sent)
    first = np.zeros(2 + _COLUMNS * _ROOM, np.int64)
    first[: min(row.size, first.size)] = row[: first.size]
    rows = wire.gather_rows(first)
    most = int(rows[:, 1].max())
    if most > _ROOM:
        remaining = np.zeros(_COLUMNS * (most - _ROOM), np.int64)
        remaining[: max(0, row.size - first.size)] = row[first.size :]
        rows = np.concatenate([rows, wire.gather_rows(remaining)], axis=1)
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
    row = [_SENDS, len(sent)]
    for message in sent:
        row += [_digest(repr(message.kind)), int(message.words.size)]
    return np.array(row, np.int64)


def _digest(text: str) -> int:
    # Unlike `hash`, it is the same in all processes; 63 bits fit into int64.
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def _error(wire: Wire, sent: Sent, rank: int, place: str) -> RunError:
    """The error of all workers, where worker `rank` has failed or does something else than worker 0."""
    texts = _texts(wire, str(sent) if isinstance(sent, Exception) else describe(sent))
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


# How a message of each merge travels, and how its merged words come about.
#
# All merge in rank order, as the simulator's `all_gather` does, where the order matters:
#
# * sums of integers, unions and maxima by an all-reduce where the backend has one (any order, same bits);
# * other words that are merged one by one in shares: every worker merges one share of all messages, and the
#   merged shares are gathered (twice the words of a message on the way, whatever the number of workers);
# * signs, host merges and messages that cannot be merged are gathered whole, and every worker merges them.


_ALL = frozenset({Merge.GATHER, Merge.HOST})  # every message has a say, even one without words


def is_carried(message: Message) -> bool:
    """Whether a message travels; one that can be merged and has no words anywhere does not."""
    return message.merge in _ALL or message.size > 0


def carry(
    wire: Wire, message: Message, sizes: list[int], key: int, server: Server | None, request: Request
) -> Merged:
    """Exchange a message of all workers.

    Parameters
    ----------
    message
        This worker's.
    sizes
        Words that each worker sends; 0: it is absent, where messages can be merged.
    key
        Of random draws.
    server
        The codec's part that answers GATHER messages, if it has one.
    request
        What that is asked.
    """
    if not is_carried(message):
        return merged_message([message] * wire.workers)
    if message.merge is Merge.GATHER:
        parts = wire.gather(message.words, sizes)
        return gather(parts) if server is None else answer_of_server(server, parts, request)
    is_present = [size > 0 or message.merge in _ALL for size in sizes]
    present = None if all(is_present) else np.array(is_present)
    if not any(is_present):
        return Merged(unchanged_by(message.merge, message.merged_size), 0, present=present)
    if (lanes := _lanes(wire, message)) is not None:
        merge = Merge.ADD if message.merge in SUMS else message.merge
        words: Words = wire.all_reduce(lanes, merge).view(message.merge.dtypes[-1])
    elif message.merge in (Merge.SIGN, Merge.HOST):
        parts = wire.gather(message.words, sizes)
        words = _merge(
            message, [part for part, is_there in zip(parts, is_present, strict=True) if is_there], key
        )
    else:
        words = _merged_in_shares(wire, message, is_present, key)
    return Merged(words, sum(is_present), present=present)


def _lanes(wire: Wire, message: Message) -> NDArray[np.int32] | NDArray[np.int8] | None:
    """What an all-reduce takes of a message; None if none can merge it."""
    is_sum = message.merge in SUMS and not message.has_codes
    if (Merge.ADD if is_sum else message.merge) not in wire.reduces:
        return None
    words = unchanged_by(message.merge, message.size) if message.is_absent else message.words
    lanes = np.ascontiguousarray(words).view(np.int32)
    if message.lane_bits in (WORD_BITS, COUNTER_BITS):
        return lanes
    return lanes.view(np.int8) if message.lane_bits == 8 else None


def _merged_in_shares(wire: Wire, message: Message, is_present: list[bool], key: int) -> Words:
    """Every worker merges its share of the words, in rank order; then all get all shares."""
    ends = [message.size * rank // wire.workers for rank in range(wire.workers + 1)]
    parts = wire.scatter_shares(message.words, ends, is_present)
    share = _merge(message, parts, key)
    sizes = [(end - begin) * message.merged_words for begin, end in pairwise(ends)]
    return np.concatenate(wire.gather(share, sizes))


def _merge(message: Message, parts: list[Words], key: int) -> Words:
    return merge_all(message.merged_by, parts, key, message.table, message.lane_bits)


# What a state has sent, and what its codec reports.


ROUNDS_KEPT = 10_000
"""How many of the last rounds are kept, and of their notes; totals are of all."""


@dataclass(frozen=True, slots=True)
class RoundSent:
    """One worker's part in one round."""

    step: int
    bucket: int
    elements: int
    operations: int
    gradient_bytes: int
    """Bytes of the gradient, in the type that the model has."""
    payload_bytes: int
    """Bytes of the messages that the codec sent, as a run's `payload_bytes_up`."""
    carried_bytes: int
    """Bytes given to collectives: the payload, what workers agree on, and shares passed on."""
    exchange_s: float
    """Time from the gradient to the decoded total."""


@dataclass(frozen=True, slots=True)
class NoteMade:
    """One note of the codec on one round."""

    step: int
    bucket: int
    kind: str  # choice, fallback, forecast, estimate, infinite
    text: str
    count: int  # parts or elements that it is about …
    total: int  # … out of this many


@dataclass
class BucketTotals:
    """Sums over all rounds of a bucket."""

    name: str
    rounds: int = 0
    gradient_bytes: int = 0
    payload_bytes: int = 0
    carried_bytes: int = 0
    exchange_s: float = 0.0
    notes: dict[str, int] = field(default_factory=dict)  # how often, by kind; of choices by name


class Log:
    """Collects the rounds of a state."""

    def __init__(self) -> None:
        self.rounds: deque[RoundSent] = deque(maxlen=ROUNDS_KEPT)
        self.notes: deque[NoteMade] = deque(maxlen=ROUNDS_KEPT)
        self.totals: dict[int, BucketTotals] = {}

    def add(self, sent: RoundSent, name: str, notes: list[Note]) -> None:
        self.rounds.append(sent)
        total = self.totals.setdefault(sent.bucket, BucketTotals(name))
        total.rounds += 1
        total.gradient_bytes += sent.gradient_bytes
        total.payload_bytes += sent.payload_bytes
        total.carried_bytes += sent.carried_bytes
        total.exchange_s += sent.exchange_s
        for note in notes:
            kind = note.kind.value
            self.notes.append(NoteMade(sent.step, sent.bucket, kind, note.text, note.count, note.total))
            key = f"{kind} {note.name}" if kind == "choice" else kind
            total.notes[key] = total.notes.get(key, 0) + 1


class Report(Shown):
    """What one worker has sent so far; `print` shows a line for each bucket.

    Attributes
    ----------
    rounds
        A row for every bucket and step, see `RoundSent`: the last 10,000.
    notes
        What the codec reported, see `NoteMade`: the last 10,000.
    gradient_bytes, payload_bytes, carried_bytes
        Of all rounds.
    """

    def __init__(self, log: Log) -> None:
        self.rounds: pl.DataFrame = frame(RoundSent, list(log.rounds))
        self.notes: pl.DataFrame = frame(NoteMade, list(log.notes))
        self._totals = [log.totals[bucket] for bucket in sorted(log.totals)]
        self.gradient_bytes = sum(total.gradient_bytes for total in self._totals)
        self.payload_bytes = sum(total.payload_bytes for total in self._totals)
        self.carried_bytes = sum(total.carried_bytes for total in self._totals)

    @property
    def compression(self) -> float:
        """Bytes of gradients for each byte of payload; infinite if nothing was sent."""
        return _ratio(self.gradient_bytes, self.payload_bytes)

    def table(self) -> Table:
        """A line for each bucket."""
        table = Table(title="What one worker sent")
        table.add_column("bucket")
        for name in ("rounds", "gradient", "payload", "compression", "given to collectives", "time"):
            table.add_column(name, justify="right")
        table.add_column("notes")
        for total in self._totals:
            rounds = max(1, total.rounds)
            sizes = (total.gradient_bytes, total.payload_bytes, total.carried_bytes)
            gradient, payload, carried = (f"{size / rounds / 1e3:,.1f} kB" for size in sizes)
            table.add_row(
                total.name,
                str(total.rounds),
                gradient,
                payload,
                f"{_ratio(total.gradient_bytes, total.payload_bytes):.3g}",
                carried,
                f"{1e3 * total.exchange_s / rounds:.1f} ms",
                ", ".join(f"{name}: {count}" for name, count in total.notes.items()),
            )
        table.caption = "bytes and times are means of a round"
        return table


def _ratio(bytes_before: int, bytes_after: int) -> float:
    return bytes_before / bytes_after if bytes_after else float("inf")


_JOB = 0
"""Number of the job, as in a run with one."""


class Part(NamedTuple):
    """A bucket in a step."""

    step: int
    bucket: int
    name: str
    tensors: tuple[Tensor, ...] = ()
    gradient_bytes: int = 0
    """Bytes of the gradient, in the type of the model."""


class BucketRounds:
    """Runs rounds one after the other, in the same order at all workers.

    A round has the bits of a simulated one over `all_gather` where one bucket is in flight at a time: merges
    are by rank, and the keys of random draws are the same.
    """

    def __init__(
        self, codec: Codec, wire: Wire, seed: int, learning_rate: Callable[[int], float] | None
    ) -> None:
        self.log = Log()
        self.messages = 0  # carried so far: the key of random draws
        self.encoder = WorkerEncoder(codec, wire.rank, wire.workers, seed)
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
        exchange: Driven | None = None
        answers: tuple[Merged, ...] | None = None
        operation = payload_bytes = 0
        sent: Sent = ()
        while True:
            where = f"step {round.step}, bucket {round.bucket}, operation {operation}"
            if not isinstance(sent, Exception):
                try:
                    exchange = exchange or self._begin(gradient, round)
                    sent = exchange.send(answers)
                except Exception as error:  # every error must reach the other workers
                    sent = _in_words(error, self._wire.rank, where)
            sizes = self._agree(sent, where)
            if isinstance(sent, Decoded):
                return sent, operation, payload_bytes
            assert not isinstance(sent, Exception)
            payload_bytes += sum(message.size_bytes for message in sent)
            answers, failure = self._carry(sent, sizes, round, operation)
            operation += 1
            sent = failure or sent

    def _begin(self, gradient: Gradient, round: Round) -> Driven:
        """Begin a round, and the step if it is its first."""
        if round.step != self._begun:
            rate = None if self._rate is None else self._rate(round.step)
            self.encoder.begin(Step(round.step, rate))
            self._begun = round.step
        return self.encoder.exchange(gradient, round)

    def _agree(self, sent: Sent, place: str) -> list[list[int]]:
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
        for message, word_counts in zip(messages, sizes, strict=True):
            where = f"step {round.step}, bucket {round.bucket}, operation {operation}"
            key = mix_plain(self._seed, rng_streams.GATHERED_MERGE, _JOB, self.messages)
            self.messages += is_carried(message)
            request = Request(round.step, round.bucket, operation, message.label, round.tensors)
            try:
                with blaming(self._codec, f"worker {self._wire.rank}, {where}"):
                    answers.append(carry(self._wire, message, word_counts, key, self.server, request))
            except RunError:
                raise  # the network
            except Exception as error:  # every error must reach the other workers
                failure = failure or _in_words(error, self._wire.rank, where)
        return tuple(answers), failure


def _in_words(error: Exception, rank: int, place: str) -> Exception:
    """The error that all workers get; its cause is the one that was raised."""
    if isinstance(error, CodecError | InvariantError):
        failure = CodecError(str(error))
    else:
        failure = CodecError(f"worker {rank}, {place}: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


# A thread that does jobs in the order in which they are given.


Job = Callable[[], None]


class Fifo:
    """First in, first out. Jobs must not raise.

    The thread is a daemon: a job that waits for workers that are gone does not keep the process. It begins
    with the first job, and ends with `close` or when nothing refers to this object.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
        self._close = weakref.finalize(self, self._jobs.put, None)

    def submit(self, job: Job) -> None:
        """Do a job after all that were given before; once closed, here and now."""
        if not self._close.alive:
            job()
            return
        self._jobs.put(job)
        if self._thread.ident is None:
            self._thread.start()

    def drain(self) -> None:
        """Wait until all jobs are done."""
        if self._thread.ident is not None and self._close.alive:
            done = Event()
            self._jobs.put(done.set)
            done.wait()

    def close(self) -> None:
        """Wait until all jobs are done, and end the thread."""
        self.drain()
        self._close()


def _serve(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it may hold gradients while this waits for the next


# Buckets as DDP hands them in.


_CARRIED = (torch.float32, torch.bfloat16, torch.float16)


class Handed:
    """One bucket of DDP in one backward pass.

    Attributes
    ----------
    step
        Backward passes with a synchronisation before this one.
    parameters, gradients
        Of the model, and views of the bucket in their shapes.
    left
        Parameters whose mean has not been written yet.
    future
        What the hook returns.
    """

    def __init__(self, step: int, bucket: GradBucket) -> None:
        self._buffer = bucket.buffer()
        self.index, self.step, self.is_last = bucket.index(), step, bucket.is_last()
        self.parameters: Sequence[torch.Tensor] = bucket.parameters()
        self.gradients: Sequence[torch.Tensor] = bucket.gradients()
        self.left = len(self.parameters)
        self._stream: torch.cuda.Stream | None = None
        devices: list[int | str | torch.device] = []
        if self._buffer.is_cuda:  # another thread goes on after what this one has queued on the device
            devices = [self._buffer.device]
            self._stream = torch.cuda.Stream(self._buffer.device)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(self._buffer.device))
        self.future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)

    def check(self) -> None:
        """Refuse gradients that cannot be carried, as `check_tensor`."""
        check_tensor(self._buffer, f"bucket {self.index}")

    def on_stream(self) -> AbstractContextManager[object]:
        """Where its gradients may be read and written."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def finish(self) -> None:
        """Give DDP the bucket back, with what was written to it."""
        with self.on_stream():
            self.future.set_result(self._buffer)


def check_tensor(tensor: torch.Tensor, name: str) -> None:
    """Refuse gradients that cannot be carried.

    Raises
    ------
    RunError
        They are sparse tensors, or of another type than float32, bfloat16 and float16.
    """
    if tensor.is_sparse:
        raise RunError(
            f"{name} is a sparse tensor: netfold carries dense ones, in which zeros cost little",
            "use torch.nn.Embedding(…, sparse=False)",
        )
    if tensor.dtype not in _CARRIED:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in _CARRIED)
        raise RunError(
            f"{name} has gradients of {str(tensor.dtype).removeprefix('torch.')}: netfold carries {names}",
            "use a model of one of these types, for example model.float()",
        )
