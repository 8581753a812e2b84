"""Models of the network's time, for codecs that choose by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    latency_ps: int = 10 * 10**6  # of an operation, in addition to its words at the rate
    rate_bps: int = 100 * 10**9  # of the words of messages, without headers
    memory_bps: int | None = None  # of a worker's memory traffic; None: not charged

    def time_ps(self, operation: Sequence[MessageSize]) -> int:
        """Time of messages sent at once; exponents take an operation before them, as in `stage.stage`."""
        first = [-(-size.words // (size.block_elements or 1)) for size in operation]
        return self.plain_ps(first) + self.plain_ps([size.words for size in operation if size.block_elements])

    def plain_ps(self, messages: Sequence[int]) -> int:
        """Time of unscaled messages of these numbers of words, sent at once."""
        words = sum(messages)
        return self.latency_ps + self.words_ps(words) if words else 0

    def words_ps(self, words: int) -> int:
        """Time of consecutive words at the rate."""
        return -(-32 * words * _PS_PER_S // self.rate_bps)

    def memory_ps(self, passed_bytes: int) -> int:
        """Time of a worker's memory traffic."""
        return 0 if self.memory_bps is None else -(-8 * passed_bytes * _PS_PER_S // self.memory_bps)
