"""What an encoding is: a generator of mergeable messages.

The registry finds a codec by its `kind`. A codec makes one `Encoder` per worker. All workers' encoders run
the same generator in lock-step: each `yield` sends the messages of one network operation and receives them
merged, and the generator returns what was decoded: the total that all workers use, and what this worker
contributed to it. This covers a max-exponent exchange before the values, an index union before packed values,
a second exact round after a sketch, a skipped upload, or a dense retry.

    merged = yield (Message(...), Message(...))     # sent at the same time, merged independently
    ...
    return Decoded(total, contribution)             # float32, both of the length of the gradient

Lock-step means: in every operation all workers send the same number of messages, with the same merges, labels
and lengths. Only GATHER and HOST messages may differ in length. A worker that has nothing to contribute sends
a message that says so (`Message.absent_words`). A message may have no words at any worker: it completes at
once and nothing is sent.

Any driver can run the generators: `homomorphic.fold.fold` in one process, a simulated collective, or a
communication hook over real process groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.error_bounds import Doubles, ErrorBound, Sums
from netfold.homomorphic.merge import (
    COUNTER_BITS,
    LANE_BITS,
    ORDER_FREE,
    SUMS,
    WORD_BITS,
    WORD_MAX,
    Merge,
    Merged,
    Words,
    Work,
    check_lanes,
)
from netfold.homomorphic.message import Gradient, Message, Round, Scaling, Step, StepFact, Tensor
from netfold.kinds import family, registered

# Models of the network's time, for codecs that choose by it.


_PS_PER_S = 10**12


class MessageSize(NamedTuple):
    """Size of one message."""

    words: int
    block_elements: int = 0  # elements that share an exponent; 0: not scaled


@dataclass(frozen=True, kw_only=True)
class Carrier:
    """A model of the network's time for messages and of a worker's time for memory traffic.

    This one serves where the network is unknown: an operation takes a latency, and its words take the time
    that a rate gives them. Simulated collectives have other carriers.
    """

    unit_elements: int = 256  # what the network sends, answers and retransmits as one
    latency_ps: int = 10 * 10**6
    """Time of an operation, in addition to its words at the rate."""
    rate_bps: int = 100 * 10**9
    """Rate of the words of messages, without headers."""
    memory_bps: int | None = None
    """Rate of a worker's memory traffic; None: it is not charged."""

    def time_ps(self, operation: Sequence[MessageSize]) -> int:
        """Time of messages sent at once; exponents take an operation before them, as in `drive`."""
        first = [-(-size.words // (size.block_elements or 1)) for size in operation]
        return self.plain_ps(first) + self.plain_ps([size.words for size in operation if size.block_elements])

    def plain_ps(self, messages: Sequence[int]) -> int:
        """Time of unscaled messages of these numbers of words, sent at once."""
        words = sum(messages)
        return self.latency_ps + self.words_ps(words) if words else 0

    def words_ps(self, words: int) -> int:
        return -(-32 * words * _PS_PER_S // self.rate_bps)

    def memory_ps(self, passed_bytes: int) -> int:
        return 0 if self.memory_bps is None else -(-8 * passed_bytes * _PS_PER_S // self.memory_bps)


State = dict[str, NDArray[Any]]  # arrays by name


def prefixed(prefix: str, state: State) -> State:
    return {f"{prefix}/{name}": array for name, array in state.items()}


def prefixes(state: Mapping[str, NDArray[Any]]) -> list[str]:
    return list(dict.fromkeys(name.partition("/")[0] for name in state))


def part_of(state: Mapping[str, NDArray[Any]], prefix: str) -> State:
    """The arrays whose names begin with a prefix, by the rest of the name."""
    begin = f"{prefix}/"
    return {name.removeprefix(begin): array for name, array in state.items() if name.startswith(begin)}


@dataclass(frozen=True)
class Decoded:
    """What one worker has after a round."""

    total: Gradient
    """What every worker now uses; read-only if workers share it, else the caller may change it."""
    contribution: Gradient  # what this worker put into it: its gradient, if nothing was held back
    is_update: bool = False  # the total is subtracted from the weights as it is, and not averaged and scaled


Exchange = Generator[tuple[Message, ...], tuple[Merged, ...], Decoded]


class Stateful:
    """What may remember things between rounds; by default nothing."""

    def state(self) -> State:
        """A copy of what it remembers between rounds, for `restore`."""
        return {}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue as if without a stop; raises ValueError for another codec's or worker's state."""
        if state:
            raise ValueError(f"{type(self).__name__} remembers nothing, found a state of {', '.join(state)}")


class Encoder(Stateful, ABC):
    """One worker's side of a codec, with its state (error feedback, stale model, …)."""

    remembers: ClassVar[str] = ""  # what contributions depend on besides gradients and `residual`

    def begin(self, step: Step) -> None:
        """Look at a step before its first bucket; the facts that the codec `needs` are there."""
        return

    @abstractmethod
    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Yield messages, receive them merged, return what was decoded. The gradient is not changed.

        Raises
        ------
        EncodeError
            The gradient cannot be represented; the message names the element and the reason.
        DecodeError
            The merged messages contradict each other and no retry can help.
        """

    def residual(self, bucket: int) -> Gradient | None:
        """What it holds back for a bucket's next round; None if it holds nothing back."""
        return None


class Request(NamedTuple):
    """What a server's part of a codec is asked to merge."""

    step: int
    bucket: int
    operation: int
    """Number of the operation in its round."""
    label: str
    """Label of the message."""
    tensors: tuple[Tensor, ...] = ()
    """Tensors of the bucket, as `Round.tensors`."""


class Server(Stateful, ABC):
    """The part of a codec where the messages of all workers meet; it may keep state.

    A parameter server runs it once. A collective that delivers every message runs a replica at every worker.
    """

    @abstractmethod
    def merge(self, parts: Sequence[Words], request: Request) -> Words:
        """The answer to GATHER messages, `parts[worker]`; every worker receives it as `Merged.words`.

        Its state is per bucket: servers may share the buckets between them. The parts are not changed.
        """

    def work(self, parts: Sequence[Words], answer: Words) -> Work:
        """The work of one call of `merge`, charged where it runs: by default one pass over the words."""
        return Work(sum(part.nbytes for part in parts), answer.nbytes)


class Promise(Enum):
    """What a codec says of a decoded total and the contributions to it. Each is checked in every round."""

    EXACT = "exact"  # the true sum, rounded once to float32
    BOUNDED = "bounded"  # within `error_bound` of `ideal`
    UNBIASED = "unbiased"  # bounded, and right on average: its mean over the codec's random draws is `ideal`


class Origin(NamedTuple):
    """Where an algorithm comes from."""

    status: Literal["published", "reconstructed", "ours"]
    source: str  # paper or repository; empty: none


class BitsPerElement(NamedTuple):
    """Payload of one worker, in bits per element of the gradient."""

    up: float
    down: float


class CodecRefusal(NamedTuple):
    """Why a codec cannot be used."""

    option: str  # the codec's option that is at fault; "": the codec itself
    reason: str
    remedy: str  # what to write instead


class Variance(ABC):
    """Variances of a decoded total whose mean is right."""

    together: int = 1  # elements whose errors may go together; 1: no positive correlation

    @abstractmethod
    def of(self, sums: Sums) -> Doubles:
        """Largest possible variance of each element of a part, `(elements,)`."""


@family("codecs", "netfold.homomorphic.codecs")
class Codec(ABC):
    """A frozen dataclass whose fields are the options that a scenario may set.

    All that other code knows of a codec is declared here.
    """

    kind: ClassVar[str]
    origin: ClassVar[Origin] = Origin("ours", "")
    settings: ClassVar[tuple[str, ...]] = ("",)
    """Options, as "OPTION=VALUE,…", whose networks differ: each is a row of the matrix; "": the default."""
    remedy: ClassVar[str] = "a codec that promises exact sums, or scale the gradients"
    """What to use instead where sums are far off."""
    instead: ClassVar[str] = ""  # the kind of a codec like it, for switches that cannot merge its words
    ideal_name: ClassVar[str] = "the sum of the contributions"
    """What a total is meant to be, in a sentence's words."""
    wrap_reason: ClassVar[str] = ""
    """What may fail, and why, if adders do not wrap where sums leave int32; empty if nothing can."""

    @property
    @abstractmethod
    def merges(self) -> frozenset[Merge]:
        """Merges of its messages; the network must support them."""

    @abstractmethod
    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        """Make the encoder of one worker."""

    @abstractmethod
    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """Largest allowed `|total − ideal|`, part by part; never infinite."""

    @property
    def promise(self) -> Promise:
        """What holds for its totals."""
        return Promise.BOUNDED

    def judged_by(self, is_update: bool) -> Codec:
        """The codec whose promise, bound and ideal a round is held to, by `Decoded.is_update` of its total.

        Itself, unless it sends its sums, or its updates, as another codec does.
        """
        return self

    @property
    def is_order_free(self) -> bool:
        # The decoded total has the same bits in any merge order.
        return self.merges <= ORDER_FREE | {Merge.GATHER}

    @property
    def is_uncompressed(self) -> bool:
        """Whether its words are the gradient's float32 values: what compression is compared with."""
        return False

    @property
    def is_linear(self) -> bool:
        """Whether a round is one message that, summed over some workers, decodes to their gradients' sum."""
        return False

    def ideal(self, sums: Sums) -> Doubles:
        """What the total is meant to be for contributions with these sums, `(elements,)`."""
        return sums.total

    def variance(self, contributions: Sequence[Gradient]) -> Variance:
        """The variance of an unbiased total around its ideal."""
        raise TypeError(f"codec {self.kind!r} does not say that it is unbiased")

    @property
    def needs(self) -> frozenset[StepFact]:
        """What its encoders read in `begin`; drivers that do not know it refuse the codec."""
        return frozenset()

    @property
    def lane_bits(self) -> int:
        """Width of the lanes of its sums (ADD, TABLE_ADD): 4, 8, 16 or 32 bits."""
        return WORD_BITS

    @property
    def may_be_absent(self) -> bool:
        """Whether a worker may have nothing to contribute to a message that is merged (`absent_words`)."""
        return False

    @property
    def workers_max(self) -> int | None:
        """The most workers that its sums have room for: 15 in 4 bits, if each adds 1; None: no limit."""
        return 2**COUNTER_BITS - 1 if self.lane_bits == COUNTER_BITS else None

    @property
    def must_wrap(self) -> str:
        """Why adders that do not wrap break it; empty if they do not."""
        if self.lane_bits != COUNTER_BITS:
            return ""
        return f"adders of {WORD_BITS} bits add its lanes of {self.lane_bits} bits, up to the sign bit"

    def refusal(self, workers: int, overflow: str) -> CodecRefusal | None:
        """Why it cannot serve these workers, or None. `overflow` of sums: wrap, saturate or sticky."""
        if self.workers_max is not None and workers > self.workers_max:
            reason = f"{self.kind} has room for {self.workers_max} workers, found {workers}"
            return CodecRefusal("", reason, f"at most {self.workers_max} workers, or another codec")
        if self.must_wrap and overflow != "wrap":
            return CodecRefusal("", f"{self.kind} needs adders that wrap: {self.must_wrap}", "another codec")
        return None

    def carried_by(self, carrier: Carrier) -> Codec:
        """The codec with those options filled in that default to the network's values."""
        return self

    def server(self, workers: int, seed: int) -> Server | None:
        """Make its part where messages meet, if it has one: then that answers its GATHER messages."""
        return None

    def bits_per_element(self, workers: int) -> BitsPerElement | None:
        """Payload of a large bucket; None: it depends on the gradients."""
        return None

    @property
    def state_bytes(self) -> int:
        """Bytes that one worker remembers per element of the gradient."""
        return 0


class EncodeError(ValueError):
    """A gradient that this codec cannot carry."""


class DecodeError(RuntimeError):
    """Merged messages that cannot be decoded and cannot be sent again."""


def codec_kinds() -> dict[str, Callable[..., Codec]]:
    """What makes each registered codec from its options, by kind in alphabetical order."""
    return dict(sorted(registered(Codec).items()))


# Check that an exchange yields and returns what the contract above says.
#
# A driver checks codecs that it does not know. Otherwise a wrong type fails far from its cause, or not at
# all.


_WORDS = (np.dtype(np.int32), np.dtype(np.uint32), np.dtype(np.float32))


class LockStepError(RuntimeError):
    """The workers of one round send different messages."""


class ContractError(TypeError):
    """An exchange yields or returns what the contract of codecs does not allow."""


def require_decoded(decoded: object, gradient: Gradient | None = None) -> None:
    """Check what an exchange returns; of a `gradient`, total and contribution are float32 of its shape.

    Raises
    ------
    ContractError
        What was found, and what is allowed.
    """
    if not isinstance(decoded, Decoded):
        raise ContractError(f"the exchange returns {named(decoded)}, must be Decoded(total, contribution)")
    if gradient is None:
        return
    for verb, array in (("decodes", decoded.total), ("contributes", decoded.contribution)):
        is_right = isinstance(array, np.ndarray) and array.dtype == np.float32
        if not is_right or array.shape != gradient.shape:
            raise ContractError(f"{verb} {named(array)}, must be float32 of shape {gradient.shape}")


def require_messages(sent: object, codec: Codec | None) -> None:
    """Check what an exchange yields, by its `codec` also against what that declares.

    Raises
    ------
    ContractError
        What was found, and what is allowed.
    """
    if not isinstance(sent, tuple):
        raise ContractError(f"the exchange yields {named(sent)}, must be a tuple of messages")
    for message in sent:
        if not isinstance(message, Message):
            raise ContractError(f"the exchange yields a tuple with {named(message)}, must be messages alone")
        fault = fault_of(message, codec)
        if fault:
            raise ContractError(f"message {message.label!r}: {fault}")


def fault_of(message: Message, codec: Codec | None = None) -> str:
    return _fault_of(message) or ("" if codec is None else _not_declared(message, codec))


def _not_declared(message: Message, codec: Codec) -> str:
    """What a codec does not declare of a message: its merge, its lanes, an absent worker."""
    if message.merge not in codec.merges:
        known = ", ".join(sorted(merge.name for merge in codec.merges)) or "none"
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
        names = " or ".join(dtype.name for dtype in allowed)
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


OPTION_MAX = WORD_MAX
"""Largest whole number among a codec's options, which become int32 and int64 in kernels."""


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
    """The encoder of one worker; raises CodecRefusedError where the codec cannot serve so many."""
    if (refusal := refusal_of(codec, workers)) is not None:
        raise CodecRefusedError(refusal)
    return codec.worker(rank, workers, seed)


def make_encoders(codec: Codec, workers: int, seed: int) -> list[Encoder]:
    return [make_encoder(codec, rank, workers, seed) for rank in range(workers)]
