"""How a worker's buckets overlap with its computing and with each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BucketOrder = Literal["ready", "first_layer"]


@dataclass(frozen=True)
class Overlap:
    """The rules for a worker's device and for its buckets in flight."""

    buckets_in_flight: int = 1
    order: BucketOrder = "ready"
    encodes_on_device: bool = False  # else encoding and decoding have a device of their own
    decodes_last: bool = False  # a device that decodes does so when it has nothing else to do
    sends_in_turn: bool = False  # operations pass the network one after the other, whatever the collective

    def rank(self, bucket: int) -> int:
        """Place of a bucket among those that wait; the lowest goes first."""
        return bucket if self.order == "ready" else -bucket

    def decode_rank(self, bucket: int, last: int) -> int:
        """Place of a bucket's decoding among all that waits for the device; passes have the place `last`."""
        return self.rank(bucket) + (2 * last if self.decodes_last else 0)
