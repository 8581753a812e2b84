"""The operations of a round that are examined, and the findings."""

from __future__ import annotations

from dataclasses import dataclass, field

from netfold.homomorphic.message import Merged, Message
from netfold.homomorphic.promises import Drift
from netfold.sim.checks.rounds.losses import Beyond, Loss


@dataclass
class Operation:
    """One network operation: what each worker sent and received."""

    sent: dict[int, tuple[Message, ...]] = field(default_factory=dict)
    received: dict[int, tuple[Merged, ...]] = field(default_factory=dict)
    number: int = 0  # of its workers' operations over the whole run

    @property
    def sent_bytes(self) -> int:
        """Payload of all workers' messages."""
        return sum(message.size_bytes for messages in self.sent.values() for message in messages)

    @property
    def received_bytes(self) -> int:
        """Payload of all workers' merged messages; of GATHER without a worker's own."""
        return sum(
            merged.size_bytes - (self.sent[worker][part].size_bytes if merged.parts else 0)
            for worker, received in self.received.items()
            for part, merged in enumerate(received)
        )

    def contributes(self, worker: int) -> bool:
        """Whether a worker sent any words."""
        return any(message.words.size and not message.is_absent for message in self.sent[worker])


@dataclass(frozen=True)
class WrongWord:
    """A merged word that is not the sum of the words sent, or whose exponent is not the largest."""

    operation: int  # its number
    part: int  # message of the operation
    label: str
    worker: int
    word: int
    received: int | float | None  # None if there is no word, or if the exponent is wrong
    right: int | float | None
    allowed: float = 0.0  # largest error of float32 additions
    place: str = ""  # where it was merged
    lane: int | None = None  # of the word, where it has several
    claim: str = ""  # what its message wrongly says of its contributors

    def __str__(self) -> str:
        lane = "" if self.lane is None else f"lane {self.lane} of "
        return f"worker {self.worker}, {lane}word {self.word} of '{self.label}'{self._values}: {self.place}"

    @property
    def _values(self) -> str:
        if self.received is None:
            return f" ({self.claim})" if self.claim else ""
        if isinstance(self.received, int):
            return f" (received {self.received}, the sum is {self.right})"
        return f" (received {self.received:.9g}, the sum is {self.right:.9g} within {self.allowed:.3g})"


@dataclass(frozen=True)
class AtHosts:
    """What hosts merged by a codec's own functions, and messages that they passed on as they are."""

    words: int = 0  # examined, over all workers
    wrong: int = 0  # words or messages that differ from a replay
    first: str = ""  # the first of these


@dataclass(frozen=True)
class Findings:
    """The findings on one round."""

    wrong_words: int  # merged words (or lanes), over all workers, that are not the sum in integers
    is_integer: bool  # all its messages merge as integers, so `wrong_words` covers all of them
    replicas_agree: bool
    max_bounded_error: float  # of elements with a bound of the codec
    max_estimate_error: float  # of the other elements
    max_error_over_bound: float
    worst_element: int  # where the error is largest relative to its bound
    nonzeros: int
    union_nonzeros: int
    loss: Loss  # against the sum of all gradients
    is_held_back: bool  # some worker contributed something else than its gradient
    workers_held_min: int
    workers_held_mean: float
    first_wrong: WrongWord | None = None
    clipped_words: int = 0  # integer words (or lanes) that differ from their sum as overflow allows
    first_clipped: WrongWord | None = None
    integer_words: int = 0  # merged words, over all workers, that were compared with integers
    float_words: int = 0  # merged words, over all workers, that were added as float32
    wrong_floats: int = 0  # those farther from the sum than float32 additions can be
    first_wrong_float: WrongWord | None = None
    worst_magnitude: float = 0.0  # Σ|x| at the worst element
    inexact_elements: int = 0  # that are not the exact sum, if the codec promises it
    drift: Drift | None = None  # of a codec that promises to be unbiased
    is_far: bool = False  # worker 0's total from the sum of the gradients, though all of them went in
    beyond: Beyond | None = None  # a sum that float32 does not have
    at_hosts: AtHosts = AtHosts()

    @property
    def max_abs_error(self) -> float:
        """Largest distance from the sum of all gradients; infinities that are right have none."""
        return (
            self.loss.largest if self.is_held_back else max(self.max_bounded_error, self.max_estimate_error)
        )

    @property
    def bit_exact(self) -> bool | None:
        """Whether the total of all workers is the exact sum of the gradients, rounded once to float32.

        None if words were added as float32, in some order, and the total is within the errors of that.
        """
        is_exact = self.loss.is_exact and self.replicas_agree
        return None if is_exact and self.float_words else is_exact

    def merges_verified(self, was_resent: bool = False) -> bool:
        """Whether every merged word, at every worker, is the merge of the words that were sent.

        Adders may have clipped words of a round of which parts were sent again.
        """
        clipped = 0 if was_resent else self.clipped_words
        return not (self.wrong_words or clipped or self.wrong_floats or self.at_hosts.wrong)
