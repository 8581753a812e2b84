"""The collectives of a scenario file: every key, its meaning, its default and its range."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from netfold.sim.scenario.fields import Count, Time
from netfold.sim.scenario.in_network import InNetwork
from netfold.sim.scenario.packets import RingFrame
from netfold.sim.scenario.section import Section


class Ring(Section):
    """Ring all-reduce between the hosts: reduce-scatter, then all-gather."""

    kind: Literal["ring"]
    frame: RingFrame = "roce-1024"
    """Packet format: protocol and payload bytes, or one of your own: {words: 256, overhead: 82B}."""
    window: Count = 512
    """Packets a worker may have outstanding."""
    timeout: Time | None = None
    """Wait for an acknowledgement before packets are sent again; by default 1ms, or twice the round trip of a
    full window where that is longer."""
    ack_every: Count = 16
    """Packets acknowledged at once."""


Collective = Annotated[Ring | InNetwork, Field(discriminator="kind")]
